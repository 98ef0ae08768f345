/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>

#include <silt/bitmap.h>

void fake_add(struct fake *f, uint32_t id, uint64_t pages)
{
	unsigned int i = f->nslots++;

	f->slots[i].id = id;
	f->slots[i].pages = pages;
	f->slots[i].dirty = calloc(silt_bitmap_words(pages), sizeof(uint64_t));
	if (!f->slots[i].dirty)
		abort();
}

void fake_free(struct fake *f)
{
	while (f->nslots)
		free(f->slots[--f->nslots].dirty);
}

void fake_write(struct fake *f, unsigned int slot, uint64_t page)
{
	silt_bitmap_set(f->slots[slot].dirty, page);
}

bool fake_dirty(const struct fake *f, unsigned int slot, uint64_t page)
{
	return silt_bitmap_test(f->slots[slot].dirty, page);
}

static int find(const struct fake *f, uint32_t id)
{
	unsigned int i;

	for (i = 0; i < f->nslots; i++) {
		if (f->slots[i].id == id)
			return (int)i;
	}
	return -1;
}

static int get(struct fake *f, const struct kvm_dirty_log *log)
{
	int slot = find(f, log->slot);
	uint64_t *to = log->dirty_bitmap, i, words;

	f->gets++;
	if (slot < 0 || f->slots[slot].fail_get) {
		errno = slot < 0 ? ENOENT : f->silent ? 0 : EFAULT;
		return -1;
	}
	words = silt_bitmap_words(f->slots[slot].pages);
	for (i = 0; i < words; i++) {
		to[i] = f->slots[slot].dirty[i];
		if (f->get_clears)
			f->slots[slot].dirty[i] = 0;
	}
	/* Nobody promised that nothing is set beyond the end. */
	if (f->slots[slot].pages % 64)
		to[words - 1] |= UINT64_MAX << f->slots[slot].pages % 64;
	return 0;
}

static int refuse(struct fake *f, const char *why)
{
	f->wrong = why;
	errno = EINVAL;
	return -1;
}

static int clear_bits(struct fake *f, int slot, const struct kvm_clear_dirty_log *log)
{
	const uint64_t *mask = log->dirty_bitmap;
	struct fake_clear *seen = &f->clears[f->nclears++ % FAKE_CLEARS];
	uint64_t i, page;

	*seen = (struct fake_clear){.slot = log->slot, .first = log->first_page};
	seen->n = log->num_pages;
	for (i = 0; i < log->num_pages; i++) {
		page = log->first_page + i;
		if (!silt_bitmap_test(mask, i))
			continue;
		if (!fake_dirty(f, (unsigned int)slot, page))
			return refuse(f, "a page is cleared that was not reported");
		silt_bitmap_clear(f->slots[slot].dirty, page);
		seen->dirty++;
	}
	return seen->dirty ? 0 : refuse(f, "nothing is cleared");
}

static int clear(struct fake *f, const struct kvm_clear_dirty_log *log)
{
	int slot = find(f, log->slot);
	uint64_t end = log->first_page + log->num_pages;

	if (slot < 0)
		return refuse(f, "no such slot");
	if (f->slots[slot].fail_clear) {
		errno = f->silent ? 0 : EIO;
		return -1;
	}
	if (!log->num_pages || end > f->slots[slot].pages)
		return refuse(f, "a range that is empty or beyond the end");
	if (log->first_page % 64 || (end % 64 && end != f->slots[slot].pages))
		return refuse(f, "a range that is not aligned");
	return clear_bits(f, slot, log);
}

int fake_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct fake *f = opaque;

	(void)fd;
	if (request == KVM_GET_DIRTY_LOG)
		return get(f, arg);
	if (request == KVM_CLEAR_DIRTY_LOG)
		return clear(f, arg);
	return refuse(f, "an unknown request");
}
