/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device is killed between any two of its stores. Random programs run it; what shared memory
 * holds ahead of each store is kept, and from each such state a new device takes over. The driver
 * must get each request back exactly once, in which the device begins them in the order in which
 * the driver made them available, and a monitor that harvests the log at any time must end up with
 * memory as it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_ring.h>

#include <silt/silt.h>

#include "log/log_internal.h"
#include "stores.h"
#include "support/proc.h"
#include "support/rng.h"
#include "virtq/inflight.h"

#define PAGE 4096
#define NUM  16

/* Each request has two descriptors, its head being the even one. */
#define REQUESTS 6
#define DATA	 40 /* bytes that the device stores, over the end of a page */

/* Offsets in guest memory. The used ring straddles two pages, each buffer has two of its own. */
#define DESC	   0
#define AVAIL	   0x800
#define USED	   (2 * PAGE - 60)
#define HEADERS	   (3 * PAGE)
#define BUFFER(i)  ((5 + 2 * (i)) * PAGE - DATA / 2)
#define GUEST_SIZE ((4 + 2 * REQUESTS) * PAGE)

/* What is shared: guest memory, the dirty log, the inflight region. */
#define LOG_AT	    GUEST_SIZE
#define REGION_AT   (LOG_AT + PAGE)
#define SHARED_SIZE (REGION_AT + PAGE)
#define REGION_SIZE silt_virtq_inflight_size(NUM)

#define GPA	 UINT64_C(0x10000)
#define LOG_SIZE ((GPA + GUEST_SIZE) / PAGE / 8 + 1)

#define PROGRAMS   50
#define PHASES	   6
#define STEPS	   24
#define MAX_STATES 400

/* Memory as the dead device leaves it, and as far as the monitor has copied it. */
struct state {
	uint8_t shared[SHARED_SIZE];
	uint8_t copied[GUEST_SIZE];
};

/* What the driver knows. */
struct driver {
	uint16_t avail_idx, used_idx;
	unsigned int norder;
	uint16_t order[REQUESTS]; /* requests that the device holds, as they were made available */
	uint8_t pattern[REQUESTS];
};

struct world {
	struct rng rng;
	int fd;
	uint8_t *shared; /* the driver's and the monitor's view */
	uint8_t *copied;
	struct driver driver;
	struct silt_memory *mem;
	struct silt_log *log;
	struct silt_inflight_region *region; /* the device's view */
	struct silt_virtq_layout layout;
	struct state *states;
	unsigned int nstates;
};

/* The device's end. */
struct device {
	struct silt_virtq *vq;
	unsigned int npopped;
	struct silt_virtq_elem *popped[REQUESTS];
	uint32_t stored[REQUESTS]; /* bytes of data stored so far */
};

static uint64_t below(struct world *w, uint64_t n)
{
	return rng_below(&w->rng, n);
}

static uint16_t load16(const struct world *w, uint64_t off)
{
	uint16_t val;

	memcpy(&val, w->shared + off, sizeof(val));
	return val;
}

/* ---- The monitor ----------------------------------------------------------------------------- */

/* The CPU's own stores are none of the log's business: they are copied at once. */
static void cpu_store(struct world *w, uint64_t off, const void *buf, uint64_t len)
{
	memcpy(w->shared + off, buf, len);
	memcpy(w->copied + off, buf, len);
}

static void harvest(struct world *w)
{
	uint8_t *log = w->shared + LOG_AT;

	for (uint64_t page = 0; page < GUEST_SIZE / PAGE; page++) {
		uint64_t bit = GPA / PAGE + page;

		if (!(log[bit / 8] >> bit % 8 & 1))
			continue;
		log[bit / 8] &= ~(1 << bit % 8);
		memcpy(w->copied + page * PAGE, w->shared + page * PAGE, PAGE);
	}
}

static void expect_all_copied(const struct world *w)
{
	for (uint64_t page = 0; page < GUEST_SIZE / PAGE; page++)
		if (memcmp(w->copied + page * PAGE, w->shared + page * PAGE, PAGE))
			fail_msg("page %u of guest memory changed and was not marked",
				 (unsigned int)page);
}

