/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/zero.h"
#include "demo/ram.h"

#define MIB	   UINT64_C(0x100000)
#define HIGH_GPA   UINT64_C(0x100000000)
#define LOW_MAX	   UINT64_C(0x80000000)
#define VGA_BYTES  (MIB)
#define VGA_GPA	   UINT64_C(0xc0000000)
#define VGA_ALIAS  UINT64_C(0xd0003000)
#define DISK_MIN   (2 * MIB)
#define DISK_MAX   (64 * MIB)
#define DISK_SHARE 16

static int open_block(struct ram_block *b, const char *name, uint64_t bytes)
{
	b->name = name;
	b->bytes = bytes;
	b->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b->fd < 0 || ftruncate(b->fd, (off_t)bytes) < 0)
		return silt_err_sys(errno, "demo: %llu bytes of guest memory",
				    (unsigned long long)bytes);
	b->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, b->fd, 0);
	if (b->memory == MAP_FAILED) {
		b->memory = NULL;
		return silt_err_sys(errno, "demo: %llu bytes of guest memory",
				    (unsigned long long)bytes);
	}
	/* A dirty page shall be one page, also where KVM maps it. */
	madvise(b->memory, bytes, MADV_NOHUGEPAGE);
	return 0;
}

static void set_slot(struct ram *r, unsigned int i, unsigned int block, uint64_t offset,
		     uint64_t gpa, uint64_t bytes)
{
	r->slots[i] = (struct ram_slot){
		.block = block,
		.offset = offset,
		.is = {.number = i,
		       .gpa = gpa,
		       .bytes = bytes,
		       .memory = r->blocks[block].memory + offset},
	};
}

int ram_open(struct ram *r, uint64_t bytes, unsigned int vcpus)
{
	uint64_t low = bytes / 2 < LOW_MAX ? bytes / 2 : LOW_MAX;
	int ret;

	*r = (struct ram){.blocks = {{.fd = -1}, {.fd = -1}}, .vcpus = vcpus};
	r->disk_bytes = bytes / DISK_SHARE & ~(MIB - 1);
	if (r->disk_bytes < DISK_MIN)
		r->disk_bytes = DISK_MIN;
	if (r->disk_bytes > DISK_MAX)
		r->disk_bytes = DISK_MAX;
	ret = open_block(&r->blocks[RAM_MAIN], "ram", bytes);
	if (ret >= 0)
		ret = open_block(&r->blocks[RAM_VGA], "vga", VGA_BYTES);
	if (ret < 0) {
		ram_close(r);
		return ret;
	}
	set_slot(r, 0, RAM_MAIN, 0, 0, low);
	set_slot(r, 1, RAM_MAIN, low, HIGH_GPA, bytes - low);
	set_slot(r, 2, RAM_VGA, 0, VGA_GPA, VGA_BYTES);
	set_slot(r, 3, RAM_VGA, 0, VGA_ALIAS, VGA_BYTES);
	return 0;
}

void ram_close(struct ram *r)
{
	unsigned int i;

	for (i = 0; i < RAM_BLOCKS; i++) {
		if (r->blocks[i].memory)
			munmap(r->blocks[i].memory, r->blocks[i].bytes);
		if (r->blocks[i].fd >= 0)
			close(r->blocks[i].fd);
		r->blocks[i] = (struct ram_block){.fd = -1};
	}
}

/* The part of RAM_MAIN that a vCPU owns, in bytes. */
static void part_of(const struct ram *r, unsigned int vcpu, uint64_t *first, uint64_t *end)
{
	uint64_t bytes = r->blocks[RAM_MAIN].bytes;
	uint64_t each = (bytes - r->disk_bytes) / r->vcpus & ~(GUEST_PAGE - 1);

	*first = r->disk_bytes + vcpu * each;
	*end = vcpu + 1 < r->vcpus ? *first + each : bytes;
}

