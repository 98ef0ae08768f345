/* SPDX-License-Identifier: BSD-3-Clause */
/* Watched memory, real pages of it, against a model of what was written. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bits.h"
#include "support/proc.h"
#include "support/rng.h"

#define PAGES UINT64_C(4096) /* of the host */

struct memory {
	struct silt_sync *s;
	int block, source, fd;
	uint8_t *at;
	uint64_t bytes;
	unsigned int host_shift, page_shift;
	bool want[PAGES]; /* pages of the engine */
};

static void map_memory(struct memory *m, bool shared)
{
	m->host_shift = (unsigned int)__builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	m->bytes = PAGES << m->host_shift;
	m->fd = shared ? proc_memfd("ram", m->bytes) : -1;
	m->at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
		     shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, m->fd, 0);
	assert_ptr_not_equal(m->at, MAP_FAILED);
}

static void watch(struct memory *m)
{
	struct silt_sync_pagemap opt = {
		.size = sizeof(opt), .name = "own memory", .block = m->block};

	m->source = silt_sync_add_pagemap(m->s, &opt);
	if (m->source == -EOPNOTSUPP || m->source == -EPERM) {
		printf("%s\n", silt_errmsg());
		skip();
	}
	if (m->source < 0)
		fail_msg("%s", silt_errmsg());
}

/* Every third page was touched before: that is not news. Huge pages are no less exact. */
static void set_up(struct memory *m, bool shared, unsigned int coarser)
{
	uint64_t page;

	*m = (struct memory){.fd = -1};
	map_memory(m, shared);
	madvise(m->at, m->bytes, MADV_HUGEPAGE);
	for (page = 0; page < PAGES; page += 3)
		m->at[page << m->host_shift] = 1;
	m->page_shift = m->host_shift + coarser;
	m->s = engine(m->page_shift, 1);
	m->block = silt_sync_block_add(m->s, "ram", m->bytes, m->at);
	assert_int_equal(silt_sync_consumer_add(m->s, false), 0);
	watch(m);
}

