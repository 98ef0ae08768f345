/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/error.h>

#include "world.h"

void differs(struct world *w, const char *fmt, ...)
{
	va_list args;

	if (w->wrong[0])
		return;
	va_start(args, fmt);
	vsnprintf(w->wrong, sizeof(w->wrong), fmt, args);
	va_end(args);
}

void say(struct world *w, const char *fmt, ...)
{
	va_list args;

	if (!w->trace)
		return;
	va_start(args, fmt);
	vfprintf(w->trace, fmt, args);
	va_end(args);
	fputc('\n', w->trace);
}

void expect(struct world *w, int64_t got, int64_t want, const char *what)
{
	if (got != want)
		differs(w, "%s returns %ld, not %ld (%s)", what, got, want, silt_errmsg());
}

static void choose_kvm(struct world *w, struct rng *rng)
{
	static const uint8_t shifts[] = {12, 12, 12, 14, 16};
	static const uint8_t limits[] = {0, 0, 1, 50, 200};
	struct fake_kvm_options opt = {
		.kind = (enum fake_kvm_kind)rng_below(rng, FAKE_KVM_RING_BITMAP + 1),
		.page_shift = shifts[rng_below(rng, sizeof(shifts))],
		.ring_entries = 256,
		/* Full after a few entries, or after most. */
		.ring_reserve = rng_one_in(rng, 3) ? 64 : 248,
		.clear_max_dirty = limits[rng_below(rng, sizeof(limits))],
	};

	fake_kvm_init(&w->kvm, &opt);
	w->kvm.meanwhile = guest_writes_meanwhile;
	w->kvm.opaque = w;
	w->granule_units = UINT64_C(1) << (opt.page_shift - UNIT_SHIFT);
	w->opt.clear_max_dirty = opt.clear_max_dirty;
	if (fake_kvm_has_rings(&w->kvm))
		fake_kvm_vcpu_add(&w->kvm);
}

static void choose_options(struct world *w, struct rng *rng)
{
	static const uint8_t shifts[] = {12, 12, 12, 12, 0, 13, 14, 16, 21};

	w->opt.size = sizeof(w->opt);
	w->opt.page_shift = shifts[rng_below(rng, sizeof(shifts))];
	w->opt.threads = (uint32_t)rng_below(rng, 4);
	w->opt.chunk_pages = rng_one_in(rng, 4) ? 0 : UINT64_C(64) << rng_below(rng, 4);
	/* However slow this machine is, it is the number of pages that splits clears. */
	w->opt.clear_cap_ns = UINT64_C(1) << 60;
	w->page_units = w->opt.page_shift ? UINT64_C(1) << (w->opt.page_shift - UNIT_SHIFT) : 1;
}

/* Guest memory that one page of 4 KiB of a log stands for: logs are made of whole ones. */
#define LOG_STEP (UNIT * 8 * UNIT)

static void choose_places(struct world *w, struct rng *rng)
{
	/* In two of them a log has to grow for slots in the upper half of the window. */
	static const uint64_t bases[] = {0, LOG_STEP - WINDOW / 2 * UNIT, UINT64_C(1) << 32,
					 (UINT64_C(1) << 36) + LOG_STEP - WINDOW / 2 * UNIT};
	unsigned int i;

	for (i = 0; i < SPACES; i++)
		w->base[i] = bases[rng_below(rng, 4)];
	for (i = 0; i < MAX_BLOCKS; i++)
		w->blocks[i].id = NONE;
	for (i = 0; i < MAX_SLOTS; i++)
		w->slots[i].id = NONE;
	for (i = 0; i < MAX_SOURCES; i++) {
		w->sources[i].id = NONE;
		w->sources[i].world = w;
	}
}

struct world *world_create(uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rng rng = {seed};

	if (!w)
		abort();
	choose_options(w, &rng);
	choose_places(w, &rng);
	w->has_kvm = !rng_one_in(&rng, 8);
	w->granule_units = 1;
	w->kvm_source = NONE;
	if (w->has_kvm)
		choose_kvm(w, &rng);
	expect(w, silt_sync_create(&w->opt, &w->sync), 0, "silt_sync_create()");
	return w;
}

void world_destroy(struct world *w)
{
	unsigned int i;

	silt_sync_destroy(w->sync);
	for (i = 0; i < MAX_SOURCES; i++) {
		struct device_log *log = &w->sources[i].log;

		if (!log->map)
			continue;
		munmap(log->map, log->offset + log->bytes);
		close(log->fd);
	}
	if (w->has_kvm)
		fake_kvm_free(&w->kvm);
	free(w);
}

struct block *pick_block(struct world *w)
{
	struct block *there[MAX_BLOCKS];
	unsigned int i, n = 0;

	for (i = 0; i < MAX_BLOCKS; i++) {
		if (w->blocks[i].id != NONE)
			there[n++] = &w->blocks[i];
	}
	return n ? there[pick(w, n)] : NULL;
}

struct slot *pick_slot(struct world *w)
{
	struct slot *there[MAX_SLOTS];
	unsigned int i, n = 0;

	for (i = 0; i < MAX_SLOTS; i++) {
		if (w->slots[i].id != NONE)
			there[n++] = &w->slots[i];
	}
	return n ? there[pick(w, n)] : NULL;
}

struct source *pick_source(struct world *w, enum source_kind kind)
{
	struct source *there[MAX_SOURCES];
	unsigned int i, n = 0;

	for (i = 0; i < MAX_SOURCES; i++) {
		if (w->sources[i].id != NONE && w->sources[i].kind == kind)
			there[n++] = &w->sources[i];
	}
	return n ? there[pick(w, n)] : NULL;
}

int pick_consumer(struct world *w)
{
	int there[MAX_CONSUMERS];
	int i, n = 0;

	for (i = 0; i < MAX_CONSUMERS; i++) {
		if (w->consumers[i])
			there[n++] = i;
	}
	return n ? there[pick(w, (uint64_t)n)] : NONE;
}

struct slot *slot_at(struct world *w, uint32_t space, uint64_t at)
{
	unsigned int i;

	for (i = 0; i < MAX_SLOTS; i++) {
		struct slot *s = &w->slots[i];

		if (s->id != NONE && s->space == space && at >= s->at && at - s->at < s->units)
			return s;
	}
	return NULL;
}

struct fake_kvm_slot *slot_in_kvm(struct world *w, const struct slot *s)
{
	return w->has_kvm ? fake_kvm_slot_find(&w->kvm, s->space << 16 | s->number) : NULL;
}

uint64_t slot_gpa(const struct world *w, const struct slot *s)
{
	return w->base[s->space] + s->at * UNIT;
}

void store(struct world *w, int block, uint64_t unit)
{
	w->blocks[block].stored[unit] = ++w->version;
}
