/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "check/places.h"

int check_places_add(struct check_places *p, const struct check_place *place)
{
	unsigned int capacity = p->capacity ? 2 * p->capacity : 256;
	struct check_place *v;

	if (p->n == p->capacity) {
		v = reallocarray(p->v, capacity, sizeof(*v));
		if (!v)
			return silt_err_sys(ENOMEM, "cannot note what lies at 0x%lx", place->gpa);
		p->v = v;
		p->capacity = capacity;
	}
	p->v[p->n++] = *place;
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct check_place *x = a, *y = b;

	return (x->gpa > y->gpa) - (x->gpa < y->gpa);
}

void check_places_sort(struct check_places *p)
{
	qsort(p->v, p->n, sizeof(*p->v), by_address);
}

unsigned int check_places_find(const struct check_places *p, uint64_t gpa)
{
	unsigned int low = 0, high = p->n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (p->v[mid].gpa + p->v[mid].len <= gpa)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void check_places_free(struct check_places *p)
{
	free(p->v);
	p->v = NULL;
	p->n = p->capacity = 0;
}

bool check_place_used_ring(enum check_place_kind kind)
{
	return kind >= PLACE_USED_ENTRIES && kind <= PLACE_DEVICE_AREA;
}

bool check_place_written(enum check_place_kind kind)
{
	return kind == PLACE_DATA || kind == PLACE_HEADER || kind == PLACE_STATUS ||
	       check_place_used_ring(kind);
}

enum check_class check_place_class(enum check_place_kind kind)
{
	switch (kind) {
	case PLACE_STATUS:
	case PLACE_USED_ENTRIES:
	case PLACE_USED_INDEX:
	case PLACE_RING_DESCS:
		return CHECK_COMPLETION;
	case PLACE_USED_FLAGS:
	case PLACE_USED_EVENT:
	case PLACE_DEVICE_AREA:
		return CHECK_BOOKKEEPING;
	default:
		return CHECK_DATA;
	}
}
