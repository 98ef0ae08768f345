/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"
#include "sync/kernel_abi.h"
#include "sync/ring.h"
#include "sync/wipe.h"

/* Of the largest page that a host has. */
#define MAX_SHIFT 16

static struct ring_source *ring_of(struct sync_source *src)
{
	return (struct ring_source *)src;
}

static int plain_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	(void)opaque;
	return ioctl(fd, request, arg);
}

/* A slot as KVM calls it. */
static uint32_t kvm_number(const struct sync_slot *slot)
{
	return slot->is.address_space << 16 | slot->is.number;
}

/* ---- Delivery -------------------------------------------------------------------------------- */

/* What was reaped of a slot; it stays where its pages are not protected again, as far as is known.
 */
static void deliver_reaped(struct ring_source *r, struct sync_slot *slot)
{
	uint64_t words = silt_bitmap_words(slot->is.bytes >> r->shift);

	if (silt_bitmap_kernels()->next_any(slot->reaped, 0, words) == words)
		return;
	sync_deliver(&r->source, slot, slot->reaped, r->shift, 0, 0, slot->is.bytes);
	if (!r->unreset && !r->torn)
		sync_words_wipe(slot->reaped, words);
}

static void deliver_slots(struct ring_source *r, bool all)
{
	struct sync_slot *slot;
	unsigned int i;

	for (i = 0; i < r->slots.n; i++) {
		slot = r->slots.entries[i].slot;
		deliver_reaped(r, slot);
		if (all)
			sync_deliver_all(&r->source, slot, 0, slot->is.bytes);
	}
}

static int read_bitmap(struct ring_source *r, struct sync_slot *slot)
{
	struct kvm_dirty_log log = {.slot = kvm_number(slot), .dirty_bitmap = r->bitmap};
	int ret = sync_ioctl(r->ioctl, r->opaque, r->vm_fd, KVM_GET_DIRTY_LOG, &log);

	if (ret >= 0) {
		sync_deliver(&r->source, slot, r->bitmap, r->shift, 0, 0, slot->is.bytes);
		return 0;
	}
	sync_deliver_all(&r->source, slot, 0, slot->is.bytes);
	return silt_err_sys(-ret, "source %s: KVM_GET_DIRTY_LOG of slot %u of address space %u",
			    r->source.name, slot->is.number, slot->is.address_space);
}

/* Pages that no vCPU dirtied are in no ring. */
static void read_bitmaps(struct ring_source *r, struct silt_failure *failure)
{
	unsigned int i;

	for (i = 0; i < r->slots.n; i++)
		silt_failure_note(failure, read_bitmap(r, r->slots.entries[i].slot));
}

/*
 * The lock is held from the reaping to the end of the delivery: bits that another thread reaped and
 * whose pages it has not had protected yet must not be delivered, or a page that is read then and
 * written before the protection is lost.
 */
