/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "check/strip.h"

/* ---- What lies on a page --------------------------------------------------------------------- */

static const char *ring_part_name(enum check_place_kind kind)
{
	switch (kind) {
	case PLACE_USED_ENTRIES:
		return "used entries";
	case PLACE_USED_INDEX:
		return "used index";
	case PLACE_USED_FLAGS:
		return "used ring flags";
	case PLACE_USED_EVENT:
		return "event field";
	case PLACE_RING_DESCS:
		return "descriptor ring";
	case PLACE_DEVICE_AREA:
		return "device area";
	case PLACE_DESC:
		return "descriptor table";
	case PLACE_AVAIL:
		return "available ring";
	case PLACE_TABLE:
		return "indirect table";
	case PLACE_READABLE:
		return "what the device reads";
	default:
		return "what no request named";
	}
}

static void describe_place(const struct check_trial *run, const struct check_place *p, char *buf,
			   size_t len)
{
	bool written = check_place_written(p->kind);

	if (!p->request)
		snprintf(buf, len, "%s of queue %u", ring_part_name(p->kind), p->queue);
	else if (p->kind == PLACE_DATA)
		snprintf(buf, len, "%s of %s", run->env->device->part_name(p->request, p->kind),
			 p->request->text);
	else if (written)
		snprintf(buf, len, "%s (%s)", run->env->device->part_name(p->request, p->kind),
			 p->request->text);
	else
		snprintf(buf, len, "%s of %s", ring_part_name(p->kind), p->request->text);
}

/* Once, however many pieces of it lie on the page; nothing is cut in the middle. */
static void add_words(char what[STRIP_WHAT_LEN], const char *words)
{
	size_t used = strlen(what);

	if (strstr(what, words) || used + strlen(words) + strlen("; ") >= STRIP_WHAT_LEN)
		return;
	snprintf(what + used, STRIP_WHAT_LEN - used, "%s%s", used ? "; " : "", words);
}

static void add_ring_logged_here(const struct check_trial *run, uint64_t page,
				 char what[STRIP_WHAT_LEN])
{
	char words[64];
	unsigned int q;

	for (q = 0; q < run->session.nqueues; q++) {
		const struct check_compare_ring *ring = &run->compare->ring[q];
		uint64_t last = ring->log_gpa + sizeof(struct vring_used) +
				ring->num * sizeof(struct vring_used_elem) + sizeof(uint16_t) - 1;

		if (ring->log_gpa == ring->used || page < ring->log_gpa / GUEST_PAGE ||
		    page > last / GUEST_PAGE)
			continue;
		snprintf(words, sizeof(words), "where the used ring of queue %u is logged", q);
		add_words(what, words);
	}
}

/* What the device writes comes first: it is what marks are for. */
static void describe_page(const struct check_trial *run, uint64_t page, char what[STRIP_WHAT_LEN])
{
	const struct check_places *places = &run->places;
	uint64_t gpa = page * GUEST_PAGE;
	unsigned int i, pass, first = check_places_find(places, gpa);
	char words[STRIP_WHAT_LEN];

	what[0] = '\0';
	add_ring_logged_here(run, page, what);
	for (pass = 0; pass < 2; pass++) {
		for (i = first; i < places->n && places->v[i].gpa < gpa + GUEST_PAGE; i++) {
			if (check_place_written(places->v[i].kind) == pass)
				continue;
			describe_place(run, &places->v[i], words, sizeof(words));
			add_words(what, words);
		}
	}
	if (!*what)
		add_words(what, "nothing that a request or a ring needs");
}

/* What was missed lay there when it was: the driver may have moved its rings since. */
static uint64_t address_of(const struct check_trial *run, uint64_t page)
{
	const struct check_hits *misses = &run->compare->misses;
	unsigned int i;

	for (i = 0; i < misses->n; i++)
		if (misses->v[i].page == page && misses->v[i].where)
			return misses->v[i].where * GUEST_PAGE;
	return check_iommu_page(&run->session, page) * GUEST_PAGE;
}

