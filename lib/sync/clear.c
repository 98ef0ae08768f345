/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/clear.h"

#include <inttypes.h>
#include <linux/kvm.h>
#include <string.h>

#include <silt/bitmap.h>

#include "base/bitmap_kernels.h"
#include "base/bitmap_words.h"
#include "base/err.h"
#include "base/mutant.h"
#include "sync/kvm.h"

/* KVM counts the pages of a clear in 32 bits. */
#define MAX_WORDS (UINT32_MAX / 64)

/* So that what a clear costs is no more than 64 bits hold. */
#define MAX_EACH_NS INT32_MAX

/* How far behind a chunk its last clear looks for more: 1 MiB of bitmap, 32 GiB of small pages. */
#define AHEAD_WORDS (UINT64_C(1) << 17)

/* KVM looks at every word of the mask: 1.2 ns each. */
static uint64_t words_ns(uint64_t words)
{
	return words * 6 / 5;
}

static bool too_much(const struct sync_clear *clear, const struct sync_clear_limits *limits)
{
	return clear->n > MAX_WORDS || clear->dirty > limits->max_dirty ||
	       clear->dirty * limits->each_ns + words_ns(clear->n) > limits->cap_ns;
}

/* Where much is dirty, it is the word at hand. */
static uint64_t next_dirty(const uint64_t *words, uint64_t i, uint64_t end)
{
	return i < end && words[i] ? i : silt_bitmap_kernels()->next_any(words, i, end);
}

bool sync_clear_next(const uint64_t *words, uint64_t from, uint64_t before, uint64_t end,
		     const struct sync_clear_limits *limits, struct sync_clear *clear)
{
	uint64_t i = next_dirty(words, from, before);
	struct sync_clear longer;

	if (i == before)
		return false;
	*clear = (struct sync_clear){.first = i, .n = 1, .dirty = silt_word_count(words[i])};
	while ((i = next_dirty(words, i + 1, end)) < end) {
		longer = *clear;
		longer.n = i - clear->first + 1;
		longer.dirty += silt_word_count(words[i]);
		if (too_much(&longer, limits) && !SILT_FAULT(sync_cap_ignored))
			break;
		*clear = longer;
	}
	return true;
}

/*
 * A clear that cost more than was thought makes the next one shorter at once; one that cost less
 * lets them grow slowly. A short one says little of what a page costs: it may have been held up by
 * anything, and then it doubles at most.
 */
uint64_t sync_clear_learn(const struct sync_clear_limits *limits, const struct sync_clear *clear,
			  uint64_t ns)
{
	uint64_t base = words_ns(clear->n), each = limits->each_ns;
	uint64_t seen = ns > base ? (ns - base) / clear->dirty : 0;
	bool telling =
		clear->dirty >= limits->cap_ns / 4 / each || clear->dirty >= limits->max_dirty / 2;

	if (seen < SYNC_CLEAR_EACH_NS)
		seen = SYNC_CLEAR_EACH_NS;
	if (seen > MAX_EACH_NS)
		seen = MAX_EACH_NS;
	if (seen > each && telling)
		return seen;
	if (seen > each)
		return ns <= limits->cap_ns ? each : seen < 2 * each ? seen : 2 * each;
	return telling ? each - (each - seen + 7) / 8 : each;
}

static void count_clear(struct silt_sync *s, uint64_t dirty, uint64_t ns)
{
	pthread_mutex_lock(&s->counters);
	s->stats.clears++;
	s->stats.cleared_pages += dirty;
	s->stats.clear_ns += ns;
	if (s->stats.longest_clear_ns < ns)
		s->stats.longest_clear_ns = ns;
	pthread_mutex_unlock(&s->counters);
}

static int clear_failed(const struct sync_kvm *kvm, const struct sync_slot *slot,
			const struct kvm_clear_dirty_log *log, int err)
{
	return silt_err_sys(err,
			    "source %s: KVM_CLEAR_DIRTY_LOG of %u pages from page %llu of slot %u "
			    "of address space %u",
			    kvm->source.name, log->num_pages, (unsigned long long)log->first_page,
			    slot->is.number, slot->is.address_space);
}

/* Under the slot's lock. What was cleared is taken out of what is unclean. */
static int clear_words(struct silt_sync *s, struct sync_slot *slot, const struct sync_clear *clear,
		       struct sync_clear_limits *limits)
{
	uint64_t *mask = &slot->unclean[clear->first], first = clear->first * 64;
	uint64_t rest = sync_kvm_bits(s->kvm, slot) - first, start, cpu_start, cpu_ns;
	struct kvm_clear_dirty_log log = {
		.slot = sync_kvm_slot_number(slot),
		.num_pages = (uint32_t)(clear->n * 64 < rest ? clear->n * 64 : rest),
		.first_page = first,
		.dirty_bitmap = mask,
	};
	int ret;

