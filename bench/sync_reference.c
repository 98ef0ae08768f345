/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/sync_reference.h"

#include <string.h>

#include <silt/bitmap.h>

#include "base/bitmap_kernels.h"
#include "bench/reference_bitmap.h"

static double ms_since(uint64_t start)
{
	return (double)(bench_now_ns() - start) / 1e6;
}

int sync_reference_create(struct sync_reference *r, struct sync_world *w, uint64_t *log)
{
	const struct sync_topology *t = w->topology;
	uint64_t ram = 0;
	unsigned int i;
	int ret = 0;

	*r = (struct sync_reference){.world = w, .log = log};
	for (i = 0; i < t->nslots && !ret; i++)
		ret = bench_bitmap_make(&r->bits[i], t->slots[i].pages);
	for (i = 0; i < t->nblocks && !ret; i++) {
		r->base[i] = ram;
		ram += (t->blocks[i].pages + 63) / 64 * 64;
		ret = bench_bitmap_make(&r->blocks[i], t->blocks[i].pages);
	}
	for (i = 0; i < 2 && !ret; i++)
		ret = bench_bitmap_make(&r->list[i], ram);
	return ret ? ret : bench_bitmap_make(&r->log_sink, t->log_pages);
}

void sync_reference_destroy(struct sync_reference *r)
{
	unsigned int i;

	for (i = 0; i < SYNC_MAX_SLOTS; i++)
		bench_bitmap_free(&r->bits[i]);
	for (i = 0; i < SYNC_MAX_BLOCKS; i++)
		bench_bitmap_free(&r->blocks[i]);
	bench_bitmap_free(&r->list[0]);
	bench_bitmap_free(&r->list[1]);
	bench_bitmap_free(&r->log_sink);
}

/*
 * A sync leaves nothing in the list that it harvests. Whoever reads the other one is not measured:
 * what is in there costs nothing.
 */
void sync_reference_reset(struct sync_reference *r)
{
	unsigned int i;

	for (i = 0; i < r->world->topology->nblocks; i++)
		memset(r->blocks[i].words, 0, r->blocks[i].n * sizeof(*r->blocks[i].words));
}

/* ---- KVM's bitmaps --------------------------------------------------------------------------- */

/* KVM fills whole words. */
static int get(struct sync_reference *r, unsigned int slot)
{
	uint64_t pages = r->world->topology->slots[slot].pages, *bits = r->bits[slot].words;
	int ret = sync_world_get(r->world, slot, bits);

	if (pages % 64)
		bits[pages / 64] &= (UINT64_C(1) << pages % 64) - 1;
	return ret;
}

static int get_all(struct sync_reference *r, struct sync_sample *sample)
{
	unsigned int i;
	int ret = 0;

	sync_world_reset(r->world);
	for (i = 0; i < r->world->topology->nslots && !ret; i++)
		ret = get(r, i);
	sample->ms[SYNC_GET] = r->world->get_ns / 1e6;
	return ret;
}

static void or_both(struct sync_reference *r, uint64_t word, uint64_t bits)
{
	__atomic_fetch_or(&r->list[0].words[word], bits, __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&r->list[1].words[word], bits, __ATOMIC_SEQ_CST);
}

/* Words of @bits from bit @first of the list on, at any place in its words. */
static void list_shifted(struct sync_reference *r, uint64_t first, const uint64_t *bits, uint64_t n)
{
	unsigned int shift = first % 64;
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (bits[i] << shift)
			or_both(r, first / 64 + i, bits[i] << shift);
		if (bits[i] >> (64 - shift))
			or_both(r, first / 64 + i + 1, bits[i] >> (64 - shift));
	}
}

static void list_slot(struct sync_reference *r, unsigned int slot)
{
	const struct sync_slot_at *s = &r->world->topology->slots[slot];
	uint64_t first = r->base[s->block] + s->offset, n = silt_bitmap_words(s->pages);

	if (first % 64)
		list_shifted(r, first, r->bits[slot].words, n);
	else
		ref_list_two_atomics(&r->list[0].words[first / 64], &r->list[1].words[first / 64],
				     r->bits[slot].words, n);
}

/* Slots of blocks that are merged by words, or of the others, into the list. */
static double list_slots(struct sync_reference *r, bool by_words)
{
	const struct sync_topology *t = r->world->topology;
	uint64_t start = bench_now_ns();
	unsigned int i;

	for (i = 0; i < t->nslots; i++) {
		if (t->blocks[t->slots[i].block].by_words == by_words)
			list_slot(r, i);
	}
	return ms_since(start);
}

/* ---- The devices' log ------------------------------------------------------------------------ */

struct log_stretch {
	struct sync_reference *reference;
	uint64_t first; /* bit of the log */
	uint64_t to;	/* and of the list */
};