/* ---- What became of it ----------------------------------------------------------------------- */

static enum check_page_state state_of_miss(const struct check_trial *run, uint64_t page,
					   const bool ignore[CHECK_CLASSES])
{
	const struct check_hits *misses = &run->compare->misses;
	bool shadow =
		run->scenario->family == FAMILY_SHADOW || run->scenario->family == FAMILY_AIMED;
	unsigned int i;

	for (i = 0; i < misses->n; i++) {
		if (misses->v[i].page != page)
			continue;
		if (ignore[check_place_class(misses->v[i].kind)])
			return CHECK_IGNORED_MISS;
		if (misses->v[i].ambiguous)
			return CHECK_AMBIGUOUS;
	}
	return shadow ? CHECK_STALE : CHECK_MISSED;
}

static enum check_page_state state_of(const struct check_trial *run, uint64_t page,
				      const bool ignore[CHECK_CLASSES])
{
	const struct check_compare *c = run->compare;

	if (silt_bitmap_test(c->missed, page))
		return state_of_miss(run, page, ignore);
	return silt_bitmap_test(c->changed, page) ? CHECK_LOGGED : CHECK_EXTRA;
}

/* ---- Stretches ------------------------------------------------------------------------------- */

static int grow(struct check_strip *strip)
{
	unsigned int capacity = strip->capacity ? 2 * strip->capacity : 64;
	struct check_stretch *v = reallocarray(strip->v, capacity, sizeof(*v));
	char(*what)[STRIP_WHAT_LEN];

	if (v)
		strip->v = v;
	what = v ? reallocarray(strip->what, capacity, sizeof(*what)) : NULL;
	if (!what)
		return silt_err_sys(ENOMEM, "cannot list %u stretches of pages", capacity);
	strip->what = what;
	strip->capacity = capacity;
	return 0;
}

static bool continues(const struct check_strip *strip, uint64_t gpa, enum check_page_state state,
		      const char *what)
{
	const struct check_stretch *last = strip->n ? &strip->v[strip->n - 1] : NULL;

	return last && last->gpa + last->pages * GUEST_PAGE == gpa && last->state == state &&
	       !strcmp(strip->what[strip->n - 1], what);
}

static int add_page(struct check_strip *strip, uint64_t gpa, enum check_page_state state,
		    const char *what)
{
	int ret;

	if (continues(strip, gpa, state, what)) {
		strip->v[strip->n - 1].pages++;
		return 0;
	}
	ret = strip->n == strip->capacity ? grow(strip) : 0;
	if (ret < 0)
		return ret;
	strcpy(strip->what[strip->n], what);
	strip->v[strip->n++] = (struct check_stretch){.gpa = gpa, .pages = 1, .state = state};
	return 0;
}

static uint64_t next_page(const struct check_compare *c, uint64_t page)
{
	uint64_t changed = silt_bitmap_next(c->changed, page, c->npages);
	uint64_t extra = silt_bitmap_next(c->extra, page, c->npages);

	return changed < extra ? changed : extra;
}

int check_strip_make(struct check_strip *strip, const struct check_trial *run,
		     const bool ignore[CHECK_CLASSES])
{
	const struct check_compare *c = run->compare;
	char what[STRIP_WHAT_LEN];
	uint64_t page;
	unsigned int i;
	int ret = 0;

	strip->n = 0;
	for (page = next_page(c, 0); page < c->npages && !ret; page = next_page(c, page + 1)) {
		describe_page(run, page, what);
		ret = add_page(strip, address_of(run, page), state_of(run, page, ignore), what);
	}
	/* Where the words lie is certain only now. */
	for (i = 0; i < strip->n; i++)
		strip->v[i].what = strip->what[i];
	return ret;
}

void check_strip_free(struct check_strip *strip)
{
	free(strip->v);
	free(strip->what);
	*strip = (struct check_strip){0};
}
