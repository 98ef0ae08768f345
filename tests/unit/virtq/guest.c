/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest.h"
#include "support/proc.h"

/* No multiple of a page: regions may start anywhere in their file. */
#define LOW_FILE_OFFSET	 UINT64_C(0x1200)
#define HIGH_FILE_OFFSET UINT64_C(0x800)

static void require(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	fprintf(stderr, "%s\n", silt_errmsg());
	abort();
}

static uint8_t *map_file(int fd, uint64_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	require(p != MAP_FAILED, "mmap");
	return p;
}

static void add_region(struct guest *g, int fd, uint64_t gpa, uint64_t end, uint64_t offset)
{
	const struct silt_memory_region r = {
		.gpa = gpa,
		.size = end - gpa,
		.user_addr = gpa,
		.mmap_offset = offset,
	};
	struct silt_memory *mem;

	require(!silt_memory_add(g->mem, &r, fd, &mem), "silt_memory_add");
	silt_memory_put(g->mem);
	g->mem = mem;
}

void guest_open(struct guest *g)
{
	memset(g, 0, sizeof(*g));
	g->fd_log = -1;
	g->fd_low = proc_memfd("low", LOW_FILE_OFFSET + GUEST_LOW_SIZE);
	g->fd_high = proc_memfd("high", HIGH_FILE_OFFSET + GUEST_HIGH_SIZE);
	g->low = map_file(g->fd_low, LOW_FILE_OFFSET + GUEST_LOW_SIZE) + LOW_FILE_OFFSET;
	g->high = map_file(g->fd_high, HIGH_FILE_OFFSET + GUEST_HIGH_SIZE) + HIGH_FILE_OFFSET;
	require(!silt_memory_create(&g->mem), "silt_memory_create");
	add_region(g, g->fd_low, GUEST_LOW, GUEST_CUT1, LOW_FILE_OFFSET);
	add_region(g, g->fd_low, GUEST_CUT1, GUEST_CUT2, LOW_FILE_OFFSET + GUEST_CUT1 - GUEST_LOW);
	add_region(g, g->fd_low, GUEST_CUT2, GUEST_LOW_END,
		   LOW_FILE_OFFSET + GUEST_CUT2 - GUEST_LOW);
	add_region(g, g->fd_high, GUEST_HIGH, GUEST_HIGH_END, HIGH_FILE_OFFSET);
	guest_new_log(g, 0);
}

static void drop_log(struct guest *g)
{
	if (g->fd_log < 0)
		return;
	silt_log_put(g->log);
	munmap(g->log_file, g->log_offset + GUEST_LOG_SIZE);
	close(g->fd_log);
}

void guest_close(struct guest *g)
{
	drop_log(g);
	silt_memory_put(g->mem);
	munmap(g->low - LOW_FILE_OFFSET, LOW_FILE_OFFSET + GUEST_LOW_SIZE);
	munmap(g->high - HIGH_FILE_OFFSET, HIGH_FILE_OFFSET + GUEST_HIGH_SIZE);
	close(g->fd_low);
	close(g->fd_high);
}

void guest_new_log(struct guest *g, uint64_t offset)
{
	drop_log(g);
	g->log_offset = offset;
	g->fd_log = proc_memfd("log", offset + GUEST_LOG_SIZE);
	g->log_file = map_file(g->fd_log, offset + GUEST_LOG_SIZE);
	require(!silt_log_map(g->fd_log, GUEST_LOG_SIZE, offset, &g->log), "silt_log_map");
}

const uint8_t *guest_log(const struct guest *g)
{
	return g->log_file + g->log_offset;
}

bool guest_marked(const struct guest *g, uint64_t gpa)
{
	return guest_log(g)[gpa / 4096 / 8] >> (gpa / 4096 % 8) & 1;
}

unsigned int guest_marks(const struct guest *g)
{
	unsigned int n = 0;
	uint64_t i;

	for (i = 0; i < GUEST_LOG_SIZE; i++)
		n += __builtin_popcount(guest_log(g)[i]);
	return n;
}

void guest_clear_log(struct guest *g)
{
	memset(g->log_file, 0, g->log_offset + GUEST_LOG_SIZE);
}

void *guest_at(const struct guest *g, uint64_t gpa)
{
	return gpa >= GUEST_HIGH ? g->high + (gpa - GUEST_HIGH) : g->low + (gpa - GUEST_LOW);
}

void *guest_hva(const struct guest *g, uint64_t gpa)
{
	uint64_t len = 1;
	void *hva = silt_memory_translate(g->mem, gpa, &len);

	require(hva, "silt_memory_translate");
	return hva;
}

void guest_place_ring(const struct guest *g, struct guest_ring *r, uint16_t num, uint64_t desc,
		      uint64_t avail, uint64_t used, uint64_t features)
{
	r->num = num;
	r->desc = desc;
	r->avail = avail;
	r->used = used;
	r->driver = (struct silt_virtq_layout){
		.num = num,
		.desc = guest_at(g, desc),
		.avail = guest_at(g, avail),
		.used = guest_at(g, used),
		.features = features,
	};
	r->device = (struct silt_virtq_layout){
		.num = num,
		.desc = guest_hva(g, desc),
		.avail = guest_hva(g, avail),
		.used = guest_hva(g, used),
		.features = features,
		.desc_gpa = desc,
		.used_gpa = used,
	};
}
