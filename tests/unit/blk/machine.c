/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/loop.h>

#include "machine.h"

#define TIMEOUT_MS 20000

static void on_call(void *arg, unsigned int q)
{
	struct machine *m = arg;

	(void)q;
	eventfd_write(m->call_fd, 1);
}

static void on_error(void *arg, unsigned int q)
{
	struct machine *m = arg;

	(void)q;
	__atomic_fetch_add(&m->errors, 1, __ATOMIC_RELAXED);
}

/* ---- The image ------------------------------------------------------------------------------- */

/* A loop device that goes when it is closed, or -1. */
static int loop_device(int file, char *path, size_t len)
{
	struct loop_config config = {.fd = file, .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
	int control, n, fd;

	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return -1;
	n = ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	if (n < 0)
		return -1;
	snprintf(path, len, "/dev/loop%d", n);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int plain_file(void)
{
	char path[] = "./blk-test-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

bool machine_disk_open(struct machine *m, enum machine_disk kind, uint64_t size, bool read_only)
{
	int file = kind == MACHINE_MEMFD ? memfd_create("image", MFD_CLOEXEC) : plain_file();
	int loop = -1;
	char path[64];

	memset(m, 0, sizeof(*m));
	assert_true(file >= 0);
	assert_int_equal(ftruncate(file, size), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	if (kind == MACHINE_LOOP) {
		loop = loop_device(file, path, sizeof(path));
		if (loop < 0) {
			close(file);
			return false;
		}
	}
	if (blk_image_open(&m->disk.img, path, read_only, 512) < 0)
		fail_msg("%s: %s", path, silt_errmsg());
	if (loop >= 0)
		close(loop);
	close(file);
	return true;
}

void machine_disk_close(struct machine *m)
{
	blk_image_close(&m->disk.img);
}

/* ---- Memory and log -------------------------------------------------------------------------- */

static void add_region(struct machine *m, uint64_t gpa, uint64_t size, uint64_t offset)
{
	struct silt_memory_region r = {
		.gpa = gpa, .size = size, .user_addr = gpa, .mmap_offset = offset};
	struct silt_memory *next;

	if (silt_memory_add(m->mem, &r, m->mem_fd, &next) < 0)
		fail_msg("%s", silt_errmsg());
	silt_memory_put(m->mem);
	m->mem = next;
}

static void make_memory(struct machine *m)
{
	m->mem_fd = memfd_create("guest", MFD_CLOEXEC);
	assert_int_equal(ftruncate(m->mem_fd, 2 * MACHINE_HALF), 0);
	m->base = mmap(NULL, 2 * MACHINE_HALF, PROT_READ | PROT_WRITE, MAP_SHARED, m->mem_fd, 0);
	assert_ptr_not_equal(m->base, MAP_FAILED);
	assert_int_equal(silt_memory_create(&m->mem), 0);
	add_region(m, MACHINE_LOW, MACHINE_CUT - MACHINE_LOW, 0);
	add_region(m, MACHINE_CUT, MACHINE_LOW + MACHINE_HALF - MACHINE_CUT,
		   MACHINE_CUT - MACHINE_LOW);
	add_region(m, MACHINE_HIGH, MACHINE_HALF, MACHINE_HALF);
}

uint8_t *machine_at(struct machine *m, uint64_t gpa)
{
	return gpa >= MACHINE_HIGH ? m->base + MACHINE_HALF + (gpa - MACHINE_HIGH)
				   : m->base + (gpa - MACHINE_LOW);
}

static struct silt_log *make_log(void)
{
	struct silt_log *log;
	int fd = memfd_create("log", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, MACHINE_PAGES / 8), 0);
	if (silt_log_map(fd, MACHINE_PAGES / 8, 0, &log) < 0)
		fail_msg("%s", silt_errmsg());
	close(fd);
	return log;
}

static void use_log(struct machine *m, struct silt_log *log)
{
	silt_virtq_set_log(m->vq, log, true, true,
			   MACHINE_LOW + ((uint8_t *)m->layout.used - m->base));
}

void machine_harvest(struct machine *m)
{
	assert_true(silt_log_harvest(m->log, m->marks) >= 0);
}

void machine_forget_marks(struct machine *m)
{
	memset(m->marks, 0, silt_bitmap_words(MACHINE_PAGES) * sizeof(*m->marks));
}

void machine_replace_log(struct machine *m)
{
	struct silt_log *log = make_log();

	blk_queue_pause(&m->queue);
	use_log(m, log);
	blk_queue_resume(&m->queue);
	machine_harvest(m);
	silt_log_put(m->log);
	m->log = log;
}

/* ---- The queue ------------------------------------------------------------------------------- */

/* Both ends see the ring through the guest's view: it lies in one region. */
static void start_queue(struct machine *m, uint16_t index)
{
	if (silt_virtq_start(m->vq, &m->layout, m->mem, index) < 0 ||
	    blk_queue_start(&m->queue, m->vq, m->kicks ? m->kick_fd : -1) < 0)
		fail_msg("%s", silt_errmsg());
}

void machine_restart_queue(struct machine *m)
{
	blk_queue_stop(&m->queue);
	start_queue(m, silt_virtq_stop(m->vq));
	/* What was made available meanwhile is found without a kick, at least not later than by
	 * one. */
	eventfd_write(m->kick_fd, 1);
}

void machine_start(struct machine *m, enum blk_aio aio, bool kicks, uint64_t features)
{
	make_memory(m);
	m->marks = calloc(silt_bitmap_words(MACHINE_PAGES), sizeof(*m->marks));
	m->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->kicks = kicks;
	memcpy(m->disk.serial, "a serial of 20 bytes", BLK_SERIAL_BYTES);
	m->disk.aio = aio;
	m->disk.notify = (struct blk_notify){on_call, on_error, m};
	m->layout = (struct silt_virtq_layout){
		.num = MACHINE_RING,
		.desc = m->base,
		.avail = m->base + 0x4000,
		.used = m->base + 0x5000,
		.features = features,
	};
	blk_queue_init(&m->queue, &m->disk, 0);
	assert_int_equal(silt_virtq_create(&m->vq), 0);
	assert_int_equal(silt_driver_create(&m->layout, 65500, &m->driver), 0);
	m->log = make_log();
	use_log(m, m->log);
	start_queue(m, 65500);
}

void machine_stop(struct machine *m)
{
	blk_queue_stop(&m->queue);
	silt_virtq_stop(m->vq);
	silt_virtq_destroy(m->vq);
	silt_driver_destroy(m->driver);
	blk_queue_destroy(&m->queue);
	silt_log_put(m->log);
	silt_memory_put(m->mem);
	munmap(m->base, 2 * MACHINE_HALF);
	close(m->mem_fd);
	close(m->call_fd);
	close(m->kick_fd);
	free(m->marks);
}

void machine_submit(struct machine *m)
{
	int ret = silt_driver_publish(m->driver);

	assert_true(ret >= 0);
	if (ret && m->kicks)
		eventfd_write(m->kick_fd, 1);
}

void *machine_collect(struct machine *m, uint32_t *len)
{
	struct pollfd fd = {.fd = m->call_fd, .events = POLLIN};
	eventfd_t count;
	void *token;
	int ret;

	for (;;) {
		ret = silt_driver_collect(m->driver, &token, len);
		if (ret < 0)
			fail_msg("%s", silt_errmsg());
		if (ret)
			return token;
		if (silt_driver_enable_call(m->driver) > 0)
			continue;
		if (poll(&fd, 1, TIMEOUT_MS) != 1)
			fail_msg("no answer within %d ms", TIMEOUT_MS);
		eventfd_read(m->call_fd, &count);
	}
}
