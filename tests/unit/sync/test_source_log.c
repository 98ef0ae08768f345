/* SPDX-License-Identifier: BSD-3-Clause */
/* Vhost logs, against a model that keeps one flag for each page of guest memory. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bits.h"
#include "support/rng.h"

#define CELL	  UINT64_C(4096)
#define CELLS	  (UINT64_C(4096) * 8 * 4) /* of guest memory: four host pages of log */
#define BLOCK	  UINT64_C(2048)	   /* cells of the block */
#define MAX_SLOTS 12
#define CONSUMERS 2

/* A device's end of the log, and what it does when it is told of another. */
struct device {
	int fd;
	uint8_t *log;
	uint64_t bytes;
	unsigned int told;
	int answer;
	void (*meanwhile)(struct device *d);
	void *opaque;
};

static void mark(struct device *d, uint64_t page)
{
	__atomic_fetch_or(&d->log[page / 8], (uint8_t)(1 << page % 8), __ATOMIC_SEQ_CST);
}

static bool marked(const struct device *d, uint64_t page)
{
	return page / 8 < d->bytes && d->log[page / 8] >> page % 8 & 1;
}

static void forget(struct device *d)
{
	if (!d->log)
		return;
	munmap(d->log, d->bytes);
	close(d->fd);
	d->log = NULL;
}

