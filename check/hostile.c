/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/blk.h"
#include "check/hostile_rig.h"
#include "check/target_process.h"

#define MODE	  "hostile"
#define REPRO_LEN 4096
#define PROOF_LEN 4096
/* A backend that cannot be reached so many times in a row is given up. */
#define MAX_FAILED 3

struct runner {
	const struct check_scenario_env *env;
	struct check_applies *applies;
	const struct check_reporter *reporter;
	struct check_totals *totals;
	struct check_hostile h;
	unsigned int failed;
	char repro[REPRO_LEN];
	char reason[HOSTILE_REASON_LEN + 128];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* ---- What is true of the backend afterwards -------------------------------------------------- */

/* How a backend that we started has ended, if a signal that is not ours ended it. */
static bool crashed(struct check_hostile *h, const char *when)
{
	struct check_target *t = h->env->target;
	char death[TARGET_DEATH_LEN];

	if (!t->ended || !WIFSIGNALED(t->status) || WTERMSIG(t->status) == SIGTERM ||
	    WTERMSIG(t->status) == SIGKILL || !check_target_death(t, death))
		return false;
	check_hostile_saw(h, CHECK_CRASHED, "%s the backend %s", when, death);
	return true;
}

/* It must answer what any backend can always answer, or have closed the connection. */
static void settle(struct check_hostile *h)
{
	struct check_session *s = &h->session;
	uint64_t features;

	if (h->closed || h->torn || h->held)
		return;
	if (!check_hostile_result(h, silt_frontend_get_features(s->f, &features),
				  "GET_FEATURES afterwards") ||
	    !h->running)
		return;
	check_hostile_result(h, silt_frontend_get_vring_base(s->f, 0), "GET_VRING_BASE afterwards");
}

static int prove(struct check_hostile *h, struct check_session *s)
{
	static const struct check_scenario usual = {.device = &check_device_block};
	struct check_builder builder = {.scenario = &usual,
					.state = h->env->state,
					.guest = h->env->guest,
					.places = s->places,
					.random = h->random};
	struct check_blk_request r;
	char why[CHECK_WRONG_LEN];
	int ret;

	s->features = (check_device_block.features | UINT64_C(1) << VIRTIO_F_VERSION_1 |
		       SILT_VHOST_F_PROTOCOL_FEATURES) &
		      s->offered;
	ret = check_session_make_rings(s, &usual);
	if (ret == 0)
		ret = check_session_set_up(s, true);
	if (ret == 0)
		ret = check_session_start(s);
	if (ret == 0 &&
	    check_blk_build_read(&builder, check_blk_disk_of(h->env)->reads.start / BLK_SECTOR,
				 PROOF_LEN, &r) < 0)
		ret = check_session_error(s, "%s", silt_errmsg());
	if (ret == 0)
		ret = check_session_add(s, &r.base);
	check_session_kick(s);
	if (ret == 0)
		ret = check_session_wait(s);
	if (ret == 0 && !check_blk_verify(h->env->state, h->env->guest, &r.base, why))
		ret = check_session_error(s, "%s", why);
	return ret < 0 ? ret : check_session_stop(s);
}

/* A fresh start of all memory that a proof uses; what is in it does not matter. */
static void empty_guest(struct check_guest *g)
{
	unsigned int i;

	for (i = 0; i < GUEST_SIDES; i++) {
		g->region[i].next = 0;
		g->region[i].end = g->region[i].size;
	}
}

static bool ended_by_itself(const struct check_target *t)
{
	return check_target_started(t) && t->ended && WIFEXITED(t->status);
}

/* One ordinary connection with one read. */
static bool try_proof(struct check_hostile *h, char why[SESSION_ERROR_LEN])
{
	struct check_places places = {0};
	struct check_session s = {.target = h->env->target,
				  .guest = h->env->guest,
				  .places = &places,
				  .trace = h->env->trace};
	int ret = check_session_open(&s);

	empty_guest(h->env->guest);
	if (ret == 0)
		ret = prove(h, &s);
	memcpy(why, s.error, SESSION_ERROR_LEN);
	if (ret == 0 && s.wrong[0]) {
		snprintf(why, SESSION_ERROR_LEN, "%s", s.wrong);
		ret = -EPROTO;
	}
	check_session_close(&s, false);
	check_places_free(&places);
	return ret == 0;
}

static void prove_that_it_serves(struct check_hostile *h)
{
	struct check_target *t = h->env->target;
	char why[SESSION_ERROR_LEN];
	bool serves = try_proof(h, why);

	/* Some backends end with a connection that fails; then the next one is to serve. */
	if (!serves && ended_by_itself(t))
		serves = try_proof(h, why);
	if (!serves && !crashed(h, "by the time of the next connection"))
		check_hostile_saw(h, CHECK_HUNG, "the backend serves no more: %s", why);
}

static void end_backend(struct check_hostile *h)
{
	struct check_target *t = h->env->target;

	if (!check_target_started(t))
		return;
	if (!check_process_terminate(t, t->opt->timeout_ms))
		check_hostile_saw(h, CHECK_HUNG, "the backend did not end within %d ms of SIGTERM",
				  t->opt->timeout_ms);
	check_process_end(t);
	crashed(h, "when it was to end");
}

/* ---- One case -------------------------------------------------------------------------------- */

static int make_world(struct check_hostile *h)
{
	int ret = check_hostile_world_create(&h->world);

	return ret < 0 || h->c->group->takes_memory ? ret : check_hostile_world_seal(&h->world);
}

static bool open_case(struct check_hostile *h, const struct check_scenario_env *env,
		      const struct check_hostile_case *c)
{
	memset(h, 0, sizeof(*h));
	h->env = env;
	h->c = c;
	h->random = check_random_named(env->seed, c->name);
	h->spare = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (make_world(h) < 0) {
		check_hostile_failed(h);
		return false;
	}
	check_hostile_prepare_session(h);
	if (check_session_open(&h->session) < 0) {
		snprintf(h->failure, sizeof(h->failure), "%s", h->session.error);
		check_target_release(env->target, h->session.transport, true);
		return false;
	}
	h->connected = true;
	h->can_log = h->session.offered & SILT_VHOST_F_LOG_ALL &&
		     h->session.protocol & SILT_VHOST_PROTOCOL_F_LOG_SHMFD;
	return true;
}

static void close_case(struct check_hostile *h)
{
	check_hostile_disconnect(h);
	check_places_free(&h->places);
	check_hostile_world_destroy(&h->world);
	if (h->spare >= 0)
		close(h->spare);
}

static void run_case(struct check_hostile *h)
{
	char why[HOSTILE_WHY_LEN];

	h->c->group->run(h);
	settle(h);
	if (h->held)
		end_backend(h);
	check_hostile_disconnect(h);
	if (!crashed(h, "during the case"))
		prove_that_it_serves(h);
	end_backend(h);
	if (!check_hostile_world_intact(&h->world, why))
		check_hostile_saw(h, CHECK_WROTE_OUTSIDE, "%s", why);
}

static unsigned int fill_axes(const struct check_hostile_case *c, struct check_axis *axes)
{
	unsigned int i, n = 0;

	axes[n++] = (struct check_axis){"case", c->group->name};
	for (i = 0; i < HOSTILE_AXES && c->group->axis[i].n; i++)
		axes[n++] = (struct check_axis){c->group->axis[i].name,
						c->group->axis[i].values[c->value[i]]};
	return n;
}

static void judge(struct runner *r, struct check_outcome *o)
{
	const struct check_hostile *h = &r->h;

	if (h->failure[0]) {
		o->result = CHECK_ERROR;
		o->reason = h->failure;
		return;
	}
	o->verdict = h->verdict;
	o->result = h->verdict >= CHECK_HUNG ? CHECK_FAIL : CHECK_PASS;
	snprintf(r->reason, sizeof(r->reason), "%s: %s", h->c->group->about, h->reason);
	o->reason = r->reason;
}

static void report(struct runner *r, const struct check_outcome *o)
{
	r->totals->count[o->result]++;
	if (r->reporter->outcome)
		r->reporter->outcome(r->reporter->arg, o);
}

static void run_applicable(struct runner *r, const struct check_hostile_case *c,
			   struct check_outcome *o)
{
	struct check_hostile *h = &r->h;
	double start = now();

