/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "check/compare.h"

static uint64_t *make_bitmap(uint64_t bits)
{
	return calloc(silt_bitmap_words(bits), sizeof(uint64_t));
}

int check_compare_create(struct check_compare *c, struct check_guest *guest,
			 const struct check_places *places)
{
	memset(c, 0, sizeof(*c));
	c->guest = guest;
	c->places = places;
	c->npages = (check_guest_end(guest) + GUEST_PAGE - 1) / GUEST_PAGE;
	c->changed = make_bitmap(c->npages);
	c->missed = make_bitmap(c->npages);
	c->extra = make_bitmap(c->npages);
	c->ever = make_bitmap(c->npages);
	c->touched = make_bitmap(c->npages);
	if (c->changed && c->missed && c->extra && c->ever && c->touched)
		return 0;
	check_compare_destroy(c);
	return silt_err_sys(ENOMEM, "cannot compare %lu pages", c->npages);
}

void check_compare_destroy(struct check_compare *c)
{
	free(c->changed);
	free(c->missed);
	free(c->extra);
	free(c->ever);
	free(c->touched);
	free(c->hits.v);
	free(c->pending.v);
	free(c->misses.v);
	memset(c, 0, sizeof(*c));
}

void check_compare_reset(struct check_compare *c)
{
	silt_bitmap_clear_range(c->changed, 0, c->npages);
	silt_bitmap_clear_range(c->missed, 0, c->npages);
	silt_bitmap_clear_range(c->extra, 0, c->npages);
	silt_bitmap_clear_range(c->ever, 0, c->npages);
	c->hits.n = c->pending.n = c->misses.n = 0;
	c->has_stray = false;
	memset(c->ring, 0, sizeof(c->ring));
}

void check_compare_begin(struct check_compare *c)
{
	check_guest_capture(c->guest);
	check_guest_advance(c->guest);
	c->pending.n = 0;
}

/* ---- Hits ------------------------------------------------------------------------------------ */

static int append(struct check_hits *hits, const struct check_hit *hit)
{
	unsigned int capacity = hits->capacity ? 2 * hits->capacity : 256;
	struct check_hit *v;

	if (hits->n == hits->capacity) {
		v = reallocarray(hits->v, capacity, sizeof(*v));
		if (!v)
			return silt_err_sys(ENOMEM, "cannot note page %lu", hit->page);
		hits->v = v;
		hits->capacity = capacity;
	}
	hits->v[hits->n++] = *hit;
	return 0;
}

static struct check_hit *find(struct check_hits *hits, uint64_t page)
{
	unsigned int i;

	for (i = hits->n; i > 0; i--)
		if (hits->v[i - 1].page == page)
			return &hits->v[i - 1];
	return NULL;
}

/* Used entries are one thing, whichever requests they are of. */
static bool continues(const struct check_hit *old, const struct check_hit *hit)
{
	return old->kind == hit->kind && old->queue == hit->queue &&
	       (old->request == hit->request || hit->kind == PLACE_USED_ENTRIES ||
		hit->kind == PLACE_RING_DESCS);
}

/* A page that several things share is blamed on the most important one. */
static int hit_page(struct check_compare *c, struct check_hits *hits, const struct check_hit *hit)
{
	struct check_hit *old;

	silt_bitmap_set(c->touched, hit->page);
	old = find(hits, hit->page);
	if (!old)
		return append(hits, hit);
	if (continues(old, hit)) {
		old->last = hit->last;
		if (!old->request)
			old->request = hit->request;
	} else if (check_place_class(hit->kind) < check_place_class(old->kind)) {
		*old = *hit;
	}
	return 0;
}

/* ---- What changed ---------------------------------------------------------------------------- */

struct page_diff {
	const uint8_t *before;
	const uint8_t *after;
	uint64_t gpa;
};

static bool differs(const struct page_diff *d, uint64_t gpa)
{
	return d->before[gpa - d->gpa] != d->after[gpa - d->gpa];
}

