/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a ring publishes at the moment in which the other goes to sleep: either the first is
 * told to wake the second, or the second sees that something came. An end that looks at the other's
 * field without a full fence behind the store of its own fails this.
 */
#include <string.h>

#include <linux/virtio_ring.h>

#include "conc/log/common.h"
#include "support/rng.h"
#include "unit/virtq/guest.h"

#define DESC   UINT64_C(0x11000)
#define AVAIL  UINT64_C(0x12000)
#define USED   UINT64_C(0x13000)
#define BUF    UINT64_C(0x28000)
#define COLD   (UINT64_C(1) << 22) /* words of memory that no cache holds */
#define ROUNDS 5000

struct shared {
	struct guest guest;
	struct guest_ring ring;
	struct silt_virtq *vq;
	struct silt_driver *driver;
	unsigned int round; /* begun */
	unsigned int done;  /* ended by the device */
	int (*act)(struct silt_virtq *vq);
	int told; /* what that said */
	uint64_t cold[COLD];
};

/* Stores that take long: the one that counts waits behind them while later loads go ahead. */
static void fill_store_buffer(struct shared *s, struct rng *rng)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		__atomic_store_n(&s->cold[rng_below(rng, COLD)], i, __ATOMIC_RELAXED);
}

static void *device(void *arg)
{
	struct shared *s = arg;
	struct rng rng = rng_make(2);
	unsigned int total = 2 * rounds(ROUNDS), round;

	take_cpus(false);
	for (round = 1; round <= total; round++) {
		wait_for(&s->round, round);
		fill_store_buffer(s, &rng);
		s->told = s->act(s->vq);
		__atomic_store_n(&s->done, round, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* The device's @act against the driver's; between races the ring is this thread's alone. */
static void race(struct shared *s, struct rng *rng, unsigned int round,
		 int (*act)(struct silt_virtq *), int (*driver_act)(struct silt_driver *))
{
	unsigned int wait = (unsigned int)rng_below(rng, 600);
	int told;

	s->act = act;
	__atomic_store_n(&s->round, round, __ATOMIC_RELEASE);
	while (wait--)
		__asm__ volatile("" : : : "memory");
	fill_store_buffer(s, rng);
	told = driver_act(s->driver);
	wait_for(&s->done, round);
	must(told >= 0 && s->told >= 0);
	if (!told && !s->told) {
		fprintf(stderr, "round %u: a wake-up was lost\n", round);
		exit(1);
	}
}

static void add(struct shared *s)
{
	const struct silt_driver_seg seg = {BUF, 16, true};

	must(silt_driver_add(s->driver, &seg, 1, NULL, 0, s) >= 0);
}

static void take(struct shared *s)
{
	struct silt_virtq_elem *elem;

	must(silt_virtq_pop(s->vq, &elem) == 1);
	silt_virtq_push(s->vq, elem, 0);
}

static void collect(struct shared *s)
{
	uint32_t len;
	void *token;

	must(silt_driver_collect(s->driver, &token, &len) == 1);
}

/* The driver publishes, the device goes to sleep. */
static void race_kick(struct shared *s, struct rng *rng, unsigned int round)
{
	must(!silt_virtq_disable_kick(s->vq));
	add(s);
	race(s, rng, round, silt_virtq_enable_kick, silt_driver_publish);
	take(s);
	must(silt_virtq_publish(s->vq) >= 0);
	collect(s);
}

/* The device publishes, the driver goes to sleep. */
static void race_call(struct shared *s, struct rng *rng, unsigned int round)
{
	must(!silt_driver_disable_call(s->driver));
	add(s);
	must(silt_driver_publish(s->driver) >= 0);
	take(s);
	race(s, rng, round, silt_virtq_publish, silt_driver_enable_call);
	collect(s);
}

/* Rounds from @first on. */
static void run(struct shared *s, unsigned int first, uint64_t features)
{
	struct rng rng = rng_make(1);
	unsigned int end = first + rounds(ROUNDS), round;

	guest_open(&s->guest);
	guest_place_ring(&s->guest, &s->ring, 8, DESC, AVAIL, USED, features);
	must(!silt_driver_create(&s->ring.device, 0, &s->driver));
	must(!silt_virtq_create(&s->vq));
	must(!silt_virtq_start(s->vq, &s->ring.device, s->guest.mem, 0));
	for (round = first; round < end; round++) {
		if (round % 2)
			race_kick(s, &rng, round);
		else
			race_call(s, &rng, round);
	}
	silt_virtq_destroy(s->vq);
	silt_driver_destroy(s->driver);
	guest_close(&s->guest);
}

int main(void)
{
	static struct shared s;
	pthread_t thread;

	memset(s.cold, 1, sizeof(s.cold));
	must(!pthread_create(&thread, NULL, device, &s));
	take_cpus(true);
	run(&s, 1, 0);
	run(&s, 1 + rounds(ROUNDS), UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX);
	pthread_join(thread, NULL);
	return 0;
}
