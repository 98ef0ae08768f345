/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_MACHINE_H
#define DEMO_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "demo/disk.h"
#include "demo/ram.h"
#include "demo/vm.h"

/* A whole guest: memory, what runs in it, its disk. Return: 0, or -errno with a message. */

enum demo_pattern {
	DEMO_RANDOM,	 /* pages anywhere */
	DEMO_RUNS,	 /* 2 MiB at a time */
	DEMO_SPARSE,	 /* one page in a thousand, again and again */
	DEMO_SEQUENTIAL, /* one page after the other */
	DEMO_PATTERNS
};

/* What both sides must agree on. */
struct machine_config {
	uint64_t memory; /* bytes */
	unsigned int vcpus;
	bool kvm;
	uint64_t seed;
	uint64_t disk_rate; /* reads a second */
	const char *silt;   /* the command, for its backend: each side its own */
};

struct machine {
	struct machine_config config;
	struct ram ram;
	struct vm *vm;
	struct disk *disk;
};

/** machine_open() - a guest that stands still, with empty memory, its disk not started */
int machine_open(struct machine *m, const struct machine_config *config);
void machine_close(struct machine *m);

/** machine_program() - give the vCPUs programs: @rate pages a second, all together */
int machine_program(struct machine *m, enum demo_pattern pattern, uint64_t rate);

/** machine_resume(), machine_pause() - vCPUs, and the disk's driver; not its device */
int machine_resume(struct machine *m);
int machine_pause(struct machine *m);

/** machine_save(), machine_load() - the device state of a paused guest whose disk is stopped */
size_t machine_state_bytes(const struct machine *m);
int machine_save(const struct machine *m, uint8_t *state);
int machine_load(struct machine *m, const uint8_t *state, size_t bytes);

/** What the guest has counted. */
struct machine_counts {
	uint64_t writes; /* pages, by all vCPUs */
	uint64_t reads;	 /* of the disk */
};

void machine_count(const struct machine *m, struct machine_counts *counts);

/**
 * machine_check() - is memory what the guest's own counts say?
 *
 * Of a paused guest. Every vCPU's program is gone through again from its first write on, as often
 * as the vCPU says that it wrote, and each page must hold the last number written to it. Each
 * buffer of the disk must hold what its last request read.
 *
 * Return: pages that do not; -ENOMEM.
 */
int64_t machine_check(const struct machine *m);

#endif
