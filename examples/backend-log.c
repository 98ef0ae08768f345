/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a backend that has virtqueues of its own logs what it writes: what it calls when a message
 * comes, and what when a queue completes requests. main() plays the monitor.
 *
 *     cc -D_GNU_SOURCE backend-log.c $(pkg-config --cflags --libs silt)
 */
#include <err.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/silt.h>

#define LOG_BYTES 4096 /* for 128 MiB of guest memory */

struct queue {
	struct silt_log_writer writer; /* one for each queue, used by its thread only */
	uint64_t used_gpa;	       /* log_guest_addr of SET_VRING_ADDR */
};

static void must(int ret)
{
	if (ret < 0)
		errx(1, "%s", silt_errmsg());
}

/* SET_LOG_BASE. The queue is parked; what it has pending goes into the old log before the reply. */
static void set_log_base(struct queue *q, int fd, uint64_t size, uint64_t offset)
{
	struct silt_log *log;

	must(silt_log_map(fd, size, offset, &log));
	silt_log_writer_set(&q->writer, log); /* takes a reference of its own */
	silt_log_put(log);
}

/* A burst: all data, its marks, then the used ring, its marks, and only then the guest's call. */
static void complete(struct queue *q, const uint64_t *gpas, unsigned int n, uint64_t len)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		silt_log_write(&q->writer, gpas[i], len); /* its bytes have been stored */
	silt_log_flush(&q->writer);
	/* Here the used entries, and then the index, are stored. */
	silt_log_write(&q->writer, q->used_gpa + 4, 8 * n);
	silt_log_write(&q->writer, q->used_gpa + 2, 2);
	silt_log_flush(&q->writer);
}

/* GET_VRING_BASE, a disabled queue, or logging that is switched off: before the reply. */
static void stop(struct queue *q)
{
	silt_log_writer_set(&q->writer, NULL);
}

int main(void)
{
	static const uint64_t first[] = {0x10000, 0x15e00, 0x7fff000}, second[] = {0x20000};
	static const int64_t expected[] = {5, 1}; /* pages; the ring is known the second time */
	uint64_t bits[LOG_BYTES / 8] = {0};
	struct queue q = {.used_gpa = 0x3000};
	int fds[] = {memfd_create("log", MFD_CLOEXEC), memfd_create("log", MFD_CLOEXEC)}, i;
	struct silt_log *log;
	bool wrong = false;

	must(silt_access_install()); /* a log that is truncated ends nobody */
	silt_log_writer_init(&q.writer);
	for (i = 0; i < 2; i++) {
		must(ftruncate(fds[i], LOG_BYTES));
		set_log_base(&q, fds[i], LOG_BYTES, 0);
		complete(&q, i ? second : first, i ? 1 : 3, 1514);
		must(silt_log_map(fds[i], LOG_BYTES, 0, &log)); /* the monitor */
		wrong |= silt_log_harvest(log, bits) != expected[i];
		silt_log_put(log);
	}
	stop(&q);
	return wrong || q.writer.count.writes != 8;
}
