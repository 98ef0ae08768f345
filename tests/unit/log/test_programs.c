/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs of writes, flushes, replacements and harvests, against a model that knows pages
 * one by one and nothing of words, skew or pending entries.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <silt/bitmap.h>
#include <silt/log.h>

#include "log/log_internal.h"
#include "logfile.h"
#include "support/rng.h"

#define WRITERS	  3
#define LOGS	  3
#define MAX_BYTES 240
#define MAX_PAGES (MAX_BYTES * 8)

/* What a writer owes the log for one page. */
enum owed {
	NOTHING,
	MARK,  /* written, not flushed: set in the log by the end of the flush */
	TAKEN, /* the same, but a harvest took the bit meanwhile */
};

struct target {
	struct logfile file;	   /* of a held log: no file, and the view is its words */
	bool explained[MAX_PAGES]; /* may be set */
	bool outside;		   /* a range that was flushed went beyond the log */
	bool unsure;		   /* one that may be pending did */
	uint64_t npages;
};

struct writer {
	struct silt_log_writer w;
	struct target *target;
	enum owed owed[MAX_PAGES];
	uint64_t writes, outside;
	bool beyond; /* since the last flush */
};

struct program {
	struct rng rng;
	struct target targets[LOGS];
	struct writer writers[WRITERS];
};

static bool is_set(const struct target *t, uint64_t page)
{
	return logfile_test(&t->file, page);
}

static void target_make(struct rng *rng, struct target *t, bool held)
{
	uint64_t size = rng_one_in(rng, 3) ? 1 + rng_below(rng, 20) : 1 + rng_below(rng, MAX_BYTES);

	memset(t, 0, sizeof(*t));
	if (held) {
		t->npages = 1 + rng_below(rng, MAX_PAGES);
		assert_int_equal(silt_log_hold(t->npages, &t->file.log), 0);
		t->file.view = (uint8_t *)t->file.log->words;
		return;
	}
	t->file = logfile_make(rng_below(rng, 5000), size, 1 + rng_below(rng, 30));
	t->npages = size * 8;
}

static void target_free(struct target *t)
{
	if (silt_log_held(t->file.log))
		silt_log_put(t->file.log);
	else
		logfile_free(&t->file);
}

static void check_flushed(struct writer *w)
{
	uint64_t page;

	for (page = 0; page < MAX_PAGES; page++) {
		if (w->owed[page] == MARK && !is_set(w->target, page))
			fail_msg("page %lu was flushed and is not in the log", page);
		w->owed[page] = NOTHING;
	}
	w->target->outside |= w->beyond;
	w->beyond = false;
	assert_int_equal(w->w.npending, 0);
}

static void check_target(const struct target *t)
{
	uint64_t page;

	for (page = 0; page < t->npages; page++) {
		if (is_set(t, page) && !t->explained[page])
			fail_msg("page %lu of %lu is in the log and nobody marked it", page,
				 t->npages);
	}
	if (!silt_log_held(t->file.log))
		logfile_check_canary(&t->file);
	/* Whether a range that is pending lies outside may have been found out or not. */
	if (t->outside || !t->unsure)
		assert_int_equal(silt_log_trouble(t->file.log), t->outside ? SILT_LOG_OUTSIDE : 0);
}

static void random_range(struct rng *rng, uint64_t *gpa, uint64_t *len)
{
	*gpa = rng_below(rng, (MAX_PAGES + 100) * 4096);
	*len = rng_one_in(rng, 2) ? rng_below(rng, 3 * 4096) : rng_below(rng, 300 * 4096);
	if (rng_one_in(rng, 20))
		*gpa = UINT64_MAX - rng_below(rng, 10000);
	if (rng_one_in(rng, 50))
		*gpa = rng_next(rng);
	if (rng_one_in(rng, 20))
		*len = UINT64_MAX - rng_below(rng, 10000);
}

/* In one of the four ways. Return: whether the marks must be there at once. */
static bool write_somehow(struct program *p, struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	bool inlined = rng_one_in(&p->rng, 2), now = rng_one_in(&p->rng, 3);

	if (now)
		(inlined ? silt_log_write_now : silt_log_write_now_call)(w, gpa, len);
	else
		(inlined ? silt_log_write : silt_log_write_call)(w, gpa, len);
	return now;
}

