/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "demo/backend.h"
#include "demo/hook.h"
#include "demo/source.h"
#include "guest/guest.h"
#include "guest/pace.h"

#define OUTCOME_MS 300000 /* besides the time that the guest runs on there */
#define ASKS	   10

/* Let so much time go by while the guest runs. */
static void let_run(uint32_t ms)
{
	poll(NULL, 0, (int)ms);
}

static int open_machine(struct source *s)
{
	struct machine_config config = s->opt->machine;
	int ret;

	config.kvm = !s->opt->no_kvm;
	ret = machine_open(&s->machine, &config);
	if (guest_missing(ret) && config.kvm) {
		if (!s->opt->quiet)
			printf("no vCPUs here, threads write in their place: %s\n", silt_errmsg());
		config.kvm = false;
		ret = machine_open(&s->machine, &config);
	}
	return ret;
}

static int start_machine(struct source *s)
{
	int ret = machine_program(&s->machine, s->opt->pattern, s->opt->rate);

	ram_fill(&s->machine.ram, s->opt->machine.seed);
	if (ret >= 0)
		ret = machine_resume(&s->machine);
	if (ret >= 0)
		let_run(s->opt->before_ms);
	return ret;
}

static int make_hello(struct source *s)
{
	const struct machine_config *c = &s->machine.config;

	s->hello = (struct link_hello){.memory = c->memory,
				       .seed = c->seed,
				       .disk_rate = c->disk_rate,
				       .vcpus = c->vcpus,
				       .kvm = c->kvm,
				       .after_ms = s->opt->after_ms};
	if (getrandom(&s->hello.guest, sizeof(s->hello.guest), 0) != sizeof(s->hello.guest))
		return silt_err_sys(errno, "demo: a number for the guest");
	return 0;
}

/* A destination of our own, that listens on a port which is chosen here. */
static int start_destination(struct source *s)
{
	char timeout[40];
	const char *argv[] = {"silt-demo", "--fd=3", "--quiet", timeout, NULL};
	int fd = link_listen("127.0.0.1:0"), ret;

	if (fd < 0)
		return fd;
	snprintf(timeout, sizeof(timeout), "--timeout=%" PRIu64, s->opt->timeout_ms);
	ret = link_port(fd);
	if (ret >= 0) {
		snprintf(s->where, sizeof(s->where), "127.0.0.1:%d", ret);
		ret = backend_spawn(s->opt->machine.silt, argv, fd, &s->destination);
	}
	close(fd);
	return ret;
}

static int greet(struct source *s)
{
	struct link_answer answer;

	s->hello.purpose = LINK_MIGRATE;
	return link_greet(s->fd, &s->hello, &answer, (int)s->opt->timeout_ms);
}

static int connect_there(struct source *s)
{
	int ret = s->opt->to ? 0 : start_destination(s);

	if (ret < 0)
		return ret;
	s->fd = link_connect(s->where, (int)s->opt->timeout_ms);
	if (s->fd < 0)
		return s->fd;
	ret = greet(s);
	if (ret < 0) {
		close(s->fd);
		s->fd = -1;
	}
	return ret;
}

static void disconnect(struct source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	if (s->destination)
		backend_end(s->destination, (int)s->opt->timeout_ms);
	s->destination = 0;
}

/*
 * The guest lives in the destination's process: where nobody listens, that process is no more, and
 * whoever closes the connection without an answer is ending.
 */
int source_ask(struct source *s)
{
	struct link_hello hello = s->hello;
	struct link_answer answer;
	int fd, ret = -1, i, timeout = (int)s->opt->timeout_ms;

	hello.purpose = LINK_ASK;
	for (i = 0; i < ASKS; i++) {
		fd = link_connect(s->where, timeout);
		ret = fd < 0 ? fd : link_greet(fd, &hello, &answer, timeout);
		if (ret >= 0 && answer.has_guest) {
			close(s->fd);
			s->fd = fd;
			return 0;
		}
		if (fd >= 0)
			close(fd);
		if (ret >= 0 || ret == -ECONNREFUSED)
			return 1;
		let_run(100);
	}
	return ret;
}

/* Also over a new connection, if this one is lost. */
static int read_outcome(struct source *s)
{
	struct link_outcome *there = &s->report.there;
	int timeout = OUTCOME_MS + (int)s->opt->after_ms;
	int ret = link_read(s->fd, there, sizeof(*there), timeout);

	if (ret < 0 && !source_ask(s))
		ret = link_read(s->fd, there, sizeof(*there), timeout);
	return ret;
}

