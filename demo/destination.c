/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "demo/callers.h"
#include "demo/demo.h"
#include "demo/hook.h"
#include "demo/link.h"
#include "guest/pace.h"

/* A guest on a busy machine goes on within this. */
#define GOES_ON_MS 10000

struct destination {
	const struct demo_options *opt;
	struct callers callers;
	int fd;
	struct link_hello hello;
	struct machine machine;
	struct link_outcome outcome;
	bool started;
};

static void answer(int fd, int error, bool has_guest)
{
	struct link_answer a = {.error = (uint32_t)-error, .has_guest = has_guest};

	if (error)
		snprintf(a.text, sizeof(a.text), "%s", silt_errmsg());
	link_write(fd, &a, sizeof(a));
}

/* All of RAM has come, and nothing writes to it yet: the moment to look at it. */
static int examine(struct destination *d)
{
	uint64_t began = pace_now_ns();
	int ret = ram_hash(&d->machine.ram, &d->outcome.hash);

	if (ret >= 0)
		d->outcome.wrong = machine_check(&d->machine);
	d->outcome.hash_ns = pace_now_ns() - began;
	machine_count(&d->machine, &d->outcome.counts);
	return ret >= 0 && d->outcome.wrong < 0 ? (int)d->outcome.wrong : ret;
}

static int on_round(void *opaque, uint64_t round, uint64_t pages)
{
	struct destination *d = opaque;

	(void)round;
	(void)pages;
	demo_point("destination-round", d->fd);
	return 0;
}

static int load(void *opaque, const void *state, size_t bytes)
{
	struct destination *d = opaque;
	int ret;

	demo_point("destination-load", d->fd);
	ret = machine_load(&d->machine, state, bytes);
	if (ret >= 0)
		ret = examine(d);
	demo_point("destination-loaded", d->fd);
	return ret;
}

static int start(void *opaque)
{
	struct destination *d = opaque;
	int ret;

	demo_point("destination-start", d->fd);
	ret = machine_resume(&d->machine);
	d->started = ret >= 0;
	demo_point("destination-started", d->fd);
	return ret;
}

static int receive(struct destination *d)
{
	const struct ram *r = &d->machine.ram;
	struct silt_incoming_block blocks[RAM_BLOCKS];
	struct silt_incoming_options opt = {
		.size = sizeof(opt),
		.blocks = blocks,
		.nblocks = RAM_BLOCKS,
		.channel = {.size = sizeof(opt.channel), .fd = d->fd},
		.timeout_ns = d->opt->timeout_ms * UINT64_C(1000000),
		.monitor = {.size = sizeof(opt.monitor),
			    .round = on_round,
			    .load = load,
			    .start = start,
			    .opaque = d},
	};
	struct silt_incoming *in;
	unsigned int i;
	int ret;

	for (i = 0; i < RAM_BLOCKS; i++)
		blocks[i] = (struct silt_incoming_block){.name = r->blocks[i].name,
							 .host = r->blocks[i].memory,
							 .bytes = r->blocks[i].bytes,
							 .zeroed = true};
	ret = silt_incoming_create(&opt, &in);
	if (ret < 0)
		return ret;
	ret = silt_incoming_run(in);
	silt_incoming_destroy(in);
	return ret;
}

static bool has_gone_on(struct destination *d)
{
	struct machine_counts now;

	machine_count(&d->machine, &now);
	return now.writes > d->outcome.counts.writes &&
	       (now.reads > d->outcome.counts.reads || !d->hello.disk_rate);
}

/* At least as long as was wished, and until vCPUs and disk were seen to do something. */
static int let_run(struct destination *d)
{
	uint64_t end;

	poll(NULL, 0, (int)d->hello.after_ms);
	end = pace_now_ns() + GOES_ON_MS * UINT64_C(1000000);
	while (!has_gone_on(d) && pace_now_ns() < end)
		poll(NULL, 0, 10);
	return has_gone_on(d) ? 0 : silt_err(EIO, "demo: the guest does not go on here");
}

/* The guest has run on here: is its memory still what it counted? */
static int examine_later(struct destination *d)
{
	int ret = let_run(d);

	if (ret < 0)
		return ret;
	ret = machine_pause(&d->machine);
	if (ret < 0)
		return ret;
	machine_count(&d->machine, &d->outcome.counts_later);
	d->outcome.wrong_later = machine_check(&d->machine);
	return d->outcome.wrong_later < 0 ? (int)d->outcome.wrong_later : 0;
}