static void do_write(struct program *p, struct writer *w)
{
	unsigned __int128 end;
	uint64_t gpa, len, page, first, last;
	bool now;

	random_range(&p->rng, &gpa, &len);
	now = write_somehow(p, &w->w, gpa, len);
	if (!w->target || !len)
		return;
	w->writes++;
	end = (unsigned __int128)gpa + len - 1;
	first = gpa >> 12;
	last = (uint64_t)(end >> 12);
	for (page = first; page <= last && page < w->target->npages; page++) {
		w->owed[page] = MARK;
		w->target->explained[page] = true;
		if (now && !is_set(w->target, page))
			fail_msg("page %lu was marked at once and is not in the log", page);
	}
	if (last >= w->target->npages) {
		w->outside += last - (first > w->target->npages ? first : w->target->npages) + 1;
		w->target->unsure = true;
		w->beyond = true;
	}
}

static void do_flush(struct program *p, struct writer *w)
{
	if (rng_one_in(&p->rng, 2))
		silt_log_flush(&w->w);
	else
		silt_log_flush_call(&w->w);
	if (w->target)
		check_flushed(w);
}

static void do_set(struct program *p, struct writer *w)
{
	struct target *next = &p->targets[rng_below(&p->rng, LOGS)];

	if (rng_one_in(&p->rng, 4))
		next = NULL;
	silt_log_writer_set(&w->w, next ? next->file.log : NULL);
	if (w->target)
		check_flushed(w);
	w->target = next;
}

static void after_harvest(struct program *p, struct target *t, uint64_t page)
{
	unsigned int i;

	t->explained[page] = false;
	for (i = 0; i < WRITERS; i++) {
		struct writer *w = &p->writers[i];

		if (w->target != t || w->owed[page] == NOTHING)
			continue;
		w->owed[page] = TAKEN;
		t->explained[page] = true;
	}
}

static void do_harvest(struct program *p, struct target *t)
{
	uint64_t dst[MAX_PAGES / 64 + 1], before[MAX_PAGES / 64 + 1], page;
	bool was[MAX_PAGES];
	int64_t fresh = 0;

	for (page = 0; page < sizeof(dst) / 8; page++)
		before[page] = dst[page] = rng_next(&p->rng) & rng_next(&p->rng);
	for (page = 0; page < t->npages; page++) {
		was[page] = is_set(t, page);
		fresh += was[page] && !silt_bitmap_test(before, page);
	}
	assert_int_equal(silt_log_harvest(t->file.log, dst), fresh);
	for (page = 0; page < sizeof(dst) * 8; page++) {
		bool taken = page < t->npages && was[page];

		assert_int_equal(silt_bitmap_test(dst, page),
				 taken || silt_bitmap_test(before, page));
		if (page < t->npages)
			assert_false(is_set(t, page));
		if (taken)
			after_harvest(p, t, page);
	}
}

static void run_program(uint64_t seed)
{
	static struct program p;
	unsigned int step, i;

	memset(&p, 0, sizeof(p));
	p.rng = rng_make(1000 + seed);
	for (i = 0; i < LOGS; i++)
		target_make(&p.rng, &p.targets[i], i == 0);
	for (i = 0; i < WRITERS; i++)
		silt_log_writer_init(&p.writers[i].w);
	for (step = 0; step < 300; step++) {
		struct writer *w = &p.writers[rng_below(&p.rng, WRITERS)];
		unsigned int op = (unsigned int)rng_below(&p.rng, 20);

		if (op < 14)
			do_write(&p, w);
		else if (op < 16)
			do_flush(&p, w);
		else if (op < 18)
			do_set(&p, w);
		else
			do_harvest(&p, &p.targets[rng_below(&p.rng, LOGS)]);
		for (i = 0; i < LOGS; i++)
			check_target(&p.targets[i]);
	}
	for (i = 0; i < WRITERS; i++) {
		struct writer *w = &p.writers[i];

		silt_log_writer_set(&w->w, NULL);
		if (w->target)
			check_flushed(w);
		assert_int_equal(w->w.count.writes, w->writes);
		assert_int_equal(w->w.count.outside, w->outside);
		assert_int_equal(w->w.count.faults, 0);
	}
	for (i = 0; i < LOGS; i++)
		target_free(&p.targets[i]);
}

