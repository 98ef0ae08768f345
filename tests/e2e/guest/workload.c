/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What runs in the guest: keeps the disk busy, and proves that what the device stored in memory is
 * what the disk holds.
 *
 * Reader threads fill many buffers with direct reads. No CPU stores into a buffer between the read
 * and the comparison with what the disk is known to hold: a page that the device did not log stays
 * as old at the destination of a migration as it was when it was copied, and is seen here. A writer
 * leaves a pattern on the disk that the host compares when all is over.
 *
 * Commands come line by line on the standard input; each is answered by one line once it is done:
 *
 *   run     keep the disk busy
 *   round   wait until every buffer was verified and filled anew
 *   idle    finish what is under way, and rest
 *   verify  idle, then compare all buffers
 *   finish  idle, then flush the disk
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_BYTES UINT64_C(65536)
#define CHUNK_WORDS (CHUNK_BYTES / 8)
#define PAGE_WORDS  (4096 / 8)
#define READERS	    4
#define UNFILLED    UINT64_MAX

static int disk;
static uint64_t nbuffers;
static uint64_t *buffers;
static uint64_t *chunk_in; /* which chunk each buffer was filled from */
static uint64_t read_chunks, write_chunks;
static uint64_t writes; /* completed */

/* Workers pass it before each request, and stop there while the guest is to be idle. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool running;
static unsigned int active;
static uint64_t rounds[READERS];
static uint64_t bad_pages;

/* The host gives up when it reads this; the kernel would panic if the first process ended. */
static void fail(const char *fmt, ...)
{
	va_list ap;

	printf("guest: failed: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	for (;;)
		pause();
}

/* What the disk holds at its @word'th word; the host's image begins with generation 0. */
static uint64_t pattern(uint64_t generation, uint64_t word)
{
	return generation << 32 | word;
}

static void enter_gate(void)
{
	pthread_mutex_lock(&gate);
	while (!running)
		pthread_cond_wait(&changed, &gate);
	active++;
	pthread_mutex_unlock(&gate);
}

static void leave_gate(void)
{
	pthread_mutex_lock(&gate);
	active--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&gate);
}

static void count_bad_page(uint64_t buffer, uint64_t word, uint64_t is, uint64_t want)
{
	pthread_mutex_lock(&gate);
	if (!bad_pages++)
		printf("guest: first bad page: buffer %" PRIu64 " offset %" PRIu64 " is %" PRIx64
		       ", not %" PRIx64 "\n",
		       buffer, word * 8, is, want);
	pthread_mutex_unlock(&gate);
}

static void verify_page(uint64_t buffer, uint64_t first)
{
	const uint64_t *words = buffers + buffer * CHUNK_WORDS;
	uint64_t want = pattern(0, chunk_in[buffer] * CHUNK_WORDS);
	uint64_t i;

	for (i = first; i < first + PAGE_WORDS; i++) {
		if (words[i] == want + i)
			continue;
		count_bad_page(buffer, i, words[i], want + i);
		return;
	}
}

static void verify_buffer(uint64_t buffer)
{
	uint64_t i;

	if (chunk_in[buffer] == UNFILLED)
		return;
	for (i = 0; i < CHUNK_WORDS; i += PAGE_WORDS)
		verify_page(buffer, i);
}

/* Each time from another chunk than the last, so that old contents are seen. */
static void fill_buffer(uint64_t buffer)
{
	uint64_t last = chunk_in[buffer];
	uint64_t chunk = last == UNFILLED ? buffer % read_chunks : (last + 1) % read_chunks;
	ssize_t n = pread(disk, buffers + buffer * CHUNK_WORDS, CHUNK_BYTES, chunk * CHUNK_BYTES);

	if (n != (ssize_t)CHUNK_BYTES)
		fail("read of chunk %" PRIu64 ": %zd bytes, %s", chunk, n, strerror(errno));
	chunk_in[buffer] = chunk;
}

static void *reader_main(void *arg)
{
	uint64_t index = (uintptr_t)arg;
	uint64_t i;

	for (;;) {
		for (i = index; i < nbuffers; i += READERS) {
			enter_gate();
			verify_buffer(i);
			fill_buffer(i);
			leave_gate();
		}
		pthread_mutex_lock(&gate);
		rounds[index]++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&gate);
	}
	return NULL;
}

