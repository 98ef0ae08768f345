/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/virtio_blk.h>

#include <silt/error.h>
#include <silt/virtq.h>

#include "base/err.h"
#include "demo/disk.h"
#include "demo/disk_device.h"
#include "demo/disk_layout.h"
#include "demo/machine.h"
#include "guest/pace.h"

/* Fewer than the smallest guest has buffers. */
#define MAX_INFLIGHT 16

struct disk {
	const struct ram *ram;
	uint64_t seed;
	uint64_t rate;
	struct disk_device device;
	struct silt_driver *driver; /* NULL until the queue was started first */
	uint16_t index;		    /* of the queue: where it begins, or was stopped */
	uint64_t random;
	uint64_t reads; /* atomic */
	uint32_t inflight[MAX_INFLIGHT];
	unsigned int ninflight;
	bool queue_runs;
	pthread_t thread;
	bool has_thread;
	int wake_fd; /* the driver's thread shall end */
	int error;   /* of the driver; atomic */
	char message[256];
	pthread_mutex_t lock;
	/* Under the lock: */
	struct silt_sync *sync; /* NULL while nothing is tracked */
	int block;
};

static struct disk_record *record_of(const struct disk *d, uint64_t buffer)
{
	return (struct disk_record *)(d->ram->blocks[RAM_MAIN].memory + disk_record_at(buffer));
}

static int make_image(uint64_t seed)
{
	const uint64_t bytes = DISK_SECTORS * 512;
	int fd = memfd_create("demo disk", MFD_CLOEXEC);
	uint64_t *words = MAP_FAILED, i;

	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED) {
		silt_err_sys(errno, "demo: a disk of %llu bytes", (unsigned long long)bytes);
		if (fd >= 0)
			close(fd);
		return -ENOMEM;
	}
	for (i = 0; i < bytes / 8; i++)
		words[i] = disk_word(seed, i);
	munmap(words, bytes);
	return fd;
}

int disk_open(const struct ram *ram, const struct machine_config *config, struct disk **out)
{
	struct disk *d = calloc(1, sizeof(*d));
	int image, ret;

	if (!d)
		return silt_err(ENOMEM, "demo: no memory");
	d->ram = ram;
	d->rate = config->disk_rate;
	d->seed = d->random = config->seed;
	pthread_mutex_init(&d->lock, NULL);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = d->wake_fd < 0 ? silt_err_sys(errno, "demo: eventfd") : 0;
	if (ret >= 0)
		ret = image = make_image(d->seed);
	if (ret >= 0) {
		ret = disk_device_open(&d->device, ram, config->silt, image);
		close(image);
	}
	if (ret < 0) {
		disk_close(d);
		return ret;
	}
	*out = d;
	return 0;
}

