/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the device end of a packed ring whose driver writes anything, changes it between pop
 * and push and, on request, from another thread at any moment. Also the driver end against a device
 * that scribbles. Each input is a program of the steps below.
 *
 * What must hold: an element's segments lie in guest memory; no byte changes but in writable
 * segments that are written, in used descriptors and in the device area, where each is foretold;
 * the pages of all three, and no others, are marked.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <silt/silt.h>

#include "target.h"

#define SIZE	 UINT64_C(0x10000) /* from address 0; two regions of one file */
#define CUT	 UINT64_C(0x9100)
#define LOG_SIZE 16

#define MAX_NUM 300
#define DESC	UINT64_C(0x1f00) /* and up to 4800 bytes more */
#define AVAIL	UINT64_C(0x3ff8)
#define USED	UINT64_C(0x5ffc)
#define TABLE	(CUT - 72) /* one of its descriptors straddles CUT */
#define DRIVER	UINT64_C(0xc000)

#define DRIVER_NUM 7
#define MAX_STEPS  600
#define WRAP	   SILT_VIRTQ_PACKED_START

/* What the device has, in the order in which it was popped. */
struct held {
	struct silt_virtq_elem *elem;
	uint16_t id;
	unsigned int ndescs;
	bool pushed;
	uint64_t write_len;
	uint32_t used_len;
};

static struct {
	int fd;
	uint8_t *view, shadow[SIZE];
	struct silt_memory *mem;
	struct silt_log *log;
	uint8_t *log_view, marked[LOG_SIZE];

	const uint8_t *at, *end;
	struct silt_virtq *vq;
	struct silt_virtq_layout layout;
	bool in_order, event_idx;
	bool log_data, log_used;
	struct held held[MAX_NUM], staged[MAX_NUM];
	unsigned int nheld, npushed, nstaged;
	uint16_t used;	/* the place of the next used descriptor */
	uint32_t event; /* what the device has stored */
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

/* ---- Memory and log -------------------------------------------------------------------------- */

static void poke(uint64_t gpa, const void *src, uint64_t len)
{
	memcpy(z.view + gpa, src, len);
	memcpy(z.shadow + gpa, src, len);
}

/* Foretell a store by the device. */
static void expect(uint64_t gpa, const void *src, uint64_t len, bool logged)
{
	uint64_t i;

	memcpy(z.shadow + gpa, src, len);
	for (i = gpa; logged && i < gpa + len; i++)
		z.marked[i >> 15] |= 1 << (i >> 12 & 7);
}

static void expect_marks(void)
{
	CHECK(!memcmp(z.log_view, z.marked, LOG_SIZE));
}

static void clear_log(void)
{
	memset(z.log_view, 0, LOG_SIZE);
	memset(z.marked, 0, LOG_SIZE);
}

static struct silt_memory *with_region(struct silt_memory *old, uint64_t gpa, uint64_t size)
{
	const struct silt_memory_region r = {
		.gpa = gpa, .size = size, .user_addr = gpa + 0x10000000, .mmap_offset = gpa};
	struct silt_memory *mem;

	CHECK(!silt_memory_add(old, &r, z.fd, &mem));
	silt_memory_put(old);
	return mem;
}

static void set_up_memory(void)
{
	int log_fd = memfd_create("log", MFD_CLOEXEC);

	z.fd = memfd_create("memory", MFD_CLOEXEC);
	CHECK(z.fd >= 0 && log_fd >= 0 && !ftruncate(z.fd, SIZE) && !ftruncate(log_fd, LOG_SIZE));
	z.view = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, z.fd, 0);
	z.log_view = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, log_fd, 0);
	CHECK(z.view != MAP_FAILED && z.log_view != MAP_FAILED);
	CHECK(!silt_memory_create(&z.mem));
	z.mem = with_region(with_region(z.mem, 0, CUT), CUT, SIZE - CUT);
	CHECK(!silt_log_map(log_fd, LOG_SIZE, 0, &z.log));
	close(log_fd);
	CHECK(!silt_access_add_range(z.view, SIZE) && !silt_access_install());
}

/* ---- Places ---------------------------------------------------------------------------------- */