static int ring_read(struct sync_source *src)
{
	struct ring_source *r = ring_of(src);
	struct silt_failure failure = {0};
	int64_t reaped;

	pthread_mutex_lock(&src->sync->reaping);
	reaped = sync_ring_reap(r);
	silt_failure_note(&failure, reaped < 0 ? (int)reaped : sync_ring_verdict(r));
	deliver_slots(r, failure.ret);
	if (r->with_bitmap)
		read_bitmaps(r, &failure);
	pthread_mutex_unlock(&src->sync->reaping);
	return silt_failure_tell(&failure);
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static int check_slot(const struct ring_source *r, const struct sync_slot *slot)
{
	uint64_t page = UINT64_C(1) << r->shift;

	if (!((slot->is.gpa | slot->is.bytes) & (page - 1)))
		return 0;
	return silt_err(EINVAL,
			"source %s: slot %u of address space %u, %#" PRIx64 " bytes at %#" PRIx64
			", is no multiple of the host's page of %" PRIu64 " bytes",
			r->source.name, slot->is.number, slot->is.address_space, slot->is.bytes,
			slot->is.gpa, page);
}

static int make_bitmap(struct ring_source *r, uint64_t words)
{
	uint64_t *bitmap;

	if (!r->with_bitmap || words <= r->words)
		return 0;
	bitmap = sync_words_alloc(words);
	if (!bitmap)
		return silt_err(ENOMEM, "source %s: no memory for a bitmap of %" PRIu64 " words",
				r->source.name, words);
	sync_words_free(r->bitmap, r->words);
	r->bitmap = bitmap;
	r->words = words;
	return 0;
}

static int take_up(struct ring_source *r, struct sync_slot *slot)
{
	uint64_t pages = slot->is.bytes >> r->shift, words = silt_bitmap_words(pages);
	int ret = make_bitmap(r, words);

	if (ret)
		return ret;
	slot->reaped = sync_words_alloc(words);
	if (!slot->reaped)
		return silt_err(ENOMEM, "source %s: no memory for a bitmap of %" PRIu64 " words",
				r->source.name, words);
	ret = sync_slot_list_add(&r->slots, kvm_number(slot), slot);
	if (ret) {
		sync_words_free(slot->reaped, words);
		slot->reaped = NULL;
		return ret;
	}
	if (sync_ring_forget_stranger(r, kvm_number(slot)))
		silt_bitmap_set_range(slot->reaped, 0, pages);
	return 0;
}

static int ring_slot_added(struct sync_source *src, struct sync_slot *slot)
{
	int ret;

	if (!(slot->is.flags & SILT_SYNC_SLOT_LOGGED))
		return 0;
	ret = check_slot(ring_of(src), slot);
	if (ret)
		return ret;
	pthread_mutex_lock(&src->sync->reaping);
	ret = take_up(ring_of(src), slot);
	pthread_mutex_unlock(&src->sync->reaping);
	return ret;
}

static void let_go(struct ring_source *r, struct sync_slot *slot)
{
	sync_slot_list_remove(&r->slots, slot);
	if (r->latest == slot)
		r->latest = NULL;
	sync_words_free(slot->reaped, silt_bitmap_words(slot->is.bytes >> r->shift));
	slot->reaped = NULL;
}

/*
 * Nothing writes through the slot any more: a last reaping takes all entries that name it out of
 * the rings, so that later ones that do are another slot's of the same number. A reset that fails
 * is tried again by the next reaping.
 */
static void ring_slot_removed(struct sync_source *src, struct sync_slot *slot)
{
	if (!slot->reaped)
		return;
	pthread_mutex_lock(&src->sync->reaping);
	sync_ring_reap(ring_of(src));
	let_go(ring_of(src), slot);
	pthread_mutex_unlock(&src->sync->reaping);
}

/* ---- The source ------------------------------------------------------------------------------ */

static void ring_destroy(struct sync_source *src)
{
	struct ring_source *r = ring_of(src);
	unsigned int i;

	sync_ring_thread_stop(r);
	pthread_mutex_lock(&src->sync->reaping);
	if (src->sync->ring == r)
		src->sync->ring = NULL;
	pthread_mutex_unlock(&src->sync->reaping);
	while (r->slots.n)
		let_go(r, r->slots.entries[0].slot);
	for (i = 0; i < r->nrings; i++)
		munmap(r->rings[i].entries, r->ring_bytes);
	free(r->rings);
	sync_slot_list_free(&r->slots);
	sync_words_free(r->bitmap, r->words);
	free(src->name);
	free(r);
}

static const struct sync_source_ops ring_ops = {
	.kind = "ring",
	.step = offsetof(struct silt_sync_stats, ring_ns),
	.read = ring_read,
	.slot_added = ring_slot_added,
	.told_last = true,
	.slot_removed = ring_slot_removed,
	.destroy = ring_destroy,
};

static int check_options(const struct silt_sync_ring *opt)
{
	uint32_t bytes = opt->ring_bytes;

	if (bytes < sizeof(struct kvm_dirty_gfn) || bytes & (bytes - 1))
		return silt_err(EINVAL, "dirty ring of %u bytes: not a power of two from %zu on",
				bytes, sizeof(struct kvm_dirty_gfn));
	if (opt->page_shift && (opt->page_shift < 12 || opt->page_shift > MAX_SHIFT))
		return silt_err(EINVAL, "a host's page of 2^%u bytes is not 2^12 to 2^%u",
				opt->page_shift, MAX_SHIFT);
	return 0;
}

static struct ring_source *make(const struct silt_sync_ring *opt)
{
	struct ring_source *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->vm_fd = opt->vm_fd;
	r->ring_bytes = opt->ring_bytes;
	r->shift = opt->page_shift;
	if (!r->shift)
		r->shift = (unsigned int)__builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	r->with_bitmap = opt->with_bitmap;
	r->ioctl = opt->ioctl ? opt->ioctl : plain_ioctl;
	r->opaque = opt->opaque;
	return r;
}

/* A reset is for all of a machine: two sources would take the entries of each other. */
static int attach(struct silt_sync *s, struct ring_source *r, const struct silt_sync_ring *opt)
{
	int id, ret;

	r->source.sync = s;
	if (s->ring)
		return silt_err(EEXIST, "the engine has dirty rings already: source %s",
				s->ring->source.name);
	id = sync_source_attach(s, &r->source, opt->name, &ring_ops);
	if (id < 0)
		return id;
	ret = opt->reap_ms ? sync_ring_thread_start(r, opt->reap_ms) : 0;
	if (ret) {
		s->sources[id] = NULL;
		return ret;
	}
	pthread_mutex_lock(&s->reaping);
	r->id = id;
	s->ring = r;
	pthread_mutex_unlock(&s->reaping);
	return id;
}

int silt_sync_add_ring(struct silt_sync *s, const struct silt_sync_ring *options)
{
	struct silt_sync_ring opt;
	struct ring_source *r;
	int ret = silt_options_get(&opt, sizeof(opt), options, "dirty rings");

	if (!ret)
		ret = check_options(&opt);
	if (ret)
		return ret;
	r = make(&opt);
	if (!r)
		return silt_err(ENOMEM, "no memory for a source");
	pthread_rwlock_wrlock(&s->topology);
	ret = attach(s, r, &opt);
	if (ret < 0)
		ring_destroy(&r->source);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

/* The engine is locked for reaping: that alone keeps the source. */
static struct ring_source *find(struct silt_sync *s, int id)
{
	if (s->ring && s->ring->id == id)
		return s->ring;
	silt_err(ENOENT, "no source %d with dirty rings", id);
	return NULL;
}

static int add_vcpu(struct ring_source *r, int vcpu_fd)
{
	off_t offset = SYNC_RING_PAGE_OFFSET * sysconf(_SC_PAGESIZE);
	struct ring *rings = reallocarray(r->rings, r->nrings + 1, sizeof(*rings));
	void *entries;

	if (!rings)
		return silt_err(ENOMEM, "source %s: no memory for %u rings", r->source.name,
				r->nrings + 1);
	r->rings = rings;
	entries = mmap(NULL, r->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu_fd, offset);
	if (entries == MAP_FAILED)
		return silt_err_sys(errno,
				    "source %s: cannot map a dirty ring of %u bytes of fd %d",
				    r->source.name, r->ring_bytes, vcpu_fd);
	rings[r->nrings++] = (struct ring){.entries = entries};
	/* Whoever had the ring before may have left entries for a reset. */
	r->unreset = true;
	return 0;
}

int silt_sync_ring_add_vcpu(struct silt_sync *s, int source, int vcpu_fd)
{
	struct ring_source *r;
	int ret;

	pthread_mutex_lock(&s->reaping);
	r = find(s, source);
	ret = r ? add_vcpu(r, vcpu_fd) : -ENOENT;
	pthread_mutex_unlock(&s->reaping);
	return ret;
}

int64_t silt_sync_ring_reap(struct silt_sync *s, int source)
{
	struct ring_source *r;
	int64_t ret;

	pthread_mutex_lock(&s->reaping);
	r = find(s, source);
	ret = r ? sync_ring_reap(r) : -ENOENT;
	pthread_mutex_unlock(&s->reaping);
	return ret;
}
