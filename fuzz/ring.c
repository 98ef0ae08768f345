/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: a queue's device end on a ring that its driver fills with anything, changes between
 * pop and push and, on request, from another thread at any moment. Also the driver end against a
 * device that scribbles. Each input is a program of the steps below.
 *
 * What must hold: an element's segments lie in guest memory; no byte changes but in writable
 * segments that are written and in the used ring; the pages of both, and no others, are marked.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/virtio_ring.h>
#include <silt/silt.h>

#include "target.h"

#define LOW_SIZE  UINT64_C(0x10000) /* from address 0; two regions of one file */
#define CUT	  UINT64_C(0x9100)
#define HIGH	  UINT64_C(0x40000)
#define HIGH_SIZE UINT64_C(0x2800)
#define FILE_SIZE (LOW_SIZE + HIGH_SIZE)
#define LOG_SIZE  16

#define MAX_NUM 256
#define DESC	UINT64_C(0x1000)
#define AVAIL	UINT64_C(0x2000)
#define USED	UINT64_C(0x2f00) /* and up to 1020 bytes more */
#define TABLES	(CUT - 520)	 /* one of its descriptors straddles CUT */
#define DRIVER	UINT64_C(0x6000)

#define DRIVER_NUM 8
#define MAX_STEPS  600

/* A copy of an element, made at pop. */
struct held {
	struct silt_virtq_elem *elem;
	unsigned int nwrite;
	struct {
		uint64_t gpa, len;
	} seg[SILT_VIRTQ_MAX_SEGS];
};

static struct {
	int fd;
	uint8_t *view, shadow[FILE_SIZE];
	struct silt_memory *whole, *without_high, *mem;
	struct silt_log *log;
	uint8_t *log_view, marked[LOG_SIZE];

	const uint8_t *at, *end;
	struct silt_virtq *vq;
	struct silt_virtq_layout layout;
	uint64_t used;
	bool log_data, log_used;
	struct held held[MAX_NUM];
	unsigned int nheld, nstaged;
	uint16_t used_idx, used_flags; /* as the device has them; the ring may hold anything */
	bool broken;

	struct silt_driver *driver;
	bool with_device[DRIVER_NUM]; /* its buffers, by token */

	pthread_mutex_t race;
	pthread_cond_t raced;
	bool racing, race_over;
} z = {.race = PTHREAD_MUTEX_INITIALIZER, .raced = PTHREAD_COND_INITIALIZER};

static uint64_t take(unsigned int bytes)
{
	uint64_t val = 0;

	for (; bytes; bytes--)
		val = val << 8 | (z.at < z.end ? *z.at++ : 0);
	return val;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Where @gpa lies in the file. */
static uint64_t place(uint64_t gpa)
{
	return gpa < LOW_SIZE ? gpa : gpa - HIGH + LOW_SIZE;
}

static void expect_nothing_else(void)
{
	CHECK(!memcmp(z.view, z.shadow, FILE_SIZE));
}

/* Here something may have changed. */
static void accept(uint64_t gpa, uint64_t len)
{
	memcpy(z.shadow + place(gpa), z.view + place(gpa), len);
}

static void poke(uint64_t gpa, const void *src, uint64_t len)
{
	memcpy(z.view + place(gpa), src, len);
	memcpy(z.shadow + place(gpa), src, len);
}

static void mark(uint64_t gpa)
{
	z.marked[gpa >> 15] |= 1 << (gpa >> 12 & 7);
}

static void mark_used(uint64_t off, uint64_t len)
{
	uint64_t i;

	for (i = 0; z.log_used && i < len; i++)
		mark(z.used + off + i);
}

/* When nothing is pending, the log is what it should be. */
static void expect_marks(void)
{
	CHECK(!memcmp(z.log_view, z.marked, LOG_SIZE));
}

static struct silt_memory *with_region(struct silt_memory *old, uint64_t gpa, uint64_t size,
				       uint64_t offset)
{
	const struct silt_memory_region r = {
		.gpa = gpa, .size = size, .user_addr = gpa + 0x10000000, .mmap_offset = offset};
	struct silt_memory *mem;

	CHECK(!silt_memory_add(old, &r, z.fd, &mem));
	silt_memory_put(old);
	return mem;
}

static void set_up_memory(void)
{
	int log_fd = memfd_create("log", MFD_CLOEXEC);
	struct silt_memory *mem;

	z.fd = memfd_create("memory", MFD_CLOEXEC);
	CHECK(z.fd >= 0 && log_fd >= 0 && !ftruncate(z.fd, FILE_SIZE) &&
	      !ftruncate(log_fd, LOG_SIZE));
	z.view = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, z.fd, 0);
	z.log_view = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, log_fd, 0);
	CHECK(z.view != MAP_FAILED && z.log_view != MAP_FAILED);
	CHECK(!silt_memory_create(&mem));
	mem = with_region(mem, 0, CUT, 0);
	z.without_high = with_region(mem, CUT, LOW_SIZE - CUT, CUT);
	z.whole = with_region(silt_memory_get(z.without_high), HIGH, HIGH_SIZE, LOW_SIZE);
	CHECK(!silt_log_map(log_fd, LOG_SIZE, 0, &z.log));
	close(log_fd);
	CHECK(!silt_access_add_range(z.view, FILE_SIZE) && !silt_access_install());
}