static uint16_t step_place(uint16_t place)
{
	if ((place & ~WRAP) + 1u < z.layout.num)
		return place + 1;
	return place & WRAP ? 0 : WRAP;
}

static unsigned int steps_between(uint16_t from, uint16_t to)
{
	unsigned int n = 0;

	for (; from != to; from = step_place(from))
		CHECK(++n <= z.layout.num);
	return n;
}

/* ---- The other thread ------------------------------------------------------------------------ */

/* Changes descriptors and tables as fast as it can while it is told to. */
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
			off = state & 0x400000 ? DESC + (state >> 16) % 4800
					       : TABLE + (state >> 16) % 512;
			__atomic_store_n((uint16_t *)(z.view + (off & ~UINT64_C(1))),
					 state >> 8 & 0x8187, __ATOMIC_RELAXED);
		}
		pthread_mutex_lock(&z.race);
		z.racing = false;
		pthread_cond_broadcast(&z.raced);
		pthread_mutex_unlock(&z.race);
	}
	return NULL;
}

static void set_racing(bool on)
{
	__atomic_store_n(&z.race_over, !on, __ATOMIC_RELEASE);
	pthread_mutex_lock(&z.race);
	if (on)
		z.racing = true;
	pthread_cond_broadcast(&z.raced);
	while (!on && z.racing)
		pthread_cond_wait(&z.raced, &z.race);
	pthread_mutex_unlock(&z.race);
}

/* ---- Steps of the driver --------------------------------------------------------------------- */

static uint64_t take_address(unsigned int how)
{
	switch (how % 3) {
	case 0:
		return 0x6000 + take(2) % 0x6000;
	case 1:
		return CUT - 128 + take(1);
	default:
		return take(8);
	}
}

static uint16_t available(uint16_t place)
{
	return place & WRAP ? 1u << VRING_PACKED_DESC_F_AVAIL : 1u << VRING_PACKED_DESC_F_USED;
}

/* A list from where the device looks next, mostly as a driver may write it. */
static void step_offer(void)
{
	unsigned int how = take(1), n = 1 + (how & 3 ? how % 4 : take(1) % z.layout.num);
	uint16_t place = silt_virtq_last_avail(z.vq);
	unsigned int i;

	for (i = 0; i < n; i++, place = step_place(place)) {
		struct vring_packed_desc desc = {
			.addr = take_address(take(1)),
			.len = take(1) % 16 ? take(1) : take(4),
			.id = take(1) % (z.layout.num + 1),
			.flags = available(place) | (i + 1 < n ? VRING_DESC_F_NEXT : 0) |
				 (take(1) & VRING_DESC_F_WRITE),
		};

		if (n == 1 && how & 0x80) {
			desc.addr = TABLE;
			desc.len = 16 * (take(1) % 20) + (how >> 6 & 1);
			desc.flags |= VRING_DESC_F_INDIRECT;
		}
		poke(DESC + 16 * (place & ~WRAP), &desc, sizeof(desc));
	}
}

static void step_table(void)
{
	const struct vring_packed_desc desc = {
		.addr = take_address(take(1)), .len = take(1), .flags = take(2)};

	poke(TABLE + 16 * (take(1) % 20), &desc, sizeof(desc));
}

