/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest writes, one thread syncs, two senders take and read, and one more changes what is not
 * theirs, all at once, on a fake KVM: behind each pass both copies equal memory, and then nothing
 * is dirty any more.
 */
#include <string.h>

#include <silt/sync.h>

#include "conc/log/common.h"
#include "model/sync/fake_kvm.h"
#include "support/rng.h"

#define PAGES	UINT64_C(1000)
#define SENDERS 2
#define PASSES	60
#define PAGE	UINT64_C(4096)

static const struct view {
	uint32_t number;
	uint64_t first, pages; /* of the block */
	uint64_t gpa;
} views[] = {
	{0, 0, 500, 0},
	{1, 500, 500, 600},
	/* The same pages once more, across both, and in an address space of its own. */
	{1 << 16, 37, 900, 64},
};

#define VIEWS (sizeof(views) / sizeof(views[0]))

struct race {
	struct fake_kvm kvm;
	struct silt_sync *sync;
	int ring; /* the source, or negative */
	int block;
	int other; /* block */
	uint64_t memory[PAGES];
	uint64_t copy[SENDERS][PAGES];
	bool quiet; /* the guest is through with the pass */
	bool over;
	pthread_barrier_t barrier;
};

struct sender {
	struct race *race;
	int consumer;
	pthread_t thread;
};

/* The store and what KVM notes of it are one, as they are in hardware. */
static bool guest_store(struct race *r, const struct view *v, uint64_t page, uint64_t version)
{
	bool stored;

	pthread_mutex_lock(&r->kvm.lock);
	stored = fake_kvm_write(&r->kvm, 0, v->number, page - v->first);
	if (stored)
		__atomic_store_n(&r->memory[page], version, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&r->kvm.lock);
	return stored;
}

static void *run_guest(void *arg)
{
	struct race *r = arg;
	struct rng rng = rng_make(1);
	uint64_t version = 1, i;

	for (;;) {
		pthread_barrier_wait(&r->barrier);
		if (r->over)
			return NULL;
		for (i = 0; i < 4 * PAGES; i++, version++) {
			const struct view *v = &views[rng_below(&rng, VIEWS)];
			uint64_t page = v->first + rng_below(&rng, v->pages);

			while (!guest_store(r, v, page, version))
				must(silt_sync_ring_reap(r->sync, r->ring) >= 0);
		}
		__atomic_store_n(&r->quiet, true, __ATOMIC_RELEASE);
		pthread_barrier_wait(&r->barrier);
	}
}

static bool read_some(struct race *r, int consumer)
{
	uint64_t first = 0, page, end;
	bool any = false;
	int64_t n;

	for (; (n = silt_sync_take(r->sync, consumer, r->block, first, 100, &first)) > 0;
	     first = end) {
		for (page = first, end = first + (uint64_t)n; page < end; page++)
			r->copy[consumer][page] =
				__atomic_load_n(&r->memory[page], __ATOMIC_RELAXED);
		any = true;
	}
	must(!n);
	return any;
}

static void *run_sender(void *arg)
{
	struct sender *s = arg;
	struct race *r = s->race;
	struct rng rng = rng_make((uint64_t)s->consumer + 7);

	for (;;) {
		pthread_barrier_wait(&r->barrier);
		if (r->over)
			return NULL;
		while (!__atomic_load_n(&r->quiet, __ATOMIC_ACQUIRE)) {
			uint64_t page = rng_below(&rng, PAGES);

			read_some(r, s->consumer);
			must(!silt_sync_put_back(r->sync, s->consumer, r->block, page, 1));
		}
		pthread_barrier_wait(&r->barrier);
	}
}

/* The monitor writes; slots and consumers come and go beside the ones that are used. */
static void change(struct race *r, struct rng *rng)
{
	struct silt_sync_slot slot = {
		.size = sizeof(slot),
		.number = 9,
		.block = r->other,
		.gpa = UINT64_C(1) << 30,
		.bytes = PAGE,
	};
	int id = silt_sync_slot_add(r->sync, &slot), consumer;
	uint64_t page = rng_below(rng, PAGES);

	must(id >= 0);
	consumer = silt_sync_consumer_add(r->sync, false);
	must(consumer == SENDERS);
	must(silt_sync_dirty(r->sync, consumer, r->block, 0, PAGES) >= 0);
	__atomic_store_n(&r->memory[page], rng_next(rng), __ATOMIC_RELAXED);
	must(!silt_sync_mark(r->sync, r->block, page, 1));
	must(!silt_sync_consumer_remove(r->sync, consumer));
	must(!silt_sync_slot_remove(r->sync, id));
}

static void *run_changes(void *arg)
{
	struct race *r = arg;
	struct rng rng = rng_make(3);

	for (;;) {
		pthread_barrier_wait(&r->barrier);
		if (r->over)
			return NULL;
		while (!__atomic_load_n(&r->quiet, __ATOMIC_ACQUIRE)) {
			change(r, &rng);
			sched_yield();
		}
		pthread_barrier_wait(&r->barrier);
	}
}