/* ---- The other thread ------------------------------------------------------------------------ */

/* Changes descriptors, heads, indexes and tables as fast as it can while it is told to. */
static void *race(void *arg)
{
	uint32_t state = 1;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&z.race);
		while (!z.racing)
			pthread_cond_wait(&z.raced, &z.race);
		pthread_mutex_unlock(&z.race);
		while (!__atomic_load_n(&z.race_over, __ATOMIC_ACQUIRE)) {
			uint64_t off;

			state = state * 1664525 + 1013904223;
			off = (state >> 16) % 0x1100 & ~1u;
			off = state & 0x400000 ? DESC + off : TABLES + off % 1024;
			__atomic_store_n((uint16_t *)(z.view + off), state >> 8 & 0x107,
					 __ATOMIC_RELAXED);
		}
		pthread_mutex_lock(&z.race);
		z.racing = false;
		pthread_cond_broadcast(&z.raced);
		pthread_mutex_unlock(&z.race);
	}
	return NULL;
}

static void start_race(void)
{
	pthread_mutex_lock(&z.race);
	z.race_over = false;
	z.racing = true;
	pthread_cond_broadcast(&z.raced);
	pthread_mutex_unlock(&z.race);
}

static void end_race(void)
{
	__atomic_store_n(&z.race_over, true, __ATOMIC_RELEASE);
	pthread_mutex_lock(&z.race);
	while (z.racing)
		pthread_cond_wait(&z.raced, &z.race);
	pthread_mutex_unlock(&z.race);
	memcpy(z.shadow, z.view, FILE_SIZE);
}

/* ---- Steps of the driver --------------------------------------------------------------------- */

static uint64_t take_address(unsigned int how)
{
	switch (how % 4) {
	case 0:
		return take(2);
	case 1:
		return HIGH + take(2) % (HIGH_SIZE + 16);
	case 2:
		return CUT - 128 + take(1);
	default:
		return take(8);
	}
}

static uint32_t take_len(unsigned int how)
{
	switch (how % 4) {
	case 0:
		return take(1);
	case 1:
		return take(2);
	case 2:
		return 16 * take(1);
	default:
		return take(4);
	}
}

/* Mostly what a driver may do, so that chains are walked to their end. */
static uint16_t take_flags(void)
{
	uint8_t how = take(1);

	if (how & 0x80)
		return how & 7;
	return how % 3 ? VRING_DESC_F_WRITE : how % 2 ? VRING_DESC_F_NEXT : 0;
}

static void step_desc(void)
{
	unsigned int how = take(1);
	bool in_table = how & 0x80, indirect = (how & 0x70) == 0x70;
	uint64_t i = take(1) % (in_table ? 64 : z.layout.num);
	struct vring_desc desc;

	desc.addr = indirect ? TABLES : take_address(how);
	desc.len = take_len(how >> 2);
	desc.flags = indirect ? VRING_DESC_F_INDIRECT : take_flags();
	desc.next = take(1) % (z.layout.num + 1);
	poke((in_table ? TABLES : DESC) + 16 * i, &desc, sizeof(desc));
}

static void step_offer(void)
{
	uint16_t head = take(1) % (z.layout.num + 1), idx;

	memcpy(&idx, z.view + AVAIL + 2, sizeof(idx));
	poke(AVAIL + 4 + 2 * (idx % z.layout.num), &head, sizeof(head));
	idx++;
	poke(AVAIL + 2, &idx, sizeof(idx));
}

static void step_poke(void)
{
	uint64_t gpa = take(2) % (LOW_SIZE - 1);
	uint16_t val = take(2);

	poke(gpa, &val, sizeof(val));
}

