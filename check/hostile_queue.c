/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_blk.h>
#include <poll.h>
#include <unistd.h>

#include <silt/access.h>

#include "check/blk.h"
#include "check/hostile_rig.h"
#include "check/target_process.h"

/* The ring of one case, by hand: a driver that keeps the rules would not do. */

static const struct check_session_queue *queue(const struct check_hostile *h)
{
	return &h->session.queue[0];
}

static struct vring_avail *avail_ring(const struct check_hostile *h)
{
	return check_guest_mem(&h->world.guest, queue(h)->avail);
}

struct vring_desc *check_hostile_desc(const struct check_hostile *h, unsigned int i)
{
	return (struct vring_desc *)check_guest_mem(&h->world.guest, queue(h)->desc) + i;
}

void check_hostile_store_index(struct check_hostile *h, uint16_t index)
{
	silt_access_store16(&avail_ring(h)->idx, index);
}

void check_hostile_offer(struct check_hostile *h, uint16_t head)
{
	silt_access_store16(&avail_ring(h)->ring[h->offered % queue(h)->num], head);
	check_hostile_store_index(h, ++h->offered);
}

void check_hostile_kick(struct check_hostile *h)
{
	check_session_kick(&h->session);
}

static void fill_header(struct check_hostile *h, unsigned int i)
{
	const struct virtio_blk_outhdr hdr = {.type = VIRTIO_BLK_T_IN,
					      .sector = check_blk_disk_of(h->env)->reads.start /
							BLK_SECTOR};

	silt_access_copy(check_guest_mem(&h->world.guest, h->header + i * sizeof(hdr)), &hdr,
			 sizeof(hdr));
}

/* Memory may be gone. */
void check_hostile_load(struct check_hostile *h, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		const struct vring_desc desc[] = {
			{h->header + i * sizeof(struct virtio_blk_outhdr),
			 sizeof(struct virtio_blk_outhdr), VRING_DESC_F_NEXT, 3 * i + 1},
			{h->data + i * HOSTILE_LOAD_LEN, HOSTILE_LOAD_LEN,
			 VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 3 * i + 2},
			{h->status + i, 1, VRING_DESC_F_WRITE, 0},
		};

		fill_header(h, i);
		silt_access_copy(check_hostile_desc(h, 3 * i), desc, sizeof(desc));
		check_hostile_offer(h, 3 * i);
	}
	check_hostile_kick(h);
}

/* Has the device given back all that was offered? Memory may be gone. */
static bool all_used(const struct check_hostile *h)
{
	const struct vring_used *used = check_guest_mem(&h->world.guest, queue(h)->used);
	uint16_t idx;

	return silt_access_load16(&used->idx, &idx) && idx == h->offered;
}

static void drain(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0)
		return;
}

/* What came of all that was offered so far. */
static enum check_verdict look(struct check_hostile *h, const char **what)
{
	int64_t left, deadline = check_process_now_ms() + HOSTILE_QUIET_MS;
	struct pollfd wait[] = {
		{silt_frontend_fd(h->session.f), POLLRDHUP, 0},
		{check_target_pidfd(h->env->target), POLLIN, 0},
		{queue(h)->err, POLLIN, 0},
		{queue(h)->call, POLLIN, 0},
	};

	while (!all_used(h)) {
		left = deadline - check_process_now_ms();
		poll(wait, 4, left > 0 ? left : 0);
		if (wait[0].revents || wait[1].revents) {
			h->closed = true;
			*what = "the backend closed the connection";
			return CHECK_REFUSED;
		}
		if (wait[2].revents) {
			*what = "the backend reported an error of the queue";
			return CHECK_REFUSED;
		}
		if (left <= 0 && !all_used(h)) {
			*what = "the backend left requests alone";
			return CHECK_IGNORED;
		}
		drain(queue(h)->call);
	}
	*what = "the backend finished all requests";
	return CHECK_CORRECT;
}

enum check_verdict check_hostile_watch(struct check_hostile *h)
{
	enum check_verdict seen;
	const char *what;

	if (h->closed)
		return h->verdict;
	seen = look(h, &what);
	check_hostile_saw(h, seen, "%s", what);
	return seen;
}
