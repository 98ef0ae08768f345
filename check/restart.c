/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/scenario.h"
#include "check/target_process.h"

/*
 * A backend that is killed and started again while a migration logs what it writes. The frontend
 * keeps the rings, the log, and the record of what is in flight (INFLIGHT_SHMFD), and connects
 * again. Each request must come back once, with the right answer; and since nobody knows what the
 * dead backend stored and did not mark, its successor has to mark all that may be.
 */

/* Requests in flight when the backend is killed, over all queues. */
#define FLYING 12
/* It is killed so long after they were made available, at most. */
#define FLYING_US 600
/* Requests, one at a time in each queue, before it is killed at a completion or when idle. */
#define SINGLES 8
#define LAST	4
/* Lives of a backend that someone else kills as well. */
#define MAX_LIVES 64

struct restart {
	struct check_trial *run;
	struct silt_vhost_inflight area;
	int area_fd;
	unsigned int lives;
};

/* ---- Death ----------------------------------------------------------------------------------- */

/*
 * Has the backend died of SIGKILL? If it was not ours, a step of the scenario failed, and the
 * backend is started again all the same.
 */
static bool killed(const struct restart *r)
{
	struct check_target *t = r->run->env->target;

	check_process_reap(t);
	return t->ended && WIFSIGNALED(t->status) && WTERMSIG(t->status) == SIGKILL;
}

/*
 * A process that the one we started has started itself may outlive it by a moment; its end of the
 * connection tells when the last one is gone.
 */
static int wait_hang_up(struct restart *r)
{
	struct check_session *s = &r->run->session;
	struct pollfd wait = {.fd = silt_frontend_fd(s->f), .events = POLLRDHUP};

	if (poll(&wait, 1, s->timeout_ms) == 1)
		return 0;
	return check_session_error(s, "the backend was killed, but its connection is open still");
}

static int kill_backend(struct restart *r)
{
	check_process_kill(r->run->env->target);
	if (!killed(r))
		return check_session_failed(&r->run->session, -ECONNRESET, "its kill");
	return wait_hang_up(r);
}

/*
 * A monitor harvests at any time. A page that was not marked by then may be so later, perhaps by
 * the successor, until the rings stop: as long as there is one, all goes on as a single span.
 */
static int harvest(struct restart *r)
{
	struct check_trial *run = r->run;
	int ret;

	if (run->compare->pending.n)
		return 0;
	ret = check_trial_harvest(run, check_trial_log(run));
	return ret < 0 ? ret : check_trial_end_span(run, check_compare_span);
}

/* From here on only the successor can mark what was not. */
static int harvest_dead(struct restart *r)
{
	struct check_session *s = &r->run->session;
	int ret = check_session_collect(s);

	if (ret == 0)
		ret = harvest(r);
	/* What waits for its mark must not pass as our own write. */
	if (ret == 0 && !r->run->compare->pending.n)
		check_session_poison_rings(s);
	return ret;
}

/* ---- Resurrection ---------------------------------------------------------------------------- */

static int hand_over_record(struct restart *r)
{
	struct check_session *s = &r->run->session;
	int ret = silt_frontend_set_inflight_fd(s->f, &r->area, r->area_fd);

	return ret < 0 ? check_session_failed(s, ret, "SET_INFLIGHT_FD") : 0;
}

static int ask_for_record(struct restart *r)
{
	struct check_session *s = &r->run->session;
	int ret;

	r->area.num_queues = s->nqueues;
	r->area.queue_size = s->queue[0].num;
	ret = silt_frontend_get_inflight_fd(s->f, &r->area, &r->area_fd);
	return ret < 0 ? check_session_failed(s, ret, "GET_INFLIGHT_FD") : 0;
}

/* The features have logging on from the beginning, as those of a device that is being migrated. */
static int set_up_again(struct restart *r)
{
	struct check_trial *run = r->run;
	struct check_session *s = &run->session;
	bool log_first = check_trial_value(run, AXIS_LOGGING) == LOGGING_ON;
	int ret = check_session_set_up(s, true);

	if (ret == 0)
		ret = hand_over_record(r);
	if (ret == 0 && log_first)
		ret = check_session_set_log(s, check_trial_log(run));
	if (ret == 0)
		ret = check_session_start(s);
	if (ret == 0 && !log_first)
		ret = check_session_set_log(s, check_trial_log(run));
	return ret;
}

static int come_up_again(struct restart *r)
{
	int ret = check_session_reconnect(&r->run->session);

	return ret < 0 ? ret : set_up_again(r);
}

/* The backend is dead. Kicks that it did not take are taken by the one that follows. */
static int revive(struct restart *r)
{
	int ret;

	do {
		if (++r->lives > MAX_LIVES)
			return check_session_error(
				&r->run->session,
				"the backend was killed %u times, and not only by the checker",
				MAX_LIVES);
		ret = harvest_dead(r);
		if (ret < 0)
			return ret;
		ret = come_up_again(r);
	} while (ret < 0 && killed(r));
	return ret;
}

