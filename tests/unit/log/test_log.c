/* SPDX-License-Identifier: BSD-3-Clause */
/* What random programs do not reach: exact pages, cost, huge ranges, logs that shrink. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/bitmap.h>
#include <silt/error.h>
#include <silt/log.h>

#include "logfile.h"
#include "support/faults.h"

static struct silt_log_writer writer_on(struct silt_log *log)
{
	struct silt_log_writer w;

	silt_log_writer_init(&w);
	silt_log_writer_set(&w, log);
	return w;
}

/* The pages of one write, exactly those, at every skew. */
static void exact_pages(void **state)
{
	static const struct {
		uint64_t gpa, len, first, count;
	} cases[] = {
		{0, 1, 0, 1},
		{0x1fff, 2, 1, 2},
		{0x20e00, 8192, 0x20, 3},
		{0x3000, 0, 0, 0},
		{0x3fff, 1, 3, 1},
		{0x3f000, 0x1000, 63, 1},
		{0x3f000, 0x1001, 63, 2},
		{0x3f000, 0x80000, 63, 128},
		{799 * 4096 + 4095, 1, 799, 1}, /* the last byte that the log covers */
	};
	uint64_t offset, page;
	unsigned int i;

	(void)state;
	for (offset = 0; offset < 9; offset++) {
		for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			struct logfile f = logfile_make(offset, 100, 9);
			struct silt_log_writer w = writer_on(f.log);

			silt_log_write(&w, cases[i].gpa, cases[i].len);
			silt_log_flush(&w);
			for (page = 0; page < 800; page++)
				assert_int_equal(logfile_test(&f, page),
						 page - cases[i].first < cases[i].count);
			logfile_check_canary(&f);
			assert_int_equal(w.count.outside, 0);
			silt_log_writer_set(&w, NULL);
			logfile_free(&f);
		}
	}
}

