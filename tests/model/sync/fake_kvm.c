/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_kvm.h"
#include "support/proc.h"

/* 64 pages on x86-64 and arm64; older headers of arm64 do not tell. */
#define RING_OFFSET ((off_t)64 * sysconf(_SC_PAGESIZE))

static void breach(struct fake_kvm *kvm, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void breach(struct fake_kvm *kvm, const char *fmt, ...)
{
	va_list args;

	if (kvm->breach[0])
		return;
	va_start(args, fmt);
	vsnprintf(kvm->breach, sizeof(kvm->breach), fmt, args);
	va_end(args);
}

static void lock(struct fake_kvm *kvm)
{
	pthread_mutex_lock(&kvm->lock);
}

static void unlock(struct fake_kvm *kvm)
{
	pthread_mutex_unlock(&kvm->lock);
}

void fake_kvm_init(struct fake_kvm *kvm, const struct fake_kvm_options *opt)
{
	pthread_mutexattr_t attr;

	memset(kvm, 0, sizeof(*kvm));
	kvm->kind = opt->kind;
	kvm->page_shift = opt->page_shift;
	kvm->ring_entries = opt->ring_entries;
	kvm->ring_reserve = opt->ring_reserve;
	kvm->clear_max_dirty = opt->clear_max_dirty;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&kvm->lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static size_t ring_bytes(const struct fake_kvm *kvm)
{
	return kvm->ring_entries * sizeof(struct kvm_dirty_gfn);
}

void fake_kvm_free(struct fake_kvm *kvm)
{
	unsigned int i;

	for (i = 0; i < FAKE_KVM_SLOTS; i++) {
		if (kvm->slots[i].used)
			fake_kvm_slot_remove(kvm, kvm->slots[i].id);
	}
	for (i = 0; i < kvm->nvcpus; i++) {
		munmap(kvm->vcpus[i].ring, ring_bytes(kvm));
		close(kvm->vcpus[i].fd);
		free(kvm->vcpus[i].written);
	}
	pthread_mutex_destroy(&kvm->lock);
}

struct fake_kvm_slot *fake_kvm_slot_find(struct fake_kvm *kvm, uint32_t id)
{
	unsigned int i;

	for (i = 0; i < FAKE_KVM_SLOTS; i++) {
		if (kvm->slots[i].used && kvm->slots[i].id == id)
			return &kvm->slots[i];
	}
	return NULL;
}

struct fake_kvm_slot *fake_kvm_slot_add(struct fake_kvm *kvm, uint32_t id, uint64_t pages,
					bool logged, bool readonly)
{
	struct fake_kvm_slot *slot = kvm->slots;
	bool set = kvm->kind == FAKE_KVM_MANUAL_SET;

	lock(kvm);
	while (slot->used)
		slot++;
	memset(slot, 0, sizeof(*slot));
	slot->used = true;
	slot->id = id;
	slot->pages = pages;
	slot->logged = logged;
	slot->readonly = readonly;
	slot->dirty = calloc(5, pages);
	slot->armed = slot->dirty + pages;
	slot->reported = slot->armed + pages;
	slot->got = slot->reported + pages;
	slot->reaped = slot->got + pages;
	if (logged)
		memset(set ? slot->dirty : slot->armed, 1, pages);
	unlock(kvm);
	return slot;
}

void fake_kvm_slot_remove(struct fake_kvm *kvm, uint32_t id)
{
	struct fake_kvm_slot *slot;

	lock(kvm);
	slot = fake_kvm_slot_find(kvm, id);
	free(slot->dirty);
	slot->used = false;
	unlock(kvm);
}

struct fake_kvm_vcpu *fake_kvm_vcpu_add(struct fake_kvm *kvm)
{
	struct fake_kvm_vcpu *vcpu = &kvm->vcpus[kvm->nvcpus++];

	memset(vcpu, 0, sizeof(*vcpu));
	vcpu->fd = proc_memfd("fake-kvm-ring", (uint64_t)RING_OFFSET + ring_bytes(kvm));
	vcpu->ring = mmap(NULL, ring_bytes(kvm), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd,
			  RING_OFFSET);
	vcpu->written = calloc(kvm->ring_entries, sizeof(*vcpu->written));
	if (vcpu->ring == MAP_FAILED || !vcpu->written)
		abort();
	return vcpu;
}

static uint32_t entries_in(const struct fake_kvm_vcpu *vcpu)
{
	return vcpu->next - vcpu->reset;
}

static bool ring_is_full(const struct fake_kvm *kvm, const struct fake_kvm_vcpu *vcpu)
{
	return entries_in(vcpu) >= kvm->ring_entries - kvm->ring_reserve;
}

static void push(struct fake_kvm *kvm, struct fake_kvm_vcpu *vcpu, uint32_t id, uint64_t page)
{
	struct kvm_dirty_gfn *entry = &vcpu->ring[vcpu->next % kvm->ring_entries];

	if (entry->flags)
		breach(kvm, "entry %u of a ring has flags %#x before KVM writes it", vcpu->next,
		       entry->flags);
	entry->slot = id;
	entry->offset = page;
	vcpu->written[vcpu->next % kvm->ring_entries] = *entry;
	__atomic_store_n(&entry->flags, KVM_DIRTY_GFN_F_DIRTY, __ATOMIC_RELEASE);
	vcpu->next++;
}

bool fake_kvm_push(struct fake_kvm *kvm, unsigned int vcpu, uint32_t id, uint64_t page)
{
	bool place;

	lock(kvm);
	place = entries_in(&kvm->vcpus[vcpu]) < kvm->ring_entries;
	if (place)
		push(kvm, &kvm->vcpus[vcpu], id, page);
	unlock(kvm);
	return place;
}

bool fake_kvm_write(struct fake_kvm *kvm, unsigned int vcpu, uint32_t id, uint64_t page)
{
	struct fake_kvm_slot *slot;
	bool runs = true;

	lock(kvm);
	slot = fake_kvm_slot_find(kvm, id);
	if (fake_kvm_has_rings(kvm)) {
		struct fake_kvm_vcpu *v = &kvm->vcpus[vcpu];

		runs = !ring_is_full(kvm, v);
		if (runs && slot->armed[page]) {
			push(kvm, v, id, page);
			runs = !ring_is_full(kvm, v);
		} else if (!runs) {
			slot = NULL;
		}
	} else if (slot->armed[page]) {
		slot->dirty[page] = 1;
	}
	if (slot)
		slot->armed[page] = 0;
	unlock(kvm);
	return runs;
}

void fake_kvm_write_outside(struct fake_kvm *kvm, uint32_t id, uint64_t page)
{
	lock(kvm);
	fake_kvm_slot_find(kvm, id)->dirty[page] = 1;
	unlock(kvm);
}

uint64_t fake_kvm_ring_entries(struct fake_kvm *kvm)
{
	uint64_t n = 0;
	unsigned int i;

	lock(kvm);
	for (i = 0; i < kvm->nvcpus; i++)
		n += entries_in(&kvm->vcpus[i]);
	unlock(kvm);
	return n;
}

void fake_kvm_pending(struct fake_kvm *kvm, const struct fake_kvm_slot *slot, uint8_t *pending)
{
	unsigned int i;
	uint64_t page;
	uint32_t at;

	for (page = 0; page < slot->pages; page++)
		pending[page] = slot->dirty[page] | slot->reaped[page];
	for (i = 0; i < kvm->nvcpus; i++) {
		for (at = kvm->vcpus[i].reset; at != kvm->vcpus[i].next; at++) {
			struct kvm_dirty_gfn *e = &kvm->vcpus[i].written[at % kvm->ring_entries];

			if (e->slot == slot->id && e->offset < slot->pages)
				pending[e->offset] = 1;
		}
	}
}

void fake_kvm_sync_begin(struct fake_kvm *kvm)
{
	unsigned int i;

	for (i = 0; i < FAKE_KVM_SLOTS; i++) {
		struct fake_kvm_slot *slot = &kvm->slots[i];

		if (!slot->used)
			continue;
		slot->gets = 0;
		slot->get_failed = false;
		memset(slot->got, 0, slot->pages);
	}
	for (i = 0; i < kvm->nvcpus; i++)
		kvm->vcpus[i].at_sync = kvm->vcpus[i].next;
}

static void expect_gets(struct fake_kvm *kvm, const struct fake_kvm_slot *slot)
{
	unsigned int want = slot->logged && kvm->kind != FAKE_KVM_RING;

	if (slot->gets != want)
		breach(kvm, "slot %#x was read %u times by one sync, not %u", slot->id, slot->gets,
		       want);
}

void fake_kvm_sync_end(struct fake_kvm *kvm)
{
	unsigned int i;

	/* Then all counts as dirty, and nothing more needs to be read. */
	if (kvm->failure.fired && kvm->failure.request == KVM_RESET_DIRTY_RINGS)
		return;
	for (i = 0; i < FAKE_KVM_SLOTS; i++) {
		if (kvm->slots[i].used)
			expect_gets(kvm, &kvm->slots[i]);
	}
	for (i = 0; i < kvm->nvcpus; i++) {
		if ((int32_t)(kvm->vcpus[i].reset - kvm->vcpus[i].at_sync) < 0)
			breach(kvm, "a sync left %u entries in ring %u",
			       kvm->vcpus[i].at_sync - kvm->vcpus[i].reset, i);
	}
}

void fake_kvm_forget_reads(struct fake_kvm *kvm)
{
	unsigned int i;

	for (i = 0; i < FAKE_KVM_SLOTS; i++) {
		if (kvm->slots[i].used)
			memset(kvm->slots[i].reported, 0, kvm->slots[i].pages);
	}
}

static bool manual(const struct fake_kvm *kvm)
{
	return kvm->kind == FAKE_KVM_MANUAL || kvm->kind == FAKE_KVM_MANUAL_SET;
}

/* The slot that a request names, or NULL with *@error set as the kernel does. */
static struct fake_kvm_slot *named(struct fake_kvm *kvm, uint32_t id, int *error)
{
	struct fake_kvm_slot *slot = fake_kvm_slot_find(kvm, id);

	*error = 0;
	if (kvm->kind == FAKE_KVM_RING)
		*error = -ENXIO;
	else if (id >> 16 >= FAKE_KVM_SPACES)
		*error = -EINVAL;
	else if (!slot || !slot->logged)
		*error = -ENOENT;
	if (*error)
		breach(kvm, "a request names slot %#x: %s", id, strerror(-*error));
	return *error ? NULL : slot;
}

/* The kernel copies whole words. What lies behind a slot's last page is nobody's business. */
static void fill_last_word(const struct fake_kvm_slot *slot, uint64_t *out)
{
	if (slot->pages % 64)
		out[slot->pages / 64] |= UINT64_MAX << slot->pages % 64;
}

/* What a read that failed may have given has no need to be cleared, but may be. */
static void note_read(const struct fake_kvm *kvm, struct fake_kvm_slot *slot, uint64_t page)
{
	if (!manual(kvm) || !slot->dirty[page])
		slot->reported[page] = FAKE_KVM_UNREAD;
	else if (!slot->get_failed)
		slot->reported[page] = FAKE_KVM_READ;
	else if (slot->reported[page] == FAKE_KVM_UNREAD)
		slot->reported[page] = FAKE_KVM_PERHAPS_READ;
}

/*
 * As the kernel: whole words are copied, and in the modes in which reading clears, the bits are
 * gone before the copy may fail: @part says how much of it comes to pass.
 */
static int get(struct fake_kvm *kvm, const struct kvm_dirty_log *arg, uint64_t part)
{
	int error;
	struct fake_kvm_slot *slot = named(kvm, arg->slot, &error);
	uint64_t *out = arg->dirty_bitmap, page;

	if (!slot)
		return error;
	slot->gets++;
	for (page = 0; page < slot->pages; page++) {
		bool dirty = slot->dirty[page];

		if (page < part) {
			if (page % 64 == 0)
				out[page / 64] = 0;
			out[page / 64] |= (uint64_t)dirty << page % 64;
			slot->got[page] = dirty;
			note_read(kvm, slot, page);
		}
		if (dirty && !manual(kvm)) {
			slot->dirty[page] = 0;
			slot->armed[page] = 1;
		}
	}
	if (part > slot->pages)
		fill_last_word(slot, out);
	return 0;
}

/* A third of the failures comes before anything was done, another after half of the words. */
static int get_failing(struct fake_kvm *kvm, const struct kvm_dirty_log *arg, int error)
{
	struct fake_kvm_slot *slot = fake_kvm_slot_find(kvm, arg->slot);

	if (!slot || !slot->logged)
		return error;
	slot->get_failed = true;
	if (kvm->clears % 3 == 0)
		slot->gets++;
	else
		get(kvm, arg, kvm->clears % 3 == 1 ? 0 : slot->pages / 128 * 64);
	return error;
}

static bool bounds_are_wrong(const struct fake_kvm_slot *slot,
			     const struct kvm_clear_dirty_log *arg)
{
	uint64_t left = slot->pages - arg->first_page;

	return arg->first_page % 64 || arg->first_page > slot->pages || arg->num_pages > left ||
	       (arg->num_pages < left && arg->num_pages % 64);
}

static void judge_clear(struct fake_kvm *kvm, const struct fake_kvm_slot *slot,
			const struct kvm_clear_dirty_log *arg, uint64_t dirty)
{
	const uint64_t *mask = arg->dirty_bitmap;
	uint64_t words = (arg->num_pages + 63) / 64;

	if (!dirty)
		breach(kvm, "an empty clear of slot %#x", slot->id);
	else if (!mask[0] || !mask[words - 1])
		breach(kvm, "a clear of slot %#x, pages %llu+%u, begins or ends with nothing",
		       slot->id, arg->first_page, arg->num_pages);
	if (kvm->clear_max_dirty && dirty > kvm->clear_max_dirty && words > 1)
		breach(kvm, "a clear of %lu dirty pages in %lu groups: at most %lu", dirty, words,
		       kvm->clear_max_dirty);
	if (arg->num_pages % 64 && mask[words - 1] >> arg->num_pages % 64)
		breach(kvm, "a clear of slot %#x has bits beyond its %u pages", slot->id,
		       arg->num_pages);
}

static int clear(struct fake_kvm *kvm, const struct kvm_clear_dirty_log *arg)
{
	int error;
	struct fake_kvm_slot *slot = named(kvm, arg->slot, &error);
	const uint64_t *mask = arg->dirty_bitmap;
	uint64_t i, dirty = 0;

	if (!slot)
		return error;
	if (bounds_are_wrong(slot, arg)) {
		breach(kvm, "a clear of slot %#x, %lu pages: %llu+%u", slot->id, slot->pages,
		       arg->first_page, arg->num_pages);
		return -EINVAL;
	}
	if (!manual(kvm))
		breach(kvm, "a clear of slot %#x, which needs none", slot->id);
	for (i = 0; i < arg->num_pages; i++) {
		uint64_t page = arg->first_page + i;

		if (!(mask[i / 64] >> i % 64 & 1))
			continue;
		dirty++;
		if (!slot->reported[page])
			breach(kvm, "a clear of slot %#x has page %lu, which was not read",
			       slot->id, page);
		slot->reported[page] = FAKE_KVM_UNREAD;
		slot->dirty[page] = 0;
		slot->armed[page] = 1;
	}
	judge_clear(kvm, slot, arg, dirty);
	kvm->clears++;
	kvm->cleared += dirty;
	return 0;
}

static void reset_entry(struct fake_kvm *kvm, const struct kvm_dirty_gfn *written)
{
	struct fake_kvm_slot *slot = fake_kvm_slot_find(kvm, written->slot);

	if (!slot || !slot->logged || written->offset >= slot->pages)
		return;
	slot->reaped[written->offset] = 1;
	slot->armed[written->offset] = 1;
}

static void reset_ring(struct fake_kvm *kvm, struct fake_kvm_vcpu *vcpu, int *n)
{
	for (;;) {
		uint32_t i = vcpu->reset % kvm->ring_entries;
		struct kvm_dirty_gfn *entry = &vcpu->ring[i];
		struct kvm_dirty_gfn *written = &vcpu->written[i];

		if (!(__atomic_load_n(&entry->flags, __ATOMIC_ACQUIRE) & KVM_DIRTY_GFN_F_RESET))
			return;
		if (!entries_in(vcpu)) {
			breach(kvm, "entry %u of a ring is reset, KVM never wrote it", vcpu->reset);
			return;
		}
		if (entry->slot != written->slot || entry->offset != written->offset)
			breach(kvm, "entry %u of a ring was changed", vcpu->reset);
		entry->flags = 0;
		reset_entry(kvm, written);
		vcpu->reset++;
		*n += 1;
	}
}

/* Return: how many. */
static int reset_rings(struct fake_kvm *kvm)
{
	unsigned int i;
	int n = 0;

	if (!fake_kvm_has_rings(kvm)) {
		breach(kvm, "a reset of rings that are not there");
		return -EINVAL;
	}
	for (i = 0; i < kvm->nvcpus; i++)
		reset_ring(kvm, &kvm->vcpus[i], &n);
	kvm->resets += (uint64_t)n;
	return n;
}

/* Is it this request's turn to fail? */
static bool fails(struct fake_kvm *kvm, unsigned long request)
{
	struct fake_kvm_failure *f = &kvm->failure;

	if (f->request != request || f->fired)
		return false;
	f->fired = f->after == 0;
	f->after -= !f->fired;
	return f->fired;
}

static int serve(struct fake_kvm *kvm, unsigned long request, void *arg)
{
	int error = fails(kvm, request) ? -kvm->failure.error : 0;

	switch (request) {
	case KVM_GET_DIRTY_LOG:
		return error ? get_failing(kvm, arg, error) : get(kvm, arg, UINT64_MAX);
	case KVM_CLEAR_DIRTY_LOG:
		return error ? error : clear(kvm, arg);
	case KVM_RESET_DIRTY_RINGS:
		return error ? error : reset_rings(kvm);
	default:
		breach(kvm, "request %#lx is unknown", request);
		return -ENOTTY;
	}
}

int fake_kvm_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct fake_kvm *kvm = opaque;
	int result;

	lock(kvm);
	if (fd != FAKE_KVM_VM_FD)
		breach(kvm, "request %#lx for fd %d", request, fd);
	if (!kvm->attached)
		breach(kvm, "request %#lx without a source", request);
	if (kvm->meanwhile)
		kvm->meanwhile(kvm->opaque);
	result = serve(kvm, request, arg);
	if (kvm->meanwhile)
		kvm->meanwhile(kvm->opaque);
	unlock(kvm);
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}
