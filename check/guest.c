/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "check/guest.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/*
 * The low region begins off any multiple of 8 pages, so that a byte of the log is shared with what
 * lies before it. The high one ends with a whole 64-bit word of the log, so that its last page has
 * the log's last bit.
 */
static const struct check_guest_region places[GUEST_SIDES] = {
	[GUEST_LOW] = {.gpa = MIB + 3 * GUEST_PAGE, .size = 8 * MIB},
	[GUEST_HIGH] = {.gpa = 4 * GIB + 5 * GUEST_PAGE,
			.size = 8 * MIB - 5 * GUEST_PAGE,
			.file_offset = 16 * GUEST_PAGE},
};

static void *map_private(uint64_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int create_region(struct check_guest_region *r)
{
	r->fd = memfd_create("silt-check-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Sealed, so that no backend takes the memory away under the checker. */
	if (r->fd < 0 || ftruncate(r->fd, r->file_offset + r->size) ||
	    fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return silt_err_sys(errno, "cannot make guest memory of %lu bytes", r->size);
	r->flat = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, r->file_offset);
	r->mem = r->flat;
	r->before = map_private(r->size);
	r->after = map_private(r->size);
	if (r->flat == MAP_FAILED || r->before == MAP_FAILED || r->after == MAP_FAILED)
		return silt_err_sys(errno, "cannot map guest memory of %lu bytes", r->size);
	return 0;
}

static void unmap(void *p, uint64_t size)
{
	if (p != MAP_FAILED)
		munmap(p, size);
}

void check_guest_destroy(struct check_guest *g)
{
	struct check_guest_region *r;

	for (r = g->region; r < g->region + GUEST_SIDES; r++) {
		unmap(r->flat, r->size);
		unmap(r->scattered, r->size);
		free(r->order);
		unmap(r->before, r->size);
		unmap(r->after, r->size);
		if (r->fd >= 0)
			close(r->fd);
		r->flat = r->scattered = r->before = r->after = MAP_FAILED;
		r->order = NULL;
		r->fd = -1;
	}
}

int check_guest_create(struct check_guest *g)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < GUEST_SIDES; i++) {
		g->region[i] = places[i];
		g->region[i].fd = -1;
		g->region[i].flat = g->region[i].scattered = MAP_FAILED;
		g->region[i].before = g->region[i].after = MAP_FAILED;
	}
	for (i = 0; i < GUEST_SIDES && !ret; i++)
		ret = create_region(&g->region[i]);
	return ret;
}

void check_guest_reset(struct check_guest *g, struct check_random *random)
{
	struct check_guest_region *r;

	for (r = g->region; r < g->region + GUEST_SIDES; r++) {
		r->mem = r->flat;
		check_random_fill(random, r->mem, r->size);
		r->next = 0;
		r->end = r->size;
	}
}

/* ---- Scattered memory ------------------------------------------------------------------------ */

static uint64_t pages(const struct check_guest_region *r)
{
	return r->size / GUEST_PAGE;
}

/*
 * All pages behind those of rings and as many again, where rings can be moved to, change places;
 * the region's last one stays the last.
 */
static void shuffle(struct check_guest_region *r)
{
	const uint32_t first = 2 * GUEST_RING_PAGES;
	struct check_random random = check_random_named(r->gpa, "pages");
	uint32_t i, j, swap;

	for (i = 0; i < pages(r); i++)
		r->order[i] = i;
	for (i = pages(r) - 2; i > first; i--) {
		j = first + check_random_below(&random, i - first + 1);
		swap = r->order[i];
		r->order[i] = r->order[j];
		r->order[j] = swap;
	}
}

/* Map @n pages from @page of the scattered memory on, which are neighbours. */
static int map_scattered(struct check_guest_region *r, uint64_t page, uint64_t n)
{
	void *at = r->scattered + page * GUEST_PAGE;

	if (mmap(at, n * GUEST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->fd,
		 r->file_offset + r->order[page] * GUEST_PAGE) == at)
		return 0;
	return silt_err_sys(errno, "cannot map guest memory at page %lu", page);
}

static int map_rings(struct check_guest_region *r)
{
	int ret = map_scattered(r, 0, GUEST_RING_PAGES);

	return ret < 0 ? ret : map_scattered(r, GUEST_RING_PAGES, GUEST_RING_PAGES);
}

static int create_scattered(struct check_guest_region *r)
{
	uint64_t page;
	int ret;

	r->order = calloc(pages(r), sizeof(*r->order));
	r->scattered = map_private(r->size);
	if (!r->order || r->scattered == MAP_FAILED)
		return silt_err_sys(ENOMEM, "cannot scatter guest memory of %lu bytes", r->size);
	shuffle(r);
	ret = map_rings(r);
	for (page = 2 * GUEST_RING_PAGES; page < pages(r) && !ret; page++)
		ret = map_scattered(r, page, 1);
	return ret;
}

/* Rings that were moved are where they were at first. */
static int restore_rings(struct check_guest_region *r)
{
	uint32_t i;

	if (!r->order[0])
		return 0;
	for (i = 0; i < 2 * GUEST_RING_PAGES; i++)
		r->order[i] = i;
	return map_rings(r);
}

int check_guest_scatter(struct check_guest *g)
{
	struct check_guest_region *r;
	int ret = 0;

	for (r = g->region; r < g->region + GUEST_SIDES && !ret; r++) {
		ret = r->order ? restore_rings(r) : create_scattered(r);
		r->mem = r->scattered;
	}
	return ret;
}

