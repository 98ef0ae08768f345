/* SPDX-License-Identifier: BSD-3-Clause */
/* The accesses themselves: what they do to good memory, and that each one survives bad memory. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/access.h>
#include <silt/error.h>

#include "support/faults.h"
#include "support/proc.h"
#include "support/rng.h"

static size_t page;

/* A mapping of one page whose accesses fault, in one of the ways that they can. */
struct bad {
	uint8_t *p;
	int fd;
};

static struct bad bad_truncated(void)
{
	struct bad b = {.fd = proc_memfd("bad", page)};

	b.p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
	assert_ptr_not_equal(b.p, MAP_FAILED);
	memset(b.p, 0x5a, page);
	assert_int_equal(silt_access_add_range(b.p, page), 0);
	assert_int_equal(ftruncate(b.fd, 0), 0);
	return b;
}

static struct bad bad_protected(void)
{
	struct bad b = {.fd = -1};

	b.p = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(b.p, MAP_FAILED);
	assert_int_equal(silt_access_add_range(b.p, page), 0);
	return b;
}

static void bad_free(struct bad *b)
{
	silt_access_del_range(b->p, page);
	munmap(b->p, page);
	if (b->fd >= 0)
		close(b->fd);
}

static void good_accesses(void **state)
{
	uint64_t mem[3] = {UINT64_MAX, 0, UINT64_MAX}, old = 7;
	uint8_t *p = (uint8_t *)&mem[1], b = 0;
	uint16_t h = 0;
	uint32_t w = 0;

	(void)state;
	assert_true(silt_access_or8(p + 3, 0x81));
	assert_int_equal(mem[1], UINT64_C(0x81000000));
	assert_true(silt_access_or64(&mem[1], UINT64_C(0xf000000000000001)));
	assert_int_equal(mem[1], UINT64_C(0xf000000081000001));
	assert_true(silt_access_xchg64(&mem[1], 5, &old));
	assert_int_equal(old, UINT64_C(0xf000000081000001));
	assert_int_equal(mem[1], 5);
	assert_true(silt_access_store8(p + 7, 0xfe));
	assert_true(silt_access_store16((uint16_t *)(p + 4), 0x8001));
	assert_int_equal(mem[1], UINT64_C(0xfe00800100000005));
	assert_true(silt_access_store32((uint32_t *)p, 0xdeadbeef));
	assert_true(silt_access_load8(p + 7, &b) && silt_access_load16((uint16_t *)(p + 4), &h));
	assert_true(silt_access_load32((uint32_t *)p, &w) && silt_access_load64(&mem[1], &old));
	assert_int_equal(b, 0xfe);
	assert_int_equal(h, 0x8001);
	assert_int_equal(w, 0xdeadbeef);
	assert_int_equal(old, UINT64_C(0xfe008001deadbeef));
	assert_true(silt_access_store64(&mem[1], UINT64_MAX - 1));
	assert_int_equal(mem[1], UINT64_MAX - 1);
	assert_true(mem[0] == UINT64_MAX && mem[2] == UINT64_MAX);
	silt_fence();
}

static void check_all_fault(uint8_t *p)
{
	uint64_t q = 11, buf[2] = {13, 17};
	uint32_t w = 11;
	uint16_t h = 11;
	uint8_t b = 11;

	assert_false(silt_access_or8(p, 1));
	assert_false(silt_access_or64((uint64_t *)p, 1));
	assert_false(silt_access_xchg64((uint64_t *)p, 0, &q));
	assert_false(silt_access_load8(p, &b));
	assert_false(silt_access_load16((uint16_t *)p, &h));
	assert_false(silt_access_load32((uint32_t *)p, &w));
	assert_false(silt_access_load64((uint64_t *)p, &q));
	assert_false(silt_access_store8(p, 1));
	assert_false(silt_access_store16((uint16_t *)p, 1));
	assert_false(silt_access_store32((uint32_t *)p, 1));
	assert_false(silt_access_store64((uint64_t *)p, 1));
	assert_true(b == 11 && h == 11 && w == 11 && q == 11);
	assert_false(silt_access_copy(p, buf, sizeof(buf)));
	assert_false(silt_access_copy(buf, p, sizeof(buf)));
	assert_true(buf[0] == 13 && buf[1] == 17);
}

static void truncated_file(void **state)
{
	struct bad b = bad_truncated();

	(void)state;
	faults_recover();
	check_all_fault(b.p);
	bad_free(&b);
}

static void protected_memory(void **state)
{
	struct bad b = bad_protected();

	(void)state;
	faults_recover();
	check_all_fault(b.p);
	bad_free(&b);
}