static int replace(void *opaque, const struct silt_sync_log_file *file)
{
	struct device *d = opaque;
	int answer = d->answer;

	d->told++;
	assert_int_equal(file->offset, 0);
	if (d->meanwhile)
		d->meanwhile(d);
	if (answer)
		return answer;
	forget(d);
	d->fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	d->bytes = file->bytes;
	d->log = mmap(NULL, d->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
	assert_ptr_not_equal(d->log, MAP_FAILED);
	return 0;
}

static int add_log(struct silt_sync *s, struct device *d)
{
	struct silt_sync_log log = {
		.size = sizeof(log), .name = "devices", .replace = replace, .opaque = d};

	return silt_sync_add_log(s, &log);
}

/* ---- Programs -------------------------------------------------------------------------------- */

struct world {
	struct rng rng;
	struct silt_sync *s;
	struct device device;
	int block, source, consumers;
	unsigned int page_shift;
	struct {
		bool used;
		int id;
		uint64_t first, n, offset; /* cells */
	} slots[MAX_SLOTS];
	bool log[CELLS];
	bool bits[CONSUMERS][BLOCK];
};

/* Somewhere in the log, more often where a slot begins or ends. */
static uint64_t some_page(struct world *w)
{
	unsigned int i = (unsigned int)rng_below(&w->rng, MAX_SLOTS);
	uint64_t page = rng_below(&w->rng, CELLS), end;

	if (w->slots[i].used && !rng_one_in(&w->rng, 8)) {
		end = w->slots[i].first + w->slots[i].n;
		page = w->slots[i].first + rng_below(&w->rng, w->slots[i].n);
		if (rng_one_in(&w->rng, 3))
			page = end - rng_below(&w->rng, 3);
		else if (rng_one_in(&w->rng, 3))
			page = w->slots[i].first - (w->slots[i].first > 2) * 2 +
			       rng_below(&w->rng, 4);
	}
	return page % (w->device.bytes * 8) % CELLS;
}

static void mark_some(struct world *w, uint64_t n)
{
	uint64_t page;

	for (; n; n--) {
		page = some_page(w);
		mark(&w->device, page);
		w->log[page] = true;
	}
}

static void mark_meanwhile(struct device *d)
{
	struct world *w = d->opaque;

	if (d->log)
		mark_some(w, 20);
}

static void remove_slot(struct world *w, unsigned int i)
{
	uint64_t cell;
	int consumer;

	assert_int_equal(silt_sync_slot_remove(w->s, w->slots[i].id), 0);
	w->slots[i].used = false;
	for (cell = 0; cell < w->slots[i].n; cell++) {
		for (consumer = 0; consumer < w->consumers; consumer++)
			w->bits[consumer][(w->slots[i].offset + cell) * CELL >> w->page_shift] =
				true;
	}
}

/* Often a slot that lies to its block as the log's words lie to the bitmap's. */
static void add_some_slot(struct world *w, unsigned int i)
{
	uint64_t n = 1 + rng_below(&w->rng, rng_one_in(&w->rng, 2) ? 1024 : 80);
	uint64_t first = rng_below(&w->rng, CELLS - n), offset = rng_below(&w->rng, BLOCK - n);

	if (rng_one_in(&w->rng, 2))
		first = first - first % 64 + offset % 64;
	if (first + n > CELLS)
		return;
	w->device.answer = rng_one_in(&w->rng, 4) ? -EPERM : 0;
	w->slots[i].id = add_slot(w->s, i, w->block, first * CELL, n * CELL, offset * CELL, 0);
	w->device.answer = 0;
	if (w->slots[i].id < 0)
		return;
	w->slots[i].used = true;
	w->slots[i].first = first;
	w->slots[i].n = n;
	w->slots[i].offset = offset;
	if (w->device.log)
		assert_true(w->device.bytes * 8 >= first + n);
}

static void change_slots(struct world *w)
{
	unsigned int i = (unsigned int)rng_below(&w->rng, MAX_SLOTS);

	if (w->slots[i].used)
		remove_slot(w, i);
	else
		add_some_slot(w, i);
}

/* The model's sync. Return: pages that are new to consumer @counted. */
static uint64_t model_sync(struct world *w, int counted)
{
	uint64_t cell, page, fresh = 0;
	unsigned int i;
	int consumer;

	for (i = 0; i < MAX_SLOTS; i++) {
		for (cell = 0; w->slots[i].used && cell < w->slots[i].n; cell++) {
			if (!w->log[w->slots[i].first + cell])
				continue;
			w->log[w->slots[i].first + cell] = false;
			page = (w->slots[i].offset + cell) * CELL >> w->page_shift;
			fresh += !w->bits[counted][page];
			for (consumer = 0; consumer < w->consumers; consumer++)
				w->bits[consumer][page] = true;
		}
	}
	return fresh;
}

static void expect_log(const struct world *w)
{
	uint64_t page;

	for (page = 0; page < w->device.bytes * 8 && page < CELLS; page++) {
		if (marked(&w->device, page) != w->log[page])
			fail_msg("page %llu of the log is %smarked", (unsigned long long)page,
				 w->log[page] ? "not " : "");
	}
}

/* Marks in no slot that a shorter log has no room for are gone. */
static void replace_log(struct world *w)
{
	int ret;

	w->device.answer = rng_one_in(&w->rng, 4) ? -EPERM : 0;
	ret = silt_sync_log_replace(w->s, w->source);
	if (w->device.answer)
		expect_error(ret, EPERM, "source devices");
	else
		assert_int_equal(ret, 0);
	w->device.answer = 0;
	if (w->device.bytes * 8 < CELLS)
		memset(&w->log[w->device.bytes * 8], 0, CELLS - w->device.bytes * 8);
}

static void sync_once(struct world *w)
{
	int consumer = (int)rng_below(&w->rng, w->consumers);
	uint64_t fresh = model_sync(w, consumer);

	assert_int_equal(silt_sync_run(w->s, consumer), fresh);
	assert_int_equal(silt_sync_source_count(w->s, w->source), fresh);
	assert_int_equal(silt_sync_block_count(w->s, w->block), fresh);
}

static void compare(struct world *w)
{
	int i;

	for (i = 0; i < w->consumers; i++)
		expect_bits(w->s, i, w->block, w->bits[i], BLOCK * CELL >> w->page_shift);
	expect_log(w);
	i = (int)rng_below(&w->rng, w->consumers);
	drain(w->s, i, w->block);
	memset(w->bits[i], 0, sizeof(w->bits[i]));
}

static void set_up(struct world *w, uint64_t seed)
{
	int i;

	*w = (struct world){.rng = rng_make(seed)};
	w->page_shift = rng_one_in(&w->rng, 3) ? 12 + (unsigned int)rng_below(&w->rng, 4) : 12;
	w->consumers = 1 + (int)rng_below(&w->rng, CONSUMERS);
	w->device.meanwhile = mark_meanwhile;
	w->device.opaque = w;
	w->s = engine(w->page_shift, 1);
	w->block = silt_sync_block_add(w->s, "ram", BLOCK * CELL, NULL);
	for (i = 0; i < w->consumers; i++)
		assert_int_equal(silt_sync_consumer_add(w->s, false), i);
}

static void program(uint64_t seed)
{
	static struct world w;
	unsigned int round, i;

	set_up(&w, seed);
	for (i = 0; i < rng_below(&w.rng, MAX_SLOTS); i++)
		change_slots(&w);
	w.source = add_log(w.s, &w.device);
	assert_true(w.source >= 0);
	for (round = 0; round < 12; round++) {
		mark_some(&w, rng_below(&w.rng, rng_one_in(&w.rng, 2) ? 3000 : 40));
		change_slots(&w);
		if (rng_one_in(&w.rng, 3))
			replace_log(&w);
		mark_some(&w, rng_below(&w.rng, 40));
		sync_once(&w);
		compare(&w);
	}
	silt_sync_destroy(w.s);
	forget(&w.device);
}

static void test_programs(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 60; seed++)
		program(seed);
}

