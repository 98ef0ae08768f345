/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_SYNC_FAKE_H
#define TESTS_UNIT_SYNC_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/sync.h>

#define FAKE_SLOTS  4
#define FAKE_CLEARS 4096

struct fake_clear {
	uint32_t slot;
	uint64_t first;
	uint64_t n;
	uint64_t dirty;
};

/* A KVM that knows bitmaps, one bit a page, and does what it is told by the rules of its own. */
struct fake {
	bool get_clears;
	bool silent; /* failures that are asked for set no errno */
	struct {
		uint32_t id; /* address space << 16 | number */
		uint64_t pages;
		uint64_t *dirty;
		bool fail_get, fail_clear;
	} slots[FAKE_SLOTS];
	unsigned int nslots;
	unsigned int gets;
	struct fake_clear clears[FAKE_CLEARS];
	unsigned int nclears;
	const char *wrong; /* what a caller did that KVM refuses */
};

void fake_add(struct fake *f, uint32_t id, uint64_t pages);
void fake_free(struct fake *f);
int fake_ioctl(void *opaque, int fd, unsigned long request, void *arg);

/* A page was written through a slot. */
void fake_write(struct fake *f, unsigned int slot, uint64_t page);
bool fake_dirty(const struct fake *f, unsigned int slot, uint64_t page);

#endif