/* ---- Steps of the device --------------------------------------------------------------------- */

static uint64_t check_segments(const struct silt_virtq_elem *e, unsigned int i, unsigned int end)
{
	uint64_t sum = 0;

	for (; i < end; i++) {
		uint64_t len = e->iov[i].iov_len;

		CHECK(len && silt_memory_translate(z.mem, e->gpa[i], &len) == e->iov[i].iov_base);
		CHECK(len == e->iov[i].iov_len);
		sum += len;
	}
	return sum;
}

static void hold(struct silt_virtq_elem *e)
{
	struct held *h = &z.held[z.nheld++];
	unsigned int i;

	CHECK(e->head < z.layout.num && e->nread + e->nwrite <= SILT_VIRTQ_MAX_SEGS);
	CHECK(e->read_len == check_segments(e, 0, e->nread));
	CHECK(e->write_len == check_segments(e, e->nread, e->nread + e->nwrite));
	CHECK(e->read_len + e->write_len <= UINT32_MAX);
	for (i = 0; i + 1 < z.nheld; i++)
		CHECK(z.held[i].elem->head != e->head);
	h->elem = e;
	h->nwrite = e->nwrite;
	for (i = 0; i < e->nwrite; i++) {
		h->seg[i].gpa = e->gpa[e->nread + i];
		h->seg[i].len = e->iov[e->nread + i].iov_len;
	}
}

static void pop(void)
{
	struct silt_virtq_elem *elem;
	int ret = silt_virtq_pop(z.vq, &elem);

	CHECK(ret <= 1 && (!z.broken || ret < 0));
	if (ret == 1)
		hold(elem);
	z.broken = ret < 0;
	CHECK(z.nheld <= z.layout.num && silt_virtq_inflight(z.vq) == z.nheld);
}

static struct held *take_held(void)
{
	return &z.held[take(1) % z.nheld];
}

/* A range inside @size bytes, or one that reaches a little beyond; at most 64 KiB. */
static void take_range(uint64_t size, uint64_t *off, uint64_t *len)
{
	uint16_t how = take(2);

	if (size > UINT16_MAX)
		size = UINT16_MAX;
	*off = how & 1 ? 0 : (how >> 1) % (size + 1);
	*len = how & 6 ? size - *off : take(2) % (size - *off + 8);
}

/* Repeat in the shadow what was told to be written. */
static void repeat_write(const struct held *h, uint64_t off, uint64_t len, uint8_t byte)
{
	unsigned int i;
	uint64_t at;

	for (i = 0; i < h->nwrite && len; i++) {
		for (at = off; at < h->seg[i].len && len; at++, off++, len--) {
			z.shadow[place(h->seg[i].gpa + at)] = byte;
			if (z.log_data)
				mark(h->seg[i].gpa + at);
		}
		off -= h->seg[i].len;
	}
}

static void step_write(void)
{
	static uint8_t bytes[FILE_SIZE];
	struct held *h;
	uint64_t off, len;
	uint8_t byte;

	if (!z.nheld)
		return;
	h = take_held();
	take_range(h->elem->write_len, &off, &len);
	byte = take(1);
	memset(bytes, byte, len);
	if (off > h->elem->write_len || len > h->elem->write_len - off) {
		CHECK(silt_virtq_write(z.vq, h->elem, off, bytes, len) < 0);
		return;
	}
	CHECK(!silt_virtq_write(z.vq, h->elem, off, bytes, len));
	repeat_write(h, off, len, byte);
}

static void step_wrote(void)
{
	struct held *h;
	uint8_t byte;

	if (!z.nheld)
		return;
	h = take_held();
	byte = take(1);
	if (!h->nwrite)
		return;
	memset(h->elem->iov[h->elem->nread].iov_base, byte, h->seg[0].len);
	silt_virtq_wrote(z.vq, h->elem, 0, h->seg[0].len);
	repeat_write(h, 0, h->seg[0].len, byte);
}

static void step_read(void)
{
	static uint8_t bytes[FILE_SIZE];
	uint64_t off, len;
	struct held *h;

	if (!z.nheld)
		return;
	h = take_held();
	take_range(h->elem->read_len, &off, &len);
	CHECK(!silt_virtq_read(z.vq, h->elem, off, bytes, len) ==
	      (off <= h->elem->read_len && len <= h->elem->read_len - off));
}