/* Do what is to be done, in spite of those who kill the backend. */
static int survive(struct restart *r, int (*step)(struct check_trial *run))
{
	int ret = step(r->run);

	while (ret < 0 && killed(r)) {
		ret = revive(r);
		if (ret == 0)
			ret = step(r->run);
	}
	return ret;
}

static int wait_all(struct check_trial *run)
{
	return check_session_wait(&run->session);
}

/* ---- Lives ----------------------------------------------------------------------------------- */

static uint64_t below(struct restart *r, uint64_t n)
{
	return check_random_below(&r->run->builder.random, n);
}

static bool busy(const struct restart *r)
{
	return check_trial_value(r->run, AXIS_KILL) == KILL_BUSY;
}

static int submit(struct restart *r, unsigned int n)
{
	unsigned int first;
	int ret = check_trial_prepare(r->run, n, &first);

	return ret < 0 ? ret : check_trial_submit(r->run, first, r->run->nrequests);
}

/* Until some time after so many requests were made available, whichever of them is finished. */
static int live_busily(struct restart *r)
{
	int ret = check_trial_keep_busy(r->run, FLYING / check_scenario_sets(r->run->scenario));

	if (ret == 0)
		check_trial_spin_us(below(r, FLYING_US));
	return ret;
}

static bool anything_done(const struct restart *r, unsigned int first)
{
	unsigned int i;

	for (i = first; i < r->run->nrequests; i++)
		if (check_trial_request(r->run, i)->done)
			return true;
	return false;
}

/* Look at the used rings without sleeping, since a call comes only when marks are made. */
static int watch_used(struct restart *r, unsigned int first)
{
	struct check_session *s = &r->run->session;
	int64_t deadline = check_process_now_ms() + s->timeout_ms;
	int ret = 0;

	while (ret == 0 && !anything_done(r, first) && !killed(r)) {
		if (r->run->env->target->ended)
			return check_session_failed(s, -ECONNRESET,
						    check_trial_request(r->run, first)->text);
		if (check_process_now_ms() > deadline)
			return check_session_error(s, "no completion within %d ms for %s",
						   s->timeout_ms,
						   check_trial_request(r->run, first)->text);
		ret = check_session_collect(s);
	}
	return ret;
}

/*
 * One request after the other in each queue, each with a log in which nothing is marked yet; the
 * last one, or the first of two, is only seen.
 */
static int live_singly(struct restart *r)
{
	bool idle = check_trial_value(r->run, AXIS_KILL) == KILL_IDLE;
	unsigned int i, first, n = 1 + below(r, SINGLES);
	int ret = 0;

	for (i = 0; i < n && !ret; i++) {
		first = r->run->nrequests;
		ret = harvest(r);
		if (ret == 0)
			ret = submit(r, 1);
		if (ret == 0)
			ret = i + 1 < n || idle ? check_session_wait(&r->run->session)
						: watch_used(r, first);
	}
	if (ret == 0 && idle)
		check_session_wait_idle(&r->run->session);
	return ret;
}

/* Return: 0 once the backend is dead, as it was to be. */
static int live_and_die(struct restart *r)
{
	int ret = busy(r) ? live_busily(r) : live_singly(r);

	return ret < 0 && !killed(r) ? ret : kill_backend(r);
}

static int start(struct restart *r)
{
	struct check_session *s = &r->run->session;
	int ret = check_session_set_up(s, true);

	/* What the record is like may depend on the features. */
	if (ret == 0)
		ret = ask_for_record(r);
	if (ret == 0)
		ret = hand_over_record(r);
	if (ret == 0)
		ret = check_session_start(s);
	return ret < 0 ? ret : check_trial_logging_on(r->run);
}

/*
 * A life that ends while it finishes what the one before began is worth as much as another, so
 * that is not always waited for.
 */
static int live_often(struct restart *r)
{
	unsigned int i, kills = check_trial_value(r->run, AXIS_KILLS) == KILLS_3 ? 3 : 1;
	int ret = 0;

	for (i = 0; i < kills && !ret; i++) {
		if (i && below(r, 2))
			ret = survive(r, wait_all);
		if (ret == 0)
			ret = live_and_die(r);
		if (ret == 0)
			ret = revive(r);
	}
	return ret;
}

/*
 * What was in flight comes back. Where nothing was there is nothing more to do, so that no later
 * completion hides what the successor did not mark.
 */
static int finish(struct restart *r)
{
	int ret = survive(r, wait_all);

	if (ret == 0 && busy(r))
		ret = submit(r, LAST / check_scenario_sets(r->run->scenario));
	if (ret == 0)
		ret = survive(r, wait_all);
	return ret < 0 ? ret : survive(r, check_trial_stop);
}

int check_restart_run(struct check_trial *run)
{
	struct restart r = {.run = run, .area_fd = -1};
	int ret = start(&r);

	if (ret == 0)
		ret = live_often(&r);
	if (ret == 0)
		ret = finish(&r);
	if (r.area_fd >= 0)
		close(r.area_fd);
	return ret;
}
