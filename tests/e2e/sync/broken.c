/* SPDX-License-Identifier: BSD-3-Clause */
/* A hypervisor that does not do what it should. */
#include "broken.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/kvm.h>

/* Always the same pages: KVM reports a page again until it is cleared. */
static int get_loses_pages(int fd, struct kvm_dirty_log *log)
{
	int ret = ioctl(fd, KVM_GET_DIRTY_LOG, log);
	uint64_t *bitmap = log->dirty_bitmap;

	bitmap[0] &= ~UINT64_C(0x300);
	return ret;
}

static int clear_too_much(int fd, struct kvm_clear_dirty_log *log)
{
	struct kvm_clear_dirty_log all = *log;
	size_t bytes = (log->num_pages + 63) / 64 * 8;
	int ret;

	all.dirty_bitmap = malloc(bytes);
	if (!all.dirty_bitmap)
		return -1;
	memset(all.dirty_bitmap, 0xff, bytes);
	ret = ioctl(fd, KVM_CLEAR_DIRTY_LOG, &all);
	free(all.dirty_bitmap);
	return ret;
}

int broken_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	const struct world *w = opaque;

	if (request == KVM_GET_DIRTY_LOG && w->broken == BREAK_GET)
		return get_loses_pages(fd, arg);
	if (request == KVM_CLEAR_DIRTY_LOG && w->broken == BREAK_CLEAR)
		return clear_too_much(fd, arg);
	if (request == KVM_CLEAR_DIRTY_LOG && w->broken == BREAK_ARM)
		return 0;
	return ioctl(fd, request, arg);
}

/* KVM protects the wrong page again: what is written to the other one is never seen from then on.
 */
void broken_ring(struct world *w)
{
	struct kvm_dirty_gfn *entries;

	if (w->broken != BREAK_RING)
		return;
	entries = mmap(NULL, w->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		       guest_vcpu_fd(w->guest, 0), KVM_DIRTY_LOG_PAGE_OFFSET * (off_t)GUEST_PAGE);
	if (entries == MAP_FAILED)
		return;
	if (entries[0].offset)
		entries[0].offset--;
	munmap(entries, w->ring_bytes);
}
