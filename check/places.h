/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_PLACES_H
#define CHECK_PLACES_H

#include <stdint.h>

#include "check/check.h"

struct check_request;

/* What lies at a place in guest memory. */
enum check_place_kind {
	PLACE_DATA,   /* a buffer that the device writes */
	PLACE_HEADER, /* what the device writes before the data */
	PLACE_STATUS,
	PLACE_USED_ENTRIES,
	PLACE_USED_INDEX,
	PLACE_USED_FLAGS,
	PLACE_USED_EVENT,
	PLACE_RING_DESCS,  /* a packed ring's, which both ends write, */
	PLACE_DEVICE_AREA, /* and what says when the device wants a kick */
	PLACE_READABLE,	   /* header or data that the device reads */
	PLACE_TABLE,	   /* an indirect table */
	PLACE_DESC,
	PLACE_AVAIL,
	PLACE_NOTHING, /* nothing that a request named */
};

struct check_place {
	uint64_t gpa;
	uint64_t len;
	enum check_place_kind kind;
	unsigned int queue;
	const struct check_request *request; /* NULL for parts of a ring */
	uint64_t offset;		     /* of this piece in the request's buffer */
};

/* All places of one scenario, in the order of addresses once they are sorted. */
struct check_places {
	struct check_place *v;
	unsigned int n;
	unsigned int capacity;
};

/* Return: 0 or -ENOMEM. */
int check_places_add(struct check_places *p, const struct check_place *place);
void check_places_sort(struct check_places *p);

/* The first place that ends behind @gpa; p->n if there is none. */
unsigned int check_places_find(const struct check_places *p, uint64_t gpa);
void check_places_free(struct check_places *p);

/* Is it part of a ring that the device writes, which has a log address and flag of its own? */
bool check_place_used_ring(enum check_place_kind kind);

/* Is it the device that writes there? */
bool check_place_written(enum check_place_kind kind);
enum check_class check_place_class(enum check_place_kind kind);

#endif