void disk_close(struct disk *d)
{
	if (!d)
		return;
	disk_pause(d);
	disk_device_close(&d->device);
	silt_driver_destroy(d->driver);
	if (d->wake_fd >= 0)
		close(d->wake_fd);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

/* The driver stored to these bytes of RAM_MAIN: no source but this tells of it. */
static int mark(struct disk *d, uint64_t at, uint64_t bytes)
{
	uint64_t first = at / GUEST_PAGE, last = (at + bytes - 1) / GUEST_PAGE;
	int ret = 0;

	pthread_mutex_lock(&d->lock);
	if (d->sync)
		ret = silt_sync_mark(d->sync, d->block, first, last - first + 1);
	pthread_mutex_unlock(&d->lock);
	return ret;
}

/* Descriptors and the available ring, with the event field that calls are asked for by. */
static int mark_ring(struct disk *d)
{
	return mark(d, DISK_DESC_AT, DISK_USED_AT - DISK_DESC_AT);
}

static uint64_t next_random(struct disk *d)
{
	d->random += UINT64_C(0x9e3779b97f4a7c15);
	return disk_word(0, d->random);
}

static bool is_inflight(const struct disk *d, uint64_t buffer)
{
	unsigned int i;

	for (i = 0; i < d->ninflight; i++)
		if (d->inflight[i] == buffer)
			return true;
	return false;
}

static int add_request(struct disk *d, uint32_t buffer)
{
	struct silt_driver_seg segs[] = {
		{disk_record_at(buffer), sizeof(struct virtio_blk_outhdr), false},
		{disk_buffer_at(d->ram, buffer), DISK_BUFFER, true},
		{disk_record_at(buffer) + offsetof(struct disk_record, status), 1, true},
	};
	int ret = silt_driver_add(d->driver, segs, 3, NULL, 0, record_of(d, buffer));

	if (ret < 0)
		return ret;
	d->inflight[d->ninflight++] = buffer;
	return 0;
}

/* A read of a random place of the disk into a random buffer that is free. */
static int make_request(struct disk *d)
{
	uint64_t buffers = disk_buffers(d->ram), buffer = next_random(d) % buffers;
	struct disk_record *record;
	int ret;

	while (is_inflight(d, buffer))
		buffer = (buffer + 1) % buffers;
	record = record_of(d, buffer);
	record->header = (struct virtio_blk_outhdr){
		.type = VIRTIO_BLK_T_IN,
		.sector = next_random(d) % (DISK_SECTORS - DISK_BUFFER / 512),
	};
	record->status = 0xff;
	ret = mark(d, disk_record_at(buffer), sizeof(*record));
	return ret < 0 ? ret : add_request(d, (uint32_t)buffer);
}

static int publish(struct disk *d)
{
	int kick = silt_driver_publish(d->driver), ret;

	if (kick < 0)
		return kick;
	ret = mark_ring(d);
	if (ret < 0 || !kick)
		return ret;
	return eventfd_write(d->device.kick_fd, 1) < 0 ? silt_err_sys(errno, "demo: a kick") : 0;
}

static int finish(struct disk *d, struct disk_record *record)
{
	uint64_t buffer = (uint64_t)(record - record_of(d, 0));
	unsigned int i = 0;

	while (d->inflight[i] != buffer)
		i++;
	d->inflight[i] = d->inflight[--d->ninflight];
	if (record->status != VIRTIO_BLK_S_OK)
		return silt_err(EIO, "demo: a read of sector %llu ended with status %u",
				(unsigned long long)record->header.sector, record->status);
	record->reads++;
	__atomic_fetch_add(&d->reads, 1, __ATOMIC_RELAXED);
	return mark(d, disk_record_at(buffer), sizeof(*record));
}

/* Take all answers. */
static int collect(struct disk *d)
{
	uint32_t len;
	void *token;
	int ret;

	while ((ret = silt_driver_collect(d->driver, &token, &len)) > 0) {
		ret = finish(d, token);
		if (ret < 0)
			return ret;
	}
	return ret;
}

/* Sleep until the device calls, the next request is due, or the thread shall end. */
static int await(struct disk *d, uint64_t due)
{
	struct pollfd fds[] = {{d->device.call_fd, POLLIN, 0},
			       {d->wake_fd, POLLIN, 0},
			       {d->device.pid_fd, POLLIN, 0}};
	uint64_t now = pace_now_ns(), ns = due > now ? due - now : 0;
	struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000),
				   .tv_nsec = (long)(ns % 1000000000)};
	eventfd_t count;
	int ret = silt_driver_enable_call(d->driver);

	if (ret >= 0 && mark_ring(d) < 0)
		return -EIO;
	if (ret)
		return ret < 0 ? ret : 0;
	if (ppoll(fds, 3, &timeout, NULL) < 0 && errno != EINTR)
		return silt_err_sys(errno, "demo: poll");
	eventfd_read(d->device.call_fd, &count);
	return disk_device_check(&d->device);
}

