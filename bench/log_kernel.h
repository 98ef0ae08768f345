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

/* How a variant marks a range of several, how it ends them, and how it marks one alone. */
struct log_ways {
	log_mark_fn *mark;
	log_flush_fn *flush;
	log_mark_fn *mark_now;
	bool ring_known; /* to lie in one page: marked by one range, by its own way to mark */
};

#define LOG_INLINE static inline __attribute__((always_inline))

LOG_INLINE void log_store_data(struct log_memory *memory, uint32_t i)
{
	__atomic_store_n(&memory->data[i % LOG_DATA_WORDS], i, __ATOMIC_RELAXED);
}

/* Store and mark a burst of ranges. */
LOG_INLINE void log_mark_burst(void *state, const struct log_pass *pass, uint32_t at,
			       const struct log_ways *ways)
{
	const struct log_op *op = &pass->ops[at];
	uint32_t i;

	if (pass->burst == 1) {
		log_store_data(pass->memory, at);
		ways->mark_now(state, op->gpa, op->len);
		return;
	}
	for (i = 0; i < pass->burst; i++) {
		log_store_data(pass->memory, at + i);
		ways->mark(state, op[i].gpa, op[i].len);
	}
	ways->flush(state);
}

/* Used entries of a burst, which does not cross the end of the ring, the index, the event. */
LOG_INLINE void log_publish(void *state, struct log_memory *memory, uint32_t burst,
			    const struct log_ways *ways)
{
	uint16_t index = memory->index;
	uint32_t first = index % LOG_RING_SIZE, i;

	for (i = 0; i < burst; i++)
		__atomic_store_n(&memory->entries[first + i], index + i, __ATOMIC_RELAXED);
	__atomic_store_n(&memory->index, (uint16_t)(index + burst), __ATOMIC_RELEASE);
	__atomic_store_n(&memory->event, (uint16_t)(index + burst), __ATOMIC_RELAXED);
	if (ways->ring_known) {
		ways->mark_now(state, LOG_RING_GPA, LOG_EVENT_GPA + 2 - LOG_RING_GPA);
		return;
	}
	ways->mark(state, LOG_ENTRIES_GPA + first * 8, burst * 8);
	ways->mark(state, LOG_INDEX_GPA, 2);
	ways->mark(state, LOG_EVENT_GPA, 2);
	ways->flush(state);
}

LOG_INLINE void log_run_calls(void *state, const struct log_pass *pass, const struct log_ways *ways)
{
	uint32_t at;

	for (at = 0; at < pass->n; at += pass->burst)
		log_mark_burst(state, pass, at, ways);
}

LOG_INLINE void log_run_descriptors(void *state, const struct log_pass *pass,
				    const struct log_ways *ways)
{
	uint32_t at;

	for (at = 0; at < pass->n; at += pass->burst) {
		log_mark_burst(state, pass, at, ways);
		log_publish(state, pass->memory, pass->burst, ways);
	}
}

#define LOG_KERNELS(prefix, now, known)                                                           \
	static const struct log_ways prefix##_ways = {prefix##_mark, prefix##_flush, now, known}; \
                                                                                                  \
	static void prefix##_calls(void *state, const struct log_pass *pass)                      \
	{                                                                                         \
		log_run_calls(state, pass, &prefix##_ways);                                       \
	}                                                                                         \
                                                                                                  \
	static void prefix##_descriptors(void *state, const struct log_pass *pass)                \
	{                                                                                         \
		log_run_descriptors(state, pass, &prefix##_ways);                                 \
	}

#endif