static void nothing_before_flush(void **state)
{
	struct logfile f = logfile_make(3, 100, 0);
	struct silt_log_writer w = writer_on(f.log);

	(void)state;
	silt_log_write(&w, 0x5000, 100);
	silt_log_write(&w, 0x6000, 100);
	assert_int_equal(w.npending, 2);
	assert_int_equal(w.count.words, 0);
	silt_log_flush(&w);
	assert_int_equal(w.npending, 0);
	assert_true(logfile_test(&f, 5) && logfile_test(&f, 6));
	assert_int_equal(w.count.writes, 2);
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* A word whose bits are set already costs no locked instruction, where looking first pays. */
static void words_counted(void **state)
{
	struct logfile f = logfile_make(0, 800, 0);
	struct silt_log_writer w = writer_on(f.log);
	unsigned int again = SILT_LOG_TEST_FIRST ? 0 : 1;

	(void)state;
	silt_log_write(&w, 0, 4096);
	silt_log_flush(&w);
	assert_int_equal(w.count.words, 1);
	silt_log_write(&w, 0, 4096);
	silt_log_flush(&w);
	assert_int_equal(w.count.words, 1 + again);
	silt_log_write(&w, 0, 8192);
	silt_log_flush(&w);
	assert_int_equal(w.count.words, 2 + again);
	/* 64 pages from page 64 on, and 128 more: a word each. */
	silt_log_write(&w, 64 * 4096, 192 * 4096);
	silt_log_flush(&w);
	assert_int_equal(w.count.words, 5 + again);
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* New pages of a burst cost one locked instruction for each word, however they are mixed. */
static void words_merged(void **state)
{
	struct logfile f = logfile_make(0, 800, 0);
	struct silt_log_writer w = writer_on(f.log);
	uint64_t i;

	(void)state;
	for (i = 0; i < 48; i++)
		silt_log_write(&w, (i % 3 * 64 + i) * 4096, 1);
	silt_log_flush(&w);
	assert_int_equal(w.count.words, 3);
	for (i = 0; i < 48; i++)
		assert_true(logfile_test(&f, i % 3 * 64 + i));
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* New pages in these words, then known ones, then new ones again. */
static void words_marked(const uint64_t *words, unsigned int n)
{
	struct logfile f = logfile_make(0, 800, 0);
	struct silt_log_writer w = writer_on(f.log);
	unsigned int round, i, page;

	for (round = 0; round < 200; round++) {
		for (i = 0; i < n; i++)
			silt_log_write(&w, (words[i] * 64 + i) << SILT_LOG_PAGE_SHIFT, 1);
		silt_log_flush(&w);
		for (i = 0; i < n; i++)
			assert_true(logfile_test(&f, words[i] * 64 + i));
		for (page = i = 0; page < 6400; page++)
			i += logfile_test(&f, page);
		assert_int_equal(i, n);
		if (round % 10)
			memset(f.view, 0, 800);
	}
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* Around the edges of the words whose marks are put together, which are 8 to 71. */
static void words_near_and_far(void **state)
{
	static const uint64_t far[] = {40, 0, 7, 8, 9, 41, 71, 72, 73, 99, 7, 8, 9, 71, 72, 73};
	static const uint64_t near[] = {40, 41, 8, 71, 71, 9, 70, 8, 39, 40, 71};
	static const uint64_t both[] = {40, 8, 71, 72, 7, 9, 70};

	(void)state;
	words_marked(far, sizeof(far) / sizeof(*far));
	words_marked(near, sizeof(near) / sizeof(*near));
	words_marked(both, sizeof(both) / sizeof(*both));
}

/* What a burst of pages that are marked may contain all the same. */
static void odd_ranges_among_marked(void **state)
{
	struct logfile f = logfile_make(0, 800, 0);
	struct silt_log_writer w = writer_on(f.log);
	unsigned int i, round;

	(void)state;
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 7; i++)
			silt_log_write(&w, 0x5010, 100);
		if (round == 1)
			silt_log_write(&w, 0x5010, 0);
		if (round == 2)
			silt_log_write(&w, 0x5010, UINT64_MAX - 15);
		silt_log_flush(&w);
		assert_int_equal(silt_log_trouble(f.log), round == 2 ? SILT_LOG_OUTSIDE : 0);
	}
	assert_int_equal(w.count.writes, 22);
	for (i = 0; i < 6400; i++)
		assert_int_equal(logfile_test(&f, i), i >= 5);
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* Where bits are always missing words are not looked at; once they are there, they are again. */
static void looks_again(void **state)
{
	struct logfile f = logfile_make(0, 800, 0);
	struct silt_log_writer w = writer_on(f.log);
	uint64_t bits[100], before;
	unsigned int i;

	(void)state;
	for (i = 0; i < 100; i++) {
		silt_log_write_now(&w, 0x5000, 1);
		assert_true(logfile_test(&f, 5));
		assert_int_equal(silt_log_harvest(f.log, memset(bits, 0, sizeof(bits))), 1);
	}
	assert_int_equal(w.count.words, 100);
	for (i = 0; i < 100; i++)
		silt_log_write_now(&w, 0x5000, 1);
	before = w.count.words;
	silt_log_write_now(&w, 0x5000, 1);
	assert_int_equal(w.count.words, before + (SILT_LOG_TEST_FIRST ? 0 : 1));
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

static void more_words_than_pend(void **state)
{
	struct logfile f = logfile_make(1, 8 * 100, 7);
	struct silt_log_writer w = writer_on(f.log);
	unsigned int i;

	(void)state;
	for (i = 0; i < 90; i++)
		silt_log_write(&w, (uint64_t)i * 64 * 4096, 1);
	assert_true(w.npending <= SILT_LOG_PENDING);
	silt_log_flush(&w);
	for (i = 0; i < 90; i++)
		assert_true(logfile_test(&f, (uint64_t)i * 64));
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* 2^52 pages in one call: those inside are marked, the others counted, not visited. */
static void huge_ranges(void **state)
{
	struct logfile f = logfile_make(5, 100, 5);
	struct silt_log_writer w = writer_on(f.log);
	uint64_t page;

	(void)state;
	silt_log_write(&w, 0, UINT64_MAX);
	silt_log_flush(&w);
	for (page = 0; page < 800; page++)
		assert_true(logfile_test(&f, page));
	logfile_check_canary(&f);
	assert_int_equal(w.count.outside, (UINT64_C(1) << 52) - 800);
	assert_int_equal(silt_log_trouble(f.log), SILT_LOG_OUTSIDE);
	/* A range that wraps does not come back to page 0. */
	memset(f.view + f.offset, 0, f.size);
	silt_log_write(&w, UINT64_MAX - 4095, 8192);
	silt_log_flush(&w);
	assert_int_equal(w.count.outside, (UINT64_C(1) << 52) - 800 + 2);
	for (page = 0; page < 800; page++)
		assert_false(logfile_test(&f, page));
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

static void switched_off(void **state)
{
	struct logfile f = logfile_make(0, 100, 0);
	struct silt_log_writer w = writer_on(f.log);
	uint64_t page;

	(void)state;
	silt_log_write(&w, 0x7000, 1);
	silt_log_writer_set(&w, NULL);
	assert_true(logfile_test(&f, 7));
	silt_log_write(&w, 0x8000, 1);
	silt_log_write(&w, UINT64_MAX, 2);
	silt_log_flush(&w);
	silt_log_writer_set(&w, f.log);
	silt_log_flush(&w);
	for (page = 0; page < 800; page++)
		assert_int_equal(logfile_test(&f, page), page == 7);
	assert_int_equal(w.count.writes, 1);
	assert_int_equal(w.count.outside, 0);
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
}

/* Marks in a log whose file has shrunk: those before its end land, the others are told of. */
static void truncated_at(uint64_t offset)
{
	struct logfile f = logfile_make(offset, 12000, 0);
	struct silt_log_writer w = writer_on(f.log);
	uint64_t *dst = calloc(12000 / 8, sizeof(*dst));
	uint64_t end = (uint64_t)sysconf(_SC_PAGESIZE), last = 12000 * 8 - 1;

	if (end > 8192) {
		/* Larger pages: the file shrinks to nothing. */
		end = 0;
	}
	assert_int_equal(ftruncate(f.fd, (off_t)end), 0);
	silt_log_write(&w, 0, 1);
	silt_log_write(&w, last << 12, 1);
	silt_log_write(&w, 80000 * UINT64_C(4096), 1000 * 4096);
	silt_log_flush(&w);
	assert_int_equal(w.npending, 0);
	assert_true(w.count.faults >= 2);
	assert_int_equal(silt_log_trouble(f.log), SILT_LOG_FAULTED);
	if (end)
		assert_true(logfile_test(&f, 0));
	assert_int_equal(silt_log_harvest(f.log, dst), -EFAULT);
	assert_int_equal(silt_bitmap_test(dst, 0), end != 0);
	assert_non_null(strstr(silt_errmsg(), "truncated"));
	silt_log_writer_set(&w, NULL);
	free(dst);
	logfile_free(&f);
}

static void truncated(void **state)
{
	uint64_t offset;

	(void)state;
	faults_recover();
	for (offset = 0; offset < 9; offset++)
		truncated_at(offset);
}

/* Pages that were marked when they were looked at last, in a burst; then in the next log. */
static void truncated_under_bursts(void **state)
{
	struct logfile f = logfile_make(0, 1000, 0), next = logfile_make(0, 1000, 0);
	struct silt_log_writer w = writer_on(f.log);
	unsigned int i, round;

	(void)state;
	faults_recover();
	for (round = 0; round < 4; round++) {
		if (round == 2)
			assert_int_equal(ftruncate(f.fd, 0), 0);
		if (round == 3)
			silt_log_writer_set(&w, next.log);
		for (i = 0; i < 8; i++)
			silt_log_write(&w, i * UINT64_C(70) * 4096, 1514);
		silt_log_flush(&w);
		assert_int_equal(w.count.faults != 0, round >= 2);
		assert_int_equal(silt_log_trouble(f.log), round >= 2 ? SILT_LOG_FAULTED : 0);
	}
	assert_int_equal(w.count.words, 16 + (SILT_LOG_TEST_FIRST ? 0 : 8));
	for (i = 0; i < 8; i++)
		assert_true(logfile_test(&next, i * UINT64_C(70)));
	assert_int_equal(silt_log_trouble(next.log), 0);
	silt_log_writer_set(&w, NULL);
	logfile_free(&f);
	logfile_free(&next);
}

/* Without a writer that met it before. */
static void harvest_of_truncated(void **state)
{
	struct logfile f = logfile_make(3, 9000, 0);
	uint64_t *dst = calloc(9000 / 8, sizeof(*dst));

	(void)state;
	faults_recover();
	assert_int_equal(ftruncate(f.fd, 0), 0);
	assert_int_equal(silt_log_harvest(f.log, dst), -EFAULT);
	assert_int_equal(silt_log_trouble(f.log), SILT_LOG_FAULTED);
	free(dst);
	logfile_free(&f);
}

static void merge_into_truncated(void **state)
{
	struct logfile f = logfile_make(3, 9000, 0);
	struct silt_log_writer w;
	struct silt_log *held;

	(void)state;
	faults_recover();
	assert_int_equal(silt_log_hold(9000 * 8, &held), 0);
	w = writer_on(held);
	silt_log_write(&w, UINT64_C(71999) * 4096, 1);
	silt_log_writer_set(&w, NULL);
	assert_int_equal(ftruncate(f.fd, 0), 0);
	assert_int_equal(silt_log_merge(f.log, held), -EFAULT);
	assert_int_equal(silt_log_trouble(f.log), SILT_LOG_FAULTED);
	silt_log_put(held);
	logfile_free(&f);
}

/* The largest held log; on arm64 a smaller one, since emulators walk all pages of a mapping. */
#ifdef __x86_64__
#define SPARSE_PAGES (UINT64_C(1) << 46)
#else
#define SPARSE_PAGES (UINT64_C(1) << 36)
#endif

/* Only what was touched is looked at. */
static void merge_sparse(void **state)
{
	struct logfile f = logfile_make(7, 4096, 3);
	struct silt_log_writer w;
	struct silt_log *held;

	(void)state;
	if (silt_log_hold(SPARSE_PAGES, &held) == -ENOMEM)
		skip(); /* a machine that does not overcommit */
	w = writer_on(held);
	silt_log_write(&w, 0x5000, 1);
	silt_log_write(&w, UINT64_C(32767) * 4096, 1);
	silt_log_writer_set(&w, NULL);
	assert_int_equal(silt_log_merge(f.log, held), 0);
	assert_true(logfile_test(&f, 5) && logfile_test(&f, 32767) && !logfile_test(&f, 4));
	silt_log_writer_set(&w, held);
	silt_log_write(&w, (SPARSE_PAGES - 1) << 12, 4096);
	assert_int_equal(w.count.outside, 0);
	silt_log_writer_set(&w, NULL);
	assert_int_equal(silt_log_merge(f.log, held), -ERANGE);
	assert_int_equal(silt_log_trouble(f.log), SILT_LOG_OUTSIDE);
	logfile_check_canary(&f);
	silt_log_put(held);
	logfile_free(&f);
}

/* Trouble of a held log goes along with its marks; only a held log can be merged. */
static void merge_trouble(void **state)
{
	struct logfile f = logfile_make(0, 10, 0);
	struct silt_log_writer w;
	struct silt_log *held;

	(void)state;
	assert_int_equal(silt_log_hold(10, &held), 0);
	assert_int_equal(silt_log_merge(held, f.log), -EINVAL);
	w = writer_on(held);
	silt_log_write(&w, 9 * 4096, 4097);
	silt_log_flush(&w);
	assert_int_equal(w.count.outside, 1);
	silt_log_writer_set(&w, NULL);
	assert_int_equal(silt_log_merge(f.log, held), 0);
	assert_true(logfile_test(&f, 9) && !logfile_test(&f, 10));
	assert_int_equal(silt_log_trouble(f.log), SILT_LOG_OUTSIDE);
	silt_log_put(held);
	logfile_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact_pages),
		cmocka_unit_test(nothing_before_flush),
		cmocka_unit_test(words_counted),
		cmocka_unit_test(words_merged),
		cmocka_unit_test(words_near_and_far),
		cmocka_unit_test(odd_ranges_among_marked),
		cmocka_unit_test(looks_again),
		cmocka_unit_test(more_words_than_pend),
		cmocka_unit_test(huge_ranges),
		cmocka_unit_test(switched_off),
		cmocka_unit_test(truncated),
		cmocka_unit_test(truncated_under_bursts),
		cmocka_unit_test(harvest_of_truncated),
		cmocka_unit_test(merge_into_truncated),
		cmocka_unit_test(merge_sparse),
		cmocka_unit_test(merge_trouble),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