/* The part of a used ring that lies on this page: each byte that changed, where it is logged. */
static int diff_ring(struct check_compare *c, const struct page_diff *d,
		     const struct check_place *p, uint64_t start, uint64_t end)
{
	const struct check_compare_ring *ring = &c->ring[p->queue];
	struct check_hit hit = {
		.kind = p->kind, .queue = p->queue, .request = *ring->last, .total = p->len};
	uint64_t gpa;
	int ret = 0;

	if (ring->log_gpa != ring->used)
		hit.log_gpa = ring->log_gpa;
	for (gpa = start; gpa < end && !ret; gpa++) {
		if (!differs(d, gpa))
			continue;
		silt_bitmap_set(c->touched, gpa / GUEST_PAGE);
		hit.page = (ring->log_gpa + (gpa - ring->used)) / GUEST_PAGE;
		hit.first = hit.last = gpa - p->gpa;
		if (p->kind == PLACE_USED_ENTRIES)
			hit.request = ring->slot[hit.first / 8];
		if (p->kind == PLACE_RING_DESCS)
			hit.request = ring->slot[hit.first / 16];
		if (ring->logged)
			ret = hit_page(c, &c->hits, &hit);
	}
	return ret;
}

/* Bytes of one place, or of nothing, on this page. */
static int diff_bytes(struct check_compare *c, const struct page_diff *d,
		      const struct check_place *p, uint64_t start, uint64_t end)
{
	struct check_hit hit = {.page = d->gpa / GUEST_PAGE,
				.kind = p->kind,
				.queue = p->queue,
				.request = p->request,
				.total = p->offset + p->len};

	if (check_place_used_ring(p->kind))
		return diff_ring(c, d, p, start, end);
	while (start < end && !differs(d, start))
		start++;
	if (start == end)
		return 0;
	while (!differs(d, end - 1))
		end--;
	hit.first = start - p->gpa + p->offset;
	hit.last = end - 1 - p->gpa + p->offset;
	if (!check_place_written(p->kind) && !c->has_stray) {
		c->stray = hit;
		c->has_stray = true;
	}
	return hit_page(c, &c->hits, &hit);
}

static int diff_page(struct check_compare *c, const struct page_diff *d)
{
	struct check_place nothing = {.gpa = d->gpa, .len = GUEST_PAGE, .kind = PLACE_NOTHING};
	uint64_t at = d->gpa, end = d->gpa + GUEST_PAGE, start, stop;
	unsigned int i;
	int ret = 0;

	for (i = check_places_find(c->places, d->gpa); at < end && !ret; i++) {
		const struct check_place *p = i < c->places->n ? &c->places->v[i] : NULL;

		start = p && p->gpa < end ? p->gpa : end;
		if (start > at)
			ret = diff_bytes(c, d, &nothing, at, start);
		if (start == end || ret < 0)
			break;
		start = start > at ? start : at;
		stop = p->gpa + p->len < end ? p->gpa + p->len : end;
		ret = diff_bytes(c, d, p, start, stop);
		at = stop;
	}
	return ret;
}

static int diff_region(struct check_compare *c, const struct check_guest_region *r)
{
	uint64_t at;
	int ret = 0;

	for (at = 0; at < r->size && !ret; at += GUEST_PAGE) {
		const struct page_diff d = {r->before + at, r->after + at, r->gpa + at};

		if (memcmp(d.before, d.after, GUEST_PAGE) != 0)
			ret = diff_page(c, &d);
	}
	return ret;
}

/* ---- Spans ----------------------------------------------------------------------------------- */

static int miss(struct check_compare *c, const struct check_hit *hit)
{
	struct check_hit *old;

	if (!silt_bitmap_test(c->missed, hit->page)) {
		silt_bitmap_set(c->missed, hit->page);
		return append(&c->misses, hit);
	}
	old = find(&c->misses, hit->page);
	if (check_place_class(hit->kind) < check_place_class(old->kind))
		*old = *hit;
	return 0;
}

/* What was not in its own log may be in the next, @log; otherwise it is missed for good. */
static int settle(struct check_compare *c, const uint64_t *log)
{
	const struct check_hit *hit;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < c->pending.n && !ret; i++) {
		hit = &c->pending.v[i];
		silt_bitmap_set(c->touched, hit->page);
		if (!log || !silt_bitmap_test(log, hit->page))
			ret = miss(c, hit);
	}
	c->pending.n = 0;
	return ret;
}

static void note_extra(struct check_compare *c, const uint64_t *log)
{
	uint64_t page;

	for (page = silt_bitmap_next(log, 0, c->npages); page < c->npages;
	     page = silt_bitmap_next(log, page + 1, c->npages))
		if (!silt_bitmap_test(c->touched, page))
			silt_bitmap_set(c->extra, page);
}