static void random_programs(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 150; seed++)
		run_program(seed);
}

/* Of every length, most ranges inside one word of the log; or all of them pages. */
static void burst(struct rng *rng, struct silt_log_writer *w, struct target *t, unsigned int n)
{
	bool single = rng_one_in(rng, 2);
	uint64_t page, first, pages;
	unsigned int i;

	for (i = 0; i < n; i++) {
		first = rng_below(rng, t->npages);
		pages = rng_one_in(rng, 20) ? rng_below(rng, 100) : rng_below(rng, 3);
		if (single)
			pages = 1;
		if (pages > t->npages - first)
			pages = t->npages - first;
		silt_log_write(w, first * 4096, pages * 4096);
		for (page = first; page < first + pages; page++)
			t->explained[page] = true;
	}
	silt_log_flush(w);
	for (page = 0; page < t->npages; page++)
		assert_int_equal(is_set(t, page), t->explained[page]);
}

static void burst_once(struct rng *rng, struct target *t, unsigned int n)
{
	struct silt_log_writer w;

	silt_log_writer_init(&w);
	silt_log_writer_set(&w, t->file.log);
	burst(rng, &w, t, n);
	silt_log_writer_set(&w, NULL);
}

static void random_bursts(void **state)
{
	struct rng rng = rng_make(3000);
	unsigned int n, round;

	(void)state;
	for (round = 0; round < 40; round++) {
		for (n = 1; n < 2 * SILT_LOG_PENDING; n += 1 + round % 3) {
			struct target t;

			target_make(&rng, &t, round % 8 == 0);
			burst_once(&rng, &t, n);
			burst_once(&rng, &t, n);
			target_free(&t);
		}
	}
}

/* Bits are missing in most bursts, so that words are not looked at, then in few, then again. */
static void bursts_of_new_pages(void **state)
{
	struct rng rng = rng_make(4000);
	struct silt_log_writer w;
	unsigned int i, round;
	struct target t;

	(void)state;
	for (round = 0; round < 20; round++) {
		target_make(&rng, &t, false);
		silt_log_writer_init(&w);
		silt_log_writer_set(&w, t.file.log);
		for (i = 0; i < 300; i++) {
			burst(&rng, &w, &t, 1 + rng_below(&rng, SILT_LOG_PENDING));
			if (i / 100 != 1) {
				memset(t.file.view + t.file.offset, 0, t.file.size);
				memset(t.explained, 0, sizeof(t.explained));
			}
		}
		logfile_check_canary(&t.file);
		silt_log_writer_set(&w, NULL);
		target_free(&t);
	}
}

/* A held log that is merged into a mapped one, with marks in both. */
static void merge_once(uint64_t seed)
{
	struct rng rng = rng_make(2000 + seed);
	struct silt_log_writer w;
	struct target src, dst;
	bool want[MAX_PAGES], beyond = false;
	unsigned int i;
	uint64_t page;

	target_make(&rng, &src, true);
	target_make(&rng, &dst, false);
	silt_log_writer_init(&w);
	for (i = 0; i < rng_below(&rng, 40); i++) {
		struct target *t = rng_one_in(&rng, 3) ? &dst : &src;

		page = rng_below(&rng, t->npages);
		silt_log_writer_set(&w, t->file.log);
		silt_log_write(&w, page * 4096, (1 + rng_below(&rng, t->npages - page)) * 4096);
	}
	silt_log_writer_set(&w, NULL);
	for (page = 0; page < dst.npages; page++)
		want[page] = is_set(&dst, page) || (page < src.npages && is_set(&src, page));
	for (; page < src.npages; page++)
		beyond |= is_set(&src, page);
	assert_int_equal(silt_log_merge(dst.file.log, src.file.log), beyond ? -ERANGE : 0);
	for (page = 0; page < dst.npages; page++)
		assert_int_equal(is_set(&dst, page), want[page]);
	assert_int_equal(silt_log_trouble(dst.file.log), beyond ? SILT_LOG_OUTSIDE : 0);
	logfile_check_canary(&dst.file);
	target_free(&src);
	target_free(&dst);
}

static void random_merges(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 500; seed++)
		merge_once(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs),
		cmocka_unit_test(random_bursts),
		cmocka_unit_test(bursts_of_new_pages),
		cmocka_unit_test(random_merges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
