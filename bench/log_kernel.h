/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_LOG_KERNEL_H
#define BENCH_LOG_KERNEL_H

#include "bench/log.h"

/*
 * The loops that are measured. Each variant makes its own out of them, with its marks inlined, as
 * they are in a device.
 */
typedef void log_mark_fn(void *state, uint64_t gpa, uint64_t len);
typedef void log_flush_fn(void *state);

#define LOG_INLINE static inline __attribute__((always_inline))

LOG_INLINE void log_store_data(struct log_memory *memory, uint32_t i)
{
	__atomic_store_n(&memory->data[i % LOG_DATA_WORDS], i, __ATOMIC_RELAXED);
}

LOG_INLINE void log_run_calls(void *state, const struct log_pass *pass, log_mark_fn *mark,
			      log_flush_fn *flush)
{
	const struct log_op *op = pass->ops, *end = op + pass->n;
	uint32_t burst = pass->burst, i;

	for (; op < end; op += burst) {
		for (i = 0; i < burst; i++) {
			log_store_data(pass->memory, (uint32_t)(op - pass->ops) + i);
			mark(state, op[i].gpa, op[i].len);
		}
		flush(state);
	}
}

/* Used entries of a burst, which does not cross the end of the ring, the index, the event. */
LOG_INLINE void log_publish(void *state, struct log_memory *memory, uint32_t burst,
			    log_mark_fn *mark, log_flush_fn *flush)
{
	uint16_t index = memory->index;
	uint32_t first = index % LOG_RING_SIZE, i;

	for (i = 0; i < burst; i++)
		__atomic_store_n(&memory->entries[first + i], index + i, __ATOMIC_RELAXED);
	__atomic_store_n(&memory->index, (uint16_t)(index + burst), __ATOMIC_RELEASE);
	__atomic_store_n(&memory->event, (uint16_t)(index + burst), __ATOMIC_RELAXED);
	mark(state, LOG_ENTRIES_GPA + first * 8, burst * 8);
	mark(state, LOG_INDEX_GPA, 2);
	mark(state, LOG_EVENT_GPA, 2);
	flush(state);
}

LOG_INLINE void log_run_descriptors(void *state, const struct log_pass *pass, log_mark_fn *mark,
				    log_flush_fn *flush)
{
	const struct log_op *op = pass->ops, *end = op + pass->n;
	uint32_t burst = pass->burst, i;

	for (; op < end; op += burst) {
		for (i = 0; i < burst; i++) {
			log_store_data(pass->memory, (uint32_t)(op - pass->ops) + i);
			mark(state, op[i].gpa, op[i].len);
		}
		flush(state);
		log_publish(state, pass->memory, burst, mark, flush);
	}
}

#define LOG_KERNELS(prefix)                                                        \
	static void prefix##_calls(void *state, const struct log_pass *pass)       \
	{                                                                          \
		log_run_calls(state, pass, prefix##_mark, prefix##_flush);         \
	}                                                                          \
                                                                                   \
	static void prefix##_descriptors(void *state, const struct log_pass *pass) \
	{                                                                          \
		log_run_descriptors(state, pass, prefix##_mark, prefix##_flush);   \
	}

#endif
