/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The small guest dirties pages, slots come and go, and each consumer copies what the engine says
 * is dirty. In the end the copies equal memory, byte for byte, and nothing is dirty any more.
 *
 *     test_precopy [--must-fail] [--break=get|clear|arm|ring] MODE [CASES [SEED]]
 *
 * The first case has SEED, or a random one, and each further one the next. With --must-fail it is
 * right if a case fails.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>

#include <silt/error.h>

#include "sender.h"
#include "world.h"

struct arguments {
	enum guest_log mode;
	enum world_break broken;
	bool must_fail;
	uint64_t cases;
	uint64_t seed;
};

/* A round is as long as it takes the guest to write some pages. */
static void await_writes(struct world *w)
{
	uint64_t goal = guest_writes(w->guest) + rng_below(&w->rng, 3000);

	while (guest_writes(w->guest) < goal)
		sched_yield();
}

static void sync_all(struct world *w)
{
	int consumer = (int)rng_below(&w->rng, w->consumers + 1) - 1;
	int64_t ret = silt_sync_run(w->sync, consumer);

	if (ret < 0 && !world_was_failed(w, ret))
		world_die(w, "sync");
}

/* What the monitor itself writes, no hypervisor sees. */
static void write_as_monitor(struct world *w)
{
	struct world_block *b = &w->blocks[rng_below(&w->rng, WORLD_BLOCKS)];
	uint64_t at = rng_below(&w->rng, b->bytes / 8) * 8;
	unsigned int shift = w->opt.page_shift ? w->opt.page_shift : 12;

	*(volatile uint64_t *)(b->memory + at) = rng_next(&w->rng);
	if (silt_sync_mark(w->sync, b->id, at >> shift, 1) < 0)
		world_die(w, "mark");
}

/* Some slot goes, or one that went comes back. */
static void change_slots(struct world *w)
{
	struct world_slot *s = &w->slots[rng_below(&w->rng, WORLD_SLOTS)];

	if (s->id < 0)
		world_add_slot(w, s);
	else
		world_remove_slot(w, s);
}

static void add_back(struct world *w)
{
	unsigned int i;

	for (i = 0; i < WORLD_SLOTS; i++)
		if (w->slots[i].id < 0)
			world_add_slot(w, &w->slots[i]);
}

static void round_of_all(struct world *w, struct sender *senders, bool threads)
{
	unsigned int i;

	await_writes(w);
	sync_all(w);
	for (i = 0; i < w->consumers && !threads; i++)
		sender_pass(&senders[i]);
	if (rng_one_in(&w->rng, 2))
		write_as_monitor(w);
	if (rng_one_in(&w->rng, 2))
		change_slots(w);
}

/* The second consumer comes in the middle. */
static void migrate(struct world *w, struct sender *senders)
{
	unsigned int rounds = 3 + (unsigned int)rng_below(&w->rng, 6), i;
	bool second = rng_one_in(&w->rng, 2), threads = rng_one_in(&w->rng, 2);

	guest_resume(w->guest);
	sender_init(&senders[0], w, 0);
	if (threads)
		sender_start(&senders[0]);
	for (i = 0; i < rounds; i++) {
		round_of_all(w, senders, threads);
		if (second && i == rounds / 2) {
			world_add_consumer(w);
			sender_init(&senders[1], w, 1);
			if (threads)
				sender_start(&senders[1]);
		}
	}
	add_back(w);
	await_writes(w);
	for (i = 0; i < w->consumers && threads; i++)
		sender_stop(&senders[i]);
	world_heal(w);
}

static void compare_block(struct world *w, const struct world_block *b, unsigned int consumer)
{
	uint64_t at;

	for (at = 0; at < b->bytes; at += GUEST_PAGE)
		if (memcmp(b->memory + at, b->copies[consumer] + at, GUEST_PAGE))
			world_complain(w, "block %s, page %llu: consumer %u has an old copy",
				       b->name, (unsigned long long)(at / GUEST_PAGE), consumer);
}

/* All was taken, so all is armed, and nobody writes: the sources have nothing to report. */
static void check_quiet(struct world *w)
{
	int64_t fresh = silt_sync_run(w->sync, 0);
	int64_t reported = silt_sync_run(w->sync, SILT_SYNC_NO_CONSUMER);

	if (fresh || reported)
		world_complain(w, "%lld pages are dirty, and %lld reported, that nobody wrote",
			       (long long)fresh, (long long)reported);
}