static void step_poke(void)
{
	uint64_t gpa = take(1) & 1 ? DESC + take(2) % 4800 : take(2) % (SIZE - 1);
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

static void pop(void)
{
	uint16_t before = silt_virtq_last_avail(z.vq);
	struct silt_virtq_elem *e;
	int ret = silt_virtq_pop(z.vq, &e);
	unsigned int i;

	CHECK(ret <= 1 && (!z.broken || ret < 0));
	z.broken = ret < 0;
	if (ret < 1) {
		CHECK(silt_virtq_last_avail(z.vq) == before);
		return;
	}
	CHECK(e->head < z.layout.num && e->nread + e->nwrite <= SILT_VIRTQ_MAX_SEGS);
	CHECK(e->read_len == check_segments(e, 0, e->nread));
	CHECK(e->write_len == check_segments(e, e->nread, e->nread + e->nwrite));
	for (i = 0; i < z.nheld; i++)
		CHECK(z.held[i].id != e->head);
	z.held[z.nheld++] =
		(struct held){.elem = e,
			      .id = e->head,
			      .ndescs = steps_between(before, silt_virtq_last_avail(z.vq)),
			      .write_len = e->write_len};
	CHECK(silt_virtq_inflight(z.vq) == z.nheld - z.npushed);
}

static struct held *take_held(void)
{
	unsigned int i, n = z.nheld - z.npushed, skip = n ? take(1) % n : 0;

	for (i = 0; n && (z.held[i].pushed || skip--); i++)
		;
	return n ? &z.held[i] : NULL;
}

static void step_write(void)
{
	struct held *h = take_held();
	uint8_t byte = take(1);
	unsigned int i;

	if (!h)
		return;
	for (i = h->elem->nread; i < h->elem->nread + h->elem->nwrite; i++) {
		uint64_t at, len = h->elem->iov[i].iov_len;

		memset(h->elem->iov[i].iov_base, byte, len);
		for (at = 0; at < len; at++)
			expect(h->elem->gpa[i] + at, &byte, 1, z.log_data);
	}
	silt_virtq_wrote(z.vq, h->elem, 0, UINT64_MAX);
}

static void drop_held(unsigned int i)
{
	z.staged[z.nstaged++] = z.held[i];
	memmove(&z.held[i], &z.held[i + 1], (--z.nheld - i) * sizeof(z.held[0]));
	z.npushed--;
}

static void push(struct held *h)
{
	h->used_len = take(1) & 1 ? h->write_len : take(4);
	silt_virtq_push(z.vq, h->elem, h->used_len);
	h->pushed = true;
	z.npushed++;
	if (!z.in_order)
		drop_held(h - z.held);
	while (z.in_order && z.nheld && z.held[0].pushed)
		drop_held(0);
}

static void publish(void)
{
	unsigned int i, last, n;

	for (i = 0; i < z.nstaged; i = last + 1) {
		uint64_t at = DESC + 16 * (z.used & ~WRAP) + 8;
		struct {
			uint32_t len;
			uint16_t id, flags;
		} tail;

		for (last = i; z.in_order && last + 1 < z.nstaged &&
			       z.staged[last].used_len == z.staged[last].write_len;)
			last++;
		tail.len = z.staged[last].used_len;
		tail.id = z.staged[last].id;
		tail.flags = (z.used & WRAP ? 0x8080 : 0) | (tail.len ? VRING_DESC_F_WRITE : 0);
		expect(at, &tail, sizeof(tail), z.log_used);
		for (n = i; n <= last; n++)
			for (; z.staged[n].ndescs; z.staged[n].ndescs--)
				z.used = step_place(z.used);
	}
	z.nstaged = 0;
	CHECK(silt_virtq_publish(z.vq) >= 0);
}

static void step_push(void)
{
	struct held *h = take_held();

	if (h)
		push(h);
	if (take(1) & 1)
		publish();
}

static void step_kicks(void)
{
	bool enable = take(1) & 1;
	uint32_t event =
		enable ? VRING_PACKED_EVENT_FLAG_ENABLE : VRING_PACKED_EVENT_FLAG_DISABLE << 16;

	if (enable && z.event_idx)
		event = silt_virtq_last_avail(z.vq) | VRING_PACKED_EVENT_FLAG_DESC << 16;
	if (z.event_idx ? enable : event != z.event) {
		expect(USED, &event, sizeof(event), z.log_used);
		z.event = event;
	}
	CHECK((enable ? silt_virtq_enable_kick(z.vq) : silt_virtq_disable_kick(z.vq)) >= 0);
}

static void set_log(unsigned int how)
{
	silt_virtq_set_log(z.vq, how & 4 ? NULL : z.log, how & 1, how & 2, take(8));
	expect_marks();
	z.log_data = (how & 5) == 1;
	z.log_used = (how & 6) == 2;
}

static void step_log(void)
{
	set_log(take(1));
}

static void restart(uint32_t base)
{
	z.broken = false;
	z.used = base >> 16;
	memcpy(&z.event, z.view + USED, sizeof(z.event));
	CHECK(!silt_virtq_start(z.vq, &z.layout, z.mem, base));
}

static uint32_t drain(void)
{
	uint32_t base;

	while (z.nheld)
		push(take_held());
	publish();
	base = silt_virtq_last_avail(z.vq) | (uint32_t)z.used << 16;
	CHECK(silt_virtq_stop(z.vq) == base);
	return base;
}

/* Not always at a place that fits what was there. */
static void step_restart(void)
{
	uint32_t base = drain();
	uint16_t place = take(2) % z.layout.num | (take(1) & 1 ? WRAP : 0);

	expect_marks();
	restart(take(1) & 3 ? base : place | (uint32_t)place << 16);
}

static void step_pop(void)
{
	pop();
	if (z.broken && take(1) & 3)
		step_restart();
}

/* Between two looks of one pop, anything may have changed. */
static void step_race(void)
{
	unsigned int i, n = take(1) % 32;

	while (z.nheld)
		push(take_held());
	publish();
	set_racing(true);
	for (i = 0; i < n && !z.broken; i++)
		pop();
	set_racing(false);
	memcpy(z.shadow, z.view, SIZE);
	restart(drain());
	memcpy(z.shadow, z.view, SIZE);
	clear_log();
}

/* ---- The driver end, whose device scribbles -------------------------------------------------- */

static void accept_driver(void)
{
	memcpy(z.shadow + DRIVER, z.view + DRIVER, 0x400);
}

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
	accept_driver();
}

