/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random requests in random segments, against a model: statuses, data, used lengths and the disk
 * must equal the model's, and every page that the device changed must be in the log.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_ring.h>

#include "machine.h"
#include "model.h"
#include "support/rng.h"

#define SECTORS	    512
#define DISK_SIZE   (SECTORS * 512)
#define MAX_BATCH   12
#define MAX_SEGS    24
#define MAX_PAYLOAD (64 * 512)
#define BATCHES	    150

static const char serial[] = "a serial of 20 bytes";

struct request {
	uint8_t readable[16 + MAX_PAYLOAD];
	uint8_t writable[MAX_PAYLOAD + 1]; /* before, then as the model says */
	uint8_t before[MAX_PAYLOAD + 1];
	struct model_request flat;
	uint64_t first, count; /* sectors it may change or read; count 0: none */
	bool changes;
	struct silt_driver_seg segs[2 * MAX_SEGS];
	unsigned int nsegs;
	bool done;
};

struct scene {
	struct machine m;
	struct model model;
	struct rng rng;
	struct request batch[MAX_BATCH];
	unsigned int n;
	uint64_t low, high; /* next free guest addresses */
};

struct variant {
	enum machine_disk kind;
	enum blk_aio aio;
	bool read_only;
	bool kicks;
	uint64_t features;
};

static uint64_t below(struct scene *s, uint64_t n)
{
	return rng_below(&s->rng, n);
}