static void publish(void)
{
	CHECK(silt_virtq_publish(z.vq) >= 0);
	accept(z.used, silt_virtq_used_size(z.layout.num));
	for (; z.nstaged; z.nstaged--, z.used_idx++) {
		mark_used(4 + 8 * (z.used_idx % z.layout.num), 8);
		mark_used(2, 2);
	}
}

static void push(unsigned int i)
{
	silt_virtq_push(z.vq, z.held[i].elem, take(4));
	z.held[i] = z.held[--z.nheld];
	z.nstaged++;
}

static void step_push(void)
{
	if (!z.nheld)
		return;
	push(take(1) % z.nheld);
	if (take(1) & 1)
		publish();
}

static void step_kicks(void)
{
	bool event_idx = z.layout.features >> VIRTIO_RING_F_EVENT_IDX & 1;
	bool enable = take(1) & 1;
	uint16_t flags = enable ? 0 : VRING_USED_F_NO_NOTIFY;

	if (event_idx && enable)
		mark_used(4 + 8 * z.layout.num, 2);
	if (!event_idx && flags != z.used_flags) {
		mark_used(0, 2);
		z.used_flags = flags;
	}
	CHECK((enable ? silt_virtq_enable_kick(z.vq) : silt_virtq_disable_kick(z.vq)) >= 0);
	accept(z.used, silt_virtq_used_size(z.layout.num));
}

static void step_memory(void)
{
	z.mem = take(1) & 1 ? z.whole : z.without_high;
	silt_virtq_set_memory(z.vq, z.mem);
}

/* Marks that are pending must reach the log in use, whatever comes next. */
static void set_log(unsigned int how)
{
	silt_virtq_set_log(z.vq, how & 4 ? NULL : z.log, how & 1, how & 2, z.used);
	expect_marks();
	z.log_data = (how & 5) == 1;
	z.log_used = (how & 6) == 2;
}

static void step_log(void)
{
	set_log(take(1));
}

static void restart(uint16_t index)
{
	z.mem = z.whole;
	z.nstaged = 0;
	z.broken = false;
	memcpy(&z.used_flags, z.view + z.used, sizeof(z.used_flags));
	memcpy(&z.used_idx, z.view + z.used + 2, sizeof(z.used_idx));
	CHECK(!silt_virtq_start(z.vq, &z.layout, z.mem, index));
}

static void drain(void)
{
	uint16_t index;

	while (z.nheld)
		push(z.nheld - 1);
	publish();
	index = silt_virtq_last_avail(z.vq);
	CHECK(silt_virtq_stop(z.vq) == index);
	expect_marks();
}

static void step_restart(void)
{
	drain();
	restart(silt_virtq_last_avail(z.vq));
}

/* A broken queue is mostly started again behind what broke it. */
static void step_pop(void)
{
	uint16_t idx;

	pop();
	if (!z.broken || !(take(1) & 3))
		return;
	drain();
	memcpy(&idx, z.view + AVAIL + 2, sizeof(idx));
	restart(idx);
}

/* Everything is tried while the file is short; what it may hold afterwards is not foretold. */
static void step_truncate(void)
{
	uint8_t bytes[16] = {0};
	struct silt_virtq_elem *elem;
	uint64_t size = take(2) % FILE_SIZE;

	CHECK(!ftruncate(z.fd, size));
	if (silt_virtq_pop(z.vq, &elem) == 1)
		silt_virtq_push(z.vq, elem, 0);
	if (z.nheld) {
		silt_virtq_write(z.vq, z.held[0].elem, 0, bytes, sizeof(bytes));
		push(0);
	}
	silt_virtq_publish(z.vq);
	silt_virtq_enable_kick(z.vq);
	silt_virtq_disable_kick(z.vq);
	while (z.nheld)
		push(z.nheld - 1);
	silt_virtq_stop(z.vq);
	CHECK(!ftruncate(z.fd, FILE_SIZE));
	memcpy(z.shadow, z.view, FILE_SIZE);
	memset(z.log_view, 0, LOG_SIZE);
	memset(z.marked, 0, LOG_SIZE);
	restart(silt_virtq_last_avail(z.vq));
}

/* Only pops: between two looks of one pop, anything may have changed. */
static void step_race(void)
{
	unsigned int i;

	start_race();
	for (i = take(1) % 32; i; i--) {
		pop();
		if (z.broken) {
			while (z.nheld)
				push(z.nheld - 1);
			silt_virtq_stop(z.vq);
			restart(take(2));
		}
	}
	while (z.nheld)
		push(z.nheld - 1);
	silt_virtq_stop(z.vq);
	end_race();
	memset(z.log_view, 0, LOG_SIZE);
	memset(z.marked, 0, LOG_SIZE);
	restart(take(2));
}

