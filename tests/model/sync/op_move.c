/* SPDX-License-Identifier: BSD-3-Clause */
/* Consumers take pages and read them. */
#include <errno.h>
#include <string.h>

#include "world.h"

void op_sync(struct world *w)
{
	sync_run(w, pick(w, 4) ? pick_consumer(w) : SILT_SYNC_NO_CONSUMER);
}

static uint64_t chunk_pages(const struct world *w)
{
	return w->opt.chunk_pages ? w->opt.chunk_pages : SILT_SYNC_CHUNK_PAGES;
}

/* The run that a take has to give. Return: its length. */
static uint64_t next_run(const struct world *w, const struct block *b, int consumer, uint64_t from,
			 uint64_t max, uint64_t *first)
{
	const uint8_t *dirty = b->dirty[consumer];
	uint64_t pages = block_pages(w, b), end;

	while (from < pages && !dirty[from])
		from++;
	*first = from;
	for (end = from; end < pages && dirty[end] && end - from < max; end++) {
		if (end / chunk_pages(w) != from / chunk_pages(w))
			break;
	}
	return end - from;
}

/* Whoever reads the page now misses no store: what KVM reported of it was cleared everywhere. */
static void expect_armed(struct world *w, const struct block *b, uint64_t page)
{
	uint64_t unit, end = (page + 1) * w->page_units;
	unsigned int i;

	for (i = 0; w->kvm_source != NONE && i < MAX_SLOTS; i++) {
		const struct slot *s = &w->slots[i];
		struct fake_kvm_slot *k;

		if (s->id == NONE || !s->logged || &w->blocks[s->block] != b)
			continue;
		k = slot_in_kvm(w, s);
		for (unit = page * w->page_units; unit < end; unit++) {
			uint64_t in = unit - s->offset;

			if (unit >= s->offset && in < s->units &&
			    k->reported[in / w->granule_units] == FAKE_KVM_READ)
				differs(w, "block %d, page %lu is read, and not cleared in slot %d",
					b->id, page, s->id);
		}
	}
}

/* Does group @group of 64 pages of a slot have pages to clear? How many? */
static uint64_t unclean_in(const struct fake_kvm_slot *k, uint64_t group)
{
	uint64_t page, n = 0;

	for (page = group * 64; page < group * 64 + 64 && page < k->pages; page++)
		n += k->reported[page] != FAKE_KVM_UNREAD;
	return n;
}

/* Clears of groups [@group, @end) of a slot: each as long as it may be. */
static uint64_t fewest_clears(const struct world *w, const struct fake_kvm_slot *k, uint64_t group,
			      uint64_t end)
{
	uint64_t limit = w->opt.clear_max_dirty ? w->opt.clear_max_dirty : UINT64_MAX;
	uint64_t clears = 0, dirty = 0, more;

	for (; group < end; group++) {
		more = unclean_in(k, group);
		if (!more)
			continue;
		if (!dirty || dirty + more > limit) {
			clears++;
			dirty = 0;
		}
		dirty += more;
	}
	return clears;
}

/* The clears that the chunk of a page needs at most, in all slots that show a part of it. */
static uint64_t clears_of_chunk(struct world *w, const struct block *b, uint64_t page)
{
	/* Neither number of units is so large that it wraps: blocks are small. */
	uint64_t start = page / chunk_pages(w) * chunk_pages(w) * w->page_units;
	uint64_t end = start + chunk_pages(w) * w->page_units, clears = 0;
	uint64_t group = 64 * w->granule_units;
	unsigned int i;

	for (i = 0; w->kvm_source != NONE && i < MAX_SLOTS; i++) {
		const struct slot *s = &w->slots[i];
		uint64_t from, to;

		if (s->id == NONE || !s->logged || &w->blocks[s->block] != b)
			continue;
		from = start > s->offset ? start - s->offset : 0;
		to = end < s->offset + s->units ? end : s->offset + s->units;
		if (to <= s->offset || from >= s->units)
			continue;
		to -= s->offset;
		clears += fewest_clears(w, slot_in_kvm(w, s), from / group, (to - 1) / group + 1);
	}
	return clears;
}

static void read_page(struct world *w, struct block *b, int consumer, uint64_t page)
{
	uint64_t unit = page * w->page_units;

	memcpy(b->read[consumer] + unit, b->stored + unit, w->page_units * sizeof(*b->stored));
}

/* Did a clear fail as it was told to? */
static bool clear_has_failed(struct world *w, int64_t got, const char *what)
{
	if (!w->kvm.failure.fired)
		return false;
	expect(w, got, -w->kvm.failure.error, what);
	memset(&w->kvm.failure, 0, sizeof(w->kvm.failure));
	w->failed_clears++;
	return true;
}

