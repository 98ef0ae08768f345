/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_rings.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/proc.h"

/* Where KVM shows a ring in a vCPU's file. */
static uint64_t ring_offset(void)
{
	return 64 * (uint64_t)sysconf(_SC_PAGESIZE);
}

void rings_create(struct rings *r, unsigned int nvcpus)
{
	unsigned int i;

	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->was_reset, NULL);
	for (i = 0; i < RINGS_SLOTS; i++)
		r->slots[i].id = UINT32_MAX;
	for (; r->nvcpus < nvcpus; r->nvcpus++) {
		i = r->nvcpus;
		r->vcpus[i].fd = proc_memfd("vcpu", ring_offset() + RING_BYTES);
		r->vcpus[i].entries = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
					   r->vcpus[i].fd, (off_t)ring_offset());
		if (r->vcpus[i].entries == MAP_FAILED)
			abort();
	}
}

void rings_destroy(struct rings *r)
{
	while (r->nvcpus) {
		r->nvcpus--;
		munmap(r->vcpus[r->nvcpus].entries, RING_BYTES);
		close(r->vcpus[r->nvcpus].fd);
	}
	pthread_cond_destroy(&r->was_reset);
	pthread_mutex_destroy(&r->lock);
}

bool rings_full(const struct rings *r, unsigned int vcpu)
{
	return r->vcpus[vcpu].head - r->vcpus[vcpu].reset == RING_ENTRIES;
}

void rings_push(struct rings *r, unsigned int vcpu, uint32_t id, uint64_t offset)
{
	struct kvm_dirty_gfn *entry;

	if (rings_full(r, vcpu))
		abort();
	entry = &r->vcpus[vcpu].entries[r->vcpus[vcpu].head++ % RING_ENTRIES];
	entry->slot = id;
	entry->offset = offset;
	__atomic_store_n(&entry->flags, KVM_DIRTY_GFN_F_DIRTY, __ATOMIC_RELEASE);
}

void rings_write(struct rings *r, unsigned int vcpu, unsigned int slot, uint64_t page)
{
	r->slots[slot].memory[page]++;
	if (r->slots[slot].unprotected[page])
		return;
	r->slots[slot].unprotected[page] = true;
	r->slots[slot].entered[page] = true;
	rings_push(r, vcpu, r->slots[slot].id, page);
}

static int find(const struct rings *r, uint32_t id)
{
	int i;

	for (i = 0; i < RINGS_SLOTS; i++) {
		if (r->slots[i].id == id)
			return i;
	}
	return -1;
}

/* Where a reset is cut short, the page of the entry at hand is not protected, and never will be. */
static void reset_ring(struct rings *r, unsigned int vcpu, bool cut)
{
	struct kvm_dirty_gfn *entry;
	int slot;

	for (;;) {
		entry = &r->vcpus[vcpu].entries[r->vcpus[vcpu].reset % RING_ENTRIES];
		if (!(__atomic_load_n(&entry->flags, __ATOMIC_ACQUIRE) & KVM_DIRTY_GFN_F_RESET))
			return;
		slot = find(r, entry->slot);
		if (slot >= 0 && entry->offset < SLOT_PAGES && !cut)
			r->slots[slot].unprotected[entry->offset] = false;
		__atomic_store_n(&entry->flags, 0, __ATOMIC_RELAXED);
		r->vcpus[vcpu].reset++;
		if (cut)
			return;
	}
}

static __thread volatile sig_atomic_t signalled;

static void note_signal(int sig)
{
	(void)sig;
	signalled = 1;
}

static bool is_cut_short(struct rings *r)
{
	bool cut = r->stop;

	r->stop = false;
	if (!r->signals)
		return cut;
	signalled = 0;
	signal(SIGUSR1, note_signal);
	pthread_kill(pthread_self(), SIGUSR1);
	return cut || signalled;
}

static int reset(struct rings *r)
{
	unsigned int i;
	bool cut;

	if (r->fail_reset) {
		errno = r->fail_reset;
		return -1;
	}
	if (r->gets)
		r->get_before_reset = true;
	cut = is_cut_short(r);
	for (i = 0; i < (cut ? 1 : r->nvcpus); i++)
		reset_ring(r, i, cut);
	pthread_mutex_lock(&r->lock);
	r->resets++;
	pthread_cond_signal(&r->was_reset);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static int get(struct rings *r, const struct kvm_dirty_log *log)
{
	int slot = find(r, log->slot);

	r->gets++;
	if (slot < 0 || r->fail_get) {
		errno = slot < 0 ? ENOENT : r->fail_get;
		return -1;
	}
	memcpy(log->dirty_bitmap, r->slots[slot].bitmap, sizeof(r->slots[slot].bitmap));
	memset(r->slots[slot].bitmap, 0, sizeof(r->slots[slot].bitmap));
	return 0;
}

int rings_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	(void)fd;
	if (request == KVM_RESET_DIRTY_RINGS)
		return reset(opaque);
	if (request == KVM_GET_DIRTY_LOG)
		return get(opaque, arg);
	abort();
}

void rings_wait_for_reset(struct rings *r, unsigned int resets)
{
	pthread_mutex_lock(&r->lock);
	while (r->resets < resets)
		pthread_cond_wait(&r->was_reset, &r->lock);
	pthread_mutex_unlock(&r->lock);
}