/* ---- The driver ------------------------------------------------------------------------------ */

static void add_request(struct world *w, uint16_t i)
{
	struct driver *d = &w->driver;
	const uint16_t head = 2 * i;
	const struct vring_desc desc[2] = {
		{GPA + HEADERS + i, 1, VRING_DESC_F_NEXT, head + 1},
		{GPA + BUFFER(i), DATA, VRING_DESC_F_WRITE, 0},
	};
	uint8_t poison[DATA];

	d->pattern[i] = 1 + below(w, 255);
	memset(poison, ~d->pattern[i], DATA);
	cpu_store(w, HEADERS + i, &d->pattern[i], 1);
	cpu_store(w, BUFFER(i), poison, DATA);
	cpu_store(w, DESC + 16 * head, desc, sizeof(desc));
	cpu_store(w, AVAIL + 4 + 2 * (d->avail_idx % NUM), &head, sizeof(head));
	d->avail_idx++;
	d->order[d->norder++] = i;
}

static bool is_held(const struct driver *d, uint16_t i)
{
	for (unsigned int j = 0; j < d->norder; j++)
		if (d->order[j] == i)
			return true;
	return false;
}

static void add_requests(struct world *w)
{
	for (uint16_t i = 0; i < REQUESTS; i++)
		if (!is_held(&w->driver, i) && below(w, 4))
			add_request(w, i);
	cpu_store(w, AVAIL + 2, &w->driver.avail_idx, 2);
}

static void expect_data(const struct world *w, uint16_t i)
{
	for (unsigned int j = 0; j < DATA; j++)
		if (w->shared[BUFFER(i) + j] != w->driver.pattern[i])
			fail_msg("request %u was completed half done: byte %u", i, j);
}

/* Take what was used from the driver @d; check the data of what is @whole. */
static void collect(const struct world *w, struct driver *d, bool whole)
{
	uint32_t id;
	unsigned int j;

	for (; d->used_idx != load16(w, USED + 2); d->used_idx++) {
		memcpy(&id, w->shared + USED + 4 + 8 * (d->used_idx % NUM), sizeof(id));
		for (j = 0; j < d->norder && 2 * d->order[j] != id; j++)
			;
		if (j == d->norder)
			fail_msg("head %u was completed and is not held by the device", id);
		if (whole)
			expect_data(w, d->order[j]);
		memmove(&d->order[j], &d->order[j + 1], (d->norder - j - 1) * sizeof(d->order[0]));
		d->norder--;
	}
}

/* ---- The device ------------------------------------------------------------------------------ */

/* Return: what silt_virtq_set_inflight() says. */
static int device_start(struct world *w, struct device *dev, uint16_t base)
{
	int ret;

	*dev = (struct device){.npopped = 0};
	assert_int_equal(silt_virtq_create(&dev->vq), 0);
	assert_int_equal(silt_virtq_start(dev->vq, &w->layout, w->mem, base), 0);
	ret = silt_virtq_set_inflight(dev->vq, w->region, NUM);
	if (ret < 0)
		fail_msg("%s", silt_errmsg());
	silt_virtq_set_log(dev->vq, w->log, true, true, GPA + USED);
	return ret;
}

static bool device_pop(struct device *dev)
{
	struct silt_virtq_elem *elem;
	int ret = silt_virtq_pop(dev->vq, &elem);

	if (ret < 0)
		fail_msg("%s", silt_errmsg());
	if (!ret)
		return false;
	dev->stored[dev->npopped] = 0;
	dev->popped[dev->npopped++] = elem;
	return true;
}

static void device_store(struct device *dev, unsigned int j, uint32_t len)
{
	struct silt_virtq_elem *elem = dev->popped[j];
	uint32_t off = dev->stored[j];
	uint8_t data[DATA];

	assert_int_equal(silt_virtq_read(dev->vq, elem, 0, data, 1), 0);
	memset(data, data[0], DATA);
	assert_int_equal(silt_virtq_write(dev->vq, elem, off, data, len), 0);
	dev->stored[j] += len;
}