/* ---- The driver end, whose device scribbles -------------------------------------------------- */

static void step_driver_add(void)
{
	const struct silt_driver_seg segs[3] = {{0, 1, false}, {1, 1, true}, {2, 1, true}};
	unsigned int token = 0;

	while (token < DRIVER_NUM && z.with_device[token])
		token++;
	if (silt_driver_add(z.driver, segs, 1 + take(1) % 3, NULL, 0, &z.with_device[token]) >= 0) {
		CHECK(token < DRIVER_NUM);
		z.with_device[token] = true;
	}
	CHECK(silt_driver_publish(z.driver) >= 0);
	accept(DRIVER, 0x200);
}

static void step_driver_collect(void)
{
	uint64_t at = take(1) % (6 + 8 * DRIVER_NUM);
	uint8_t byte = take(1);
	unsigned int i, n = 0;
	void *token;
	uint32_t len;

	poke(DRIVER + 0x200 + at, &byte, 1);
	if (silt_driver_collect(z.driver, &token, &len) == 1) {
		i = (bool *)token - z.with_device;
		CHECK(i < DRIVER_NUM && z.with_device[i]);
		z.with_device[i] = false;
	}
	for (i = 0; i < DRIVER_NUM; i++)
		n += z.with_device[i];
	CHECK(n == silt_driver_inflight(z.driver));
	CHECK(silt_driver_enable_call(z.driver) <= 1);
	CHECK(!silt_driver_disable_call(z.driver));
	accept(DRIVER, 0x200);
}

/* ---- Programs -------------------------------------------------------------------------------- */

static const struct {
	void (*run)(void);
	unsigned int weight;
} steps[] = {
	{step_desc, 8},	   {step_offer, 6},    {step_pop, 6},	     {step_write, 4},
	{step_wrote, 2},   {step_read, 2},     {step_push, 3},	     {step_poke, 2},
	{step_kicks, 2},   {step_memory, 1},   {step_log, 1},	     {step_race, 1},
	{step_restart, 1}, {step_truncate, 1}, {step_driver_add, 1}, {step_driver_collect, 1},
};

#define WEIGHTS 42

static void step(void)
{
	unsigned int i, n = take(1) % WEIGHTS;

	for (i = 0; n >= steps[i].weight; i++)
		n -= steps[i].weight;
	steps[i].run();
}

static void begin(void)
{
	struct silt_virtq_layout layout;
	unsigned int how = take(1);
	uint16_t index = take(2);

	memset(z.view, 0, FILE_SIZE);
	memset(z.shadow, 0, FILE_SIZE);
	memset(z.log_view, 0, LOG_SIZE);
	memset(z.marked, 0, LOG_SIZE);
	memset(z.with_device, 0, sizeof(z.with_device));
	z.nheld = 0;
	z.used = USED + 4 * take(1);
	z.layout = (struct silt_virtq_layout){
		.num = 1 << how % 9,
		.desc = z.view + DESC,
		.avail = z.view + AVAIL,
		.used = z.view + z.used,
		.features = (uint64_t)(how >> 4 & 3) << VIRTIO_RING_F_INDIRECT_DESC,
	};
	poke(AVAIL + 2, &index, sizeof(index));
	poke(z.used + 2, &index, sizeof(index));
	CHECK(!silt_virtq_create(&z.vq));
	restart(index);
	set_log(3);
	layout = (struct silt_virtq_layout){
		.num = DRIVER_NUM,
		.desc = z.view + DRIVER,
		.avail = z.view + DRIVER + 0x100,
		.used = z.view + DRIVER + 0x200,
		.features = z.layout.features,
	};
	CHECK(!silt_driver_create(&layout, index, &z.driver));
	accept(DRIVER, 0x400);
}

static void finish(void)
{
	drain();
	silt_virtq_destroy(z.vq);
	silt_driver_destroy(z.driver);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned int n;

	if (!z.view) {
		pthread_t thread;

		set_up_memory();
		CHECK(!pthread_create(&thread, NULL, race, NULL));
	}
	z.at = data;
	z.end = data + size;
	begin();
	for (n = 0; n < MAX_STEPS && z.at < z.end; n++) {
		step();
		expect_nothing_else();
	}
	finish();
	return 0;
}
