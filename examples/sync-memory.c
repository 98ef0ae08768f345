/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A monitor in miniature: memory that is written in three ways is copied meanwhile, for two
 * consumers, until both copies equal it.
 *
 *     a vCPU        writes through the monitor's mapping, which PAGEMAP_SCAN watches
 *     a device      writes through a mapping of its own, which PAGEMAP_SCAN does not see, and sets
 *                   bits in a dirty log, as a vhost-user backend does
 *     a DMA engine  keeps bits of its own, one for 64 KiB, which a callback reads
 *
 *     cc -D_GNU_SOURCE sync-memory.c $(pkg-config --cflags --libs silt) -pthread
 *
 * Exits with 77 where the kernel cannot watch memory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/silt.h>

enum way {
	VCPU,
	DEVICE,
	DMA,
	WAYS
};

#define PAGE	4096
#define PART	2048 /* pages that each way writes */
#define BYTES	((size_t)WAYS * PART * PAGE)
#define GPA	UINT64_C(0x100000) /* where the guest sees the memory */
#define GRANULE 16		   /* of the DMA engine: the shift */

static char *ram, *device_ram; /* two mappings of the same pages */
static struct silt_log_writer writer;
static pthread_mutex_t writer_lock = PTHREAD_MUTEX_INITIALIZER;
static bool dma_wrote[BYTES >> GRANULE];
static bool stop;
static char copies[2][BYTES];

/* What a function returned, if it is no error. */
static int64_t sure(int64_t ret)
{
	if (ret >= 0)
		return ret;
	fprintf(stderr, "%s\n", silt_errmsg());
	exit(ret == -EOPNOTSUPP ? 77 : 1);
}

static void mark_in_log(uint64_t at)
{
	pthread_mutex_lock(&writer_lock);
	silt_log_write(&writer, GPA + at, PAGE);
	silt_log_flush(&writer);
	pthread_mutex_unlock(&writer_lock);
}

/* Change pages. What has to mark them does it behind the store. */
static void *write_memory(void *arg)
{
	enum way way = *(enum way *)arg;
	unsigned int seed = way;
	uint64_t at;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		at = (uint64_t)(way * PART + rand_r(&seed) % PART) * PAGE;
		__atomic_fetch_add((way == VCPU ? ram : device_ram) + at, 1, __ATOMIC_RELAXED);
		if (way == DEVICE)
			mark_in_log(at);
		else if (way == DMA)
			__atomic_store_n(&dma_wrote[at >> GRANULE], true, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* With a vhost-user backend: SET_LOG_BASE, and its reply. */
static int hand_out_log(void *opaque, const struct silt_sync_log_file *file)
{
	struct silt_log *log;
	int ret = silt_log_map(file->fd, file->bytes, file->offset, &log);

	(void)opaque;
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&writer_lock);
	silt_log_writer_set(&writer, log);
	pthread_mutex_unlock(&writer_lock);
	silt_log_put(log);
	return 0;
}

static int read_dma(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	uint64_t first = (gpa - GPA) >> GRANULE, i;

	(void)opaque;
	for (i = 0; i < granules; i++) {
		if (__atomic_exchange_n(&dma_wrote[first + i], false, __ATOMIC_SEQ_CST))
			bitmap[i / 64] |= UINT64_C(1) << i % 64;
	}
	return 0;
}

/* The memory, the slot that shows it, and what tells of writes to it. Return: the RAM block. */
static int describe(struct silt_sync *s)
{
	int block = (int)sure(silt_sync_block_add(s, "ram", BYTES, ram));
	struct silt_sync_slot slot = {
		.size = sizeof(slot), .block = block, .gpa = GPA, .bytes = BYTES};
	struct silt_sync_pagemap pagemap = {.size = sizeof(pagemap), .block = block};
	struct silt_sync_log log = {.size = sizeof(log), .replace = hand_out_log};
	struct silt_sync_own own = {.size = sizeof(own), .page_shift = GRANULE, .read = read_dma};

	sure(silt_sync_slot_add(s, &slot));
	sure(silt_sync_add_pagemap(s, &pagemap));
	sure(silt_sync_add_log(s, &log));
	sure(silt_sync_add_own(s, &own));
	return block;
}

/* Bring all that was written into the bitmaps, and copy what is dirty for each consumer. */
static void copy_round(struct silt_sync *s, int block, int consumers)
{
	uint64_t first, at;
	int64_t n;
	int c;

	printf("%lld pages\n", (long long)sure(silt_sync_run(s, 0)));
	for (c = 0; c < consumers; c++) {
		first = 0;
		while ((n = sure(silt_sync_take(s, c, block, first, UINT64_MAX, &first)))) {
			at = first * PAGE;
			memcpy(copies[c] + at, ram + at, (size_t)n * PAGE);
			first += (uint64_t)n;
		}
	}
}

int main(void)
{
	enum way ways[] = {VCPU, DEVICE, DMA};
	int fd = memfd_create("ram", MFD_CLOEXEC), block, round, i;
	pthread_t threads[WAYS];
	struct silt_sync *s;

	if (fd < 0 || ftruncate(fd, BYTES) < 0)
		return perror("memory"), 1;
	ram = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	device_ram = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ram == MAP_FAILED || device_ram == MAP_FAILED)
		return perror("memory"), 1;
	silt_log_writer_init(&writer);
	sure(silt_sync_create(NULL, &s));
	block = describe(s);
	for (i = 0; i < WAYS; i++)
		pthread_create(&threads[i], NULL, write_memory, &ways[i]);
	for (round = 0; round < 20; round++) {
		/* The second consumer, a snapshot say, comes while the first is at work. */
		if (round == 0 || round == 10)
			sure(silt_sync_consumer_add(s, true));
		copy_round(s, block, round < 10 ? 1 : 2);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < WAYS; i++)
		pthread_join(threads[i], NULL);
	/* The last sync, now that nothing writes any more. */
	copy_round(s, block, 2);
	for (i = 0; i < 2; i++) {
		if (memcmp(copies[i], ram, BYTES))
			return fprintf(stderr, "copy %d is not what memory is\n", i), 1;
	}
	silt_sync_destroy(s);
	silt_log_writer_set(&writer, NULL);
	printf("both copies equal memory\n");
	return 0;
}
