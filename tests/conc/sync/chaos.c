/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads call everything there is of one engine, all at once, with arguments that may be wrong, on
 * topologies that come and go; another scribbles over dirty rings, a peer over its log, callbacks
 * fail, signals come. What a thread marks is dirty for its own consumer until it takes it, every
 * error has a message, and sanitizers see the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <silt/error.h>
#include <silt/sync.h>

#include "conc/log/common.h"
#include "support/proc.h"
#include "support/rng.h"

#define PAGE	    UINT64_C(4096)
#define CALLERS	    3
#define CALLS	    8000
#define NUMBERS	    24	/* of slots */
#define MINE	    200 /* pages of the marker's block */
#define RING_BYTES  4096u
#define RING_OFFSET (64 * (off_t)sysconf(_SC_PAGESIZE))

struct storm {
	struct silt_sync *sync;
	int mine, consumer; /* the marker's */
	int vcpu;
	struct kvm_dirty_gfn *ring;
	bool over;
};

struct caller {
	struct storm *storm;
	struct rng rng;
	pthread_t thread;
};

static __thread struct rng callback_rng;

/* A slot of a number has always the same length, so that a read never writes beyond a bitmap. */
static uint64_t pages_of(uint32_t number)
{
	static const uint64_t pages[] = {1, 63, 64, 65, 200, 513, 4096, 7};

	return pages[number % 8];
}

static int fake_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct storm *st = opaque;
	struct kvm_dirty_log *log = arg;
	unsigned int i;

	(void)fd;
	if (rng_one_in(&callback_rng, 7)) {
		errno = rng_one_in(&callback_rng, 3) ? 0 : EIO;
		return -1;
	}
	if (request == KVM_GET_DIRTY_LOG)
		memset(log->dirty_bitmap, (int)rng_below(&callback_rng, 256),
		       (pages_of(log->slot & 0xffff) + 63) / 64 * 8);
	for (i = 0; request == KVM_RESET_DIRTY_RINGS && i < RING_BYTES / sizeof(*st->ring); i++)
		__atomic_fetch_and(&st->ring[i].flags, KVM_DIRTY_GFN_F_DIRTY, __ATOMIC_RELEASE);
	return 0;
}

static int read_own(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	(void)opaque;
	(void)gpa;
	bitmap[rng_below(&callback_rng, (granules + 63) / 64)] = UINT64_MAX;
	return (int)rng_below(&callback_rng, 3) - 1;
}