static void switch_over(struct world *w, struct sender *senders)
{
	unsigned int i, c;

	if (guest_pause(w->guest) < 0)
		world_die(w, "pause");
	sync_all(w);
	for (c = 0; c < w->consumers; c++)
		sender_finish(&senders[c]);
	for (i = 0; i < WORLD_BLOCKS; i++)
		for (c = 0; c < w->consumers; c++)
			compare_block(w, &w->blocks[i], c);
	check_quiet(w);
}

static void ignore(int sig)
{
	(void)sig;
}

/* Signals come to a monitor at any time, and there are calls of the kernel that they cut short. */
static void send_signals(suseconds_t every_us)
{
	struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
	struct itimerval timer = {.it_interval.tv_usec = every_us, .it_value.tv_usec = every_us};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Return: complaints; -errno there can be no guest. */
static int64_t run_case(const struct arguments *args, uint64_t seed, uint64_t *ring_exits)
{
	struct sender senders[WORLD_CONSUMERS];
	struct world w;
	int ret = world_open(&w, seed, args->mode, args->broken);

	if (ret < 0)
		return ret;
	send_signals(300);
	migrate(&w, senders);
	switch_over(&w, senders);
	send_signals(0);
	*ring_exits += guest_ring_exits(w.guest);
	world_close(&w);
	return w.complaints;
}

static uint64_t random_seed(void)
{
	uint32_t seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		perror("getrandom");
	return seed;
}

static bool parse_break(const char *name, enum world_break *broken)
{
	static const char *const names[] = {[BREAK_GET] = "get",
					    [BREAK_CLEAR] = "clear",
					    [BREAK_ARM] = "arm",
					    [BREAK_RING] = "ring"};
	unsigned int i;

	for (i = BREAK_GET; i <= BREAK_RING; i++) {
		if (!strcmp(name, names[i])) {
			*broken = i;
			return true;
		}
	}
	return false;
}

static bool parse_mode(const char *name, enum guest_log *mode)
{
	unsigned int i;

	for (i = GUEST_LOG_GET_CLEARS; i <= GUEST_LOG_RING_BITMAP; i++) {
		if (!strcmp(name, world_mode_name(i))) {
			*mode = i;
			return true;
		}
	}
	return false;
}

static bool parse(int argc, char **argv, struct arguments *args)
{
	int i = 1;

	*args = (struct arguments){.cases = 1};
	if (i < argc && !strcmp(argv[i], "--must-fail")) {
		args->must_fail = true;
		i++;
	}
	if (i < argc && !strncmp(argv[i], "--break=", 8))
		if (!parse_break(argv[i++] + 8, &args->broken))
			return false;
	if (i >= argc || !parse_mode(argv[i++], &args->mode))
		return false;
	if (i < argc)
		args->cases = strtoull(argv[i++], NULL, 0);
	args->seed = i < argc ? strtoull(argv[i++], NULL, 0) : random_seed();
	return i == argc;
}

static bool has_ring(enum guest_log mode)
{
	return mode == GUEST_LOG_RING || mode == GUEST_LOG_RING_BITMAP;
}

/* Return: the exit status. */
static int run_cases(const struct arguments *args)
{
	uint64_t failed = 0, ring_exits = 0, i;

	for (i = 0; i < args->cases && !(failed && args->must_fail); i++) {
		int64_t ret = run_case(args, args->seed + i, &ring_exits);

		if (ret < 0) {
			printf("skipped: %s\n", silt_errmsg());
			return 77;
		}
		failed += ret > 0;
	}
	printf("%s: %llu of %llu cases failed, from seed %llu on; rings were full %llu times\n",
	       world_mode_name(args->mode), (unsigned long long)failed, (unsigned long long)i,
	       (unsigned long long)args->seed, (unsigned long long)ring_exits);
	if (args->must_fail)
		return !failed;
	return failed || (has_ring(args->mode) && args->cases >= 10 && !ring_exits);
}

int main(int argc, char **argv)
{
	struct arguments args;

	if (!parse(argc, argv, &args)) {
		fprintf(stderr, "usage: test_precopy [--must-fail] [--break=get|clear|arm|ring] "
				"MODE [CASES [SEED]]\n");
		return 2;
	}
	return run_cases(&args);
}