static void add_kvm(struct race *r)
{
	struct silt_sync_kvm opt = {
		.size = sizeof(opt),
		.vm_fd = FAKE_KVM_VM_FD,
		.mode = r->kvm.kind == FAKE_KVM_GET_CLEARS ? SILT_SYNC_KVM_GET_CLEARS
							   : SILT_SYNC_KVM_MANUAL,
		.page_shift = 12,
		.ioctl = fake_kvm_ioctl,
		.opaque = &r->kvm,
	};

	r->ring = -1;
	must(silt_sync_add_kvm(r->sync, &opt) >= 0);
}

static void add_ring(struct race *r)
{
	struct silt_sync_ring opt = {
		.size = sizeof(opt),
		.vm_fd = FAKE_KVM_VM_FD,
		.ring_bytes = r->kvm.ring_entries * (uint32_t)sizeof(struct kvm_dirty_gfn),
		.page_shift = 12,
		.reap_ms = 1,
		.with_bitmap = r->kvm.kind == FAKE_KVM_RING_BITMAP,
		.ioctl = fake_kvm_ioctl,
		.opaque = &r->kvm,
	};

	r->ring = silt_sync_add_ring(r->sync, &opt);
	must(r->ring >= 0);
	must(!silt_sync_ring_add_vcpu(r->sync, r->ring, fake_kvm_vcpu_add(&r->kvm)->fd));
}

static void add_slot(struct race *r, const struct view *v)
{
	struct silt_sync_slot slot = {
		.size = sizeof(slot),
		.address_space = v->number >> 16,
		.number = v->number & 0xffff,
		.flags = SILT_SYNC_SLOT_LOGGED,
		.block = r->block,
		.gpa = v->gpa * PAGE,
		.bytes = v->pages * PAGE,
		.offset = v->first * PAGE,
	};

	fake_kvm_slot_add(&r->kvm, v->number, v->pages, true, false);
	must(silt_sync_slot_add(r->sync, &slot) >= 0);
}

static void build(struct race *r, enum fake_kvm_kind kind)
{
	struct silt_sync_options opt = {.size = sizeof(opt), .threads = 2, .chunk_pages = 64};
	struct fake_kvm_options kvm = {
		.kind = kind, .page_shift = 12, .ring_entries = 256, .ring_reserve = 64};
	unsigned int i;

	memset(r, 0, sizeof(*r));
	fake_kvm_init(&r->kvm, &kvm);
	r->kvm.attached = true;
	must(!silt_sync_create(&opt, &r->sync));
	r->block = silt_sync_block_add(r->sync, "ram", PAGES * PAGE, NULL);
	r->other = silt_sync_block_add(r->sync, "other", PAGE, NULL);
	must(r->block >= 0 && r->other >= 0);
	for (i = 0; i < SENDERS; i++)
		must(silt_sync_consumer_add(r->sync, true) == (int)i);
	if (fake_kvm_has_rings(&r->kvm))
		add_ring(r);
	else
		add_kvm(r);
	for (i = 0; i < VIEWS; i++)
		add_slot(r, &views[i]);
	/* The guest, the senders, the one that changes things, and the one that syncs. */
	pthread_barrier_init(&r->barrier, NULL, SENDERS + 3);
}

/* All are quiet: one more sync brings the rest, and the next nothing. */
static void expect_copies(struct race *r)
{
	uint64_t page;
	int i;

	must(silt_sync_run(r->sync, 0) >= 0);
	for (i = 0; i < SENDERS; i++) {
		read_some(r, i);
		for (page = 0; page < PAGES; page++)
			must(r->copy[i][page] == r->memory[page]);
	}
	must(!silt_sync_run(r->sync, SILT_SYNC_NO_CONSUMER));
	for (i = 0; i < SENDERS; i++)
		must(!read_some(r, i));
	if (r->kvm.breach[0])
		fprintf(stderr, "KVM: %s\n", r->kvm.breach);
	must(!r->kvm.breach[0]);
}

static void run_passes(struct race *r)
{
	unsigned int pass, n = rounds(PASSES);

	for (pass = 0; pass < n; pass++) {
		r->quiet = false;
		pthread_barrier_wait(&r->barrier);
		while (!__atomic_load_n(&r->quiet, __ATOMIC_ACQUIRE))
			must(silt_sync_run(r->sync, 0) >= 0);
		pthread_barrier_wait(&r->barrier);
		expect_copies(r);
	}
	r->over = true;
	pthread_barrier_wait(&r->barrier);
}

static void race(enum fake_kvm_kind kind)
{
	static struct race r;
	struct sender senders[SENDERS];
	pthread_t guest, changes;
	int i;

	build(&r, kind);
	must(!pthread_create(&guest, NULL, run_guest, &r));
	must(!pthread_create(&changes, NULL, run_changes, &r));
	for (i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){.race = &r, .consumer = i};
		must(!pthread_create(&senders[i].thread, NULL, run_sender, &senders[i]));
	}
	run_passes(&r);
	for (i = 0; i < SENDERS; i++)
		pthread_join(senders[i].thread, NULL);
	pthread_join(guest, NULL);
	pthread_join(changes, NULL);
	silt_sync_destroy(r.sync);
	fake_kvm_free(&r.kvm);
	pthread_barrier_destroy(&r.barrier);
}

int main(void)
{
	enum fake_kvm_kind kind;

	for (kind = FAKE_KVM_MANUAL; kind <= FAKE_KVM_RING_BITMAP; kind++)
		race(kind);
	return 0;
}
