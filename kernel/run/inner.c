// SPDX-License-Identifier: GPL-2.0-only
/*
 * Times, on the CPU that this runs on, what the ways to set bits of the log do at their heart: on
 * one word that is in the cache, and on the words of a log of 64 KiB in turn. Prints medians of
 * nanoseconds a call. What the kernel adds (the access window, the tracer, the pin) is not in it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS  8192
#define CALLS  1000000
#define ROUNDS 9

static uint64_t words[WORDS] __attribute__((aligned(4096)));

static inline void or_locked(uint64_t *word, uint64_t mask)
{
	__asm__ volatile("lock orq %1, %0" : "+m"(*word) : "er"(mask) : "memory", "cc");
}

static inline void or_cmpxchg(uint64_t *word, uint64_t mask)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(word, &old, old | mask, 0, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED))
		;
}

/* The futex helper is a loop of compare and exchange too, on 32 bits. */
static inline void or_futex(uint64_t *word, uint64_t mask)
{
	uint32_t *half = (uint32_t *)word + !(uint32_t)mask;
	uint32_t bits = (uint32_t)mask ? mask : mask >> 32;
	uint32_t old = __atomic_load_n(half, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(half, &old, old | bits, 0, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED))
		;
}

static inline void test_first(uint64_t *word, uint64_t mask)
{
	__asm__ volatile("lock addl $0, -4(%%rsp)" : : : "memory", "cc");
	if ((__atomic_load_n(word, __ATOMIC_RELAXED) & mask) != mask)
		or_locked(word, mask);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#define MEASURE(way, span)                                                              \
	({                                                                              \
		double took[ROUNDS];                                                    \
		unsigned int round, call;                                               \
                                                                                        \
		for (round = 0; round < ROUNDS; round++) {                              \
			memset(words, 0, sizeof(words));                                \
			took[round] = now();                                            \
			for (call = 0; call < CALLS; call++)                            \
				way(&words[call % (span)], 1ULL << call / (span) % 64); \
			took[round] = (now() - took[round]) / CALLS;                    \
		}                                                                       \
		qsort(took, ROUNDS, sizeof(took[0]), by_value);                         \
		took[ROUNDS / 2];                                                       \
	})

#define SHOW(name, way) printf("%-28s %8.1f %8.1f\n", name, MEASURE(way, 1), MEASURE(way, WORDS))

int main(void)
{
	printf("%-28s %8s %8s\n", "ns a call, natively", "a word", "64 KiB");
	SHOW("lock or", or_locked);
	SHOW("cmpxchg, 64 bits", or_cmpxchg);
	SHOW("cmpxchg, 32 bits (futex)", or_futex);
	SHOW("test first, lock or", test_first);
	return 0;
}
