/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <silt/error.h>

#include "broken.h"

#define GIB (UINT64_C(1) << 30)

/* Where slots are, within a few pages; two slots that show one block are neighbours here. */
static const struct {
	unsigned int block;
	uint64_t gpa;
} places[WORLD_SLOTS] = {
	{0, 0x10000}, {1, 4 * GIB}, {1, 9 * GIB},    {2, 1 * GIB},
	{2, 5 * GIB}, {3, 3 * GIB}, {3, 0xfd000000},
};

/* The last slot is a read-only one. */
#define READ_ONLY (WORLD_SLOTS - 1)

static const struct {
	const char *name;
	uint64_t pages, more; /* at least, and by chance */
} sizes[WORLD_BLOCKS] = {
	{"low", 500, 1500}, {"high", 600, 3000}, {"alias", 80, 900}, {"rom", 24, 480}};

const char *world_mode_name(enum guest_log mode)
{
	static const char *const names[] = {
		[GUEST_LOG_GET_CLEARS] = "get-clears",	     [GUEST_LOG_MANUAL] = "manual",
		[GUEST_LOG_INITIALLY_SET] = "initially-set", [GUEST_LOG_RING] = "ring",
		[GUEST_LOG_RING_BITMAP] = "ring-bitmap",
	};

	return names[mode];
}

static void say_seed(const struct world *w)
{
	fprintf(stderr, "%s, seed %llu: ", world_mode_name(w->mode), (unsigned long long)w->seed);
}

void world_complain(struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (__atomic_fetch_add(&w->complaints, 1, __ATOMIC_RELAXED) >= 5)
		return;
	flockfile(stderr);
	say_seed(w);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	funlockfile(stderr);
}

void world_die(const struct world *w, const char *what)
{
	say_seed(w);
	fprintf(stderr, "%s: %s\n", what, silt_errmsg());
	_Exit(1);
}

/* An id, or nothing: whatever is not negative. */
static int must(const struct world *w, int64_t ret, const char *what)
{
	if (ret < 0)
		world_die(w, what);
	return (int)ret;
}

static void choose_options(struct world *w)
{
	static const uint64_t chunks[] = {64, 512, UINT64_C(1) << 18};
	struct rng *r = &w->rng;

	w->opt.size = sizeof(w->opt);
	w->opt.page_shift = rng_one_in(r, 5) ? 12 + (uint32_t)rng_below(r, 5) : 0;
	w->opt.threads = (uint32_t)rng_below(r, 3);
	w->opt.chunk_pages = chunks[rng_below(r, 3)];
	w->opt.clear_max_dirty = rng_one_in(r, 2) ? 0 : 1 + rng_below(r, 100);
	w->failing = w->broken == BREAK_NOTHING && rng_one_in(r, 3);
	w->reap_ms = (uint32_t)rng_below(r, 3);
	w->vcpus = 1 + (unsigned int)rng_below(r, 2);
}

void world_heal(struct world *w)
{
	__atomic_store_n(&w->healed, true, __ATOMIC_RELAXED);
}

bool world_was_failed(const struct world *w, int64_t ret)
{
	return w->failing && ret == -BROKEN_ERRNO;
}

/* A reset that failed is made up for by the next one. */
static int64_t empty_rings(void *opaque)
{
	struct world *w = opaque;
	int64_t ret;

	broken_ring(w);
	ret = silt_sync_ring_reap(w->sync, w->ring);
	return world_was_failed(w, ret) ? 0 : ret;
}

/* The smallest ring that there is, so that it is too small for the load. */
static int open_guest(struct world *w)
{
	struct guest_options opt = {.log = w->mode,
				    .vcpus = w->vcpus,
				    .ring_bytes = 4096,
				    .ring_full = empty_rings,
				    .opaque = w};
	int ret = guest_create(&opt, &w->guest);

	while (ret == -EINVAL && opt.ring_bytes < 1 << 20) {
		opt.ring_bytes *= 2;
		ret = guest_create(&opt, &w->guest);
	}
	w->ring_bytes = opt.ring_bytes;
	if (ret < 0 && !guest_missing(ret))
		world_die(w, "guest");
	return ret;
}

static void add_block(struct world *w, unsigned int i)
{
	struct world_block *b = &w->blocks[i];
	uint64_t align = UINT64_C(1) << (w->opt.page_shift ? w->opt.page_shift : 12);

	b->name = sizes[i].name;
	b->bytes = (sizes[i].pages + rng_below(&w->rng, sizes[i].more)) * GUEST_PAGE;
	b->bytes = (b->bytes + align - 1) & ~(align - 1);
	b->memory = guest_memory_map(b->bytes);
	if (!b->memory)
		world_die(w, "block");
	b->id = must(w, silt_sync_block_add(w->sync, b->name, b->bytes, b->memory), "block");
}

/* A stretch of the block, seldom aligned to anything; two of one block may overlap in it. */
static void choose_slot(struct world *w, unsigned int i)
{
	struct world_slot *s = &w->slots[i];
	const struct world_block *b = &w->blocks[places[i].block];
	uint64_t pages = b->bytes / GUEST_PAGE, offset = rng_below(&w->rng, pages / 4);

	if (rng_one_in(&w->rng, 4))
		offset &= ~UINT64_C(63);
	s->block = places[i].block;
	s->offset = offset * GUEST_PAGE;
	s->is.number = 10 + i;
	s->is.gpa = places[i].gpa + rng_below(&w->rng, 512) * GUEST_PAGE;
	s->is.bytes = (pages - offset - rng_below(&w->rng, pages / 4)) * GUEST_PAGE;
	s->is.memory = b->memory + s->offset;
	s->is.logged = true;
	s->is.read_only = i == READ_ONLY;
	s->id = -1;
}