static void device_push(struct device *dev, unsigned int j)
{
	silt_virtq_push(dev->vq, dev->popped[j], dev->stored[j]);
	dev->npopped--;
	dev->popped[j] = dev->popped[dev->npopped];
	dev->stored[j] = dev->stored[dev->npopped];
}

/* Forget everything, as death does; what is left in memory of its own is given back aside. */
static void device_die(struct device *dev)
{
	uint8_t scratch[6 + 8 * NUM] __attribute__((aligned(4)));
	struct silt_virtq *vq = dev->vq;

	vq->writer.npending = 0;
	silt_virtq_set_log(vq, NULL, false, false, 0);
	vq->record.region = NULL;
	vq->ring.used = (struct vring_used *)scratch;
	while (dev->npopped)
		device_push(dev, 0);
	silt_virtq_destroy(vq);
}

static void device_step(struct world *w, struct device *dev)
{
	unsigned int j = dev->npopped ? below(w, dev->npopped) : 0;
	uint32_t left = dev->npopped ? DATA - dev->stored[j] : 0;

	switch (below(w, 16)) {
	case 0 ... 4:
		device_pop(dev);
		break;
	case 5 ... 8:
		if (left)
			device_store(dev, j, 1 + below(w, left));
		break;
	case 9 ... 11:
		if (left)
			device_store(dev, j, left);
		if (dev->npopped)
			device_push(dev, j);
		break;
	case 12 ... 13:
		assert_true(silt_virtq_publish(dev->vq) >= 0);
		break;
	case 14:
		assert_true(silt_virtq_disable_kick(dev->vq) >= 0);
		assert_true(silt_virtq_enable_kick(dev->vq) >= 0);
		break;
	case 15:
		if (below(w, 3))
			break;
		device_die(dev);
		assert_int_equal(device_start(w, dev, load16(w, USED + 2)), 1);
		break;
	}
}

/* ---- Death and what comes after -------------------------------------------------------------- */

static void keep_state(void *arg)
{
	struct world *w = arg;
	struct state *s = &w->states[w->nstates];

	if (w->nstates == MAX_STATES)
		abort();
	w->nstates++;
	memcpy(s->shared, w->shared, SHARED_SIZE);
	memcpy(s->copied, w->copied, GUEST_SIZE);
	if (!below(w, 10))
		harvest(w);
}

static void restore(struct world *w, const struct state *s)
{
	memcpy(w->shared, s->shared, SHARED_SIZE);
	memcpy(w->copied, s->copied, GUEST_SIZE);
}

/* All that the device holds comes in order, nothing else does. */
static void pop_all(struct device *dev, const struct driver *d)
{
	for (unsigned int j = 0; device_pop(dev); j++) {
		if (j == d->norder || dev->popped[j]->head != 2 * d->order[j])
			fail_msg("buffer %u of %u that the device takes is head %u", j, d->norder,
				 dev->popped[j]->head);
	}
	if (dev->npopped != d->norder)
		fail_msg("%u requests are lost", d->norder - dev->npopped);
	assert_int_equal(silt_virtq_resubmits(dev->vq), 0);
}

static void expect_settled(const struct world *w)
{
	assert_int_equal(w->region->used_idx, load16(w, USED + 2));
	for (unsigned int i = 0; i < NUM; i++)
		assert_int_equal(w->region->desc[i].inflight, 0);
}

/* Finish, in any order, storing the data or (requests fail) nothing. */
static void finish(struct world *w, struct device *dev, bool succeed)
{
	while (dev->npopped) {
		unsigned int j = below(w, dev->npopped);

		if (succeed)
			device_store(dev, j, DATA);
		device_push(dev, j);
		if (below(w, 2))
			assert_true(silt_virtq_publish(dev->vq) >= 0);
	}
	assert_int_equal(silt_virtq_stop(dev->vq), w->driver.avail_idx);
	silt_virtq_destroy(dev->vq);
}

