/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/sync_topology.h"

#include <string.h>

#include <silt/bitmap.h>
#include <silt/sync.h>

#define GIB UINT64_C(262144)

/* Memory below and above the hole for devices; it ends at 4 GiB. */
#define LOW_PAGES (2 * GIB)
#define HIGH_GPA  (4 * GIB)

/* Firmware and ROMs, as the first slots show them and as the second ones do. */
#define FIRMWARE_GPA UINT64_C(0xff000)
#define ALIAS_GPA    UINT64_C(0xfd000)
#define FIRMWARE_GAP UINT64_C(0x200)

#define RUN_PAGES 512

/* There are some for each way of clearing, and none is shorter than what silt clears together. */
#define SLICES	  64
#define MIN_SLICE (UINT64_C(1) << 18)
#define MAX_SLICE (UINT64_C(1) << 20)

/*
 * The published case: 2.5 M dirty pages of 256 GiB, 160,000 of them by devices. Some are written
 * twice.
 */
#define PER_PAGES    (256 * GIB)
#define CPU_WRITES   UINT64_C(2386000)
#define DEVICE_PAGES UINT64_C(160000)

static const struct {
	const char *name;
	uint64_t pages;
} sizes[] = {
	{"64c256g", 256 * GIB}, {"64c256g-odd", 256 * GIB}, {"12t", 12 * 1024 * GIB},
	{"16g", 16 * GIB},	{"64g", 64 * GIB},	    {"256g", 256 * GIB},
	{"1t", 1024 * GIB},	{"4t", 4 * 1024 * GIB},	    {"tiny", GIB / 4},
	{"tiny-odd", GIB / 4},
};

#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static const uint64_t firmware[] = {480, 32, 32, 32, 32, 16};

const char *const *sync_topology_names(void)
{
	static const char *names[NSIZES + 1];
	unsigned int i;

	for (i = 0; i < NSIZES; i++)
		names[i] = sizes[i].name;
	return names;
}

static void add_block(struct sync_topology *t, const char *name, uint64_t pages)
{
	t->blocks[t->nblocks++] = (struct sync_block_at){name, pages, pages % 64 == 0};
}

static void add_slot(struct sync_topology *t, unsigned int block, uint64_t gpa, uint64_t offset,
		     uint64_t pages)
{
	t->slots[t->nslots++] = (struct sync_slot_at){block, gpa, offset, pages};
	if (gpa + pages > t->log_pages)
		t->log_pages = gpa + pages;
}

/*
 * Blocks of a quarter each, one behind the other from 4 GiB on, but for the beginning of the first,
 * which lies below the hole. Odd ones end inside a word of every bitmap, and so does that
 * beginning.
 */
static void add_memory(struct sync_topology *t, uint64_t pages, bool odd)
{
	static const char *const names[SYNC_BIG_BLOCKS] = {"memory 0", "memory 1", "memory 2",
							   "memory 3"};
	uint64_t quarter = pages / SYNC_BIG_BLOCKS, gpa = HIGH_GPA, size, low;
	unsigned int i;

	for (i = 0; i < SYNC_BIG_BLOCKS; i++) {
		size = odd ? quarter - 37 - 2 * i : quarter;
		low = i ? 0 : LOW_PAGES < quarter / 2 ? LOW_PAGES : quarter / 2;
		if (odd && low)
			low -= 3;
		add_block(t, names[i], size);
		if (low)
			add_slot(t, i, 0, 0, low);
		add_slot(t, i, gpa, low, size - low);
		gpa += size - low;
		t->pages += size;
	}
	t->nbig = t->nslots;
}

static void add_firmware(struct sync_topology *t)
{
	static const char *const names[] = {"firmware", "rom 0", "rom 1",
					    "rom 2",	"rom 3", "rom 4"};
	unsigned int i, block;

	for (i = 0; i < sizeof(firmware) / sizeof(firmware[0]); i++) {
		block = t->nblocks;
		add_block(t, names[i], firmware[i]);
		add_slot(t, block, FIRMWARE_GPA + i * FIRMWARE_GAP, 0, firmware[i]);
		add_slot(t, block, ALIAS_GPA + i * FIRMWARE_GAP, 0, firmware[i]);
	}
}

/* Unless there is too little memory for that. */
static uint64_t slice_of(uint64_t pages)
{
	uint64_t slice = MIN_SLICE;

	while (slice < MAX_SLICE && slice * SLICES < pages)
		slice *= 2;
	while (slice > pages / 16)
		slice /= 2;
	return slice;
}

bool sync_topology_make(const char *name, struct sync_topology *t)
{
	unsigned int i;

	for (i = 0; i < NSIZES && strcmp(sizes[i].name, name) != 0; i++)
		;
	if (i == NSIZES)
		return false;
	*t = (struct sync_topology){.name = sizes[i].name};
	add_memory(t, sizes[i].pages, strstr(name, "-odd") != NULL);
	add_firmware(t);
	t->slice = slice_of(sizes[i].pages);
	return true;
}

static const char *const pattern_names[SYNC_PATTERNS] = {"clean", "sparse", "runs", "random"};

const char *sync_pattern_name(enum sync_pattern pattern)
{
	return pattern_names[pattern];
}

bool sync_pattern_find(const char *name, enum sync_pattern *pattern)
{
	unsigned int i;

	for (i = 0; i < SYNC_PATTERNS; i++) {
		if (!strcmp(pattern_names[i], name)) {
			*pattern = i;
			return true;
		}
	}
	return false;
}

/* @of as many of @t's pages as there are in the published case. */
static uint64_t in_proportion(const struct sync_topology *t, enum sync_pattern pattern, uint64_t of)
{
	uint64_t all = (CPU_WRITES + DEVICE_PAGES) * 1000 / PER_PAGES; /* in a thousand pages */
	uint64_t writes =
		t->pages < PER_PAGES ? of * t->pages / PER_PAGES : t->pages / PER_PAGES * of;

	if (pattern == SYNC_CLEAN)
		return 0;
	return pattern == SYNC_SPARSE ? writes / all : writes;
}

uint64_t sync_pattern_writes(const struct sync_topology *t, enum sync_pattern pattern)
{
	return in_proportion(t, pattern, CPU_WRITES);
}

uint64_t sync_pattern_device_writes(const struct sync_topology *t, enum sync_pattern pattern)
{
	return in_proportion(t, pattern, DEVICE_PAGES);
}

uint64_t sync_pattern_run(enum sync_pattern pattern)
{
	return pattern == SYNC_RUNS ? RUN_PAGES : 1;
}

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

void sync_pattern_fill(enum sync_pattern pattern, uint64_t *bits, uint64_t first, uint64_t pages,
		       uint64_t writes, uint64_t *seed)
{
	uint64_t run = sync_pattern_run(pattern), places = pages / run, i;

	for (i = 0; places && i < (writes + run - 1) / run; i++)
		silt_bitmap_set_range(bits, first + next_random(seed) % places * run, run);
}
