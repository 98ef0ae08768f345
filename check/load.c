/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "check/load.h"
#include "check/target_process.h"

/* However slow the machine or the backend is, so many of each queue come back. */
#define LEAST 4

/* How often what the disk has cached is dropped, so that some reads take long. */
#define SLOW_EVERY_MS 10

#define DEPTH_USUAL 16

/* Pages of the other device beside the rings, on each side. */
#define RING_NEIGHBOURS 4

static int build_one(struct check_load *l, unsigned int q, unsigned int size)
{
	struct check_trial *run = l->run;
	unsigned int i = run->nrequests;
	int ret;

	if (i == SCENARIO_MAX_REQUESTS)
		return -ENOSPC;
	ret = run->env->device->build_lasting(&run->builder, q, l->listed[q], size,
					      check_trial_request(run, i));
	if (ret < 0)
		return ret;
	l->list[q][l->listed[q]++] = i;
	run->nrequests++;
	return 0;
}

/* On both sides. */
static void take_neighbours(struct check_load *l, unsigned int n)
{
	while (l->neighbour && n--) {
		check_neighbour_take(l->neighbour, l->run->env->guest, GUEST_LOW);
		check_neighbour_take(l->neighbour, l->run->env->guest, GUEST_HIGH);
	}
}

static int build_round(struct check_load *l, unsigned int size)
{
	unsigned int q, i, share;
	int ret = 0;

	for (q = 0; q < l->run->session.nqueues && !ret; q++) {
		share = check_device_share(&l->run->builder, q);
		for (i = 0; i < share && !ret; i++)
			ret = build_one(l, q, size);
	}
	return ret;
}

/* As deep as the ring of each queue, and its buffers, allow. */
static void choose_depth(struct check_load *l, unsigned int depth)
{
	unsigned int room = check_scenario_room(l->run->scenario), q, most;

	l->depth = depth == DEPTH_1 ? 1 : DEPTH_USUAL;
	if (depth == DEPTH_FULL || l->depth > room)
		l->depth = room;
	for (q = 0; q < l->run->session.nqueues; q++) {
		if (!l->listed[q])
			continue;
		most = l->listed[q] / 2 / check_device_share(&l->run->builder, q);
		l->depth = l->depth < most ? l->depth : most;
	}
}

int check_load_build(struct check_load *l, unsigned int size, unsigned int depth)
{
	int ret;

	take_neighbours(l, RING_NEIGHBOURS);
	do {
		ret = build_round(l, size);
		take_neighbours(l, 1);
	} while (ret == 0);
	if (ret != -ENOSPC)
		return check_trial_internal(l->run);
	check_places_sort(&l->run->places);
	choose_depth(l, depth);
	return 0;
}

/* The queue's next buffer that is not in flight: at most half of them are. */
static unsigned int next_idle(struct check_load *l, unsigned int q)
{
	unsigned int i;

	do {
		i = l->list[q][l->next[q]];
		l->next[q] = (l->next[q] + 1) % l->listed[q];
	} while (l->used[i] && !check_trial_request(l->run, i)->done);
	return i;
}

/* Requests of a queue that are to be in flight: where several belong together, so many more. */
static unsigned int wanted(struct check_load *l, unsigned int q)
{
	return l->listed[q] ? l->depth * check_device_share(&l->run->builder, q) : 0;
}

/* What is sent may have left its queue and not yet have come back: each has buffers of its own. */
static bool has_room_for_answers(const struct check_load *l, unsigned int q)
{
	const struct check_trial *run = l->run;
	const struct check_request *r = check_trial_request(run, l->list[q][l->next[q]]);

	return !r->answers || r->answer_queue == q ||
	       check_session_spare(&run->session, r->answer_queue) >= r->answers;
}

static int refill(struct check_load *l, unsigned int q)
{
	struct check_trial *run = l->run;
	unsigned int i, most = wanted(l, q);
	struct check_request *r;
	int ret = 0;

	while (check_session_in_flight(&run->session, q) < most && !ret &&
	       has_room_for_answers(l, q)) {
		i = next_idle(l, q);
		r = check_trial_request(run, i);
		check_trial_verify(run, r);
		l->used[i] = true;
		run->env->device->renew(&run->builder, r);
		ret = check_session_add(&run->session, r);
		l->added++;
	}
	return ret;
}

static int refill_all(struct check_load *l)
{
	unsigned int q;
	int ret = 0;

	for (q = 0; q < l->run->session.nqueues && !ret; q++)
		ret = refill(l, q);
	check_session_kick(&l->run->session);
	return ret;
}

static void note_collected(const struct check_load *l, uint16_t collected[SESSION_QUEUES])
{
	unsigned int q;

	for (q = 0; q < l->run->session.nqueues; q++)
		collected[q] = l->run->session.queue[q].collected;
}

static bool came_back(const struct check_load *l, const uint16_t before[SESSION_QUEUES])
{
	uint16_t now[SESSION_QUEUES];
	unsigned int q;

	note_collected(l, now);
	for (q = 0; q < l->run->session.nqueues; q++)
		if (l->listed[q] && (uint16_t)(now[q] - before[q]) < LEAST)
			return false;
	return true;
}

int check_load_run(struct check_load *l, unsigned int ms, bool uneven)
{
	int64_t now = check_process_now_ms(), end = now + ms, slow = now;
	uint16_t before[SESSION_QUEUES];
	int ret;

	note_collected(l, before);
	for (;; now = check_process_now_ms()) {
		ret = refill_all(l);
		if (ret < 0 || (now >= end && came_back(l, before)))
			return ret;
		if (uneven && now >= slow) {
			check_trial_slow_down(l->run);
			slow = now + SLOW_EVERY_MS;
		}
		ret = check_session_wait_below(&l->run->session, l->depth / 2);
		if (ret < 0)
			return ret;
	}
}

uint64_t check_load_finished(const struct check_load *l)
{
	uint64_t flying = 0;
	unsigned int q;

	for (q = 0; q < l->run->session.nqueues; q++)
		flying += check_session_in_flight(&l->run->session, q);
	return l->added - flying;
}
