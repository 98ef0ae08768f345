/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The comparison against a model that never looks at memory: it is told what was written where, and
 * works out byte by byte which pages had to be in which log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/bitmap.h>

#include "check/blame.h"
#include "check/blk.h"
#include "check/compare.h"

#define RING_NUM   16
#define PROGRAMS   20
#define MAX_SPANS  4
#define MAX_WRITES 40
#define PAGES	   0x101000 /* more than guest memory ends with */

struct rig {
	struct check_guest guest;
	struct check_places places;
	struct check_compare compare;
	struct check_random random;
	struct check_request request;
	struct check_request *slots[RING_NUM];
	struct check_request *last;
	uint64_t *log; /* of the span */
};

/* What the model knows of a page: the spans in which it had to be logged, and was. */
struct page {
	bool required[MAX_SPANS], logged[MAX_SPANS], touched[MAX_SPANS];
	unsigned int class[MAX_SPANS];
};

static struct page *model;

static uint64_t below(struct rig *r, uint64_t bound)
{
	return check_random_below(&r->random, bound);
}

static void place(struct rig *r, uint64_t gpa, uint64_t len, enum check_place_kind kind)
{
	struct check_place p = {gpa, len, kind, 0, NULL, 0};

	if (kind == PLACE_DATA || kind == PLACE_STATUS || kind == PLACE_READABLE)
		p.request = &r->request;
	assert_int_equal(check_places_add(&r->places, &p), 0);
}

static void place_ring(struct rig *r, uint64_t used, uint64_t log_gpa, bool logged)
{
	place(r, used, 2, PLACE_USED_FLAGS);
	place(r, used + 2, 2, PLACE_USED_INDEX);
	place(r, used + 4, 8 * RING_NUM, PLACE_USED_ENTRIES);
	place(r, used + 4 + 8 * RING_NUM, 2, PLACE_USED_EVENT);
	r->compare.ring[0] = (struct check_compare_ring){.used = used,
							 .log_gpa = log_gpa,
							 .logged = logged,
							 .num = RING_NUM,
							 .slot = r->slots,
							 .last = &r->last};
}

/* Buffers here and there, a used ring over a page boundary. */
static void lay_out(struct rig *r)
{
	unsigned int i, side;
	uint64_t gpa;

	r->places.n = 0;
	check_guest_reset(&r->guest, &r->random);
	for (i = 0; i < 12; i++) {
		side = below(r, 2);
		gpa = check_guest_alloc(&r->guest, side, below(r, 4000), 6000);
		place(r, gpa, 5000, i % 4 ? PLACE_DATA : PLACE_READABLE);
		place(r, gpa + 5000, 1, PLACE_STATUS);
	}
	gpa = check_guest_alloc(&r->guest, below(r, 2), GUEST_PAGE - 4 * (1 + below(r, 30)), 200);
	place_ring(r, gpa, below(r, 2) ? gpa : 0xc00007b4, below(r, 4) > 0);
	check_places_sort(&r->places);
}

static unsigned int class_of(enum check_place_kind kind)
{
	if (kind == PLACE_STATUS || kind == PLACE_USED_ENTRIES || kind == PLACE_USED_INDEX)
		return CHECK_COMPLETION;
	return kind == PLACE_USED_FLAGS || kind == PLACE_USED_EVENT ? CHECK_BOOKKEEPING
								    : CHECK_DATA;
}

static void require(uint64_t page, unsigned int span, unsigned int class)
{
	struct page *p = &model[page];

	if (!p->required[span] || class < p->class[span])
		p->class[span] = class;
	p->required[span] = p->touched[span] = true;
}

/* Change one byte of a place, and tell the model. */
static void write_byte(struct rig *r, const struct check_place *p, uint64_t gpa, unsigned int span)
{
	const struct check_compare_ring *ring = &r->compare.ring[0];
	bool in_ring = p->kind >= PLACE_USED_ENTRIES && p->kind <= PLACE_USED_EVENT;

	*(uint8_t *)check_guest_mem(&r->guest, gpa) ^= 1 + below(r, 255);
	model[gpa / GUEST_PAGE].touched[span] = true;
	if (!in_ring)
		require(gpa / GUEST_PAGE, span, class_of(p->kind));
	else if (ring->logged)
		require((ring->log_gpa + gpa - ring->used) / GUEST_PAGE, span, class_of(p->kind));
}

static void write_some(struct rig *r, unsigned int span)
{
	/* Each byte once: a second write could undo the first. */
	unsigned int n = below(r, MAX_WRITES), i;

	for (i = 0; i < n && i < r->places.n; i++) {
		const struct check_place *p = &r->places.v[(i * 9 + span) % r->places.n];

		write_byte(r, p, p->gpa + below(r, p->len), span);
	}
	if (n % 3 == 0)
		write_byte(r, &(struct check_place){.kind = PLACE_NOTHING},
			   r->guest.region[GUEST_HIGH].gpa + r->guest.region[GUEST_HIGH].size - 1,
			   span);
}