/* Return: 1 memory is equal, 0 it is not; -errno. */
static int compare(const struct destination *d, int fd)
{
	struct link_verdict verdict;
	int ret = link_write(fd, &d->outcome, sizeof(d->outcome));

	if (ret >= 0)
		ret = link_read(fd, &verdict, sizeof(verdict), (int)d->opt->timeout_ms);
	return ret < 0 ? ret : !!verdict.equal;
}

/* Return: as compare(), with the source that asks who has the guest; -EAGAIN it was another one. */
static int tell_one(struct destination *d, int timeout_ms)
{
	struct link_hello hello;
	int fd = callers_next(&d->callers, &hello, timeout_ms), ret;

	if (fd < 0)
		return fd;
	if (hello.purpose == LINK_ASK && hello.guest == d->hello.guest) {
		answer(fd, 0, d->started);
		ret = compare(d, fd);
	} else {
		answer(fd, silt_err(EBUSY, "another guest is here"), false);
		ret = -EAGAIN;
	}
	close(fd);
	return ret;
}

/* The connection was lost: the source asks within the timeout where the guest is, or never. */
static int tell_source(struct destination *d)
{
	uint64_t end = pace_now_ns() + d->opt->timeout_ms * UINT64_C(1000000), now;
	int ret = -EAGAIN;

	while (ret < 0 && (now = pace_now_ns()) < end)
		ret = tell_one(d, (int)((end - now) / 1000000 + 1));
	return ret;
}

static enum demo_outcome conclude(struct destination *d)
{
	int ret = examine_later(d);

	if (ret < 0) {
		d->outcome.error = (uint32_t)-ret;
		snprintf(d->outcome.text, sizeof(d->outcome.text), "%s", silt_errmsg());
	}
	ret = compare(d, d->fd);
	if (ret < 0)
		ret = tell_source(d);
	if (ret < 0) {
		fprintf(stderr, "silt demo: the guest runs here, but the source was lost before "
				"memory was compared\n");
		return DEMO_UNSURE;
	}
	if (!d->opt->quiet)
		printf("the guest runs here; its memory is %s\n", ret ? "equal" : "different");
	return ret ? DEMO_EQUAL : DEMO_DIFFERENT;
}

/* Machine and connection are there. */
static enum demo_outcome take_guest(struct destination *d)
{
	int ret;

	answer(d->fd, 0, false);
	ret = receive(d);
	if (ret >= 0)
		return conclude(d);
	fprintf(stderr, "silt demo: %s\n", silt_errmsg());
	return DEMO_FAILED;
}

static int make_machine(struct destination *d)
{
	const struct machine_config config = {.memory = d->hello.memory,
					      .vcpus = d->hello.vcpus,
					      .kvm = d->hello.kvm,
					      .seed = d->hello.seed,
					      .disk_rate = d->hello.disk_rate,
					      .silt = d->opt->machine.silt};
	int ret = machine_open(&d->machine, &config);

	if (ret < 0)
		answer(d->fd, ret, false);
	return ret;
}

/*
 * Until a source brings a guest. Those that only ask have come too late: it never ran here. A
 * source that started this process comes at once, or has died.
 */
static int await_source(struct destination *d)
{
	int timeout = d->opt->fd < 0 ? -1 : (int)d->opt->timeout_ms;

	for (;;) {
		d->fd = callers_next(&d->callers, &d->hello, timeout);
		if (d->fd < 0)
			return d->fd;
		if (d->hello.purpose == LINK_MIGRATE)
			return 0;
		answer(d->fd, 0, false);
		close(d->fd);
	}
}

static int serve(struct destination *d)
{
	int ret = await_source(d);

	if (ret < 0)
		return ret;
	ret = make_machine(d);
	if (ret >= 0) {
		ret = take_guest(d);
		machine_pause(&d->machine);
		machine_close(&d->machine);
	}
	close(d->fd);
	return ret;
}

static void say_port(const struct destination *d, int port)
{
	if (d->opt->quiet)
		return;
	printf("waiting for a guest on port %d\n", port);
	fflush(stdout);
}

int demo_destination(const struct demo_options *opt)
{
	int listener = opt->fd < 0 ? link_listen(opt->listen) : opt->fd, ret;
	struct destination d = {
		.opt = opt, .callers = {.listener = listener, .timeout_ms = (int)opt->timeout_ms}};

	if (listener < 0)
		return listener;
	ret = link_port(listener);
	if (ret >= 0) {
		say_port(&d, ret);
		ret = serve(&d);
	}
	callers_close(&d.callers);
	close(listener);
	return ret;
}
