/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"
#include "sync/slot_list.h"
#include "sync/sync_internal.h"
#include "sync/wipe.h"

struct own_source {
	struct sync_source source;
	uint32_t address_space;
	unsigned int shift; /* of a granule */
	silt_sync_read_fn *read;
	void *opaque;
	struct sync_slot_list slots; /* by address */
	uint64_t *bitmap;	     /* of the longest stretch, zero between calls */
	uint64_t words;
};

/* Granules that slots [@from, @end) of the list cover without a gap of a whole one. */
struct stretch {
	unsigned int from;
	unsigned int end;
	uint64_t first;
	uint64_t granules;
};

static struct own_source *own_of(struct sync_source *src)
{
	return (struct own_source *)src;
}

static uint64_t last_granule(const struct own_source *own, const struct sync_slot *slot)
{
	return (slot->is.gpa + slot->is.bytes - 1) >> own->shift;
}

static struct stretch stretch_from(const struct own_source *own, unsigned int from)
{
	const struct sync_slot_entry *slots = own->slots.entries;
	uint64_t last = last_granule(own, slots[from].slot);
	struct stretch s = {
		.from = from, .end = from + 1, .first = slots[from].slot->is.gpa >> own->shift};

	while (s.end < own->slots.n && slots[s.end].slot->is.gpa >> own->shift <= last + 1)
		last = last_granule(own, slots[s.end++].slot);
	s.granules = last - s.first + 1;
	return s;
}

static void deliver_stretch(struct own_source *own, const struct stretch *s, bool all)
{
	struct sync_slot *slot;
	uint64_t skew;
	unsigned int i;

	for (i = s->from; i < s->end; i++) {
		slot = own->slots.entries[i].slot;
		skew = slot->is.gpa - (s->first << own->shift);
		if (SILT_FAULT(sync_own_skew_ignored))
			skew = skew >> own->shift << own->shift;
		if (all)
			sync_deliver_all(&own->source, slot, 0, slot->is.bytes);
		else
			sync_deliver(&own->source, slot, own->bitmap, own->shift, skew, 0,
				     slot->is.bytes);
	}
}

static int read_stretch(struct own_source *own, const struct stretch *s)
{
	uint64_t gpa = s->first << own->shift;
	int ret = own->read(own->opaque, gpa, s->granules, own->bitmap);

	deliver_stretch(own, s, ret != 0);
	sync_words_wipe(own->bitmap, silt_bitmap_words(s->granules));
	if (!ret)
		return 0;
	return silt_err_sys(silt_callback_errno(ret),
			    "source %s: reading %" PRIu64 " granules of %#" PRIx64
			    " bytes from guest address %#" PRIx64 " on returned %d",
			    own->source.name, s->granules, UINT64_C(1) << own->shift, gpa, ret);
}

static int own_read(struct sync_source *src)
{
	struct own_source *own = own_of(src);
	struct silt_failure failure = {0};
	struct stretch s;
	unsigned int i;

	for (i = 0; i < own->slots.n; i = s.end) {
		s = stretch_from(own, i);
		silt_failure_note(&failure, read_stretch(own, &s));
	}
	return silt_failure_tell(&failure);
}

static int make_room(struct own_source *own)
{
	struct stretch s;
	uint64_t words = 0, *bitmap;
	unsigned int i;

	for (i = 0; i < own->slots.n; i = s.end) {
		s = stretch_from(own, i);
		if (silt_bitmap_words(s.granules) > words)
			words = silt_bitmap_words(s.granules);
	}
	if (words <= own->words)
		return 0;
	bitmap = sync_words_alloc(words);
	if (!bitmap)
		return silt_err(ENOMEM, "source %s: no memory for a bitmap of %" PRIu64 " words",
				own->source.name, words);
	sync_words_free(own->bitmap, own->words);
	own->bitmap = bitmap;
	own->words = words;
	return 0;
}

static int own_slot_added(struct sync_source *src, struct sync_slot *slot)
{
	struct own_source *own = own_of(src);
	int ret;

	if (slot->is.address_space != own->address_space)
		return 0;
	ret = sync_slot_list_add(&own->slots, slot->is.gpa, slot);
	if (ret)
		return ret;
	ret = make_room(own);
	if (ret)
		sync_slot_list_remove(&own->slots, slot);
	return ret;
}

static void own_slot_removed(struct sync_source *src, struct sync_slot *slot)
{
	sync_slot_list_remove(&own_of(src)->slots, slot);
}

static void own_destroy(struct sync_source *src)
{
	struct own_source *own = own_of(src);

	sync_slot_list_free(&own->slots);
	sync_words_free(own->bitmap, own->words);
	free(src->name);
	free(own);
}

static const struct sync_source_ops own_ops = {
	.kind = "own",
	.step = offsetof(struct silt_sync_stats, own_ns),
	.read = own_read,
	.slot_added = own_slot_added,
	.slot_removed = own_slot_removed,
	.destroy = own_destroy,
};

static int check_options(const struct silt_sync_own *opt)
{
	if (!opt->read)
		return silt_err(EINVAL, "a source of the caller's own has no function to read it");
	if (opt->page_shift && (opt->page_shift < 12 || opt->page_shift > 30))
		return silt_err(EINVAL, "granule of 2^%u bytes, not 2^12 to 2^30", opt->page_shift);
	return 0;
}

int silt_sync_add_own(struct silt_sync *s, const struct silt_sync_own *options)
{
	struct silt_sync_own opt;
	struct own_source *own;
	int ret = silt_options_get(&opt, sizeof(opt), options, "a source of the caller's own");

	if (!ret)
		ret = check_options(&opt);
	if (ret)
		return ret;
	own = calloc(1, sizeof(*own));
	if (!own)
		return silt_err(ENOMEM, "no memory for a source");
	own->address_space = opt.address_space;
	own->shift = opt.page_shift ? opt.page_shift : 12;
	own->read = opt.read;
	own->opaque = opt.opaque;
	pthread_rwlock_wrlock(&s->topology);
	ret = sync_source_attach(s, &own->source, opt.name, &own_ops);
	if (ret < 0)
		own_destroy(&own->source);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
