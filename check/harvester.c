/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <silt/bitmap.h>
#include <silt/error.h>

#include "base/err.h"
#include "check/harvester.h"

int check_harvester_create(struct check_harvester *h)
{
	/* A log is longer than memory by up to a word. */
	uint64_t words = silt_bitmap_words(h->npages) + 1;

	h->marked = calloc(words, sizeof(*h->marked));
	h->ever = calloc(words, sizeof(*h->ever));
	return h->marked && h->ever ? 0 : silt_err_sys(ENOMEM, "cannot prepare the harvest");
}

void check_harvester_destroy(struct check_harvester *h)
{
	free(h->marked);
	free(h->ever);
}

static void copy_all(struct check_harvester *h)
{
	uint64_t at;
	unsigned int side;

	for (side = 0; side < GUEST_SIDES; side++)
		for (at = 0; at < h->guest->region[side].size; at += GUEST_PAGE)
			check_guest_copy_page(h->guest, side, at);
}

static void between(struct check_harvester *h)
{
	if (h->between)
		h->between(h->arg);
}

static void copy_marked(struct check_harvester *h, enum check_guest_side side)
{
	const struct check_guest_region *r = &h->guest->region[side];
	uint64_t first = r->gpa / GUEST_PAGE, end = (r->gpa + r->size) / GUEST_PAGE, page;

	for (page = silt_bitmap_next(h->marked, first, end); page < end;
	     page = silt_bitmap_next(h->marked, page + 1, end)) {
		check_guest_copy_page(h->guest, side, (page - first) * GUEST_PAGE);
		between(h);
	}
}

int check_harvester_pass(struct check_harvester *h)
{
	int ret = h->collect(h->arg, h->marked);

	if (ret < 0)
		return ret;
	copy_marked(h, GUEST_LOW);
	copy_marked(h, GUEST_HIGH);
	silt_bitmap_merge(h->ever, h->marked, h->npages);
	silt_bitmap_clear_range(h->marked, 0, h->npages);
	return 0;
}

static void *run(void *arg)
{
	struct check_harvester *h = arg;

	if (h->whole)
		copy_all(h);
	while (!h->error && !__atomic_load_n(&h->stop, __ATOMIC_RELAXED)) {
		h->error = check_harvester_pass(h);
		between(h);
		/* The device may be waiting for this CPU. */
		sched_yield();
	}
	if (h->error)
		snprintf(h->message, sizeof(h->message), "%s", silt_errmsg());
	return NULL;
}

static int start(struct check_harvester *h, bool whole)
{
	int ret;

	h->whole = whole;
	h->stop = false;
	h->error = 0;
	ret = pthread_create(&h->thread, NULL, run, h);
	if (ret)
		return silt_err_sys(ret, "cannot start the harvest");
	h->running = true;
	return 0;
}

int check_harvester_start(struct check_harvester *h)
{
	return start(h, true);
}

int check_harvester_resume(struct check_harvester *h)
{
	return start(h, false);
}

int check_harvester_stop(struct check_harvester *h)
{
	if (!h->running)
		return 0;
	__atomic_store_n(&h->stop, true, __ATOMIC_RELAXED);
	pthread_join(h->thread, NULL);
	h->running = false;
	return h->error ? silt_err(-h->error, "%s", h->message) : 0;
}
