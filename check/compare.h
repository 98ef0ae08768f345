/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_COMPARE_H
#define CHECK_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "check/axes.h"
#include "check/guest.h"
#include "check/places.h"
#include "check/request.h"

/*
 * Memory against the log.
 *
 * A scenario is a row of spans, each with a log of its own. A span begins and ends with a copy of
 * memory that is taken once the backend has acknowledged the log. What changed between the two
 * copies must be in the span's log, or in the next one: a mark that comes late, for a store made
 * before the logs were exchanged, makes the monitor send the page again. After the last span there
 * is no next one.
 */

/* A used ring and the rule that its log writes follow. */
struct check_compare_ring {
	uint64_t used;	  /* where it lies */
	uint64_t log_gpa; /* where it is logged */
	bool logged;
	unsigned int num;
	struct check_request *const *slot; /* the request of each used entry */
	struct check_request *const *last; /* the last one that was collected */
};

/* A page that has to be in the log, and the most important thing on it that changed. */
struct check_hit {
	uint64_t page;
	uint64_t where; /* the guest-physical page that it was behind an IOMMU, or 0 */
	enum check_place_kind kind;
	unsigned int queue;
	const struct check_request *request;
	uint64_t first, last; /* bytes of the thing that changed */
	uint64_t total;	      /* bytes that it has */
	uint64_t log_gpa;     /* of a used ring that is logged elsewhere, or 0 */
	bool late;	      /* written after GET_VRING_BASE was answered */
	bool ambiguous;	      /* missed with one log address of a packed ring only */
};

struct check_hits {
	struct check_hit *v;
	unsigned int n;
	unsigned int capacity;
};

struct check_compare {
	struct check_guest *guest;
	const struct check_places *places;
	struct check_compare_ring ring[AXES_MAX_QUEUES];
	uint64_t npages;   /* pages that logs cover */
	uint64_t *changed; /* bitmaps of npages bits over all spans: pages that had to be logged, */
	uint64_t *missed;  /* those of them that were not, */
	uint64_t *extra;   /* and pages that were logged for nothing */
	uint64_t *ever;	   /* pages that any log had */
	uint64_t *touched; /* scratch: pages with any change in this span, or waiting from before */
	struct check_hits hits;	   /* of this span */
	struct check_hits pending; /* of the span before, not in its log */
	struct check_hits misses;  /* for good */
	struct check_hit stray;	   /* the first change outside of what the device may write */
	bool has_stray;
};

/* Return: 0 or -ENOMEM. Owns: free with check_compare_destroy(). */
int check_compare_create(struct check_compare *c, struct check_guest *guest,
			 const struct check_places *places);
void check_compare_destroy(struct check_compare *c);

/* Forget the scenario before. */
void check_compare_reset(struct check_compare *c);

/* The first span begins now. */
void check_compare_begin(struct check_compare *c);

/* A span ended, @log is what was marked in it; the next one begins. Return: 0 or -ENOMEM. */
int check_compare_span(struct check_compare *c, const uint64_t *log);

/* The last span ended, with @log. Return: 0 or -ENOMEM. */
int check_compare_end(struct check_compare *c, const uint64_t *log);

/*
 * Shadow mode, once the rings are stopped: the after copy, which a harvester kept in step with the
 * log, has to be memory as it is now, but for pages in @log, which were marked and not copied yet.
 * What the driver wrote is taken from the before copy, which its own writes went to. The before
 * copy is memory afterwards. Return: 0 or -ENOMEM.
 */
int check_compare_shadow(struct check_compare *c, const uint64_t *log);

/* Count the pages in @ever, which were marked at any time, as changed or as extra. */
void check_compare_marked(struct check_compare *c, const uint64_t *ever);

/*
 * Whatever changed since check_compare_end() came too late; @log, where nothing can be marked any
 * more, is empty. Return: 0 or -ENOMEM.
 */
int check_compare_late(struct check_compare *c, const uint64_t *log);

#endif