/* ---- Single laws ----------------------------------------------------------------------------- */

/* Two slots and a hole share one word of the log. */
static void test_shared_word(void **state)
{
	struct silt_sync *s = engine(12, 1);
	struct device d = {0};
	int block = silt_sync_block_add(s, "ram", 64 * CELL, NULL);
	bool want[64] = {false};
	uint64_t page;

	(void)state;
	silt_sync_consumer_add(s, false);
	assert_true(add_slot(s, 0, block, 0, 10 * CELL, 0, 0) >= 0);
	assert_true(add_slot(s, 1, block, 20 * CELL, 5 * CELL, 32 * CELL, 0) >= 0);
	assert_true(add_log(s, &d) >= 0);
	for (page = 0; page < 64; page++)
		mark(&d, page);
	assert_int_equal(silt_sync_run(s, 0), 15);
	for (page = 0; page < 64; page++) {
		assert_int_equal(marked(&d, page), page >= 10 && (page < 20 || page >= 25));
		want[page] = page < 10 || (page >= 32 && page < 37);
	}
	expect_bits(s, 0, block, want, 64);
	silt_sync_destroy(s);
	forget(&d);
}

/* A block so large that the threads of the engine share it. */
static void test_large(void **state)
{
	uint64_t pages = UINT64_C(1) << 24, fresh = 0, i, page;
	struct silt_sync *s = engine(12, 3);
	struct rng rng = rng_make(7);
	struct device d = {0};
	int block = silt_sync_block_add(s, "ram", pages * CELL, NULL);

	(void)state;
	silt_sync_consumer_add(s, false);
	assert_true(add_slot(s, 0, block, 64 * CELL, (pages - 64) * CELL, 64 * CELL, 0) >= 0);
	assert_true(add_log(s, &d) >= 0);
	for (i = 0; i < 5000; i++) {
		page = 64 + rng_below(&rng, pages - 64);
		fresh += !marked(&d, page);
		mark(&d, page);
	}
	assert_int_equal(silt_sync_run(s, 0), fresh);
	assert_int_equal(silt_sync_run(s, 0), 0);
	assert_int_equal(silt_sync_dirty(s, 0, block, 0, pages), fresh);
	rng = rng_make(7);
	for (i = 0; i < 5000; i++) {
		page = 64 + rng_below(&rng, pages - 64);
		assert_int_equal(silt_sync_dirty(s, 0, block, page, 1), 1);
		assert_false(marked(&d, page));
	}
	silt_sync_destroy(s);
	forget(&d);
}

