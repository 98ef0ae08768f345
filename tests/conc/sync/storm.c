/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every public function that moves dirty pages, each in a thread of its own on one and the same
 * block, while ioctls fail, a slot of the block comes and goes, and devices go over to other logs
 * or refuse them: behind each pass every copy equals memory.
 */
#include <errno.h>
#include <string.h>

#include <silt/sync.h>

#include "conc/log/common.h"
#include "model/sync/fake_kvm.h"
#include "support/rng.h"

#define PAGES	  UINT64_C(1000)
#define CONSUMERS 2
#define PASSES	  30
#define STORES	  1500 /* of the guest in a pass */
#define PAGE	  UINT64_C(4096)

/* Page @first of the block is page @gpa of an address space. */
static const struct view {
	uint32_t number;
	uint64_t first, pages, gpa;
} views[] = {
	{0, 0, 500, 0},
	{1, 500, 500, 600},
	{1 << 16, 37, 900, 64},
	{2, 200, 301, 2000}, /* comes and goes */
};

#define VIEWS	(sizeof(views) / sizeof(views[0]))
#define WANDERS (VIEWS - 1)

/* What fails, one call at a time. */
static const unsigned long requests[] = {KVM_GET_DIRTY_LOG, KVM_CLEAR_DIRTY_LOG,
					 KVM_RESET_DIRTY_RINGS};

struct storm {
	struct fake_kvm kvm;
	struct silt_sync *sync;
	int block;
	int log;		/* the source, */
	int ring;		/* and another, or negative */
	int wanderer;		/* slot */
	uint64_t version;	/* of the latest store; atomic, as are the next two */
	uint64_t memory[PAGES]; /* what was stored last */
	uint64_t copy[CONSUMERS][PAGES];
	pthread_rwlock_t use; /* held by who stores, and alone by who says that none does */
	bool present;	      /* the wanderer may be stored through */
	pthread_mutex_t device;
	uint64_t *marks; /* where devices mark */
	bool refuse;	 /* the next log */
	bool quiet;	 /* the guest is through with the pass; atomic */
	bool over;
	pthread_barrier_t barrier;
};

/* ---- Stores ---------------------------------------------------------------------------------- */

/* Several may store to a page, and several copy it: no later version gives way to an earlier one.
 */