static void mark(void *opaque, uint64_t bit)
{
	struct log_stretch *s = opaque;
	uint64_t to = s->to + bit;

	or_both(s->reference, to / 64, UINT64_C(1) << to % 64);
}

/* Bits of a word that another slot has a part in, or whose bits lie at other places of the list. */
static void take_bits(struct log_stretch *s, uint64_t n)
{
	uint64_t *word = &s->reference->log[s->first / 64], mask, bits;

	mask = UINT64_MAX >> (64 - n) << s->first % 64;
	if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & mask))
		return;
	bits = (__atomic_fetch_and(word, ~mask, __ATOMIC_SEQ_CST) & mask) >> s->first % 64;
	for (; bits; bits &= bits - 1)
		mark(s, (uint64_t)__builtin_ctzll(bits));
}

static void take_words(struct log_stretch *s, uint64_t n, enum sync_way way)
{
	uint64_t *shared = &s->reference->log[s->first / 64], i;

	if (way == SYNC_PER_PAGE) {
		ref_log_per_bit(shared, n, mark, s);
	} else if (s->to % 64 == 0) {
		ref_log_or_words(&s->reference->list[0].words[s->to / 64], shared, n);
	} else {
		for (i = 0; i < n; i++, s->first += 64, s->to += 64)
			take_bits(s, 64);
	}
}

static void log_slot(struct sync_reference *r, const struct sync_slot_at *slot, enum sync_way way)
{
	struct log_stretch s = {
		.reference = r, .first = slot->gpa, .to = r->base[slot->block] + slot->offset};
	uint64_t end = slot->gpa + slot->pages, n;

	while (s.first < end) {
		n = 64 - s.first % 64;
		if (n > end - s.first)
			n = end - s.first;
		if (n < 64) {
			take_bits(&s, n);
		} else {
			n = (end - s.first) / 64 * 64;
			take_words(&(struct log_stretch){r, s.first, s.to}, n / 64, way);
		}
		s.first += n;
		s.to += n;
	}
}

static void take_log(struct sync_reference *r, enum sync_way way, struct sync_sample *sample)
{
	const struct sync_topology *t = r->world->topology;
	uint64_t start = bench_now_ns();
	unsigned int i;

	for (i = 0; i < t->nslots; i++)
		log_slot(r, &t->slots[i], way);
	sample->ms[SYNC_LOG] = ms_since(start);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void merge_blocks(struct sync_reference *r, struct sync_sample *sample)
{
	const struct sync_topology *t = r->world->topology;
	uint64_t start = bench_now_ns();
	unsigned int i;

	for (i = 0; i < t->nblocks; i++) {
		if (t->blocks[i].by_words)
			sample->pages += ref_xchg_merge_words(r->blocks[i].words,
							      &r->list[0].words[r->base[i] / 64],
							      t->blocks[i].pages / 64);
	}
	sample->ms[SYNC_MERGE] += ms_since(start);
}

struct page_clear {
	struct sync_reference *reference;
	unsigned int block;
	int ret;
};

/* In every slot that shows the page, at KVM's alignment. */
static void clear_page(void *opaque, uint64_t page)
{
	struct page_clear *c = opaque;
	const struct sync_topology *t = c->reference->world->topology;
	uint64_t at, first, rest, mask;
	unsigned int i;

	for (i = 0; i < t->nslots; i++) {
		at = page - t->slots[i].offset;
		if (t->slots[i].block != c->block || page < t->slots[i].offset ||
		    at >= t->slots[i].pages)
			continue;
		first = at / 64 * 64;
		rest = t->slots[i].pages - first;
		mask = UINT64_C(1) << at % 64;
		if (sync_world_clear(c->reference->world, i, first, rest < 64 ? rest : 64, &mask))
			c->ret = -1;
	}
}

static int clear_slots(struct sync_reference *r, unsigned int block)
{
	const struct sync_topology *t = r->world->topology;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < t->nslots && !ret; i++) {
		if (t->slots[i].block == block &&
		    silt_bitmap_next(r->bits[i].words, 0, t->slots[i].pages) < t->slots[i].pages)
			ret = sync_world_clear(r->world, i, 0, t->slots[i].pages, r->bits[i].words);
	}
	return ret;
}

static void count_page(void *opaque, uint64_t page)
{
	uint64_t *pages = opaque;

	(void)page;
	(*pages)++;
}

/* Main memory is not to be written again for each round: its clears are charged. */
static int harvest_memory(struct sync_reference *r, unsigned int block, enum sync_way way,
			  struct sync_sample *sample)
{
	uint64_t cleared = 0;
	int ret = 0;

