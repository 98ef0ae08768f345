/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"
#include "sync/clear.h"
#include "sync/kvm.h"

#define MAX_SHIFT 16

static const struct sync_source_ops kvm_ops;

static struct sync_kvm *kvm_of(struct sync_source *src)
{
	return (struct sync_kvm *)src;
}

uint64_t sync_kvm_bits(const struct sync_kvm *kvm, const struct sync_slot *slot)
{
	return slot->is.bytes >> kvm->shift;
}

uint32_t sync_kvm_slot_number(const struct sync_slot *slot)
{
	return slot->is.address_space << 16 | slot->is.number;
}

static int plain_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	(void)opaque;
	return ioctl(fd, request, arg);
}

/* KVM fills whole words; what lies behind the slot's end in the last one is nobody's. */
static int get(struct sync_kvm *kvm, const struct sync_slot *slot, uint64_t *bits)
{
	struct kvm_dirty_log log = {
		.slot = sync_kvm_slot_number(slot),
		.dirty_bitmap = bits,
	};
	uint64_t n = sync_kvm_bits(kvm, slot);
	int ret = sync_ioctl(kvm->ioctl, kvm->opaque, kvm->vm_fd, KVM_GET_DIRTY_LOG, &log);

	if (n % 64)
		bits[n / 64] &= (UINT64_C(1) << n % 64) - 1;
	if (ret >= 0)
		return 0;
	return silt_err_sys(-ret, "source %s: KVM_GET_DIRTY_LOG of slot %u of address space %u",
			    kvm->source.name, slot->is.number, slot->is.address_space);
}

/* Are bits of the slot's bitmap and of the block's at the same places of their words? */
static bool aligned(const struct sync_kvm *kvm, const struct sync_slot *slot)
{
	unsigned int shift = kvm->source.sync->opt.page_shift;

	return kvm->shift == shift && !(slot->is.offset & ((UINT64_C(64) << shift) - 1));
}

/*
 * The whole of what KVM reports goes to every consumer, reported before or not: one that took a
 * page since, without a clear, has to take it again.
 */
static void deliver(struct sync_kvm *kvm, struct sync_slot *slot, const uint64_t *bits)
{
	struct silt_sync_stats *steps = &kvm->source.sync->steps;
	uint64_t start = sync_now_ns(), ns;

	sync_deliver(&kvm->source, slot, bits, kvm->shift, 0, 0, slot->is.bytes);
	ns = sync_now_ns() - start;
	if (aligned(kvm, slot))
		steps->merge_ns += ns;
	else
		steps->misaligned_ns += ns;
}

/*
 * Where it fails, some of it may have arrived, and what is unclean may be of two reads: all of it
 * was reported, and all of the slot is delivered.
 */
static int read_slot(struct sync_kvm *kvm, struct sync_slot *slot, uint64_t *bits)
{
	struct silt_sync *s = kvm->source.sync;
	uint64_t start = sync_now_ns();
	int ret = get(kvm, slot, bits);

	s->steps.get_ns += sync_now_ns() - start;
	if (bits == slot->unclean)
		sync_mark_unclean(s, slot);
	if (!ret)
		deliver(kvm, slot, bits);
	else if (!SILT_FAULT(sync_failed_source_clean))
		sync_deliver_all(&kvm->source, slot, 0, slot->is.bytes);
	return ret;
}

/*
 * The slot stays locked until its bits are delivered: a take that clears them before would leave
 * nobody who knows of them.
 */
static int read_logged(struct sync_kvm *kvm, struct sync_slot *slot)
{
	int ret;

	pthread_mutex_lock(&slot->lock);
	ret = read_slot(kvm, slot, slot->unclean ? slot->unclean : kvm->scratch);
	pthread_mutex_unlock(&slot->lock);
	return ret;
}

static int kvm_read(struct sync_source *src)
{
	struct silt_sync *s = src->sync;
	struct silt_failure failure = {0};
	int i;

	for (i = 0; i < s->nslots; i++) {
		if (s->slots[i] && s->slots[i]->is.flags & SILT_SYNC_SLOT_LOGGED)
			silt_failure_note(&failure, read_logged(kvm_of(src), s->slots[i]));
	}
	return silt_failure_tell(&failure);
}

static int grow_scratch(struct sync_kvm *kvm, uint64_t words)
{
	uint64_t *scratch;

	if (words <= kvm->scratch_words)
		return 0;
	scratch = sync_words_alloc(words);
	if (!scratch)
		return silt_err(ENOMEM, "source %s: no memory for %" PRIu64 " words of a bitmap",
				kvm->source.name, words);
	sync_words_free(kvm->scratch, kvm->scratch_words);
	kvm->scratch = scratch;
	kvm->scratch_words = words;
	return 0;
}