bool check_guest_close_rings(struct check_guest *g)
{
	struct check_guest_region *r;
	bool fit = true;

	for (r = g->region; r < g->region + GUEST_SIDES; r++) {
		fit = fit && r->next <= GUEST_RING_PAGES * GUEST_PAGE;
		r->next = 2 * GUEST_RING_PAGES * GUEST_PAGE;
	}
	return fit;
}

static void swap_blocks(uint8_t *a, uint8_t *b)
{
	uint8_t page[GUEST_PAGE];
	unsigned int i;

	for (i = 0; i < GUEST_RING_PAGES; i++, a += GUEST_PAGE, b += GUEST_PAGE) {
		memcpy(page, a, GUEST_PAGE);
		memcpy(a, b, GUEST_PAGE);
		memcpy(b, page, GUEST_PAGE);
	}
}

int check_guest_move_rings(struct check_guest *g)
{
	struct check_guest_region *r;
	uint32_t i, swap;
	int ret = 0;

	for (r = g->region; r < g->region + GUEST_SIDES && !ret; r++) {
		swap_blocks(r->flat, r->flat + GUEST_RING_PAGES * GUEST_PAGE);
		for (i = 0; i < GUEST_RING_PAGES; i++) {
			swap = r->order[i];
			r->order[i] = r->order[GUEST_RING_PAGES + i];
			r->order[GUEST_RING_PAGES + i] = swap;
		}
		ret = map_rings(r);
	}
	return ret;
}

uint64_t check_guest_page(const struct check_guest_region *r, uint64_t page)
{
	return r->mem == r->flat ? page : r->order[page];
}

/* ---- Allocation ------------------------------------------------------------------------------ */

uint64_t check_guest_alloc(struct check_guest *g, enum check_guest_side side, uint64_t in_page,
			   uint64_t len)
{
	struct check_guest_region *r = &g->region[side];
	uint64_t first = r->next + in_page;
	uint64_t next = (first + len + GUEST_PAGE - 1) / GUEST_PAGE * GUEST_PAGE;

	if (next > r->end)
		return 0;
	r->next = next;
	return r->gpa + first;
}

uint64_t check_guest_alloc_last(struct check_guest *g, enum check_guest_side side, uint64_t len)
{
	struct check_guest_region *r = &g->region[side];
	uint64_t first = (r->size - len) / GUEST_PAGE * GUEST_PAGE;

	if (r->end != r->size || len > r->size || first < r->next)
		return 0;
	r->end = first;
	return r->gpa + r->size - len;
}

static struct check_guest_region *region_of(const struct check_guest *g, uint64_t gpa)
{
	const struct check_guest_region *r = &g->region[GUEST_HIGH];

	return (struct check_guest_region *)(gpa >= r->gpa ? r : &g->region[GUEST_LOW]);
}

void *check_guest_mem(const struct check_guest *g, uint64_t gpa)
{
	const struct check_guest_region *r = region_of(g, gpa);

	return r->mem + (gpa - r->gpa);
}

uint64_t check_guest_end(const struct check_guest *g)
{
	return g->region[GUEST_HIGH].gpa + g->region[GUEST_HIGH].size;
}

void check_guest_capture(struct check_guest *g)
{
	struct check_guest_region *r;

	for (r = g->region; r < g->region + GUEST_SIDES; r++)
		memcpy(r->after, r->mem, r->size);
}

void check_guest_advance(struct check_guest *g)
{
	struct check_guest_region *r;
	uint8_t *swap;

	for (r = g->region; r < g->region + GUEST_SIDES; r++) {
		swap = r->before;
		r->before = r->after;
		r->after = swap;
	}
}

void check_guest_own_write(struct check_guest *g, uint64_t gpa, uint64_t len)
{
	struct check_guest_region *r = region_of(g, gpa);

	memcpy(r->before + (gpa - r->gpa), r->mem + (gpa - r->gpa), len);
}

void check_guest_will_write(struct check_guest *g, uint64_t gpa, const void *buf, uint64_t len)
{
	struct check_guest_region *r = region_of(g, gpa);

	memcpy(r->before + (gpa - r->gpa), buf, len);
}

bool check_guest_is_own(const struct check_guest *g, uint64_t gpa, uint64_t len)
{
	const struct check_guest_region *r = region_of(g, gpa);

	return !memcmp(r->before + (gpa - r->gpa), r->mem + (gpa - r->gpa), len);
}

void check_guest_store(struct check_guest *g, uint64_t gpa, const void *buf, uint64_t len)
{
	uint8_t *to = check_guest_mem(g, gpa);
	const uint8_t *from = buf;
	uint64_t i;

	for (i = 0; i < len; i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
	check_guest_own_write(g, gpa, len);
}

void check_guest_patch(struct check_guest *g, uint64_t gpa, uint64_t len)
{
	struct check_guest_region *r = region_of(g, gpa);

	memcpy(r->after + (gpa - r->gpa), r->before + (gpa - r->gpa), len);
}

void check_guest_copy_page(struct check_guest *g, enum check_guest_side side, uint64_t offset)
{
	const struct check_guest_region *r = &g->region[side];
	const uint64_t *from = (const uint64_t *)(r->mem + offset);
	uint64_t *to = (uint64_t *)(r->after + offset);
	unsigned int i;

	for (i = 0; i < GUEST_PAGE / sizeof(*to); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
