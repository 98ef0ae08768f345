/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver thread and a device thread on one ring, woken by eventfds and nothing else, while a
 * third harvests the log and copies what it says. Every request completes (no wake-up is lost) with
 * the right answer, and the copy ends equal to memory (no page is lost).
 */
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "support/rng.h"
#include "support/rounds.h"
#include "unit/virtq/guest.h"

#define DESC	 UINT64_C(0x11000)
#define AVAIL	 UINT64_C(0x13000)
#define USED	 UINT64_C(0x15800) /* straddles pages from 256 descriptors on */
#define REQUESTS UINT64_C(0x28000)
#define ANSWERS	 UINT64_C(0x30000)
#define SLOTS	 256
#define STRIDE	 256 /* bytes from answer to answer */
#define HANG_MS	 60000

#define PACKED_BASE (SILT_VIRTQ_PACKED_START | (uint32_t)SILT_VIRTQ_PACKED_START << 16)

struct pair {
	struct guest guest;
	struct guest_ring ring;
	unsigned int total;
	bool packed;
	bool logged; /* without a log no mark adds a fence */
	int kick, call;
	bool done;     /* the driver has all answers: the device may end */
	bool finished; /* so has the device: the harvester may */
	uint8_t *copy; /* of low memory, from DESC on */
	uint64_t bits[GUEST_LOG_SIZE / 8 + 1];
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (%s)\n", silt_errmsg());
	exit(1);
}

static int must(int ret, const char *what)
{
	if (ret < 0)
		die("%s: %d", what, ret);
	return ret;
}

static void wake(int fd)
{
	const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		die("eventfd write");
}

/* The time bounds only how long a lost wake-up can hang the test. */
static void sleep_on(int fd, const char *who)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t count;

	if (poll(&p, 1, HANG_MS) != 1)
		die("the %s's wake-up was lost", who);
	if (read(fd, &count, sizeof(count)) != sizeof(count))
		die("eventfd read");
}

/* A few instructions, or some dozens: so that one end's last look meets the other's store. */
static void dawdle(struct rng *rng)
{
	volatile unsigned int turns = rng_below(rng, 64);

	while (turns)
		turns--;
}