static int check_slot(const struct sync_kvm *kvm, const struct silt_sync_slot *is)
{
	if (!((is->gpa | is->bytes) & ((UINT64_C(1) << kvm->shift) - 1)))
		return 0;
	return silt_err(EINVAL,
			"source %s: slot %u at %#" PRIx64 " of %#" PRIx64
			" bytes does not lie on pages of %u bytes",
			kvm->source.name, is->number, is->gpa, is->bytes, 1U << kvm->shift);
}

static int kvm_slot_added(struct sync_source *src, struct sync_slot *slot)
{
	struct sync_kvm *kvm = kvm_of(src);
	uint64_t words;
	int ret;

	if (!(slot->is.flags & SILT_SYNC_SLOT_LOGGED))
		return 0;
	ret = check_slot(kvm, &slot->is);
	if (ret < 0)
		return ret;
	words = silt_bitmap_words(sync_kvm_bits(kvm, slot));
	if (kvm->mode == SILT_SYNC_KVM_GET_CLEARS)
		return grow_scratch(kvm, words);
	slot->unclean = sync_words_alloc(words);
	return slot->unclean ? 0
			     : silt_err(ENOMEM, "source %s: no memory for the bitmap of slot %u",
					src->name, slot->is.number);
}

static void kvm_slot_removed(struct sync_source *src, struct sync_slot *slot)
{
	sync_words_free(slot->unclean, silt_bitmap_words(sync_kvm_bits(kvm_of(src), slot)));
	slot->unclean = NULL;
}

static void kvm_destroy(struct sync_source *src)
{
	struct silt_sync *s = src->sync;
	struct sync_kvm *kvm = kvm_of(src);
	int i;

	for (i = 0; i < s->nslots; i++) {
		if (s->slots[i])
			kvm_slot_removed(src, s->slots[i]);
	}
	s->kvm = NULL;
	sync_words_free(kvm->scratch, kvm->scratch_words);
	free(src->name);
	free(kvm);
}

static const struct sync_source_ops kvm_ops = {
	.kind = "kvm",
	.read = kvm_read,
	.slot_added = kvm_slot_added,
	.slot_removed = kvm_slot_removed,
	.destroy = kvm_destroy,
};

static int check_options(const struct silt_sync_kvm *opt)
{
	if (opt->mode != SILT_SYNC_KVM_MANUAL && opt->mode != SILT_SYNC_KVM_GET_CLEARS)
		return silt_err(EINVAL, "mode %d of a KVM source is none", (int)opt->mode);
	if (opt->page_shift && (opt->page_shift < 12 || opt->page_shift > MAX_SHIFT))
		return silt_err(EINVAL, "page shift %u of a KVM source is not 12 to %u",
				opt->page_shift, MAX_SHIFT);
	if (!opt->ioctl && opt->vm_fd < 0)
		return silt_err(EINVAL, "file descriptor %d of a KVM source is negative",
				opt->vm_fd);
	return 0;
}

static struct sync_kvm *make(struct silt_sync *s, const struct silt_sync_kvm *opt)
{
	struct sync_kvm *kvm = calloc(1, sizeof(*kvm));

	if (!kvm) {
		silt_err(ENOMEM, "no memory for a KVM source");
		return NULL;
	}
	kvm->source.sync = s;
	kvm->vm_fd = opt->vm_fd;
	kvm->mode = opt->mode;
	kvm->shift = opt->page_shift ? opt->page_shift
				     : (unsigned int)__builtin_ctzl(sysconf(_SC_PAGESIZE));
	kvm->ioctl = opt->ioctl ? opt->ioctl : plain_ioctl;
	kvm->opaque = opt->opaque;
	return kvm;
}

static int attach(struct silt_sync *s, const struct silt_sync_kvm *opt)
{
	struct sync_kvm *kvm;
	int id;

	if (s->kvm)
		return silt_err(EEXIST, "source %s reads KVM's bitmaps already",
				s->kvm->source.name);
	kvm = make(s, opt);
	if (!kvm)
		return -ENOMEM;
	id = sync_source_attach(s, &kvm->source, opt->name, &kvm_ops);
	if (id < 0)
		kvm_destroy(&kvm->source);
	else
		s->kvm = kvm;
	return id;
}

int silt_sync_add_kvm(struct silt_sync *s, const struct silt_sync_kvm *from)
{
	struct silt_sync_kvm opt;
	int ret = silt_options_get(&opt, sizeof(opt), from, "a KVM source");

	if (!ret)
		ret = check_options(&opt);
	if (ret < 0)
		return ret;
	pthread_rwlock_wrlock(&s->topology);
	ret = attach(s, &opt);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
