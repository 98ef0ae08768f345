/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_blk.h>
#include <pthread.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/blk.h"
#include "check/hostile_rig.h"

/*
 * A guest that rewrites what it has handed over, while the device reads it, uses it, or thinks that
 * it has checked it. One thread changes one field of all requests to and fro, as fast as it can,
 * while ordinary requests run; what stays the case for a while is chance, so there are many.
 */

#define ROUNDS	12 /* connections */
#define BATCHES 4  /* of requests in each, as long as the queue lives */

enum {
	FIELD_ADDRESS,	/* to other memory that the device may write to */
	FIELD_OUTSIDE,	/* to no memory */
	FIELD_LENGTH,	/* to less */
	FIELD_HUGE,	/* to 4 GiB */
	FIELD_WRITABLE, /* whether the device may write */
	FIELD_NEXT,	/* to a loop */
	FIELD_INDIRECT, /* to a table */
	FIELD_HEAD,	/* of the available ring */
	FIELD_SECTOR,	/* of the request, to beyond the disk */
};

static const char *const field_values[] = {"address", "outside",  "length", "huge",  "writable",
					   "next",    "indirect", "head",   "sector"};
static const char *const log_values[] = {"unlogged", "logged"};

struct flipper {
	struct check_hostile *h;
	bool stop;
	pthread_t thread;
};

static void store16(__virtio16 *p, uint16_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static void store32(__virtio32 *p, uint32_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static void store64(__virtio64 *p, uint64_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static void flip_head(struct check_hostile *h, unsigned int i, bool bad)
{
	struct vring_avail *avail = check_guest_mem(&h->world.guest, h->session.queue[0].avail);

	store16(&avail->ring[i], bad ? UINT16_MAX : 3 * i);
}

static void flip_sector(struct check_hostile *h, unsigned int i, bool bad)
{
	struct virtio_blk_outhdr *hdr = check_guest_mem(&h->world.guest, h->header);

	store64(&hdr[i].sector,
		bad ? UINT64_C(1) << 60 : check_blk_disk_of(h->env)->reads.start / BLK_SECTOR);
}

/* One field of request @i, for the worse or back. */
static void flip(struct check_hostile *h, unsigned int i, bool bad)
{
	struct vring_desc *data = check_hostile_desc(h, 3 * i + 1);
	uint64_t good = h->data + i * HOSTILE_LOAD_LEN;
	uint64_t other = h->data + HOSTILE_LOAD * HOSTILE_LOAD_LEN;

	switch (check_hostile_value(h, 0)) {
	case FIELD_ADDRESS:
		store64(&data->addr, bad ? other : good);
		break;
	case FIELD_OUTSIDE:
		store64(&data->addr, bad ? UINT64_C(1) << 46 : good);
		break;
	case FIELD_LENGTH:
		store32(&data->len, bad ? BLK_SECTOR : HOSTILE_LOAD_LEN);
		break;
	case FIELD_HUGE:
		store32(&data->len, bad ? UINT32_MAX : HOSTILE_LOAD_LEN);
		break;
	case FIELD_WRITABLE:
		store16(&data->flags, VRING_DESC_F_NEXT | (bad ? 0 : VRING_DESC_F_WRITE));
		break;
	case FIELD_NEXT:
		store16(&data->next, bad ? 3 * i + 1 : 3 * i + 2);
		break;
	case FIELD_INDIRECT:
		store16(&data->flags,
			bad ? VRING_DESC_F_INDIRECT : VRING_DESC_F_NEXT | VRING_DESC_F_WRITE);
		break;
	case FIELD_HEAD:
		flip_head(h, i, bad);
		break;
	case FIELD_SECTOR:
		flip_sector(h, i, bad);
		break;
	}
}

static void flip_all(struct check_hostile *h, bool bad)
{
	unsigned int i;

	for (i = 0; i < HOSTILE_LOAD; i++)
		flip(h, i, bad);
}

static void *flipper_main(void *arg)
{
	struct flipper *f = arg;

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		flip_all(f->h, true);
		flip_all(f->h, false);
	}
	return NULL;
}

static void run_batches(struct check_hostile *h)
{
	enum check_verdict seen = CHECK_CORRECT;
	unsigned int i;

	for (i = 0; i < BATCHES && seen == CHECK_CORRECT; i++) {
		check_hostile_load(h, HOSTILE_LOAD);
		seen = check_hostile_watch(h);
	}
}

static bool run_round(struct check_hostile *h)
{
	struct flipper f = {.h = h};

	if (!check_hostile_reach(h, HOSTILE_RUNNING, check_hostile_value(h, 1)))
		return false;
	if (pthread_create(&f.thread, NULL, flipper_main, &f)) {
		silt_err_sys(EAGAIN, "cannot start a thread");
		check_hostile_failed(h);
		return false;
	}
	run_batches(h);
	__atomic_store_n(&f.stop, true, __ATOMIC_RELAXED);
	pthread_join(f.thread, NULL);
	return true;
}

static void rewrite_run(struct check_hostile *h)
{
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		if (i && !check_hostile_reconnect(h))
			break;
		if (!run_round(h))
			break;
	}
}

const struct check_hostile_group check_hostile_rewrite = {
	.name = "rewrite",
	.about = "a guest that rewrites requests while the device reads them",
	.axis = {HOSTILE_AXIS("field", field_values), HOSTILE_AXIS("log", log_values)},
	.run = rewrite_run,
};