static void raise_to(uint64_t *word, uint64_t version)
{
	uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (seen < version && !__atomic_compare_exchange_n(word, &seen, version, true,
							      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

static void store(struct storm *s, uint64_t page)
{
	raise_to(&s->memory[page], __atomic_add_fetch(&s->version, 1, __ATOMIC_RELAXED));
}

/* The store and what KVM notes of it are one. Return: false if the vCPU left the guest before. */
static bool try_vcpu(struct storm *s, unsigned int vcpu, const struct view *v, uint64_t page)
{
	bool stored;

	pthread_mutex_lock(&s->kvm.lock);
	stored = fake_kvm_write(&s->kvm, vcpu, v->number, page - v->first);
	if (stored)
		store(s, page);
	pthread_mutex_unlock(&s->kvm.lock);
	return stored;
}

static void store_by_vcpu(struct storm *s, unsigned int vcpu, const struct view *v, uint64_t page)
{
	bool stored = false;

	while (!stored) {
		pthread_rwlock_rdlock(&s->use);
		if (v == &views[WANDERS] && !s->present)
			stored = true;
		else
			stored = try_vcpu(s, vcpu, v, page);
		pthread_rwlock_unlock(&s->use);
		if (!stored)
			silt_sync_ring_reap(s->sync, s->ring);
	}
}

static void run_guest(struct storm *s, struct rng *rng)
{
	const struct view *v;
	int i;

	for (i = 0; i < STORES; i++) {
		v = &views[rng_below(rng, VIEWS)];
		store_by_vcpu(s, 0, v, v->first + rng_below(rng, v->pages));
	}
	__atomic_store_n(&s->quiet, true, __ATOMIC_RELEASE);
}

static void run_device(struct storm *s, struct rng *rng)
{
	const struct view *v = &views[rng_below(rng, 2)];
	uint64_t at = rng_below(rng, v->pages), gpa = v->gpa + at;

	pthread_rwlock_rdlock(&s->use);
	pthread_mutex_lock(&s->device);
	store(s, v->first + at);
	__atomic_fetch_or(&s->marks[gpa / 64], UINT64_C(1) << gpa % 64, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&s->device);
	pthread_rwlock_unlock(&s->use);
}

static void run_monitor(struct storm *s, struct rng *rng)
{
	uint64_t page = rng_below(rng, PAGES);

	pthread_rwlock_rdlock(&s->use);
	store(s, page);
	must(!silt_sync_mark(s->sync, s->block, page, 1));
	pthread_rwlock_unlock(&s->use);
}

/* ---- Readers --------------------------------------------------------------------------------- */

/* Return: whether all was taken, and none of it failed. */
static bool copy_all(struct storm *s, int consumer)
{
	uint64_t first = 0, page, end;
	int64_t n;

	for (; (n = silt_sync_take(s->sync, consumer, s->block, first, 100, &first)) > 0;
	     first = end) {
		for (page = first, end = first + (uint64_t)n; page < end; page++)
			raise_to(&s->copy[consumer][page],
				 __atomic_load_n(&s->memory[page], __ATOMIC_RELAXED));
	}
	must(!n || n == -EIO);
	return !n;
}

/* A run that is taken and not sent. */
static void give_back(struct storm *s, int consumer, struct rng *rng)
{
	uint64_t first, from = rng_below(rng, PAGES);
	int64_t n = silt_sync_take(s->sync, consumer, s->block, from, 10, &first);

	if (n > 0)
		must(!silt_sync_put_back(s->sync, consumer, s->block, first, (uint64_t)n));
}

static void run_sender(struct storm *s, struct rng *rng)
{
	copy_all(s, 0);
	give_back(s, 1, rng);
}

static void run_other_sender(struct storm *s, struct rng *rng)
{
	copy_all(s, (int)rng_below(rng, CONSUMERS));
	give_back(s, 0, rng);
}

static void run_sync(struct storm *s, struct rng *rng)
{
	int64_t n = silt_sync_run(s->sync, rng_one_in(rng, 2) ? 1 : SILT_SYNC_NO_CONSUMER);

	must(n >= 0 || n == -EIO || n == -EPROTO);
}

/* Pages that nobody needs are stored to as soon as they are discarded. */
static void run_discards(struct storm *s, struct rng *rng)
{
	uint64_t n = 1 + rng_below(rng, 8), first = rng_below(rng, 500 - n), page;
	int64_t ret;

	pthread_rwlock_wrlock(&s->use);
	ret = silt_sync_discard(s->sync, 0, s->block, first, n);
	must(ret >= 0 || ret == -EIO);
	pthread_rwlock_unlock(&s->use);
	for (page = first; page < first + n; page++)
		store_by_vcpu(s, 1, &views[0], page);
	sched_yield();
}

/* ---- Changes --------------------------------------------------------------------------------- */

static int replace(void *opaque, const struct silt_sync_log_file *file)
{
	struct storm *s = opaque;

	if (s->refuse)
		return -EBUSY;
	/* No device is between its store and its mark. */
	pthread_mutex_lock(&s->device);
	s->marks = file->memory;
	pthread_mutex_unlock(&s->device);
	return 0;
}

static int add_slot(struct storm *s, const struct view *v)
{
	struct silt_sync_slot slot = {
		.size = sizeof(slot),
		.address_space = v->number >> 16,
		.number = v->number & 0xffff,
		.flags = SILT_SYNC_SLOT_LOGGED,
		.block = s->block,
		.gpa = v->gpa * PAGE,
		.bytes = v->pages * PAGE,
		.offset = v->first * PAGE,
	};
	int id;

	fake_kvm_slot_add(&s->kvm, v->number, v->pages, true, false);
	s->present = true;
	pthread_rwlock_unlock(&s->use);
	id = silt_sync_slot_add(s->sync, &slot);
	must(id >= 0);
	return id;
}

static void move_wanderer(struct storm *s)
{
	pthread_rwlock_wrlock(&s->use);
	if (!s->present) {
		s->wanderer = add_slot(s, &views[WANDERS]);
		return;
	}
	s->present = false;
	pthread_rwlock_unlock(&s->use);
	must(!silt_sync_slot_remove(s->sync, s->wanderer));
	fake_kvm_slot_remove(&s->kvm, views[WANDERS].number);
}

/* The ioctl behind @after of its kind. */
static void fail_once(struct storm *s, unsigned long request, unsigned int after)
{
	pthread_mutex_lock(&s->kvm.lock);
	s->kvm.failure =
		(struct fake_kvm_failure){.request = request, .after = after, .error = EIO};
	pthread_mutex_unlock(&s->kvm.lock);
}

static void run_changes(struct storm *s, struct rng *rng)
{
	int consumer;

	move_wanderer(s);
	s->refuse = rng_one_in(rng, 3);
	must(silt_sync_log_replace(s->sync, s->log) == (s->refuse ? -EBUSY : 0));
	consumer = silt_sync_consumer_add(s->sync, false);
	must(consumer == CONSUMERS && !silt_sync_consumer_remove(s->sync, consumer));
	fail_once(s, requests[rng_below(rng, 3)], (unsigned int)rng_below(rng, 3));
	sched_yield();
}

/* ---- The storm ------------------------------------------------------------------------------- */

static const struct part {
	void (*run)(struct storm *s, struct rng *rng);
	bool once; /* in a pass, not over and over */
} parts[] = {
	{run_guest, true},   {run_device, false},	{run_monitor, false},
	{run_sender, false}, {run_other_sender, false}, {run_sync, false},
	{run_sync, false},   {run_discards, false},	{run_changes, false},
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

struct player {
	struct storm *storm;
	const struct part *part;
	struct rng rng;
	pthread_t thread;
};

static void *play(void *arg)
{
	struct player *p = arg;
	struct storm *s = p->storm;

	for (;;) {
		pthread_barrier_wait(&s->barrier);
		if (s->over)
			return NULL;
		do {
			p->part->run(s, &p->rng);
		} while (!p->part->once && !__atomic_load_n(&s->quiet, __ATOMIC_ACQUIRE));
		pthread_barrier_wait(&s->barrier);
	}
}

static void add_sources(struct storm *s)
{
	struct silt_sync_log log = {.size = sizeof(log), .replace = replace, .opaque = s};
	struct silt_sync_kvm kvm = {
		.size = sizeof(kvm),
		.vm_fd = FAKE_KVM_VM_FD,
		.mode = s->kvm.kind == FAKE_KVM_GET_CLEARS ? SILT_SYNC_KVM_GET_CLEARS
							   : SILT_SYNC_KVM_MANUAL,
		.page_shift = 12,
		.ioctl = fake_kvm_ioctl,
		.opaque = &s->kvm,
	};
	struct silt_sync_ring ring = {
		.size = sizeof(ring),
		.vm_fd = FAKE_KVM_VM_FD,
		.ring_bytes = s->kvm.ring_entries * (uint32_t)sizeof(struct kvm_dirty_gfn),
		.page_shift = 12,
		.reap_ms = 1,
		.with_bitmap = s->kvm.kind == FAKE_KVM_RING_BITMAP,
		.ioctl = fake_kvm_ioctl,
		.opaque = &s->kvm,
	};
	int vcpu;

	s->log = silt_sync_add_log(s->sync, &log);
	s->ring = -1;
	if (!fake_kvm_has_rings(&s->kvm)) {
		must(silt_sync_add_kvm(s->sync, &kvm) >= 0);
		return;
	}
	s->ring = silt_sync_add_ring(s->sync, &ring);
	for (vcpu = 0; vcpu < 2; vcpu++)
		must(!silt_sync_ring_add_vcpu(s->sync, s->ring, fake_kvm_vcpu_add(&s->kvm)->fd));
}

static void build(struct storm *s, enum fake_kvm_kind kind)
{
	struct silt_sync_options opt = {.size = sizeof(opt), .threads = 2, .chunk_pages = 64};
	struct fake_kvm_options kvm = {
		.kind = kind, .page_shift = 12, .ring_entries = 256, .ring_reserve = 64};
	unsigned int i;

	memset(s, 0, sizeof(*s));
	fake_kvm_init(&s->kvm, &kvm);
	s->kvm.attached = true;
	pthread_rwlock_init(&s->use, NULL);
	pthread_mutex_init(&s->device, NULL);
	pthread_barrier_init(&s->barrier, NULL, PARTS + 1);
	must(!silt_sync_create(&opt, &s->sync));
	s->block = silt_sync_block_add(s->sync, "ram", PAGES * PAGE, NULL);
	for (i = 0; i < CONSUMERS; i++)
		must(silt_sync_consumer_add(s->sync, true) == (int)i);
	add_sources(s);
	for (i = 0; i < VIEWS; i++) {
		pthread_rwlock_wrlock(&s->use);
		s->wanderer = add_slot(s, &views[i]);
	}
}

/* All are quiet: one more sync brings the rest, and the next nothing. */
static void expect_copies(struct storm *s)
{
	int i;

	fail_once(s, 0, 0);
	/* A ring may have named the wanderer before it came. */
	if (silt_sync_run(s->sync, 0) < 0)
		must(silt_sync_run(s->sync, 0) >= 0);
	for (i = 0; i < CONSUMERS; i++) {
		must(copy_all(s, i));
		must(!memcmp(s->copy[i], s->memory, sizeof(s->memory)));
	}
	must(!silt_sync_run(s->sync, SILT_SYNC_NO_CONSUMER));
	if (s->kvm.breach[0])
		fprintf(stderr, "KVM: %s\n", s->kvm.breach);
	must(!s->kvm.breach[0]);
}

static void rage(enum fake_kvm_kind kind)
{
	static struct storm s;
	struct player players[PARTS];
	unsigned int pass, i;

	build(&s, kind);
	for (i = 0; i < PARTS; i++) {
		players[i] = (struct player){
			.storm = &s, .part = &parts[i], .rng = rng_make(kind * PARTS + i)};
		must(!pthread_create(&players[i].thread, NULL, play, &players[i]));
	}
	for (pass = 0; pass < rounds(PASSES); pass++) {
		s.quiet = false;
		pthread_barrier_wait(&s.barrier);
		pthread_barrier_wait(&s.barrier);
		expect_copies(&s);
	}
	s.over = true;
	pthread_barrier_wait(&s.barrier);
	for (i = 0; i < PARTS; i++)
		pthread_join(players[i].thread, NULL);
	silt_sync_destroy(s.sync);
	fake_kvm_free(&s.kvm);
	pthread_barrier_destroy(&s.barrier);
	pthread_mutex_destroy(&s.device);
	pthread_rwlock_destroy(&s.use);
}

int main(void)
{
	enum fake_kvm_kind kind;

	for (kind = FAKE_KVM_MANUAL; kind <= FAKE_KVM_RING_BITMAP; kind++)
		rage(kind);
	return 0;
}