static void note_marked(struct check_compare *c, const uint64_t *log)
{
	uint64_t word;

	for (word = 0; word < silt_bitmap_words(c->npages); word++)
		c->ever[word] |= log[word];
}

/* Memory was captured: compare it with the copy before. What @log lacks is pending afterwards. */
static int compare_captured(struct check_compare *c, const uint64_t *log)
{
	const struct check_hit *hit;
	unsigned int i;
	int ret;

	silt_bitmap_clear_range(c->touched, 0, c->npages);
	note_marked(c, log);
	ret = settle(c, log);
	c->hits.n = 0;
	for (i = 0; i < GUEST_SIDES && !ret; i++)
		ret = diff_region(c, &c->guest->region[i]);
	for (i = 0; i < c->hits.n && !ret; i++) {
		hit = &c->hits.v[i];
		silt_bitmap_set(c->changed, hit->page);
		if (!silt_bitmap_test(log, hit->page))
			ret = append(&c->pending, hit);
	}
	note_extra(c, log);
	check_guest_advance(c->guest);
	return ret;
}

int check_compare_span(struct check_compare *c, const uint64_t *log)
{
	check_guest_capture(c->guest);
	return compare_captured(c, log);
}

int check_compare_end(struct check_compare *c, const uint64_t *log)
{
	int ret = check_compare_span(c, log);

	return ret < 0 ? ret : settle(c, NULL);
}

int check_compare_late(struct check_compare *c, const uint64_t *log)
{
	unsigned int i;
	int ret = check_compare_span(c, log);

	for (i = 0; i < c->pending.n; i++)
		c->pending.v[i].late = true;
	return ret < 0 ? ret : settle(c, NULL);
}

/* ---- Shadow mode ----------------------------------------------------------------------------- */

/*
 * Of a packed ring's descriptors the driver writes the addresses, and all of those that are still
 * as it wrote them last.
 */
static void patch_descs(struct check_compare *c, const struct check_place *p)
{
	uint64_t gpa;

	for (gpa = p->gpa; gpa < p->gpa + p->len; gpa += 16) {
		check_guest_patch(c->guest, gpa, 8);
		if (check_guest_is_own(c->guest, gpa + 8, 8))
			check_guest_patch(c->guest, gpa + 8, 8);
	}
}

/* The copy of a page with what the driver wrote may be older than that, and yet it is no miss. */
static void patch_copy(struct check_compare *c)
{
	const struct check_place *p;
	unsigned int i;

	for (i = 0; i < c->places->n; i++) {
		p = &c->places->v[i];
		if (p->kind == PLACE_RING_DESCS)
			patch_descs(c, p);
		else if (!check_place_written(p->kind))
			check_guest_patch(c->guest, p->gpa, p->len);
	}
}

int check_compare_shadow(struct check_compare *c, const uint64_t *log)
{
	const struct check_hit *hit;
	unsigned int i;
	int ret = 0;

	patch_copy(c);
	check_guest_advance(c->guest);
	check_guest_capture(c->guest);
	c->hits.n = 0;
	for (i = 0; i < GUEST_SIDES && !ret; i++)
		ret = diff_region(c, &c->guest->region[i]);
	for (i = 0; i < c->hits.n && !ret; i++) {
		hit = &c->hits.v[i];
		silt_bitmap_set(c->changed, hit->page);
		if (!silt_bitmap_test(log, hit->page))
			ret = miss(c, hit);
	}
	check_guest_advance(c->guest);
	return ret;
}

static void mark_changed(struct check_compare *c, const struct check_place *p, const uint64_t *ever)
{
	uint64_t page, last = (p->gpa + p->len - 1) / GUEST_PAGE;

	for (page = p->gpa / GUEST_PAGE; page <= last; page++)
		if (silt_bitmap_test(ever, page))
			silt_bitmap_set(c->changed, page);
}

void check_compare_marked(struct check_compare *c, const uint64_t *ever)
{
	uint64_t page;
	unsigned int i;

	note_marked(c, ever);
	for (i = 0; i < c->places->n; i++)
		if (check_place_written(c->places->v[i].kind))
			mark_changed(c, &c->places->v[i], ever);
	for (page = silt_bitmap_next(ever, 0, c->npages); page < c->npages;
	     page = silt_bitmap_next(ever, page + 1, c->npages))
		if (!silt_bitmap_test(c->changed, page))
			silt_bitmap_set(c->extra, page);
}