static void put(uint8_t *p, uint64_t n, unsigned int bytes)
{
	memcpy(p, &n, bytes);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static uint64_t some_sector(struct scene *s, uint64_t count)
{
	switch (below(s, 12)) {
	case 0:
		return UINT64_MAX - below(s, 4);
	case 1:
		return SECTORS - below(s, count + 2);
	case 2:
		return UINT64_C(1) << (54 + below(s, 10));
	default:
		return below(s, SECTORS - count + 1);
	}
}

static size_t some_length(struct scene *s)
{
	switch (below(s, 8)) {
	case 0:
		return below(s, 4 * 512);
	case 1:
		return 0;
	default:
		return 512 * below(s, MAX_PAYLOAD / 512 + 1);
	}
}

static void touch(struct request *r, uint64_t sector, uint64_t count, bool changes)
{
	r->first = sector;
	r->count = sector < SECTORS ? count : 0;
	r->changes = changes;
}

static void make_ranges(struct scene *s, struct request *r, bool zero)
{
	size_t n = rng_one_in(&s->rng, 8) ? below(s, 36) : 1 + below(s, 4);
	uint64_t first = below(s, SECTORS - 64);

	for (size_t i = 0; i < n; i++) {
		uint8_t *p = r->readable + 16 + 16 * i;
		uint32_t count = below(s, 16);

		put(p, first + below(s, 48), 8);
		put(p + 8, count, 4);
		put(p + 12, zero ? below(s, 2) : 0, 4);
		if (rng_one_in(&s->rng, 32))
			put(p, some_sector(s, count), 8);
		if (rng_one_in(&s->rng, 64))
			put(p + 8, UINT32_MAX - below(s, 2), 4);
		if (rng_one_in(&s->rng, 32))
			put(p + 12, 1u << below(s, 32), 4);
	}
	r->flat.readable_len = 16 + 16 * n + (rng_one_in(&s->rng, 16) ? below(s, 16) : 0);
	/* Ranges of one request may overlap each other, but not those of others. */
	touch(r, 0, SECTORS, true);
}

static void make_typed(struct scene *s, struct request *r)
{
	static const uint32_t types[] = {0, 0, 0,  0,  1,  1, 1,  1,	     4,
					 8, 8, 11, 13, 13, 2, 14, UINT32_MAX};
	uint32_t type = types[below(s, sizeof(types) / sizeof(types[0]))];
	size_t len = some_length(s);
	uint64_t sector = some_sector(s, len / 512);

	put(r->readable, type, 4);
	put(r->readable + 8, sector, 8);
	if (type == 0) {
		r->flat.writable_len = len + 1;
		touch(r, sector, len / 512, false);
	} else if (type == 1) {
		r->flat.readable_len = 16 + len;
		touch(r, sector, len / 512, true);
	} else if (type == 8) {
		r->flat.writable_len = 1 + (rng_one_in(&s->rng, 2) ? 20 : below(s, 40));
	} else if (type == 11 || type == 13) {
		make_ranges(s, r, type == 13);
	}
}

static void make_request(struct scene *s, struct request *r)
{
	memset(r, 0, sizeof(*r));
	for (size_t i = 0; i < sizeof(r->readable); i += 8)
		put(r->readable + i, rng_next(&s->rng), 8);
	for (size_t i = 0; i + 8 <= sizeof(r->writable); i += 8)
		put(r->writable + i, rng_next(&s->rng), 8);
	r->flat.readable_len = 16;
	r->flat.writable_len = 1 + (rng_one_in(&s->rng, 16) ? below(s, 16) : 0);
	make_typed(s, r);
	if (rng_one_in(&s->rng, 64))
		r->flat.readable_len = below(s, 16);
	r->writable[r->flat.writable_len - 1] = 0xee;
	memcpy(r->before, r->writable, sizeof(r->before));
	r->flat.readable = r->readable;
	r->flat.writable = r->writable;
}

/* Requests of a batch are done in any order, so none may see what another changes. */
static bool conflicts(const struct scene *s, const struct request *r)
{
	for (unsigned int i = 0; i < s->n; i++) {
		const struct request *o = &s->batch[i];

		if ((r->changes || o->changes) &&
		    silt_range_overlap(r->first, r->count, o->first, o->count))
			return true;
	}
	return false;
}

/* ---- Guest memory ---------------------------------------------------------------------------- */

static uint64_t place(struct scene *s, uint64_t len)
{
	uint64_t *next = rng_one_in(&s->rng, 2) ? &s->low : &s->high;
	uint64_t at;

	if (!len)
		return MACHINE_LOW + MACHINE_ARENA;
	*next += rng_one_in(&s->rng, 2) ? 0 : 1 + below(s, 3000);
	at = *next;
	*next += len;
	return at;
}

static void cut(struct scene *s, struct request *r, size_t len, const uint8_t *from, bool writes)
{
	unsigned int pieces = 1 + below(s, rng_one_in(&s->rng, 4) ? MAX_SEGS - 1 : 3);

	/* An odd habit that the rules allow: an empty descriptor. */
	if (rng_one_in(&s->rng, 16) && len)
		r->segs[r->nsegs++] = (struct silt_driver_seg){place(s, 0), 0, writes};
	while (len) {
		size_t n = pieces-- > 1 ? 1 + below(s, len) : len;
		uint64_t gpa = place(s, n);

		memcpy(machine_at(&s->m, gpa), from, n);
		r->segs[r->nsegs++] = (struct silt_driver_seg){gpa, n, writes};
		from += n;
		len -= n;
	}
}

static bool add(struct scene *s, struct request *r)
{
	void *table = NULL;
	uint64_t table_gpa = 0;
	int ret;

	r->nsegs = 0;
	cut(s, r, r->flat.readable_len, r->readable, false);
	cut(s, r, r->flat.writable_len, r->writable, true);
	if ((s->m.layout.features >> VIRTIO_RING_F_INDIRECT_DESC & 1) && rng_one_in(&s->rng, 2)) {
		s->low = (s->low + 15) & ~UINT64_C(15);
		table_gpa = s->low;
		s->low += 16 * r->nsegs;
		table = machine_at(&s->m, table_gpa);
	}
	ret = silt_driver_add(s->m.driver, r->segs, r->nsegs, table, table_gpa, r);
	if (ret == -ENOSPC)
		return false;
	assert_true(ret >= 0);
	return true;
}

/* ---- Comparison ------------------------------------------------------------------------------ */

static bool marked(struct scene *s, uint64_t gpa)
{
	return silt_bitmap_test(s->m.marks, gpa / SILT_LOG_PAGE_SIZE);
}

static void compare_answer(struct scene *s, struct request *r, uint32_t used_len)
{
	size_t at = 0;

	assert_false(r->done);
	r->done = true;
	assert_int_equal(used_len, r->flat.used_len);
	for (unsigned int i = 0; i < r->nsegs; i++) {
		const struct silt_driver_seg *seg = &r->segs[i];

		if (!seg->device_writes)
			continue;
		for (uint32_t j = 0; j < seg->len; j++, at++)
			if (*machine_at(&s->m, seg->gpa + j) != r->writable[at])
				fail_msg("type %u: byte %zu of %zu is %#x, the model says %#x",
					 *(uint32_t *)r->readable, at, r->flat.writable_len,
					 *machine_at(&s->m, seg->gpa + j), r->writable[at]);
	}
}

/* What changed is marked, and no page is that holds nothing of the device's. */
static void compare_marks(struct scene *s)
{
	uint64_t used = MACHINE_LOW + ((uint8_t *)s->m.layout.used - s->m.base);
	uint64_t first = used / SILT_LOG_PAGE_SIZE, expected = 0;
	uint64_t last = (used + silt_virtq_used_size(MACHINE_RING) - 1) / SILT_LOG_PAGE_SIZE;
	uint64_t *may = calloc(silt_bitmap_words(MACHINE_PAGES), sizeof(*may));

	assert_non_null(may);
	for (unsigned int i = 0; i < s->n; i++) {
		const struct request *r = &s->batch[i];
		size_t at = 0;

		for (unsigned int k = 0; k < r->nsegs; k++) {
			const struct silt_driver_seg *seg = &r->segs[k];

			for (uint32_t j = 0; seg->device_writes && j < seg->len; j++, at++) {
				silt_bitmap_set(may, (seg->gpa + j) / SILT_LOG_PAGE_SIZE);
				if (r->before[at] != r->writable[at])
					assert_true(marked(s, seg->gpa + j));
			}
		}
	}
	silt_bitmap_set_range(may, first, last - first + 1);
	assert_true(marked(s, used));
	for (uint64_t p = 0; p < MACHINE_PAGES; p++)
		expected += silt_bitmap_test(may, p) && silt_bitmap_test(s->m.marks, p);
	assert_int_equal(silt_bitmap_count(s->m.marks, 0, MACHINE_PAGES), expected);
	free(may);
}

/* A discarded sector keeps its contents or holds zeros: take over which. */
static void settle_discards(struct scene *s, const uint8_t *disk)
{
	static const uint8_t zeros[512];

	for (unsigned int i = 0; i < s->n; i++) {
		const struct model_request *r = &s->batch[i].flat;

		for (unsigned int k = 0; k < r->ndiscarded; k++)
			for (uint64_t n = 0; n < r->discarded[k][1]; n++) {
				uint64_t at = (r->discarded[k][0] + n) * 512;

				if (!memcmp(disk + at, zeros, 512))
					memset(s->model.bytes + at, 0, 512);
			}
	}
}

static void compare_disk(struct scene *s)
{
	static uint8_t disk[DISK_SIZE];

	assert_int_equal(pread(s->m.disk.img.fd, disk, DISK_SIZE, 0), DISK_SIZE);
	settle_discards(s, disk);
	assert_memory_equal(disk, s->model.bytes, DISK_SIZE);
}

/* ---- The program ----------------------------------------------------------------------------- */

/* Is there room in memory for one more request, however it is cut? */
static bool roomy(const struct scene *s)
{
	const uint64_t most = 2 * MAX_PAYLOAD + 2 * MAX_SEGS * 3000;

	return s->low + most < MACHINE_LOW + MACHINE_HALF &&
	       s->high + most < MACHINE_HIGH + MACHINE_HALF;
}

static void build_batch(struct scene *s)
{
	unsigned int want = 1 + below(s, MAX_BATCH);

	s->n = 0;
	s->low = MACHINE_LOW + MACHINE_ARENA;
	s->high = MACHINE_HIGH;
	while (s->n < want && roomy(s)) {
		struct request *r = &s->batch[s->n];

		make_request(s, r);
		if (conflicts(s, r) || !add(s, r))
			break;
		s->n++;
	}
}

static void disturb(struct scene *s)
{
	switch (below(s, 8)) {
	case 0:
		machine_replace_log(&s->m);
		break;
	case 1:
		machine_restart_queue(&s->m);
		break;
	case 2:
		__atomic_store_n(&s->m.disk.writethrough, below(s, 2), __ATOMIC_RELAXED);
		break;
	}
}

static void run_batch(struct scene *s)
{
	build_batch(s);
	for (unsigned int i = 0; i < s->n; i++)
		model_run(&s->model, &s->batch[i].flat);
	machine_forget_marks(&s->m);
	machine_submit(&s->m);
	disturb(s);
	for (unsigned int i = 0; i < s->n; i++) {
		uint32_t len;
		struct request *r = machine_collect(&s->m, &len);

		compare_answer(s, r, len);
	}
	machine_harvest(&s->m);
	compare_marks(s);
	compare_disk(s);
}

static void run_variant(void **state)
{
	const struct variant *v = *state;
	struct scene *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->rng = rng_make(v->kind * 100 + v->aio * 10 + v->read_only);
	if (!machine_disk_open(&s->m, v->kind, DISK_SIZE, v->read_only)) {
		free(s);
		skip();
	}
	s->model = (struct model){calloc(1, DISK_SIZE), DISK_SIZE, v->read_only, serial};
	assert_non_null(s->model.bytes);
	machine_start(&s->m, v->aio, v->kicks, v->features);
	for (unsigned int i = 0; i < BATCHES; i++)
		run_batch(s);
	assert_int_equal(s->m.errors, 0);
	machine_stop(&s->m);
	machine_disk_close(&s->m);
	free(s->model.bytes);
	free(s);
}

#define EVENT_IDX (UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX)
#define INDIRECT  (UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC)

int main(void)
{
	static struct variant variants[] = {
		{MACHINE_FILE, BLK_AIO_SYNC, false, true, EVENT_IDX | INDIRECT},
		{MACHINE_FILE, BLK_AIO_URING, false, true, EVENT_IDX | INDIRECT},
		{MACHINE_MEMFD, BLK_AIO_SYNC, false, true, INDIRECT},
		{MACHINE_MEMFD, BLK_AIO_URING, false, true, EVENT_IDX},
		{MACHINE_LOOP, BLK_AIO_SYNC, false, true, EVENT_IDX | INDIRECT},
		{MACHINE_LOOP, BLK_AIO_URING, false, true, INDIRECT},
		{MACHINE_FILE, BLK_AIO_SYNC, true, true, 0},
		{MACHINE_FILE, BLK_AIO_URING, true, true, EVENT_IDX | INDIRECT},
		{MACHINE_FILE, BLK_AIO_SYNC, false, false, INDIRECT},
		{MACHINE_FILE, BLK_AIO_URING, false, false, EVENT_IDX},
	};
	static const char *const kinds[] = {"file", "memfd", "loop"};
	static const char *const aios[] = {"auto", "io_uring", "sync"};
	static char names[sizeof(variants) / sizeof(variants[0])][80];
	struct CMUnitTest tests[sizeof(variants) / sizeof(variants[0])];

	for (unsigned int i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
		const struct variant *v = &variants[i];

		snprintf(names[i], sizeof(names[i]), "%s %s%s%s", kinds[v->kind], aios[v->aio],
			 v->read_only ? " read-only" : "", v->kicks ? "" : " without kicks");
		tests[i] = (struct CMUnitTest){names[i], run_variant, NULL, NULL, &variants[i]};
	}
	return cmocka_run_group_tests_name("random requests", tests, NULL, NULL);
}
