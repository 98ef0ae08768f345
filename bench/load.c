/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <time.h>

#include <linux/virtio_blk.h>

#include "base/err.h"
#include "bench/load.h"

/* A driver that polls gives up after so long without an answer. */
#define SILENCE_NS UINT64_C(10000000000)

struct run {
	struct session *s;
	const struct load *load;
	uint64_t random;
	unsigned int inflight;
	uint64_t done;
};

uint64_t load_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

static int add(struct run *r, unsigned int slot)
{
	const struct load *l = r->load;
	struct session_request req = {
		.type = l->write ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN,
		.len = l->bytes,
	};
	int ret;

	/* Knuth's linear congruential generator; its upper half is good enough for sectors. */
	r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	req.sector = (r->random >> 32) % (l->disk / l->bytes) * (l->bytes / 512);
	ret = session_add(r->s, slot, &req);
	if (ret < 0)
		return ret;
	r->inflight++;
	return 0;
}

/* Take all answers that are there; put a new request in each one's place if @again. */
static int turn(struct run *r, bool again)
{
	int slot, ret, n = 0;

	while ((slot = session_collect(r->s)) >= 0) {
		r->inflight--;
		n++;
		ret = again ? add(r, slot) : 0;
		if (ret < 0)
			return ret;
	}
	if (slot != -EAGAIN)
		return slot;
	r->done += n;
	ret = n && again ? session_submit(r->s) : 0;
	return ret < 0 ? ret : n;
}

/* Turn until @end and the first answer, or until nothing is in flight. */
static int turn_until(struct run *r, uint64_t end, bool again)
{
	uint64_t heard = load_now_ns(), now = heard;
	int n;

	while (again ? now < end || !r->done : r->inflight > 0) {
		n = turn(r, again);
		if (n < 0)
			return n;
		now = load_now_ns();
		if (n)
			heard = now;
		else if (now - heard > SILENCE_NS)
			return silt_err(ETIMEDOUT, "no answer within 10 s");
		else if (r->load->wait == BENCH_CALL && session_wait(r->s) < 0)
			return -ETIMEDOUT;
	}
	return 0;
}

int load_run(struct session *s, const struct load *load, uint64_t ns, uint64_t seed,
	     struct load_result *result)
{
	struct run r = {.s = s, .load = load, .random = seed};
	uint64_t start = load_now_ns();
	int ret = silt_driver_disable_call(s->driver);

	for (unsigned int i = 0; !ret && i < load->depth; i++)
		ret = add(&r, i);
	if (!ret)
		ret = session_submit(s);
	if (ret >= 0)
		ret = turn_until(&r, start + ns, true);
	result->requests = r.done;
	result->ns = load_now_ns() - start;
	return ret < 0 ? ret : turn_until(&r, 0, false);
}