/* Return: 0 go on; 1 the thread shall end; -errno. */
static int drive_once(struct disk *d, struct pace *pace, uint64_t *due)
{
	eventfd_t count;
	unsigned int n = 0;
	int ret = collect(d);

	while (ret >= 0 && pace_now_ns() >= *due && d->ninflight < MAX_INFLIGHT) {
		struct timespec next = pace_next(pace);

		*due = (uint64_t)next.tv_sec * UINT64_C(1000000000) + (uint64_t)next.tv_nsec;
		ret = make_request(d);
		n++;
	}
	if (ret >= 0 && n)
		ret = publish(d);
	if (ret >= 0)
		ret = await(d, d->ninflight < MAX_INFLIGHT ? *due : UINT64_MAX / 2);
	if (ret >= 0)
		ret = eventfd_read(d->wake_fd, &count) ? 0 : 1;
	return ret;
}

static void *driver_thread(void *arg)
{
	struct disk *d = arg;
	struct pace pace = {.us = (uint32_t)(1000000 / d->rate), .steady = true};
	uint64_t due = 0;
	int ret;

	pace_begin(&pace);
	do {
		ret = drive_once(d, &pace, &due);
	} while (!ret);
	if (ret < 0) {
		snprintf(d->message, sizeof(d->message), "%s", silt_errmsg());
		__atomic_store_n(&d->error, ret, __ATOMIC_RELEASE);
	}
	return NULL;
}

static int start_thread(struct disk *d)
{
	sigset_t all, before;
	int ret;

	if (!d->rate)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&d->thread, NULL, driver_thread, d);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	d->has_thread = !ret;
	return ret ? silt_err_sys(ret, "demo: a thread for the disk") : 0;
}

/* What was in the queue when the guest left is in it again, for the device to take. */
static int make_driver(struct disk *d)
{
	uint8_t *memory = d->ram->blocks[RAM_MAIN].memory;
	struct silt_virtq_layout layout = {
		.num = DISK_RING_SIZE,
		.desc = (void *)(memory + DISK_DESC_AT),
		.avail = (void *)(memory + DISK_AVAIL_AT),
		.used = (void *)(memory + DISK_USED_AT),
		.features = d->device.features,
	};
	unsigned int i, n = d->ninflight;
	int ret = silt_driver_create(&layout, d->index, &d->driver);

	d->ninflight = 0;
	for (i = 0; i < n && ret >= 0; i++)
		ret = add_request(d, d->inflight[i]);
	if (ret >= 0)
		ret = publish(d);
	return ret < 0 ? ret : mark(d, DISK_USED_AT, DISK_RECORDS - DISK_USED_AT);
}

int disk_start(struct disk *d)
{
	int ret = d->driver ? 0 : make_driver(d);

	if (ret >= 0 && !d->queue_runs)
		ret = disk_device_start(&d->device, d->index);
	d->queue_runs = ret >= 0;
	/* What is in the queue already is not kicked for otherwise. */
	if (ret >= 0 && eventfd_write(d->device.kick_fd, 1) < 0)
		ret = silt_err_sys(errno, "demo: a kick");
	return ret < 0 ? ret : start_thread(d);
}

void disk_pause(struct disk *d)
{
	eventfd_t count;

	if (!d->has_thread)
		return;
	eventfd_write(d->wake_fd, 1);
	pthread_join(d->thread, NULL);
	eventfd_read(d->wake_fd, &count);
	d->has_thread = false;
}

int disk_stop(struct disk *d)
{
	int ret = disk_check_device(d);

	if (ret >= 0)
		ret = disk_device_stop(&d->device);
	if (ret < 0)
		return ret;
	d->queue_runs = false;
	d->index = (uint16_t)ret;
	return collect(d);
}

int disk_log_on(struct disk *d, struct silt_sync *sync, int block)
{
	int ret = disk_check_device(d);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&d->lock);
	d->sync = sync;
	d->block = block;
	pthread_mutex_unlock(&d->lock);
	ret = disk_device_log_on(&d->device, sync);
	if (ret < 0)
		disk_log_off(d);
	return ret;
}

int disk_log_off(struct disk *d)
{
	int ret = disk_device_log_off(&d->device);

	pthread_mutex_lock(&d->lock);
	d->sync = NULL;
	pthread_mutex_unlock(&d->lock);
	return ret;
}

