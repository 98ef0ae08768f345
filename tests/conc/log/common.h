/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_CONC_LOG_COMMON_H
#define TESTS_CONC_LOG_COMMON_H

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/error.h>
#include <silt/log.h>

#include "support/proc.h"
#include "support/rounds.h"

#define must(cond)                                                                             \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #cond, \
				silt_errmsg());                                                \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

/* A log that begins at an odd byte, so that its ends are written byte by byte. */
static inline struct silt_log *odd_log(uint64_t size, uint64_t offset)
{
	int fd = proc_memfd("silt-test-conc", offset + size + 64);
	struct silt_log *log;

	must(!silt_log_map(fd, size, offset, &log));
	close(fd);
	return log;
}

/*
 * The harvester takes the first CPU for itself and leaves the writers the others: what is tested
 * is what happens while both run.
 */
static inline void take_cpus(bool harvester)
{
	cpu_set_t mine;
	int cpu = 0;

	must(!sched_getaffinity(0, sizeof(mine), &mine));
	if (CPU_COUNT(&mine) < 2)
		return;
	while (!CPU_ISSET(cpu, &mine))
		cpu++;
	CPU_CLR(cpu, &mine);
	if (harvester) {
		CPU_ZERO(&mine);
		CPU_SET(cpu, &mine);
	}
	must(!pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine));
}

/* Wait for another thread, also where there is only one CPU for both. */
static inline void wait_for(unsigned int *counter, unsigned int value)
{
	unsigned int spins = 0;

	while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < value) {
		if (++spins > 200)
			sched_yield();
	}
}

#endif