	sample->pages += ref_per_page(r->blocks[block].words, 0, r->list[0].words, r->base[block],
				      r->world->topology->blocks[block].pages,
				      way == SYNC_PER_PAGE ? count_page : NULL, &cleared);
	sync_world_charge(r->world, cleared);
	r->world->clears = SYNC_CLEARS_CHARGED;
	if (way == SYNC_MERGED)
		ret = clear_slots(r, block);
	r->world->clears = SYNC_CLEARS_DONE;
	return ret;
}

static int harvest_firmware(struct sync_reference *r, unsigned int block, enum sync_way way,
			    struct sync_sample *sample)
{
	struct page_clear c = {.reference = r, .block = block};

	sample->pages += ref_per_page(r->blocks[block].words, 0, r->list[0].words, r->base[block],
				      r->world->topology->blocks[block].pages,
				      way == SYNC_PER_PAGE ? clear_page : NULL, &c);
	return way == SYNC_MERGED ? clear_slots(r, block) : c.ret;
}

static int harvest_blocks(struct sync_reference *r, enum sync_way way, struct sync_sample *sample)
{
	const struct sync_topology *t = r->world->topology;
	uint64_t start = bench_now_ns();
	unsigned int i;
	int ret = 0;
	double ms;

	for (i = 0; i < t->nblocks && !ret; i++) {
		if (t->blocks[i].by_words)
			continue;
		ret = i < SYNC_BIG_BLOCKS ? harvest_memory(r, i, way, sample)
					  : harvest_firmware(r, i, way, sample);
	}
	ms = ms_since(start) - r->world->call_ns / 1e6;
	sample->ms[SYNC_MISALIGNED] += ms > 0 ? ms : 0;
	sample->ms[SYNC_CLEAR] = r->world->clear_ns / 1e6;
	sample->clears = r->world->nclears;
	sample->longest_us = r->world->longest_ns / 1e3;
	return ret;
}

static void add_up(struct sync_sample *sample)
{
	unsigned int i;

	for (i = 0; i < SYNC_LAZY_CLEAR; i++)
		sample->ms[SYNC_TOTAL] += sample->ms[i];
}

int sync_reference_run(struct sync_reference *r, enum sync_way way, struct sync_sample *sample)
{
	int ret;

	*sample = (struct sync_sample){0};
	ret = get_all(r, sample);
	if (ret)
		return ret;
	sample->ms[SYNC_MERGE] = list_slots(r, true);
	sample->ms[SYNC_MISALIGNED] = list_slots(r, false);
	take_log(r, way, sample);
	merge_blocks(r, sample);
	ret = harvest_blocks(r, way, sample);
	add_up(sample);
	return ret;
}

/* ---- The limit ------------------------------------------------------------------------------- */

uint64_t sync_reference_merge_dirty(uint64_t *dst, const uint64_t *src, uint64_t n)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return ref_merge_skip(dst, src, n);
#endif
	return ref_merge_words(dst, src, n);
}

uint64_t sync_reference_merge(uint64_t *dst, const uint64_t *src, uint64_t n)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return ref_merge_avx2(dst, src, n);
#endif
	return ref_merge_words(dst, src, n);
}

/* From a whole cache line on, and right after KVM's call, as silt does it. */
static int limit_of_slot(struct sync_reference *r, unsigned int slot, double *ms)
{
	const struct sync_slot_at *s = &r->world->topology->slots[slot];
	uint64_t *dst = &r->blocks[s->block].words[s->offset / 512 * 8], start, count;
	int ret = get(r, slot);

	start = bench_now_ns();
	count = sync_reference_merge(dst, r->bits[slot].words, silt_bitmap_words(s->pages));
	__asm__ volatile("" ::"r"(count));
	*ms += ms_since(start);
	return ret;
}

int sync_reference_limit_merge(struct sync_reference *r, struct sync_sample *sample)
{
	const struct sync_topology *t = r->world->topology;
	enum sync_step step;
	unsigned int i;
	int ret = 0;

	*sample = (struct sync_sample){0};
	sync_world_reset(r->world);
	for (i = 0; i < t->nslots && !ret; i++) {
		step = t->blocks[t->slots[i].block].by_words ? SYNC_MERGE : SYNC_MISALIGNED;
		ret = limit_of_slot(r, i, &sample->ms[step]);
	}
	sample->ms[SYNC_GET] = r->world->get_ns / 1e6;
	return ret;
}

int sync_reference_limit(struct sync_reference *r, struct sync_sample *sample)
{
	int ret = sync_reference_limit_merge(r, sample);
	uint64_t start = bench_now_ns(), count;

	count = sync_reference_merge_dirty(r->log_sink.words, r->log,
					   silt_bitmap_words(r->world->topology->log_pages));
	__asm__ volatile("" ::"r"(count));
	sample->ms[SYNC_LOG] = ms_since(start);
	add_up(sample);
	return ret;
}