static void test_sealed(void **state)
{
	struct silt_sync *s = engine(12, 1);
	struct device d = {0};

	(void)state;
	assert_true(add_log(s, &d) >= 0);
	assert_true(d.bytes >= 4096);
	assert_int_equal(ftruncate(d.fd, 0), -1);
	assert_int_equal(fcntl(d.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(fcntl(d.fd, F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
	silt_sync_destroy(s);
	forget(&d);
}

/* The log grows from one slot to the next, and not where it reaches far enough. */
static void test_grows_before_the_slot_comes(void **state)
{
	struct silt_sync *s = engine(12, 1);
	struct device d = {0};
	int block = silt_sync_block_add(s, "ram", 64 * CELL, NULL), source = add_log(s, &d);
	uint64_t bytes = d.bytes;

	(void)state;
	assert_int_equal(d.told, 1);
	assert_true(add_slot(s, 0, block, 0, 64 * CELL, 0, 0) >= 0);
	assert_int_equal(d.told, 1);
	d.answer = -EBUSY;
	expect_error(add_slot(s, 1, block, bytes * 8 * CELL, CELL, 0, 0), EBUSY, "source devices");
	assert_int_equal(d.bytes, bytes);
	d.answer = 0;
	assert_true(add_slot(s, 1, block, bytes * 8 * CELL, CELL, 0, 0) >= 0);
	assert_true(d.bytes > bytes);
	assert_int_equal(d.told, 3);
	assert_int_equal(silt_sync_slot_remove(s, 1), 0);
	assert_int_equal(silt_sync_log_replace(s, source), 0);
	assert_int_equal(d.bytes, bytes);
	silt_sync_destroy(s);
	forget(&d);
}

/* One device may have used the new log before another refused it. */
static int refuse(void *opaque, const struct silt_sync_log_file *file)
{
	unsigned int *calls = opaque;

	if (!(*calls)++)
		return 0;
	__atomic_fetch_or((uint8_t *)file->memory, 4, __ATOMIC_SEQ_CST);
	return -EIO;
}

static void test_marks_of_a_refused_log(void **state)
{
	struct silt_sync *s = engine(12, 1);
	unsigned int calls = 0;
	struct silt_sync_log log = {.size = sizeof(log), .replace = refuse, .opaque = &calls};
	int block = silt_sync_block_add(s, "ram", 64 * CELL, NULL), source;

	(void)state;
	silt_sync_consumer_add(s, false);
	assert_true(add_slot(s, 0, block, 0, 64 * CELL, 0, 0) >= 0);
	source = silt_sync_add_log(s, &log);
	expect_error(silt_sync_log_replace(s, source), EIO, "source log");
	assert_int_equal(silt_sync_run(s, 0), 1);
	assert_int_equal(silt_sync_dirty(s, 0, block, 2, 1), 1);
	silt_sync_destroy(s);
}

static uint64_t memory_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* A slot far up makes a log long: memory that nobody marks is not touched, nor made. */
static void test_sparse(void **state)
{
	uint64_t far = UINT64_C(1) << 46, step = (far >> 12) / 16, page;
	struct silt_sync *s = engine(12, 1);
	struct device d = {0};
	int block = silt_sync_block_add(s, "ram", 64 * CELL, NULL), source, old;

	(void)state;
	silt_sync_consumer_add(s, false);
	source = add_log(s, &d);
	assert_true(add_slot(s, 0, block, far, 64 * CELL, 0, 0) >= 0);
	for (page = 0; page <= far >> 12; page += step)
		mark(&d, page);
	old = fcntl(d.fd, F_DUPFD_CLOEXEC, 0);
	assert_int_equal(silt_sync_log_replace(s, source), 0);
	for (page = 0; page <= far >> 12; page += step)
		assert_true(marked(&d, page));
	assert_true(memory_of(old) < 1 << 24);
	assert_true(memory_of(d.fd) < 1 << 24);
	assert_int_equal(silt_sync_run(s, 0), 1);
	assert_true(memory_of(d.fd) < 1 << 24);
	close(old);
	silt_sync_destroy(s);
	forget(&d);
}

static void test_removed_log_is_harvested(void **state)
{
	struct silt_sync *s = engine(12, 1);
	struct device d = {0};
	int block = silt_sync_block_add(s, "ram", 64 * CELL, NULL), source;

	(void)state;
	silt_sync_consumer_add(s, false);
	assert_true(add_slot(s, 0, block, 0, 64 * CELL, 0, 0) >= 0);
	source = add_log(s, &d);
	mark(&d, 5);
	assert_int_equal(silt_sync_source_remove(s, source), 0);
	assert_int_equal(silt_sync_dirty(s, 0, block, 0, 64), 1);
	assert_int_equal(silt_sync_dirty(s, 0, block, 5, 1), 1);
	expect_error(silt_sync_log_replace(s, source), ENOENT, "source");
	silt_sync_destroy(s);
	forget(&d);
}

static void test_counts_what_is_reported(void **state)
{
	struct silt_sync *s = engine(12, 1);
	struct device d = {0};
	int block = silt_sync_block_add(s, "ram", 256 * CELL, NULL);

	(void)state;
	silt_sync_consumer_add(s, true);
	assert_true(add_slot(s, 0, block, 0, 256 * CELL, 0, 0) >= 0);
	assert_true(add_log(s, &d) >= 0);
	mark(&d, 5);
	mark(&d, 100);
	assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), 2);
	assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), 0);
	mark(&d, 5);
	assert_int_equal(silt_sync_run(s, 0), 0);
	silt_sync_destroy(s);
	forget(&d);
}

static void test_misuse(void **state)
{
	struct silt_sync *s = engine(12, 1);
	struct silt_sync_log log = {.size = sizeof(log)};
	struct device d = {.answer = -EIO};
	int block;

	(void)state;
	expect_error(silt_sync_add_log(s, &log), EINVAL, "function");
	expect_error(add_log(s, &d), EIO, "source devices");
	d.answer = 1;
	expect_error(add_log(s, &d), EPROTO, "source devices");
	d.answer = 0;
	assert_true(add_log(s, &d) >= 0);
	block = silt_sync_block_add(s, "ram", CELL, NULL);
	/* No process has room for the log that this would take. */
	assert_true(add_slot(s, 0, block, UINT64_C(1) << 63, CELL, 0, 0) < 0);
	assert_int_equal(d.told, 3);
	assert_true(add_slot(s, 0, block, 0, CELL, 0, 0) >= 0);
	silt_sync_destroy(s);
	forget(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_shared_word),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_sealed),
		cmocka_unit_test(test_grows_before_the_slot_comes),
		cmocka_unit_test(test_marks_of_a_refused_log),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_removed_log_is_harvested),
		cmocka_unit_test(test_counts_what_is_reported),
		cmocka_unit_test(test_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