/* A hole is no fault: it reads as zeroes, and a mark in it brings the page back. */
static void punched_hole(void **state)
{
	struct bad b = {.fd = proc_memfd("hole", page)};
	uint64_t val = 1;

	(void)state;
	b.p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
	memset(b.p, 0xff, page);
	assert_int_equal(fallocate(b.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page), 0);
	assert_int_equal(silt_access_add_range(b.p, page), 0);
	assert_true(silt_access_load64((uint64_t *)b.p, &val));
	assert_int_equal(val, 0);
	assert_true(silt_access_or8(b.p, 1));
	assert_int_equal(b.p[0], 1);
	bad_free(&b);
}

/* Sizes around each way in which a copy is cut into steps. */
static const size_t sizes[] = {0,  1,  2,  3,  4,  5,  7,  8,	 9,    15,   16,   17,	23,
			       24, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 2047, 3000};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

struct arena {
	uint8_t *p; /* two good pages */
};

/* Two pages with a page on either side that must not be touched at all. */
static struct arena arena_make(void)
{
	uint8_t *p = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + page, 2 * page, PROT_READ | PROT_WRITE), 0);
	return (struct arena){p + page};
}

static void arena_free(struct arena *a)
{
	munmap(a->p - page, 4 * page);
}

static void check_copy(struct rng *rng, struct arena *dst, size_t to, struct arena *src,
		       size_t from, size_t len)
{
	size_t i;

	for (i = 0; i < 2 * page; i++) {
		dst->p[i] = 0xee;
		src->p[i] = (uint8_t)(rng_next(rng) % 200);
	}
	assert_true(silt_access_copy(dst->p + to, src->p + from, len));
	assert_memory_equal(dst->p + to, src->p + from, len);
	for (i = 0; i < 2 * page; i++) {
		if (i < to || i >= to + len)
			assert_int_equal(dst->p[i], 0xee);
	}
}

/* At the very start, at the very end and anywhere between: nothing is read or written outside. */
static void copy_sizes(void **state)
{
	struct arena dst = arena_make(), src = arena_make();
	struct rng rng = rng_make(1);
	size_t i;

	(void)state;
	for (i = 0; i < NSIZES; i++) {
		size_t len = sizes[i], end = 2 * page - len;

		check_copy(&rng, &dst, 0, &src, end, len);
		check_copy(&rng, &dst, end, &src, 0, len);
		check_copy(&rng, &dst, rng_below(&rng, end + 1), &src, rng_below(&rng, end + 1),
			   len);
	}
	arena_free(&dst);
	arena_free(&src);
}

static void fill_sizes(void **state)
{
	struct arena dst = arena_make();
	struct rng rng = rng_make(2);
	size_t i, j;

	(void)state;
	for (i = 0; i < NSIZES; i++) {
		size_t len = sizes[i], to = i % 2 ? 2 * page - len : rng_below(&rng, page);

		memset(dst.p, 0xee, 2 * page);
		assert_true(silt_access_fill(dst.p + to, (uint8_t)(i * 9), len));
		for (j = 0; j < 2 * page; j++)
			assert_int_equal(dst.p[j],
					 j >= to && j < to + len ? (uint8_t)(i * 9) : 0xee);
	}
	arena_free(&dst);
}

/* A file that ends in the middle of what is copied, on either side, at every size. */
static void copy_across_end_of_file(void **state)
{
	int fd = proc_memfd("short", 2 * page);
	uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t buf[4096];
	size_t i;

	(void)state;
	faults_recover();
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(silt_access_add_range(p, 2 * page), 0);
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	for (i = 0; i < NSIZES; i++) {
		size_t len = sizes[i];

		assert_true(silt_access_copy(buf, p + page - len, len));
		assert_true(silt_access_copy(p + page - len, buf, len));
		assert_true(silt_access_fill(p + page - len, 1, len));
		if (!len)
			continue;
		assert_false(silt_access_copy(buf, p + page - len + 1, len));
		assert_false(silt_access_copy(p + page - len + 1, buf, len));
		assert_false(silt_access_fill(p + page - len + 1, 2, len));
		assert_false(silt_access_copy(buf, p + page, len));
	}
	silt_access_del_range(p, 2 * page);
	munmap(p, 2 * page);
	close(fd);
}

static void bad_ranges(void **state)
{
	(void)state;
	assert_int_equal(silt_access_add_range(&page, 0), -EINVAL);
	assert_int_equal(silt_access_add_range((void *)UINTPTR_MAX, 2), -EINVAL);
	assert_non_null(strstr(silt_errmsg(), "wraps"));
	silt_access_del_range(&page, 0);
	silt_access_del_range(&page, 123);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_accesses),
		cmocka_unit_test(truncated_file),
		cmocka_unit_test(protected_memory),
		cmocka_unit_test(punched_hole),
		cmocka_unit_test(copy_sizes),
		cmocka_unit_test(fill_sizes),
		cmocka_unit_test(copy_across_end_of_file),
		cmocka_unit_test(bad_ranges),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