/* What both have, now that the guest runs there. */
static int compare(struct source *s, enum demo_outcome *outcome)
{
	struct link_verdict verdict = {0};
	struct link_outcome *there = &s->report.there;
	int ret = ram_hash(&s->machine.ram, &s->report.source_hash);

	if (ret >= 0)
		ret = read_outcome(s);
	if (ret < 0)
		return ret;
	link_clean(there->text, sizeof(there->text));
	if (there->error)
		return silt_err(there->error < 4096 ? (int)there->error : EPROTO,
				"the destination: %s", there->text);
	verdict.hash = s->report.source_hash;
	verdict.equal = !memcmp(&there->hash, &verdict.hash, sizeof(verdict.hash)) &&
			!there->wrong && !there->wrong_later;
	*outcome = verdict.equal ? DEMO_EQUAL : DEMO_DIFFERENT;
	if (!verdict.equal)
		silt_err(EBADMSG,
			 "the guest's memory is not what it was, or not what the guest counted");
	/* A destination that does not hear it says so itself. */
	link_write(s->fd, &verdict, sizeof(verdict));
	return 0;
}

/* After a migration that failed the guest must be as it was, and go on. */
static int check_goes_on(struct source *s)
{
	struct machine_counts before, now;
	uint64_t until = pace_now_ns() + UINT64_C(10000000000);
	int64_t wrong;
	int ret;

	if (s->resume_error < 0)
		return silt_err(-s->resume_error, "the guest could not be resumed");
	machine_count(&s->machine, &before);
	do {
		let_run(10);
		machine_count(&s->machine, &now);
	} while (now.writes == before.writes && pace_now_ns() < until);
	if (now.writes == before.writes)
		return silt_err(EIO, "the guest does not go on after the migration failed");
	ret = machine_pause(&s->machine);
	wrong = ret < 0 ? ret : machine_check(&s->machine);
	if (wrong > 0)
		return silt_err(EIO, "%lld pages are not what the guest counted", (long long)wrong);
	return wrong < 0 ? (int)wrong : machine_resume(&s->machine);
}

static enum demo_outcome settle(struct source *s, int ret)
{
	enum demo_outcome outcome = DEMO_FAILED;

	if (ret == SILT_PRECOPY_UNSURE)
		return DEMO_UNSURE;
	if (ret == SILT_PRECOPY_MOVED)
		return compare(s, &outcome) < 0 ? DEMO_UNSURE : outcome;
	return ret == -ECANCELED ? DEMO_CANCELLED : DEMO_FAILED;
}

/* One attempt. Return: its outcome; -errno the guest here is not well. */
static int attempt(struct source *s)
{
	char reason[256];
	int ret, outcome;

	report_begin(&s->report);
	s->resume_error = 0;
	ret = connect_there(s);
	if (ret >= 0)
		ret = source_migrate(s);
	outcome = settle(s, ret);
	snprintf(reason, sizeof(reason), "%s",
		 outcome == DEMO_UNSURE && ret == SILT_PRECOPY_UNSURE
			 ? "no answer whether the guest runs there: it stands still here"
			 : silt_errmsg());
	disconnect(s);
	demo_no_more_points();
	report_end(&s->report, outcome, reason);
	if (outcome == DEMO_FAILED || outcome == DEMO_CANCELLED) {
		ret = check_goes_on(s);
		if (ret < 0)
			return ret;
	}
	return outcome;
}

static int run_attempts(struct source *s)
{
	unsigned int i;
	int outcome = DEMO_FAILED;

	for (i = 0; i < s->opt->attempts; i++) {
		outcome = attempt(s);
		if (outcome < 0)
			return outcome;
		report_show_end(&s->report);
		if (outcome != DEMO_FAILED && outcome != DEMO_CANCELLED)
			break;
	}
	return outcome;
}

int demo_source(const struct demo_options *opt)
{
	struct source s = {.opt = opt, .fd = -1};
	int ret = open_machine(&s), saved;

	if (ret < 0)
		return ret;
	if (opt->to)
		snprintf(s.where, sizeof(s.where), "%s", opt->to);
	ret = make_hello(&s);
	if (ret >= 0)
		ret = start_machine(&s);
	if (ret >= 0) {
		report_open(&s.report, opt, &s.machine);
		report_show_start(&s.report);
		ret = run_attempts(&s);
		saved = ret < 0 ? 0 : report_save(&s.report);
		ret = saved < 0 ? saved : ret;
		report_close(&s.report);
	}
	machine_pause(&s.machine);
	machine_close(&s.machine);
	return ret;
}