/* Write number n, from 1 on, is generation n, in chunk n % write_chunks behind those to be read. */
static void write_chunk(uint64_t *buffer)
{
	uint64_t chunk = read_chunks + (writes + 1) % write_chunks;
	uint64_t i;
	ssize_t n;

	for (i = 0; i < CHUNK_WORDS; i++)
		buffer[i] = pattern(writes + 1, chunk * CHUNK_WORDS + i);
	n = pwrite(disk, buffer, CHUNK_BYTES, chunk * CHUNK_BYTES);
	if (n != (ssize_t)CHUNK_BYTES)
		fail("write of chunk %" PRIu64 ": %zd bytes, %s", chunk, n, strerror(errno));
	writes++;
}

static void *writer_main(void *arg)
{
	for (;;) {
		enter_gate();
		write_chunk(arg);
		leave_gate();
	}
	return NULL;
}

static void run(void)
{
	pthread_mutex_lock(&gate);
	running = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&gate);
	printf("guest: running\n");
}

static void idle(void)
{
	pthread_mutex_lock(&gate);
	running = false;
	while (active)
		pthread_cond_wait(&changed, &gate);
	pthread_mutex_unlock(&gate);
}

/* The first end of a round may come at once: it is the second that has seen every buffer. */
static void wait_for_round(void)
{
	uint64_t target[READERS];
	unsigned int i;

	pthread_mutex_lock(&gate);
	for (i = 0; i < READERS; i++)
		target[i] = rounds[i] ? rounds[i] + 2 : 1;
	for (i = 0; i < READERS; i++)
		while (rounds[i] < target[i])
			pthread_cond_wait(&changed, &gate);
	printf("guest: round bad-pages=%" PRIu64 "\n", bad_pages);
	pthread_mutex_unlock(&gate);
}

static void verify(void)
{
	uint64_t i;

	idle();
	for (i = 0; i < nbuffers; i++)
		verify_buffer(i);
	printf("guest: verified bad-pages=%" PRIu64 "\n", bad_pages);
}

static void finish(void)
{
	idle();
	if (fsync(disk) < 0)
		fail("flush: %s", strerror(errno));
	printf("guest: finished writes=%" PRIu64 "\n", writes);
}

static void obey(const char *command)
{
	if (!strcmp(command, "run\n")) {
		run();
	} else if (!strcmp(command, "round\n")) {
		wait_for_round();
	} else if (!strcmp(command, "idle\n")) {
		idle();
		printf("guest: idle\n");
	} else if (!strcmp(command, "verify\n")) {
		verify();
	} else if (!strcmp(command, "finish\n")) {
		finish();
	} else {
		fail("unknown command %s", command);
	}
}

static void *allocate(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		fail("no memory for %" PRIu64 " bytes", bytes);
	return p;
}

static void start_thread(void *(*main)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, main, arg))
		fail("no thread");
}

static void prepare(char **argv)
{
	uint64_t i;

	disk = open(argv[1], O_RDWR | O_DIRECT);
	if (disk < 0)
		fail("%s: %s", argv[1], strerror(errno));
	nbuffers = strtoull(argv[2], NULL, 0);
	read_chunks = strtoull(argv[3], NULL, 0);
	write_chunks = strtoull(argv[4], NULL, 0);
	buffers = allocate(nbuffers * CHUNK_BYTES);
	chunk_in = allocate(nbuffers * sizeof(*chunk_in));
	for (i = 0; i < nbuffers; i++)
		chunk_in[i] = UNFILLED;
}

int main(int argc, char **argv)
{
	char command[32];
	uintptr_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 5)
		fail("usage: workload DISK BUFFERS READ-CHUNKS WRITE-CHUNKS");
	prepare(argv);
	for (i = 0; i < READERS; i++)
		start_thread(reader_main, (void *)i);
	start_thread(writer_main, allocate(CHUNK_BYTES));

	printf("guest: ready\n");
	while (fgets(command, sizeof(command), stdin))
		obey(command);
	fail("the console was closed");
}