uint64_t disk_reads(const struct disk *d)
{
	return __atomic_load_n(&d->reads, __ATOMIC_RELAXED);
}

int disk_error(const struct disk *d, const char **text)
{
	*text = d->message;
	return __atomic_load_n(&d->error, __ATOMIC_ACQUIRE);
}

int disk_check_device(const struct disk *d)
{
	const char *text;
	int ret = disk_error(d, &text);

	return ret < 0 ? silt_err(-ret, "%s", text) : disk_device_check(&d->device);
}

/* What the destination goes on with. */
struct state {
	uint64_t rate;
	uint64_t random;
	uint64_t reads;
	uint16_t index;
	uint16_t ninflight;
	uint32_t inflight[MAX_INFLIGHT];
};

size_t disk_state_bytes(void)
{
	return sizeof(struct state);
}

void disk_save(const struct disk *d, void *state)
{
	struct state s;

	memset(&s, 0, sizeof(s));
	s.rate = d->rate;
	s.random = d->random;
	s.reads = disk_reads(d);
	s.index = d->index;
	s.ninflight = (uint16_t)d->ninflight;
	memcpy(s.inflight, d->inflight, d->ninflight * sizeof(s.inflight[0]));
	memcpy(state, &s, sizeof(s));
}

static int check_state(const struct disk *d, const struct state *s)
{
	unsigned int i;

	if (s->rate > DISK_MAX_RATE || s->ninflight > MAX_INFLIGHT)
		return silt_err(ERANGE, "demo: %u requests in the queue, %llu a second",
				s->ninflight, (unsigned long long)s->rate);
	for (i = 0; i < s->ninflight; i++)
		if (s->inflight[i] >= disk_buffers(d->ram))
			return silt_err(ERANGE, "demo: a request for buffer %u of %llu",
					s->inflight[i], (unsigned long long)disk_buffers(d->ram));
	return 0;
}

int disk_load(struct disk *d, const void *state, size_t bytes)
{
	struct state s;
	int ret;

	if (bytes != sizeof(s))
		return silt_err(EINVAL, "demo: a disk's state of %zu bytes, it has %zu", bytes,
				sizeof(s));
	memcpy(&s, state, sizeof(s));
	ret = check_state(d, &s);
	if (ret < 0)
		return ret;
	d->rate = s.rate;
	d->random = s.random;
	d->index = s.index;
	d->ninflight = s.ninflight;
	memcpy(d->inflight, s.inflight, s.ninflight * sizeof(s.inflight[0]));
	__atomic_store_n(&d->reads, s.reads, __ATOMIC_RELAXED);
	return 0;
}

static uint64_t wrong_pages(const struct disk *d, uint64_t buffer)
{
	const uint8_t *data = d->ram->blocks[RAM_MAIN].memory + disk_buffer_at(d->ram, buffer);
	uint64_t word = record_of(d, buffer)->header.sector * 64, page, i, wrong = 0;
	uint64_t at[GUEST_PAGE / 8];

	for (page = 0; page < DISK_BUFFER / GUEST_PAGE; page++) {
		for (i = 0; i < GUEST_PAGE / 8; i++)
			at[i] = disk_word(d->seed, word++);
		wrong += memcmp(at, data + page * GUEST_PAGE, GUEST_PAGE) != 0;
	}
	return wrong;
}

/* A record that is old does not count all reads. */
uint64_t disk_check(const struct disk *d)
{
	uint64_t buffer, wrong = 0, reads = 0;

	for (buffer = 0; buffer < disk_buffers(d->ram); buffer++) {
		const struct disk_record *record = record_of(d, buffer);

		reads += record->reads;
		if (!record->reads || is_inflight(d, buffer))
			continue;
		if (record->status != VIRTIO_BLK_S_OK)
			wrong++;
		else
			wrong += wrong_pages(d, buffer);
	}
	return wrong + (reads != disk_reads(d));
}