static void tear_down(struct memory *m)
{
	silt_sync_destroy(m->s);
	munmap(m->at, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
}

static void wrote(struct memory *m, uint64_t page)
{
	m->want[page << m->host_shift >> m->page_shift] = true;
}

static void expect_sync(struct memory *m)
{
	uint64_t page, count = 0;

	for (page = 0; page < PAGES; page++)
		count += m->want[page];
	assert_int_equal(silt_sync_run(m->s, 0), count);
	expect_bits(m->s, 0, m->block, m->want, m->bytes >> m->page_shift);
	drain(m->s, 0, m->block);
	memset(m->want, 0, sizeof(m->want));
}

/* ---- What is seen ---------------------------------------------------------------------------- */

static void store_some(struct memory *m, struct rng *rng, int zero)
{
	uint64_t n = rng_below(rng, rng_one_in(rng, 3) ? 3 * PAGES : 30), page;

	for (; n; n--) {
		page = rng_below(rng, PAGES);
		if (rng_one_in(rng, 4)) {
			(void)*(volatile uint8_t *)&m->at[page << m->host_shift];
			continue;
		}
		/* The kernel's own stores are seen as well. */
		if (rng_one_in(rng, 10))
			assert_int_equal(read(zero, &m->at[page << m->host_shift], 1), 1);
		else
			m->at[page << m->host_shift]++;
		wrote(m, page);
	}
}

static void program(bool shared, unsigned int coarser, uint64_t seed)
{
	static struct memory m;
	struct rng rng = rng_make(seed);
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	unsigned int round;

	set_up(&m, shared, coarser);
	expect_sync(&m);
	for (round = 0; round < 10; round++) {
		store_some(&m, &rng, zero);
		expect_sync(&m);
	}
	close(zero);
	tear_down(&m);
}

static void test_private(void **state)
{
	(void)state;
	program(false, 0, 1);
	program(false, 2, 2);
}

static void test_shared(void **state)
{
	(void)state;
	program(true, 0, 3);
	program(true, 1, 4);
}

/* More stretches than one scan brings. */
static void test_every_other_page(void **state)
{
	static struct memory m;
	uint64_t page;

	(void)state;
	set_up(&m, false, 0);
	for (page = 0; page < PAGES; page += 2) {
		m.at[page << m.host_shift] = 2;
		wrote(&m, page);
	}
	expect_sync(&m);
	expect_sync(&m);
	tear_down(&m);
}

/* A page that is taken from under a shared mapping keeps what is known of it, or counts. */
static void test_dropped(void **state)
{
	static struct memory m;

	(void)state;
	set_up(&m, true, 0);
	m.at[5 << m.host_shift] = 2;
	assert_int_equal(madvise(&m.at[5 << m.host_shift], 1 << m.host_shift, MADV_DONTNEED), 0);
	wrote(&m, 5);
	expect_sync(&m);
	expect_sync(&m);
	tear_down(&m);
}

/* Counted where no consumer says what is new: a coarse page once, however many stores it saw. */
static void test_counts_what_is_reported(void **state)
{
	static struct memory m;

	(void)state;
	set_up(&m, false, 3);
	m.at[0] = m.at[2 << m.host_shift] = m.at[7 << m.host_shift] = 2;
	m.at[9 << m.host_shift] = m.at[40 << m.host_shift] = 2;
	assert_int_equal(silt_sync_run(m.s, SILT_SYNC_NO_CONSUMER), 3);
	tear_down(&m);
}

/* ---- What is refused ------------------------------------------------------------------------- */

/* Memory that is not watched any more may have been written: so counts all from there on. */
static void test_mapped_over(void **state)
{
	static struct memory m;
	uint64_t hole, page;

	(void)state;
	set_up(&m, false, 0);
	hole = UINT64_C(100) << m.host_shift;
	assert_ptr_equal(mmap(&m.at[hole], 1 << m.host_shift, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 &m.at[hole]);
	m.at[5 << m.host_shift] = 2;
	expect_error(silt_sync_run(m.s, 0), EPERM, "source own memory");
	assert_int_equal(silt_sync_dirty(m.s, 0, m.block, 5, 1), 1);
	for (page = 100; page < PAGES; page++)
		assert_int_equal(silt_sync_dirty(m.s, 0, m.block, page, 1), 1);
	tear_down(&m);
}

static void test_watched_block_stays(void **state)
{
	static struct memory m;

	(void)state;
	set_up(&m, false, 0);
	expect_error(silt_sync_block_remove(m.s, m.block), EBUSY, "ram");
	assert_int_equal(silt_sync_block_resize(m.s, m.block, m.bytes / 2, m.at), -EBUSY);
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	m.at[0] = 3;
	watch(&m);
	expect_sync(&m);
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	assert_int_equal(silt_sync_block_remove(m.s, m.block), 0);
	tear_down(&m);
}

static void test_misuse(void **state)
{
	static struct memory m;
	struct silt_sync_pagemap opt = {.size = sizeof(opt)};

	(void)state;
	set_up(&m, false, 0);
	opt.block = m.block;
	expect_error(silt_sync_add_pagemap(m.s, &opt), EBUSY, "ram");
	opt.block = silt_sync_block_add(m.s, "elsewhere", m.bytes, NULL);
	expect_error(silt_sync_add_pagemap(m.s, &opt), EINVAL, "not mapped");
	opt.block = 99;
	expect_error(silt_sync_add_pagemap(m.s, &opt), ENOENT, "99");
	tear_down(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_every_other_page),
		cmocka_unit_test(test_dropped),
		cmocka_unit_test(test_counts_what_is_reported),
		cmocka_unit_test(test_mapped_over),
		cmocka_unit_test(test_watched_block_stays),
		cmocka_unit_test(test_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