void world_add_slot(struct world *w, struct world_slot *slot)
{
	struct silt_sync_slot is = {.size = sizeof(is),
				    .number = slot->is.number,
				    .flags = SILT_SYNC_SLOT_LOGGED,
				    .block = w->blocks[slot->block].id,
				    .gpa = slot->is.gpa,
				    .bytes = slot->is.bytes,
				    .offset = slot->offset};

	must(w, guest_slot_set(w->guest, &slot->is), "slot");
	slot->id = must(w, silt_sync_slot_add(w->sync, &is), "slot");
}

static void reap(const struct world *w)
{
	int64_t ret = silt_sync_ring_reap(w->sync, w->ring);

	if (!world_was_failed(w, ret))
		must(w, ret, "ring");
}

/* What rings still hold of the slot is reaped while the engine knows it. */
void world_remove_slot(struct world *w, struct world_slot *slot)
{
	__atomic_fetch_add(&w->removal, 1, __ATOMIC_SEQ_CST);
	must(w, guest_slot_remove(w->guest, 0, slot->is.number), "slot");
	if (w->ring >= 0)
		reap(w);
	must(w, silt_sync_slot_remove(w->sync, slot->id), "slot");
	__atomic_fetch_add(&w->removal, 1, __ATOMIC_SEQ_CST);
	slot->id = -1;
}

void world_add_consumer(struct world *w)
{
	unsigned int i;
	int id;

	for (i = 0; i < WORLD_BLOCKS; i++) {
		struct world_block *b = &w->blocks[i];

		b->copies[w->consumers] = guest_memory_map(b->bytes);
		if (!b->copies[w->consumers])
			world_die(w, "copy");
		/* What is never sent shall not be right by chance. */
		memset(b->copies[w->consumers], 0xee, b->bytes);
	}
	id = must(w, silt_sync_consumer_add(w->sync, true), "consumer");
	if (id != (int)w->consumers)
		world_complain(w, "consumer %u has the id %d", w->consumers, id);
	w->consumers++;
}

static void add_bitmaps(struct world *w)
{
	struct silt_sync_kvm kvm = {.size = sizeof(kvm),
				    .vm_fd = guest_vm_fd(w->guest),
				    .mode = w->mode == GUEST_LOG_GET_CLEARS
						    ? SILT_SYNC_KVM_GET_CLEARS
						    : SILT_SYNC_KVM_MANUAL,
				    .ioctl = w->broken || w->failing ? broken_ioctl : NULL,
				    .opaque = w};

	must(w, silt_sync_add_kvm(w->sync, &kvm), "source");
}

static void add_rings(struct world *w)
{
	struct silt_sync_ring ring = {.size = sizeof(ring),
				      .vm_fd = guest_vm_fd(w->guest),
				      .ring_bytes = w->ring_bytes,
				      .reap_ms = w->reap_ms,
				      .with_bitmap = w->mode == GUEST_LOG_RING_BITMAP,
				      .ioctl = w->failing ? broken_ioctl : NULL,
				      .opaque = w};
	unsigned int i;

	w->ring = must(w, silt_sync_add_ring(w->sync, &ring), "source");
	for (i = 0; i < w->vcpus; i++)
		must(w, silt_sync_ring_add_vcpu(w->sync, w->ring, guest_vcpu_fd(w->guest, i)),
		     "ring");
}

/* Each vCPU writes all over memory, in a manner of its own. */
static void set_program(struct world *w, unsigned int vcpu)
{
	struct guest_program p = {.run = 1 + rng_below(&w->rng, 4)};
	unsigned int i;

	for (i = 0; i < WORLD_SLOTS; i++) {
		p.ranges[i].gpa = w->slots[i].is.gpa;
		p.ranges[i].pages = w->slots[i].is.bytes / GUEST_PAGE;
	}
	p.nranges = i;
	p.stride = p.run + rng_below(&w->rng, 3);
	p.sequential = rng_one_in(&w->rng, 4);
	p.seed = rng_next(&w->rng);
	if (rng_one_in(&w->rng, 2)) {
		p.burst = 100 + rng_below(&w->rng, 500);
		p.idle_us = 100;
	}
	must(w, guest_program(w->guest, vcpu, &p), "program");
}

int world_open(struct world *w, uint64_t seed, enum guest_log mode, enum world_break broken)
{
	unsigned int i;
	int ret;

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->mode = mode;
	w->broken = broken;
	w->ring = -1;
	w->rng.state = seed * UINT64_C(0x2545f4914f6cdd1d);
	choose_options(w);
	ret = open_guest(w);
	if (ret < 0)
		return ret;
	must(w, silt_sync_create(&w->opt, &w->sync), "engine");
	if (mode == GUEST_LOG_RING || mode == GUEST_LOG_RING_BITMAP)
		add_rings(w);
	else
		add_bitmaps(w);
	for (i = 0; i < WORLD_BLOCKS; i++)
		add_block(w, i);
	for (i = 0; i < WORLD_SLOTS; i++) {
		choose_slot(w, i);
		world_add_slot(w, &w->slots[i]);
	}
	for (i = 0; i < w->vcpus; i++)
		set_program(w, i);
	world_add_consumer(w);
	return 0;
}

void world_close(struct world *w)
{
	unsigned int i, c;

	silt_sync_destroy(w->sync);
	guest_destroy(w->guest);
	for (i = 0; i < WORLD_BLOCKS; i++) {
		guest_memory_unmap(w->blocks[i].memory, w->blocks[i].bytes);
		for (c = 0; c < w->consumers; c++)
			guest_memory_unmap(w->blocks[i].copies[c], w->blocks[i].bytes);
	}
}
