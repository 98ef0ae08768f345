/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks so large that threads share the work of one merge: KVM's bitmaps, aligned and not, and a
 * vhost log, of 96 GiB, against a loop over single bits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/kvm.h>

#include <silt/bitmap.h>
#include <silt/error.h>
#include <silt/sync.h>

#include "support/rng.h"

#define must(cond)                                                                             \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #cond, \
				silt_errmsg());                                                \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

#define PAGE  UINT64_C(4096)
#define PART  (UINT64_C(1) << 23) /* pages that a thread merges at a time */
#define PAGES (3 * PART + 12345)
#define WORDS (PAGES / 64 + 1)
#define SLOTS 2

static const struct place {
	uint64_t page; /* of guest memory */
	uint64_t offset;
	uint64_t pages;
} places[SLOTS] = {
	{0, 5, 2 * PART + 777},
	{3 * PART, UINT64_C(1) << 20, PAGES - (UINT64_C(1) << 20)},
};

struct large {
	struct silt_sync *sync;
	int block;
	int consumers;
	uint64_t kvm[SLOTS][WORDS];
	uint64_t want[2][WORDS];
	uint64_t got[WORDS];
	uint8_t *log;
	uint64_t log_bytes;
};

static int answer(void *opaque, int fd, unsigned long request, void *arg)
{
	struct large *l = opaque;

	(void)fd;
	if (request == KVM_GET_DIRTY_LOG) {
		struct kvm_dirty_log *get = arg;
		uint64_t words = silt_bitmap_words(places[get->slot].pages);

		memcpy(get->dirty_bitmap, l->kvm[get->slot], words * sizeof(uint64_t));
	} else {
		struct kvm_clear_dirty_log *clear = arg;
		uint64_t *dirty = &l->kvm[clear->slot][clear->first_page / 64], i;
		const uint64_t *mask = clear->dirty_bitmap;

		must(request == KVM_CLEAR_DIRTY_LOG && clear->first_page % 64 == 0);
		for (i = 0; i < silt_bitmap_words(clear->num_pages); i++) {
			must(!(mask[i] & ~dirty[i]));
			dirty[i] &= ~mask[i];
		}
	}
	return 0;
}

static int replace(void *opaque, const struct silt_sync_log_file *file)
{
	struct large *l = opaque;

	if (l->log)
		munmap(l->log, l->log_bytes);
	l->log_bytes = file->bytes;
	l->log = mmap(NULL, l->log_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
		      (off_t)file->offset);
	return l->log == MAP_FAILED ? -errno : 0;
}

static void build(struct large *l, uint32_t threads)
{
	struct silt_sync_options opt = {.size = sizeof(opt), .threads = threads};
	struct silt_sync_kvm kvm = {
		.size = sizeof(kvm), .page_shift = 12, .ioctl = answer, .opaque = l};
	struct silt_sync_log log = {.size = sizeof(log), .replace = replace, .opaque = l};
	unsigned int i;

	memset(l, 0, sizeof(*l));
	must(!silt_sync_create(&opt, &l->sync));
	l->block = silt_sync_block_add(l->sync, "ram", PAGES * PAGE, NULL);
	must(silt_sync_add_kvm(l->sync, &kvm) >= 0);
	must(silt_sync_add_log(l->sync, &log) >= 0);
	for (i = 0; i < SLOTS; i++) {
		struct silt_sync_slot slot = {
			.size = sizeof(slot),
			.number = i,
			.flags = SILT_SYNC_SLOT_LOGGED,
			.block = l->block,
			.gpa = places[i].page * PAGE,
			.bytes = places[i].pages * PAGE,
			.offset = places[i].offset * PAGE,
		};

		must(silt_sync_slot_add(l->sync, &slot) >= 0);
	}
}

/* Clean stretches, and others of any density. */
static uint64_t draw_word(struct rng *rng)
{
	switch (rng_below(rng, 40)) {
	case 0:
		return UINT64_MAX;
	case 1:
		return rng_next(rng);
	case 2:
		return UINT64_C(1) << rng_below(rng, 64);
	default:
		return 0;
	}
}

static void want(struct large *l, uint64_t page)
{
	int c;

	for (c = 0; c < l->consumers; c++)
		silt_bitmap_set(l->want[c], page);
}

static void write_slot(struct large *l, struct rng *rng, unsigned int slot)
{
	const struct place *p = &places[slot];
	uint64_t i, kvm = 0, log = 0;

	for (i = 0; i < p->pages; i++) {
		uint64_t page = p->page + i;

		if (i % 64 == 0) {
			kvm = draw_word(rng);
			log = draw_word(rng);
		}
		if (kvm >> i % 64 & 1) {
			silt_bitmap_set(l->kvm[slot], i);
			want(l, p->offset + i);
		}
		if (log >> i % 64 & 1) {
			l->log[page / 8] |= 1 << page % 8;
			want(l, p->offset + i);
		}
	}
}

static uint64_t count(const uint64_t *bits)
{
	uint64_t i, n = 0;

	for (i = 0; i < PAGES; i++)
		n += silt_bitmap_test(bits, i);
	return n;
}

/* Take all of it, and compare the bits. */
static void expect_bits(struct large *l, int consumer)
{
	uint64_t first = 0, i;
	int64_t n;

	memset(l->got, 0, sizeof(l->got));
	while ((n = silt_sync_take(l->sync, consumer, l->block, first, UINT64_MAX, &first)) > 0) {
		for (i = first, first += (uint64_t)n; i < first; i++)
			silt_bitmap_set(l->got, i);
	}
	must(!n);
	must(!memcmp(l->got, l->want[consumer], sizeof(l->got)));
	memset(l->want[consumer], 0, sizeof(l->want[consumer]));
}

static void add_consumer(struct large *l)
{
	must(silt_sync_consumer_add(l->sync, false) == l->consumers);
	l->consumers++;
}

static void run(struct large *l, struct rng *rng)
{
	unsigned int round, i;
	uint64_t before;

	add_consumer(l);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < SLOTS; i++)
			write_slot(l, rng, i);
		must(silt_sync_run(l->sync, 0) == (int64_t)count(l->want[0]));
		/* With a second consumer the log goes another way. */
		if (round == 1)
			expect_bits(l, 1);
		before = count(l->want[0]);
		for (i = 0; i < SLOTS; i++)
			write_slot(l, rng, i);
		must(silt_sync_run(l->sync, 0) == (int64_t)(count(l->want[0]) - before));
		for (i = 0; i < (unsigned int)l->consumers; i++)
			expect_bits(l, (int)i);
		must(!silt_sync_run(l->sync, SILT_SYNC_NO_CONSUMER));
		if (round == 0)
			add_consumer(l);
	}
}

int main(void)
{
	static struct large l;
	struct rng rng = rng_make(5);

	build(&l, 3);
	run(&l, &rng);
	silt_sync_destroy(l.sync);
	munmap(l.log, l.log_bytes);
	return 0;
}