static uint64_t answer_to(uint64_t request, unsigned int i)
{
	return (request + i) * UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- The device ------------------------------------------------------------------------------ */

static void serve(struct silt_virtq *vq, struct silt_virtq_elem *elem)
{
	uint64_t request, answer[STRIDE / 8];
	unsigned int i;

	must(silt_virtq_read(vq, elem, 0, &request, sizeof(request)), "read");
	for (i = 0; i < STRIDE / 8; i++)
		answer[i] = answer_to(request, i);
	must(silt_virtq_write(vq, elem, 0, answer, elem->write_len), "write");
	silt_virtq_push(vq, elem, elem->write_len);
}

static void publish(const struct pair *p, struct silt_virtq *vq)
{
	if (must(silt_virtq_publish(vq), "publish"))
		wake(p->call);
}

static void *run_device(void *arg)
{
	struct pair *p = arg;
	struct rng rng = rng_make(1);
	struct silt_virtq_elem *elem;
	struct silt_virtq *vq;

	must(silt_virtq_create(&vq), "create");
	must(silt_virtq_start(vq, &p->ring.device, p->guest.mem, p->packed ? PACKED_BASE : 0),
	     "start");
	if (p->logged)
		silt_virtq_set_log(vq, p->guest.log, true, true, USED);
	while (!__atomic_load_n(&p->done, __ATOMIC_ACQUIRE)) {
		while (must(silt_virtq_pop(vq, &elem), "pop")) {
			if (rng_one_in(&rng, 8))
				must(silt_virtq_disable_kick(vq), "disable kick");
			serve(vq, elem);
			if (rng_one_in(&rng, 3))
				publish(p, vq);
		}
		publish(p, vq);
		dawdle(&rng);
		if (!must(silt_virtq_enable_kick(vq), "enable kick"))
			sleep_on(p->kick, "device");
	}
	silt_virtq_stop(vq);
	silt_virtq_destroy(vq);
	__atomic_store_n(&p->finished, true, __ATOMIC_RELEASE);
	return NULL;
}

/* ---- The driver ------------------------------------------------------------------------------ */

struct driver {
	struct pair *p;
	struct silt_driver *d;
	uint64_t request[SLOTS];
	bool busy[SLOTS];
	unsigned int sent, done;
};

static uint64_t slot_gpa(uint64_t area, unsigned int slot)
{
	return area + slot * STRIDE;
}

/* Return: false if the ring is full or all is sent. */
static bool send_one(struct driver *d)
{
	unsigned int slot = 0;
	struct silt_driver_seg segs[2];
	uint64_t *request;

	if (d->sent == d->p->total || silt_driver_inflight(d->d) == d->p->ring.num / 2)
		return false;
	while (d->busy[slot])
		slot++;
	request = guest_hva(&d->p->guest, slot_gpa(REQUESTS, slot));
	*request = d->request[slot] = d->sent;
	segs[0] = (struct silt_driver_seg){slot_gpa(REQUESTS, slot), sizeof(*request), false};
	segs[1] = (struct silt_driver_seg){slot_gpa(ANSWERS, slot), STRIDE, true};
	must(silt_driver_add(d->d, segs, 2, NULL, 0, &d->request[slot]), "add");
	d->busy[slot] = true;
	d->sent++;
	return true;
}

static bool take_one(struct driver *d)
{
	const uint64_t *answer;
	unsigned int slot, i;
	uint32_t len;
	void *token;

	if (!must(silt_driver_collect(d->d, &token, &len), "collect"))
		return false;
	slot = (uint64_t *)token - d->request;
	answer = guest_hva(&d->p->guest, slot_gpa(ANSWERS, slot));
	for (i = 0; i < STRIDE / 8; i++)
		if (len != STRIDE || answer[i] != answer_to(d->request[slot], i))
			die("request %u was answered wrongly", (unsigned int)d->request[slot]);
	d->busy[slot] = false;
	d->done++;
	return true;
}

static void publish_requests(struct driver *d)
{
	if (must(silt_driver_publish(d->d), "publish requests"))
		wake(d->p->kick);
}

/* Now and then do not sleep: the next request then comes while the device goes to sleep. */
static bool poll_for_one(struct driver *d, struct rng *rng)
{
	unsigned int turns = rng_one_in(rng, 2) ? rng_below(rng, 4000) : 0;

	while (turns--)
		if (take_one(d))
			return true;
	dawdle(rng);
	return false;
}

static void run_driver(struct driver *d)
{
	struct rng rng = rng_make(2);

	while (d->done < d->p->total) {
		while (send_one(d))
			if (rng_one_in(&rng, 4))
				publish_requests(d);
		publish_requests(d);
		if (rng_one_in(&rng, 4))
			must(silt_driver_disable_call(d->d), "disable call");
		while (take_one(d))
			if (rng_one_in(&rng, 4))
				send_one(d);
		publish_requests(d);
		if (poll_for_one(d, &rng))
			continue;
		if (silt_driver_inflight(d->d) &&
		    !must(silt_driver_enable_call(d->d), "enable call"))
			sleep_on(d->p->call, "driver");
	}
}

/* ---- The harvester --------------------------------------------------------------------------- */

static void harvest(struct pair *p)
{
	uint64_t page;

	if (silt_log_harvest(p->guest.log, p->bits) < 0)
		die("harvest");
	for (page = DESC >> 12; page < (ANSWERS + SLOTS * STRIDE) >> 12; page++) {
		uint64_t gpa = page << 12;

		if (!silt_bitmap_test(p->bits, page))
			continue;
		silt_bitmap_clear(p->bits, page);
		if (!silt_access_copy(p->copy + (gpa - GUEST_LOW), guest_hva(&p->guest, gpa), 4096))
			die("page copy");
	}
}

static void *run_harvester(void *arg)
{
	struct pair *p = arg;

	while (!__atomic_load_n(&p->finished, __ATOMIC_ACQUIRE))
		harvest(p);
	harvest(p);
	return NULL;
}

static void compare(const struct pair *p, uint64_t from, uint64_t to)
{
	if (memcmp(p->copy + (from - GUEST_LOW), guest_hva(&p->guest, from), to - from))
		die("the copy of %#llx to %#llx is stale", (unsigned long long)from,
		    (unsigned long long)to);
}

/* ---- One run --------------------------------------------------------------------------------- */

/* What the device stored is what is used now; the driver's own stores are in no log. */
static void compare_descs(const struct pair *p)
{
	const struct vring_packed_desc *desc = (void *)guest_hva(&p->guest, DESC);
	unsigned int i;

	for (i = 0; i < p->ring.num; i++)
		if (!(desc[i].flags >> VRING_PACKED_DESC_F_AVAIL & 1) ==
		    !(desc[i].flags >> VRING_PACKED_DESC_F_USED & 1))
			compare(p, DESC + 16 * i + 8, DESC + 16 * i + 16);
}

static void compare_ring(const struct pair *p)
{
	if (p->packed)
		compare_descs(p);
	compare(p, USED,
		USED + (p->packed ? SILT_VIRTQ_EVENT_SIZE : silt_virtq_used_size(p->ring.num)));
}

static void run(uint16_t num, uint64_t features, bool logged, unsigned int total)
{
	static struct pair p;
	struct driver d = {.p = &p};
	pthread_t device, harvester;

	memset(&p, 0, sizeof(p));
	guest_open(&p.guest);
	guest_place_ring(&p.guest, &p.ring, num, DESC, AVAIL, USED, features);
	p.packed = features >> VIRTIO_F_RING_PACKED & 1;
	p.total = total;
	p.logged = logged;
	p.kick = must(eventfd(0, EFD_CLOEXEC), "eventfd");
	p.call = must(eventfd(0, EFD_CLOEXEC), "eventfd");
	p.copy = calloc(1, GUEST_LOW_SIZE);
	/* Both ends use one mapping, so that a race detector sees them meet. */
	must(silt_driver_create(&p.ring.device, p.packed ? SILT_VIRTQ_PACKED_START : 0, &d.d),
	     "driver");
	if (!p.copy || pthread_create(&device, NULL, run_device, &p) ||
	    pthread_create(&harvester, NULL, run_harvester, &p))
		die("set-up");

	run_driver(&d);
	__atomic_store_n(&p.done, true, __ATOMIC_RELEASE);
	wake(p.kick);
	pthread_join(device, NULL);
	pthread_join(harvester, NULL);
	if (logged) {
		compare_ring(&p);
		compare(&p, ANSWERS, ANSWERS + SLOTS * STRIDE);
	}

	silt_driver_destroy(d.d);
	free(p.copy);
	close(p.kick);
	close(p.call);
	guest_close(&p.guest);
}

int main(int argc, char **argv)
{
	unsigned int total = argc > 1 ? (unsigned int)atoi(argv[1]) : rounds(3000);
	unsigned int mode;

	for (mode = 0; mode < 16; mode++) {
		uint64_t features = (uint64_t)(mode & 1) << VIRTIO_RING_F_EVENT_IDX |
				    (uint64_t)(mode >> 2 & 1) << VIRTIO_F_RING_PACKED |
				    (uint64_t)(mode >> 3 & 1) << VIRTIO_F_IN_ORDER;

		run(2, features, mode & 2, total);
		run(mode & 4 ? 11 : 8, features, mode & 2, total);
		run(256, features, mode & 2, total);
	}
	return 0;
}