static void check_state(struct world *w, const struct state *s, bool succeed)
{
	struct driver d = w->driver;
	struct device dev;
	uint16_t base;

	restore(w, s);
	collect(w, &d, true);
	if (below(w, 2))
		harvest(w);
	/* What a frontend that lost its backend says here is of no use. */
	base = w->region->version && below(w, 2) ? below(w, 65536) : d.used_idx;
	device_start(w, &dev, base);
	pop_all(&dev, &d);
	finish(w, &dev, succeed);
	collect(w, &d, succeed);
	assert_int_equal(d.norder, 0);
	expect_settled(w);
	harvest(w);
	expect_all_copied(w);
}

static void check_states(struct world *w)
{
	struct state *end;

	keep_state(w);
	end = &w->states[w->nstates - 1];
	for (unsigned int i = 0; i < w->nstates; i++) {
		check_state(w, &w->states[i], true);
		check_state(w, &w->states[i], false);
	}
	restore(w, end);
	w->nstates = 0;
}

/* ---- Programs -------------------------------------------------------------------------------- */

static void *map(int fd, uint64_t off, uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void make_memory(struct world *w)
{
	const struct silt_memory_region r = {.gpa = GPA, .size = GUEST_SIZE, .user_addr = GPA};
	struct silt_memory *empty;

	assert_int_equal(silt_memory_create(&empty), 0);
	assert_int_equal(silt_memory_add(empty, &r, w->fd, &w->mem), 0);
	silt_memory_put(empty);
}

static void open_world(struct world *w)
{
	char *hva;

	w->fd = proc_memfd("world", SHARED_SIZE);
	w->shared = map(w->fd, 0, SHARED_SIZE);
	w->region = map(w->fd, REGION_AT, PAGE);
	w->copied = malloc(GUEST_SIZE);
	w->states = malloc(MAX_STATES * sizeof(*w->states));
	assert_non_null(w->copied);
	assert_non_null(w->states);
	make_memory(w);
	assert_int_equal(silt_log_map(w->fd, LOG_SIZE, LOG_AT, &w->log), 0);
	hva = silt_memory_region(w->mem, 0)->hva;
	w->layout = (struct silt_virtq_layout){
		.num = NUM, .desc = hva + DESC, .avail = hva + AVAIL, .used = hva + USED};
	stores_watch(hva, GUEST_SIZE);
	stores_watch(w->log->words, PAGE);
	stores_watch(w->region, PAGE);
}

static void close_world(struct world *w)
{
	silt_log_put(w->log);
	silt_memory_put(w->mem);
	munmap(w->region, PAGE);
	munmap(w->shared, SHARED_SIZE);
	close(w->fd);
	free(w->copied);
	free(w->states);
}

static void begin_program(struct world *w, unsigned int seed)
{
	w->rng = rng_make(seed);
	memset(w->shared, 0, SHARED_SIZE);
	memset(w->copied, 0, GUEST_SIZE);
	w->driver = (struct driver){.avail_idx = seed % 2 ? 65520 : below(w, 65536)};
	w->driver.used_idx = w->driver.avail_idx;
	cpu_store(w, USED + 2, &w->driver.used_idx, 2);
	cpu_store(w, AVAIL + 2, &w->driver.avail_idx, 2);
}

static void run_program(struct world *w, unsigned int seed)
{
	struct device dev;

	begin_program(w, seed);
	for (unsigned int phase = 0; phase < PHASES; phase++) {
		add_requests(w);
		stores_begin(keep_state, w);
		if (!phase)
			device_start(w, &dev, w->driver.used_idx);
		for (unsigned int i = 0; i < STEPS; i++) {
			device_step(w, &dev);
			if (!STORES_SEEN)
				keep_state(w);
		}
		stores_end();
		check_states(w);
		collect(w, &w->driver, true);
	}
	device_die(&dev);
}

static void test_killed_anywhere(void **state)
{
	static struct world w;

	(void)state;
	open_world(&w);
	for (unsigned int seed = 1; seed <= PROGRAMS; seed++)
		run_program(&w, seed);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
