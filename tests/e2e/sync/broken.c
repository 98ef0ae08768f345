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

static int broken_call(const struct world *w, int fd, unsigned long request, void *arg)
{
	if (request == KVM_GET_DIRTY_LOG && w->broken == BREAK_GET)
		return get_loses_pages(fd, arg);
	if (request == KVM_CLEAR_DIRTY_LOG && w->broken == BREAK_CLEAR)
		return clear_too_much(fd, arg);
	if (request == KVM_CLEAR_DIRTY_LOG && w->broken == BREAK_ARM)
		return 0;
	return ioctl(fd, request, arg);
}

/* One call in ten fails. Reading may do so with what was read thrown away. */
static int failing_call(struct world *w, int fd, unsigned long request, void *arg)
{
	struct rng rng = {.state = w->seed + __atomic_fetch_add(&w->calls, 1, __ATOMIC_RELAXED)};
	int ret = 0;

	if (__atomic_load_n(&w->healed, __ATOMIC_RELAXED) || !rng_one_in(&rng, 10))
		return ioctl(fd, request, arg);
	if (request == KVM_GET_DIRTY_LOG && rng_one_in(&rng, 2))
		ret = ioctl(fd, request, arg);
	if (ret >= 0)
		errno = BROKEN_ERRNO;
	return -1;
}

int broken_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct world *w = opaque;

	return w->failing ? failing_call(w, fd, request, arg) : broken_call(w, fd, request, arg);
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