unsigned int ram_ranges(const struct ram *r, unsigned int vcpu, struct guest_range *ranges)
{
	uint64_t first, end, from, to;
	unsigned int i, n = 0;

	part_of(r, vcpu, &first, &end);
	for (i = 0; i < RAM_SLOTS; i++) {
		const struct ram_slot *s = &r->slots[i];

		from = s->block == RAM_MAIN && first > s->offset ? first - s->offset : 0;
		to = s->is.bytes;
		if (s->block == RAM_MAIN)
			to = end < s->offset ? 0 : end - s->offset < to ? end - s->offset : to;
		else if (vcpu)
			to = 0;
		if (from < to)
			ranges[n++] = (struct guest_range){.gpa = s->is.gpa + from,
							   .pages = (to - from) / GUEST_PAGE};
	}
	return n;
}

unsigned int ram_owner(const struct ram *r, unsigned int block, uint64_t page)
{
	uint64_t first, end, at = page * GUEST_PAGE;
	unsigned int vcpu = 0;

	if (block == RAM_VGA)
		return 1;
	if (at < r->disk_bytes)
		return 0;
	for (part_of(r, vcpu, &first, &end); at >= end; part_of(r, vcpu, &first, &end))
		vcpu++;
	return vcpu + 1;
}

int ram_find(const struct ram *r, uint64_t gpa, uint64_t *offset)
{
	unsigned int i;

	for (i = 0; i < RAM_SLOTS; i++) {
		if (gpa - r->slots[i].is.gpa < r->slots[i].is.bytes) {
			*offset = r->slots[i].offset + (gpa - r->slots[i].is.gpa);
			return (int)r->slots[i].block;
		}
	}
	return -1;
}

void ram_fill(struct ram *r, uint64_t seed)
{
	const struct ram_block *b = &r->blocks[RAM_MAIN];
	uint64_t *word = (uint64_t *)(b->memory + r->disk_bytes);
	uint64_t words = (b->bytes - r->disk_bytes) / 8, i;

	for (i = 0; i < words; i++) {
		if (i / 512 % 4 == 3)
			i += 511;
		else
			word[i] = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
	}
}

static void hash_pages(XXH3_state_t *state, const struct ram *r, unsigned int block, uint64_t from,
		       uint64_t end)
{
	const uint8_t *memory = r->blocks[block].memory;
	uint64_t at;

	for (at = from; at < end; at += GUEST_PAGE) {
		uint64_t page[3] = {block, at};

		if (silt_memory_is_zero(memory + at, GUEST_PAGE))
			continue;
		page[2] = XXH3_64bits(memory + at, GUEST_PAGE);
		XXH3_128bits_update(state, page, sizeof(page));
	}
}

/* Only what is there: reading the rest would make the kernel bring pages. */
static int hash_block(XXH3_state_t *state, const struct ram *r, unsigned int block)
{
	const struct ram_block *b = &r->blocks[block];
	off_t from, end = 0;

	while ((from = lseek(b->fd, end, SEEK_DATA)) >= 0) {
		end = lseek(b->fd, from, SEEK_HOLE);
		if (end < 0)
			break;
		hash_pages(state, r, block, (uint64_t)from, (uint64_t)end);
		if ((uint64_t)end == b->bytes)
			return 0;
	}
	return errno == ENXIO ? 0 : silt_err_sys(errno, "demo: where block %s has data", b->name);
}

int ram_hash(const struct ram *r, struct ram_hash *hash)
{
	XXH3_state_t *state = XXH3_createState();
	XXH128_hash_t sum;
	unsigned int i;
	int ret = 0;

	if (!state)
		return silt_err(ENOMEM, "demo: no memory for a hash");
	XXH3_128bits_reset(state);
	for (i = 0; i < RAM_BLOCKS && ret >= 0; i++)
		ret = hash_block(state, r, i);
	sum = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	*hash = (struct ram_hash){.high = sum.high64, .low = sum.low64};
	return ret;
}