/* Mark most of what has to be marked, and something else. */
static void mark_some(struct rig *r, unsigned int span)
{
	uint64_t page;

	silt_bitmap_clear_range(r->log, 0, r->compare.npages);
	for (page = 0; page < r->compare.npages; page++) {
		bool needed =
			model[page].required[span] || (span && model[page].required[span - 1]);

		if (needed ? !below(r, 3) : !below(r, 100000))
			continue;
		if (needed || model[page].touched[span])
			silt_bitmap_set(r->log, page);
	}
	for (page = 0; page < 5; page++)
		silt_bitmap_set(r->log, below(r, r->compare.npages));
	for (page = 0; page < r->compare.npages; page++)
		model[page].logged[span] = silt_bitmap_test(r->log, page);
}

static bool model_missed(const struct page *p, unsigned int span, unsigned int spans)
{
	bool next = span + 1 < spans && p->logged[span + 1];

	return p->required[span] && !p->logged[span] && !next;
}

static const struct check_hit *find_miss(const struct rig *r, uint64_t page)
{
	unsigned int i;

	for (i = 0; i < r->compare.misses.n; i++)
		if (r->compare.misses.v[i].page == page)
			return &r->compare.misses.v[i];
	return NULL;
}

static void verify_page(const struct rig *r, uint64_t page, unsigned int spans)
{
	const struct page *p = &model[page];
	const struct check_hit *hit = find_miss(r, page);
	bool changed = false, missed = false, extra = false, waiting;
	unsigned int span, class = CHECK_CLASSES;

	for (span = 0; span < spans; span++) {
		waiting = span && p->required[span - 1] && !p->logged[span - 1];
		changed |= p->required[span];
		extra |= p->logged[span] && !p->touched[span] && !waiting;
		if (!model_missed(p, span, spans))
			continue;
		missed = true;
		class = p->class[span] < class ? p->class[span] : class;
	}
	assert_int_equal(silt_bitmap_test(r->compare.changed, page), changed);
	assert_int_equal(silt_bitmap_test(r->compare.missed, page), missed);
	assert_int_equal(silt_bitmap_test(r->compare.extra, page), extra);
	assert_int_equal(hit != NULL, missed);
	if (missed)
		assert_int_equal(class_of(hit->kind), class);
}

static void run_program(struct rig *r)
{
	unsigned int spans = 1 + below(r, MAX_SPANS), span;
	uint64_t page;

	memset(model, 0, PAGES * sizeof(*model));
	check_compare_reset(&r->compare);
	lay_out(r);
	check_compare_begin(&r->compare);
	for (span = 0; span < spans; span++) {
		write_some(r, span);
		mark_some(r, span);
		assert_int_equal(span + 1 < spans ? check_compare_span(&r->compare, r->log)
						  : check_compare_end(&r->compare, r->log),
				 0);
	}
	for (page = 0; page < r->compare.npages; page++)
		verify_page(r, page, spans);
}

static void test_random_programs(void **state)
{
	struct rig *r = *state;
	unsigned int i;

	for (i = 0; i < PROGRAMS; i++)
		run_program(r);
}

/* One missed thing, and what is said of it. */
static const struct check_hit *miss_one(struct rig *r, uint64_t gpa, uint64_t len)
{
	uint64_t i;

	check_compare_begin(&r->compare);
	silt_bitmap_clear_range(r->log, 0, r->compare.npages);
	for (i = 0; i < len; i++)
		*(uint8_t *)check_guest_mem(&r->guest, gpa + i) ^= 0xff;
	assert_int_equal(check_compare_end(&r->compare, r->log), 0);
	assert_true(r->compare.misses.n > 0);
	return &r->compare.misses.v[0];
}

static void expect_words(const struct check_hit *hit, const char *what, const char *request)
{
	char buf[200];

	assert_string_equal(check_blame_what(&check_device_block, hit, buf, sizeof(buf)), what);
	assert_string_equal(check_blame_request(hit, buf, sizeof(buf)), request);
	assert_true(strlen(check_blame_consequence(&check_device_block, hit)) > 0);
}