	if (SILT_FAULT(sync_clear_unread))
		silt_bitmap_set_range(mask, 0, log.num_pages);
	start = sync_now_ns();
	cpu_start = sync_cpu_ns();
	ret = sync_ioctl(s->kvm->ioctl, s->kvm->opaque, s->kvm->vm_fd, KVM_CLEAR_DIRTY_LOG, &log);
	cpu_ns = sync_cpu_ns() - cpu_start;
	if (ret < 0)
		ret = clear_failed(s->kvm, slot, &log, -ret);
	count_clear(s, ret < 0 ? 0 : clear->dirty, sync_now_ns() - start);
	if (ret < 0)
		return ret;
	memset(mask, 0, clear->n * sizeof(*mask));
	limits->each_ns = sync_clear_learn(limits, clear, cpu_ns);
	__atomic_store_n(&s->clear_each_ns, limits->each_ns, __ATOMIC_RELAXED);
	return 0;
}

/*
 * What is unclean in words [@from, @end) of a slot, and as much of what follows as the last clear
 * can reach: another call later would cost more than a longer one now. A look far ahead costs as
 * well.
 */
static int clear_slot(struct silt_sync *s, struct sync_slot *slot, uint64_t from, uint64_t end)
{
	uint64_t words = silt_bitmap_words(sync_kvm_bits(s->kvm, slot));
	struct sync_clear_limits limits = {
		.cap_ns = s->opt.clear_cap_ns,
		.each_ns = __atomic_load_n(&s->clear_each_ns, __ATOMIC_RELAXED),
		.max_dirty = s->opt.clear_max_dirty,
	};
	struct sync_clear clear;
	int ret = 0;

	if (words > end + AHEAD_WORDS)
		words = end + AHEAD_WORDS;
	pthread_mutex_lock(&slot->lock);
	while (!ret && sync_clear_next(slot->unclean, from, end, words, &limits, &clear)) {
		ret = clear_words(s, slot, &clear, &limits);
		from = clear.first + clear.n;
	}
	pthread_mutex_unlock(&slot->lock);
	return ret;
}

/*
 * Bytes [@start, @end) of the block, where the slot shows them. KVM clears whole words of its
 * bitmap only: what else lies in them was delivered as well, and is cleared before its own chunk
 * is.
 */
static int clear_stretch(struct silt_sync *s, struct sync_slot *slot, uint64_t start, uint64_t end)
{
	uint64_t slot_end = slot->is.offset + slot->is.bytes;
	unsigned int shift;

	if (!slot->unclean || start >= slot_end || end <= slot->is.offset)
		return 0;
	shift = s->kvm->shift + 6;
	start = start > slot->is.offset ? start - slot->is.offset : 0;
	end = (end < slot_end ? end : slot_end) - slot->is.offset;
	return clear_slot(s, slot, start >> shift, ((end - 1) >> shift) + 1);
}

static bool test_and_clear(uint64_t *map, uint64_t bit)
{
	uint64_t mask = UINT64_C(1) << bit % 64;

	return __atomic_load_n(&map[bit / 64], __ATOMIC_ACQUIRE) & mask &&
	       __atomic_fetch_and(&map[bit / 64], ~mask, __ATOMIC_ACQ_REL) & mask;
}

/* Bits @first to @last, a word at a time: a slot may lie in a million chunks. */
static void set_atomically(uint64_t *map, uint64_t first, uint64_t last)
{
	uint64_t word, mask;

	for (word = first / 64; word <= last / 64; word++) {
		mask = word == first / 64 ? UINT64_MAX << first % 64 : UINT64_MAX;
		if (word == last / 64)
			mask &= UINT64_MAX >> (63 - last % 64);
		__atomic_fetch_or(&map[word], mask, __ATOMIC_ACQ_REL);
	}
}

/*
 * The chunk's bit goes first: a sync that reads a slot once more, behind the clear, sets it again.
 * The other way round it would be lost, and with it the clear that those pages need.
 */
static int arm_chunk(struct silt_sync *s, struct sync_block *block, uint64_t chunk)
{
	uint64_t bytes = s->opt.chunk_pages << s->opt.page_shift, start = chunk * bytes;
	struct sync_slot *slot;
	int ret = 0;

	if (!test_and_clear(block->unclean_chunks, chunk))
		return 0;
	for (slot = block->slots; slot && !ret; slot = slot->next) {
		ret = clear_stretch(s, slot, start, start + bytes);
		if (SILT_FAULT(sync_first_slot_only))
			break;
	}
	if (SILT_FAULT(sync_unclean_late))
		test_and_clear(block->unclean_chunks, chunk);
	if (ret)
		set_atomically(block->unclean_chunks, chunk, chunk);
	return ret;
}

int sync_arm(struct silt_sync *s, struct sync_block *block, uint64_t first, uint64_t n)
{
	uint64_t chunk = first / s->opt.chunk_pages;
	int ret = 0;

	for (; n && !ret && chunk <= (first + n - 1) / s->opt.chunk_pages; chunk++)
		ret = arm_chunk(s, block, chunk);
	return ret;
}

void sync_mark_unclean(struct silt_sync *s, struct sync_slot *slot)
{
	uint64_t chunk_bytes = s->opt.chunk_pages << s->opt.page_shift;

	set_atomically(slot->block->unclean_chunks, slot->is.offset / chunk_bytes,
		       (slot->is.offset + slot->is.bytes - 1) / chunk_bytes);
}