/* Take a run and leave it to the caller to read it. Return: its pages, 0 at the end. */
static uint64_t take(struct world *w, struct block *b, int consumer, uint64_t from, uint64_t max,
		     uint64_t *first)
{
	uint64_t want_first, want = next_run(w, b, consumer, from, max, &want_first), page;
	uint64_t clears = w->kvm.clears, most = want ? clears_of_chunk(w, b, want_first) : 0;
	int64_t got = silt_sync_take(w->sync, consumer, b->id, from, max, first);

	say(w, "consumer %d takes of block %d from %lu, at most %lu: %ld", consumer, b->id, from,
	    max, got);
	if (clear_has_failed(w, got, "silt_sync_take()"))
		return 0;
	expect(w, got, (int64_t)want, "silt_sync_take()");
	if (got > 0)
		expect(w, (int64_t)*first, (int64_t)want_first, "the first page taken");
	if (w->kvm.clears - clears > most)
		differs(w, "a take clears %lu times, not %lu", w->kvm.clears - clears, most);
	if (w->wrong[0])
		return 0;
	for (page = want_first; page < want_first + want; page++) {
		b->dirty[consumer][page] = 0;
		expect_armed(w, b, page);
	}
	return want;
}

static uint64_t take_and_read(struct world *w, struct block *b, int consumer, uint64_t from,
			      uint64_t max)
{
	uint64_t first, n = take(w, b, consumer, from, max, &first), page;

	/* Between the take and the read the guest goes on. */
	if (n && !pick(w, 4) && w->meanwhile)
		op_guest_writes(w);
	for (page = first; n && page < first + n; page++)
		read_page(w, b, consumer, page);
	return n ? first + n : 0;
}

static uint64_t pick_max(struct world *w)
{
	return pick(w, 3) ? UINT64_MAX >> pick(w, 64) : 1 + pick(w, 70);
}

void op_take(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);

	if (b && consumer != NONE)
		take_and_read(w, b, consumer, pick(w, block_pages(w, b) + 1), pick_max(w));
}

static void take_block(struct world *w, struct block *b, int consumer)
{
	uint64_t from = 0, max = pick(w, 2) ? UINT64_MAX : 32 + pick(w, 100);

	do {
		from = take_and_read(w, b, consumer, from, max);
	} while (from && !w->wrong[0]);
}

void op_take_all(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);

	if (b && consumer != NONE)
		take_block(w, b, consumer);
}

void take_everything(struct world *w, int consumer)
{
	unsigned int i;

	for (i = 0; i < MAX_BLOCKS; i++) {
		if (w->blocks[i].id != NONE)
			take_block(w, &w->blocks[i], consumer);
	}
}

static void put_back(struct world *w, struct block *b, int consumer, uint64_t first, uint64_t n)
{
	say(w, "consumer %d puts back of block %d pages %lu+%lu", consumer, b->id, first, n);
	expect(w, silt_sync_put_back(w->sync, consumer, b->id, first, n), 0,
	       "silt_sync_put_back()");
	memset(b->dirty[consumer] + first, 1, n);
}

/* Some pages of a run are sent, the rest is put back. */
void op_send_fails(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);
	uint64_t first, n, sent, i;

	if (!b || consumer == NONE)
		return;
	n = take(w, b, consumer, pick(w, block_pages(w, b)), pick_max(w), &first);
	if (!n)
		return;
	sent = pick(w, n);
	for (i = 0; i < sent; i++)
		read_page(w, b, consumer, first + i);
	put_back(w, b, consumer, first + sent, n - sent);
}

void op_put_back(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);
	uint64_t first;

	if (!b || consumer == NONE)
		return;
	first = pick(w, block_pages(w, b));
	put_back(w, b, consumer, first, 1 + pick(w, block_pages(w, b) - first));
}

/* What is discarded needs no reading: as if it had been read. */
static void discard(struct world *w, struct block *b, int consumer, uint64_t first, uint64_t n)
{
	uint64_t want = model_count(w, b, consumer, first, n), page;
	int64_t got = silt_sync_discard(w->sync, consumer, b->id, first, n);

	say(w, "consumer %d discards of block %d pages %lu+%lu: %ld", consumer, b->id, first, n,
	    got);
	if (clear_has_failed(w, got, "silt_sync_discard()"))
		return;
	expect(w, got, (int64_t)want, "silt_sync_discard()");
	for (page = first; page < first + n; page++) {
		if (b->dirty[consumer][page])
			expect_armed(w, b, page);
		b->dirty[consumer][page] = 0;
		read_page(w, b, consumer, page);
	}
}

void op_discard(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);
	uint64_t first;

	if (!b || consumer == NONE)
		return;
	first = pick(w, block_pages(w, b));
	discard(w, b, consumer, first, 1 + pick(w, block_pages(w, b) - first));
}

void op_clear_fails(struct world *w)
{
	static const int errors[] = {EIO, EFAULT, ENOMEM};

	if (!w->has_kvm)
		return;
	w->kvm.failure = (struct fake_kvm_failure){
		.request = KVM_CLEAR_DIRTY_LOG,
		.after = (unsigned int)pick(w, 3),
		.error = errors[pick(w, 3)],
	};
	say(w, "a clear is going to fail, after %u", w->kvm.failure.after);
	if (pick(w, 3))
		op_take_all(w);
	else
		op_discard(w);
	memset(&w->kvm.failure, 0, sizeof(w->kvm.failure));
}