static void test_words(void **state)
{
	struct rig *r = *state;
	uint64_t data, used;
	struct check_place piece;

	check_guest_reset(&r->guest, &r->random);
	r->places.n = 0;
	data = check_guest_alloc(&r->guest, GUEST_HIGH, 4000, 1000);
	used = check_guest_alloc(&r->guest, GUEST_LOW, 0, 200);
	/* The second piece of a buffer, whose first one is elsewhere. */
	piece = (struct check_place){data, 1000, PLACE_DATA, 0, &r->request, 7192};
	assert_int_equal(check_places_add(&r->places, &piece), 0);
	place(r, data + 1000, 1, PLACE_STATUS);
	check_compare_reset(&r->compare);
	place_ring(r, used, 0xc00007b4, true);
	check_places_sort(&r->places);

	expect_words(miss_one(r, data + 10, 50), "read data, bytes 7202-7251 of 8192", "#3 read");
	assert_non_null(strstr(check_blame_consequence(&check_device_block, r->compare.misses.v),
			       "request succeeded"));
	r->request.kind = BLK_BEYOND;
	assert_non_null(strstr(check_blame_consequence(&check_device_block, r->compare.misses.v),
			       "request failed"));
	r->request.kind = BLK_READ;
	check_compare_reset(&r->compare);
	expect_words(miss_one(r, data + 1000, 1), "status of read", "#3 read");
	check_compare_reset(&r->compare);
	place_ring(r, used, used, true);
	check_places_sort(&r->places);
	expect_words(miss_one(r, used + 2, 2), "used index", "queue 0, no request done yet");
	check_compare_reset(&r->compare);
	r->last = r->slots[4] = &r->request;
	place_ring(r, used, 0xc00007b4, true);
	check_places_sort(&r->places);
	expect_words(miss_one(r, used + 4 + 8 * 3, 9),
		     "used entry, slots 3-4 of 16, logged from 0xc00007b4 on", "#3 read");
	r->last = r->slots[4] = NULL;
}

static void test_what_comes_late_is_missed(void **state)
{
	struct rig *r = *state;
	uint64_t data;
	char buf[200];

	check_guest_reset(&r->guest, &r->random);
	check_compare_reset(&r->compare);
	r->places.n = 0;
	data = check_guest_alloc(&r->guest, GUEST_LOW, 100, 1000);
	place(r, data, 1000, PLACE_DATA);
	check_compare_begin(&r->compare);
	silt_bitmap_clear_range(r->log, 0, r->compare.npages);
	assert_int_equal(check_compare_end(&r->compare, r->log), 0);
	assert_int_equal(r->compare.misses.n, 0);
	*(uint8_t *)check_guest_mem(&r->guest, data + 5) ^= 1;
	assert_int_equal(check_compare_late(&r->compare, r->log), 0);
	assert_int_equal(r->compare.misses.n, 1);
	check_blame_what(&check_device_block, &r->compare.misses.v[0], buf, sizeof(buf));
	assert_non_null(strstr(buf, "after GET_VRING_BASE was answered"));
}

static void test_what_the_driver_writes_is_no_change(void **state)
{
	struct rig *r = *state;
	uint64_t desc;

	check_guest_reset(&r->guest, &r->random);
	check_compare_reset(&r->compare);
	r->places.n = 0;
	desc = check_guest_alloc(&r->guest, GUEST_LOW, 0, 64);
	place(r, desc, 64, PLACE_DESC);
	check_compare_begin(&r->compare);
	memset(check_guest_mem(&r->guest, desc), 0x5a, 64);
	check_guest_own_write(&r->guest, desc, 64);
	silt_bitmap_clear_range(r->log, 0, r->compare.npages);
	assert_int_equal(check_compare_end(&r->compare, r->log), 0);
	assert_int_equal(r->compare.misses.n, 0);
	assert_false(r->compare.has_stray);
	*(uint8_t *)check_guest_mem(&r->guest, desc + 9) ^= 1;
	assert_int_equal(check_compare_late(&r->compare, r->log), 0);
	assert_true(r->compare.has_stray);
}

static int set_up(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	if (!r || check_guest_create(&r->guest) < 0 ||
	    check_compare_create(&r->compare, &r->guest, &r->places) < 0)
		return -1;
	r->random = check_random_named(1, "compare");
	r->request =
		(struct check_request){.id = 3, .kind = BLK_READ, .len = 8192, .text = "#3 read"};
	r->log = calloc(silt_bitmap_words(r->compare.npages), sizeof(uint64_t));
	model = calloc(PAGES, sizeof(*model));
	*state = r;
	return r->log && model && r->compare.npages <= PAGES ? 0 : -1;
}

static int tear_down(void **state)
{
	struct rig *r = *state;

	check_compare_destroy(&r->compare);
	check_guest_destroy(&r->guest);
	check_places_free(&r->places);
	free(r->log);
	free(r);
	free(model);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_what_comes_late_is_missed),
		cmocka_unit_test(test_what_the_driver_writes_is_no_change),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
