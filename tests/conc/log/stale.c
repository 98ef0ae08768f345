/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A writer stores and then marks a page whose bit is set already, at the moment in which a
 * harvester exchanges and then copies (laws 2 and 3). Whatever the order, the copy after one more
 * harvest is the page: either the first harvest took the bit and saw the store, or the bit is
 * there again. A writer that looks at the bit without a full fence behind its store fails this, as
 * the variant of this program that is built so shows.
 *
 *     conc_log_stale [ROUNDS]
 */
#include <string.h>

#ifdef WITHOUT_FENCE
#include <silt/access.h>
/* Of the inline log write only: the harvest's fence is in the library. */
#define silt_fence() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#include <silt/bitmap.h>

#include "common.h"
#include "support/rng.h"

#define FIRST  64 /* a page whose bit is the first of the log's second word */
#define PAGES  8
#define COLD   (UINT64_C(1) << 22) /* words of memory that no cache holds */
#define ROUNDS 150000

struct shared {
	struct silt_log *log;
	unsigned int total; /* rounds to be run */
	unsigned int round; /* begun */
	unsigned int done;  /* ended by the writer */
	uint64_t mem[PAGES][8];
	uint64_t copy[PAGES];
	uint64_t cold[COLD];
};

/* At once, in a burst, or in a range that covers its whole word. */
static void mark(struct silt_log_writer *w, unsigned int round)
{
	uint64_t gpa = (FIRST + round % PAGES) * UINT64_C(4096);
	unsigned int i;

	switch (round % 3) {
	case 0:
		silt_log_write_now(w, gpa, 8);
		break;
	case 1:
		for (i = 0; i < 1 + round % 7; i++)
			silt_log_write(w, gpa, 8);
		break;
	case 2:
		silt_log_write(w, 0, 3 * 64 * 4096);
	}
	silt_log_flush(w);
}

/* Stores that take long: the one that counts waits behind them while later loads go ahead. */
static void fill_store_buffer(struct shared *s, struct rng *rng)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		__atomic_store_n(&s->cold[rng_below(rng, COLD)], i, __ATOMIC_RELAXED);
}

static void *writer(void *arg)
{
	struct shared *s = arg;
	struct rng rng = rng_make(2);
	struct silt_log_writer w;
	unsigned int round;

	take_cpus(false);
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, s->log);
	for (round = 1; round <= s->total; round++) {
		uint64_t page = round % PAGES;

		wait_for(&s->round, round);
		/* With the log's word at hand the look at it runs ahead of the store. */
		__atomic_load_n(&w.whole[0], __ATOMIC_RELAXED);
		fill_store_buffer(s, &rng);
		__atomic_store_n(&s->mem[page][0], round, __ATOMIC_RELAXED);
		mark(&w, round);
		__atomic_store_n(&s->done, round, __ATOMIC_RELEASE);
	}
	silt_log_writer_set(&w, NULL);
	return NULL;
}

static void harvest_and_copy(struct shared *s)
{
	uint64_t bits[3] = {0}, page;

	must(silt_log_harvest(s->log, bits) >= 0);
	for (page = 0; page < PAGES; page++) {
		if (silt_bitmap_test(bits, FIRST + page))
			s->copy[page] = __atomic_load_n(&s->mem[page][0], __ATOMIC_RELAXED);
	}
}

static unsigned int rounds_wanted(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : rounds(ROUNDS);

	must(argc < 3 && n && n < UINT32_MAX);
	return (unsigned int)n;
}

int main(int argc, char **argv)
{
	static struct shared s;
	struct silt_log_writer w;
	struct rng rng = rng_make(1);
	pthread_t thread;
	unsigned int round;

	s.total = rounds_wanted(argc, argv);
	s.log = odd_log(3 * 8, 8);
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, s.log);
	memset(s.cold, 1, sizeof(s.cold));
	must(!pthread_create(&thread, NULL, writer, &s));
	take_cpus(true);
	for (round = 1; round <= s.total; round++) {
		unsigned int page = round % PAGES, wait = (unsigned int)rng_below(&rng, 600);

		/* The bits are set before the race begins. */
		mark(&w, round);
		__atomic_store_n(&s.round, round, __ATOMIC_RELEASE);
		__atomic_load_n(&s.mem[page][0], __ATOMIC_RELAXED);
		while (wait--)
			__asm__ volatile("" : : : "memory");
		harvest_and_copy(&s);
		wait_for(&s.done, round);
		harvest_and_copy(&s);
		if (s.copy[page] != round) {
			fprintf(stderr, "round %u: page %u is clean and its copy is of round %lu\n",
				round, page, s.copy[page]);
			return 1;
		}
	}
	pthread_join(thread, NULL);
	silt_log_writer_set(&w, NULL);
	silt_log_put(s.log);
	return 0;
}
