/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/per_page.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "demo/tracking.h"

static int get(struct tracking *t, const struct ram_slot *s, uint64_t *bits)
{
	struct kvm_dirty_log log = {.slot = s->is.number, .dirty_bitmap = bits};

	if (ioctl(vm_fd(t->machine->vm), KVM_GET_DIRTY_LOG, &log) < 0)
		return silt_err_sys(errno, "KVM_GET_DIRTY_LOG of slot %u", s->is.number);
	return 0;
}

static int clear(struct tracking *t, const struct ram_slot *s, uint64_t page)
{
	uint64_t mask = UINT64_C(1) << page % 64, first = page / 64 * 64;
	uint64_t rest = s->is.bytes / GUEST_PAGE - first;
	struct kvm_clear_dirty_log log = {
		.slot = s->is.number,
		.first_page = first,
		.num_pages = rest < 64 ? (uint32_t)rest : 64,
		.dirty_bitmap = &mask,
	};

	if (ioctl(vm_fd(t->machine->vm), KVM_CLEAR_DIRTY_LOG, &log) < 0)
		return silt_err_sys(errno, "KVM_CLEAR_DIRTY_LOG of page %llu of slot %u",
				    (unsigned long long)page, s->is.number);
	return 0;
}

static int mark_pages(struct tracking *t, const struct ram_slot *s, const uint64_t *bits)
{
	uint64_t pages = s->is.bytes / GUEST_PAGE, page;
	int ret = 0;

	for (page = silt_bitmap_next(bits, 0, pages); page < pages && ret >= 0;
	     page = silt_bitmap_next(bits, page + 1, pages)) {
		ret = clear(t, s, page);
		if (ret >= 0)
			ret = silt_sync_mark(t->sync, t->blocks[s->block],
					     s->offset / GUEST_PAGE + page, 1);
	}
	return ret;
}

static int64_t dirty_in(const struct tracking *t, const struct ram_slot *s)
{
	return silt_sync_dirty(t->sync, t->consumer, t->blocks[s->block], s->offset / GUEST_PAGE,
			       s->is.bytes / GUEST_PAGE);
}

static int64_t read_slot(struct tracking *t, const struct ram_slot *s)
{
	int64_t before = dirty_in(t, s), ret = before;
	uint64_t *bits;

	if (before < 0)
		return before;
	bits = calloc(silt_bitmap_words(s->is.bytes / GUEST_PAGE), sizeof(*bits));
	if (!bits)
		return silt_err(ENOMEM, "no memory for the bitmap of slot %u", s->is.number);
	ret = get(t, s, bits);
	if (ret >= 0)
		ret = mark_pages(t, s, bits);
	if (ret >= 0)
		ret = dirty_in(t, s);
	free(bits);
	return ret < 0 ? ret : ret - before;
}

int64_t per_page_read(struct tracking *t)
{
	int64_t dirty = 0, ret = 0;
	unsigned int i;

	for (i = 0; i < RAM_SLOTS && ret >= 0; i++) {
		ret = read_slot(t, &t->machine->ram.slots[i]);
		dirty += ret;
	}
	return ret < 0 ? ret : dirty;
}