	if (r->env->trace)
		fprintf(r->env->trace, "# %s\n", c->name);
	if (open_case(h, r->env, c))
		run_case(h);
	judge(r, o);
	o->seconds = now() - start;
	report(r, o);
	close_case(h);
	r->failed = h->failure[0] ? r->failed + 1 : 0;
	r->applies->gone = r->env->target->gone || r->failed == MAX_FAILED;
}

static const char *not_applicable(const struct runner *r, const struct check_hostile_case *c)
{
	const struct check_applies *a = r->applies;

	if (a->gone)
		return "the backend is gone";
	if (c->group->needs_log && !(a->features & SILT_VHOST_F_LOG_ALL))
		return "the backend does not offer VHOST_F_LOG_ALL: it has no log";
	if (c->group->needs_log && !(a->protocol & SILT_VHOST_PROTOCOL_F_LOG_SHMFD))
		return "the backend does not offer LOG_SHMFD: it cannot be given a log";
	return a->unfit;
}

static void run_one(struct runner *r, const struct check_hostile_case *c)
{
	struct check_axis axes[1 + HOSTILE_AXES];
	struct check_outcome o = {.name = c->name, .mode = MODE, .axes = axes, .repro = r->repro};

	o.naxes = fill_axes(c, axes);
	check_target_repro(r->env->target, c->name, r->repro, sizeof(r->repro));
	o.reason = not_applicable(r, c);
	if (!o.reason) {
		run_applicable(r, c, &o);
		return;
	}
	o.result = CHECK_SKIP;
	report(r, &o);
}

int check_hostile_run(const struct check_scenario_env *env, struct check_applies *applies,
		      const struct check_hostile_list *list, const struct check_reporter *reporter,
		      struct check_totals *totals)
{
	struct runner *r = calloc(1, sizeof(*r));
	unsigned int i;

	if (!r)
		return silt_err_sys(ENOMEM, "cannot begin");
	r->env = env;
	r->applies = applies;
	r->reporter = reporter;
	r->totals = totals;
	for (i = 0; i < list->n; i++) {
		if (reporter->running)
			reporter->running(reporter->arg, list->v[i].name, i, list->n);
		run_one(r, &list->v[i]);
	}
	free(r);
	return 0;
}