/* What a peer may do to the log that it was given. */
static int replace_log(void *opaque, const struct silt_sync_log_file *file)
{
	(void)opaque;
	must(ftruncate(file->fd, 0) < 0 && ftruncate(file->fd, (off_t)file->bytes * 2) < 0);
	must(fcntl(file->fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	must(!fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	must(pwrite(file->fd, "\xff\xff\xff", 3, 0) == 3);
	return (int)rng_below(&callback_rng, 3) - 1;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int64_t change_source(struct storm *st, struct rng *rng)
{
	struct silt_sync_kvm kvm = {.size = sizeof(kvm),
				    .mode = (enum silt_sync_kvm_mode)rng_below(rng, 3),
				    .page_shift = 12,
				    .ioctl = fake_ioctl,
				    .opaque = st};
	struct silt_sync_ring ring = {.size = sizeof(ring),
				      .ring_bytes = RING_BYTES,
				      .page_shift = 12,
				      .reap_ms = (uint32_t)rng_below(rng, 2),
				      .with_bitmap = rng_one_in(rng, 2),
				      .ioctl = fake_ioctl,
				      .opaque = st};
	struct silt_sync_log log = {.size = sizeof(log), .replace = replace_log};
	struct silt_sync_own own = {.size = sizeof(own),
				    .page_shift = 11 + (uint32_t)rng_below(rng, 8),
				    .read = read_own};
	int source = (int)rng_below(rng, 9) - 1;

	switch (rng_below(rng, 8)) {
	case 0:
		return silt_sync_add_kvm(st->sync, &kvm);
	case 1:
		source = silt_sync_add_ring(st->sync, &ring);
		return source < 0 ? source : silt_sync_ring_add_vcpu(st->sync, source, st->vcpu);
	case 2:
		return silt_sync_add_log(st->sync, &log);
	case 3:
		return silt_sync_add_own(st->sync, &own);
	case 4:
		return silt_sync_log_replace(st->sync, source);
	case 5:
		return silt_sync_ring_reap(st->sync, source);
	default:
		return silt_sync_source_remove(st->sync, source);
	}
}

static int64_t change_topology(struct storm *st, struct rng *rng)
{
	uint32_t number = (uint32_t)rng_below(rng, NUMBERS);
	int block = st->mine + (int)rng_below(rng, 6);
	uint64_t bytes = rng_one_in(rng, 20) ? rng_next(rng) : (1 + rng_below(rng, 6000)) * PAGE;
	struct silt_sync_slot slot = {.size = sizeof(slot),
				      .number = number,
				      .flags = (uint32_t)rng_below(rng, 2),
				      .block = block,
				      .gpa = number * UINT64_C(0x1101000),
				      .bytes = pages_of(number) * PAGE,
				      .offset = rng_below(rng, 3000) * PAGE};

	switch (rng_below(rng, 8)) {
	case 0:
		return rng_one_in(rng, 8) ? silt_sync_block_add(st->sync, "other", bytes, NULL) : 0;
	case 1:
		return block == st->mine ? 0 : silt_sync_block_remove(st->sync, block);
	case 2:
		return block == st->mine ? 0 : silt_sync_block_resize(st->sync, block, bytes, NULL);
	case 3:
		return silt_sync_slot_remove(st->sync, (int)number - 1);
	case 4:
		return silt_sync_consumer_add(st->sync, rng_one_in(rng, 2));
	case 5:
		return silt_sync_consumer_remove(st->sync, st->consumer + 1 + (int)number);
	default:
		return silt_sync_slot_add(st->sync, &slot);
	}
}

static int64_t use(struct storm *st, struct rng *rng)
{
	int consumer = st->consumer + 1 + (int)rng_below(rng, 8);
	int block = st->mine + (int)rng_below(rng, 6);
	uint64_t first = rng_one_in(rng, 20) ? rng_next(rng) : rng_below(rng, 3000);
	uint64_t n = rng_one_in(rng, 20) ? rng_next(rng) : rng_below(rng, 3000);

	switch (rng_below(rng, 7)) {
	case 0:
		return silt_sync_mark(st->sync, block, first, n);
	case 1:
		return silt_sync_put_back(st->sync, consumer, block, first, n);
	case 2:
		return silt_sync_discard(st->sync, consumer, block, first, n);
	case 3:
		return silt_sync_dirty(st->sync, consumer, block, first, n);
	case 4:
		return silt_sync_block_count(st->sync, block);
	case 5:
		return silt_sync_run(st->sync, consumer);
	default:
		return silt_sync_take(st->sync, consumer, block, first, n, &first);
	}
}

static void *run_caller(void *arg)
{
	static int64_t (*const calls[])(struct storm *, struct rng *) = {change_source,
									 change_topology, use, use};
	struct caller *c = arg;
	unsigned int i;
	int64_t ret;

	callback_rng = rng_make(rng_next(&c->rng));
	for (i = 0; i < rounds(CALLS); i++) {
		ret = calls[rng_below(&c->rng, 4)](c->storm, &c->rng);
		must(ret >= -4095 && (ret >= 0 || *silt_errmsg()));
	}
	return NULL;
}

/* What nobody may write but KVM, and the engine reads without trust. */
static void *scribble(void *arg)
{
	struct caller *c = arg;
	struct kvm_dirty_gfn *entry;

	while (!__atomic_load_n(&c->storm->over, __ATOMIC_RELAXED)) {
		entry = &c->storm->ring[rng_below(&c->rng, RING_BYTES / sizeof(*entry))];
		__atomic_store_n(&entry->slot, (uint32_t)rng_below(&c->rng, 2 * NUMBERS),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&entry->offset, rng_next(&c->rng) >> rng_below(&c->rng, 64),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&entry->flags, (uint32_t)rng_below(&c->rng, 4), __ATOMIC_RELEASE);
	}
	return NULL;
}

/* A mark stays for a consumer until it takes the page, whatever else goes on. */
static void *run_marker(void *arg)
{
	struct caller *c = arg;
	struct storm *st = c->storm;
	uint64_t page, first;

	while (!__atomic_load_n(&st->over, __ATOMIC_RELAXED)) {
		page = rng_below(&c->rng, MINE);
		must(!silt_sync_mark(st->sync, st->mine, page, 1));
		must(silt_sync_dirty(st->sync, st->consumer, st->mine, page, 1) == 1);
		must(silt_sync_take(st->sync, st->consumer, st->mine, page, 1, &first) != 0);
		must(first == page);
	}
	return NULL;
}

static void ignore(int sig)
{
	(void)sig;
}

static void send_signals(void)
{
	struct sigaction action = {.sa_handler = ignore};
	struct itimerval often = {.it_interval.tv_usec = 500, .it_value.tv_usec = 500};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

static void prepare(struct storm *st)
{
	struct silt_sync_options opt = {.size = sizeof(opt), .threads = 2, .chunk_pages = 64};

	must(!silt_sync_create(&opt, &st->sync));
	st->mine = silt_sync_block_add(st->sync, "mine", MINE * PAGE, NULL);
	st->consumer = silt_sync_consumer_add(st->sync, false);
	must(st->mine >= 0 && st->consumer == 0);
	st->vcpu = proc_memfd("vcpu", (uint64_t)RING_OFFSET + RING_BYTES);
	st->ring =
		mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, st->vcpu, RING_OFFSET);
	must(st->ring != MAP_FAILED);
}

int main(void)
{
	static struct storm st;
	struct caller callers[CALLERS + 2];
	void *(*run)(void *);
	unsigned int i;

	prepare(&st);
	send_signals();
	for (i = 0; i < CALLERS + 2; i++) {
		callers[i] = (struct caller){.storm = &st, .rng = rng_make(i)};
		run = i < CALLERS ? run_caller : i == CALLERS ? scribble : run_marker;
		must(!pthread_create(&callers[i].thread, NULL, run, &callers[i]));
	}
	for (i = 0; i < CALLERS + 2; i++) {
		if (i == CALLERS)
			__atomic_store_n(&st.over, true, __ATOMIC_RELAXED);
		pthread_join(callers[i].thread, NULL);
	}
	silt_sync_destroy(st.sync);
	munmap(st.ring, RING_BYTES);
	close(st.vcpu);
	return 0;
}