static void step_driver_collect(void)
{
	uint64_t at = 16 * (take(1) % DRIVER_NUM) + 8 + take(1) % 8;
	uint8_t byte = take(1);
	unsigned int i, n = 0;
	void *token;
	uint32_t len;

	poke(DRIVER + at, &byte, 1);
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
	accept_driver();
}

/* ---- Programs -------------------------------------------------------------------------------- */

static const struct {
	void (*run)(void);
	unsigned int weight;
} steps[] = {
	{step_offer, 10}, {step_table, 3},   {step_pop, 8},	   {step_write, 5},
	{step_push, 6},	  {step_poke, 2},    {step_kicks, 2},	   {step_log, 1},
	{step_race, 1},	  {step_restart, 1}, {step_driver_add, 2}, {step_driver_collect, 3},
};

#define WEIGHTS 44

static void step(void)
{
	unsigned int i, n = take(1) % WEIGHTS;

	for (i = 0; n >= steps[i].weight; i++)
		n -= steps[i].weight;
	steps[i].run();
	CHECK(!memcmp(z.view, z.shadow, SIZE));
}

static void begin(void)
{
	unsigned int how = take(1);
	struct silt_virtq_layout layout;

	memset(z.view, 0, SIZE);
	memset(z.shadow, 0, SIZE);
	memset(z.with_device, 0, sizeof(z.with_device));
	clear_log();
	z.in_order = how & 1;
	z.event_idx = how & 2;
	z.layout = (struct silt_virtq_layout){
		.num = 1 + (how & 4 ? take(1) : take(1) % 8),
		.desc = z.view + DESC,
		.avail = z.view + AVAIL,
		.used = z.view + USED,
		.features = UINT64_C(1) << VIRTIO_F_RING_PACKED |
			    (uint64_t)z.in_order << VIRTIO_F_IN_ORDER |
			    (uint64_t)z.event_idx << VIRTIO_RING_F_EVENT_IDX |
			    (uint64_t)(how >> 3 & 1) << VIRTIO_RING_F_INDIRECT_DESC,
		.desc_gpa = DESC,
		.used_gpa = USED,
	};
	CHECK(!silt_virtq_create(&z.vq));
	restart(WRAP | (uint32_t)WRAP << 16);
	set_log(3);
	layout = z.layout;
	layout.num = DRIVER_NUM;
	layout.desc = z.view + DRIVER;
	layout.avail = z.view + DRIVER + 0x100;
	layout.used = z.view + DRIVER + 0x200;
	CHECK(!silt_driver_create(&layout, WRAP, &z.driver));
	accept_driver();
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
	for (n = 0; n < MAX_STEPS && z.at < z.end; n++)
		step();
	drain();
	silt_virtq_destroy(z.vq);
	silt_driver_destroy(z.driver);
	return 0;
}
