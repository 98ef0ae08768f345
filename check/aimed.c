/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <silt/access.h>
#include <silt/error.h>

#include "base/err.h"
#include "check/harvester.h"
#include "check/scenario.h"
#include "check/target_process.h"

/*
 * A device that looks at a bit before it sets it needs a full fence behind its store. Without one
 * the look may come before the store is seen, and where a monitor takes the bit in between, the
 * store is lost. That takes some tens of nanoseconds, which a harvester that just goes round never
 * meets. Here the driver is the monitor as well. It makes one request available that marks the page
 * of the used index, then another, and takes the page's bit at the moment of its completion: how
 * long that is, it learns from whether it came too early or too late the time before.
 *
 * A copy that looks stale while the bit is clear is no proof: the mark may be on its way. The rings
 * are stopped then, as they are now and then anyway, and what the log says after that counts.
 */

#define BUFFERS	  32
#define ROUNDS	  200 /* between two stops */
#define MOST_NAPS 16  /* a device that is to be woken is too slow to be met */

/* The aim follows the device by one part in so many each time. */
#define STEP	    16
#define FIRST_AIM   3000 /* ns */
#define MOST_AIM    100000
#define MOST_JITTER 200

/* How long a completion is waited for without giving up the CPU. */
#define SPIN_NS 100000

struct aimed {
	struct check_trial *run;
	struct check_harvester harvester;
	uint8_t *file; /* the log's, up to its end */
	size_t file_size;
	uint64_t *word;	   /* of the log, with the bit of the used index */
	uint64_t page;	   /* of the used index */
	uint16_t *index;   /* in memory */
	unsigned int next; /* buffer */
	unsigned int naps; /* since the rings were started */
	int64_t aim[2];	   /* ns from a request to its completion, if the device is awake, or not */
};

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ---- The log --------------------------------------------------------------------------------- */

static int exchange(void *arg, uint64_t *marked)
{
	struct aimed *a = arg;
	int64_t n = silt_log_harvest(check_trial_log(a->run)->map, marked);

	return n < 0 ? n : 0;
}

static uint16_t index_now(const struct aimed *a)
{
	return __atomic_load_n(a->index, __ATOMIC_RELAXED);
}

static uint16_t *index_copy(const struct aimed *a)
{
	const struct check_guest_region *r = &a->run->env->guest->region[GUEST_LOW];

	return (uint16_t *)(r->after + ((uint8_t *)a->index - r->mem));
}

/* One word of the log; of the pages that it marks, the index is read first. */
static void take_index(struct aimed *a)
{
	const struct check_guest_region *r = &a->run->env->guest->region[GUEST_LOW];
	const uint64_t bit = UINT64_C(1) << a->page % 64;
	uint64_t bits = __atomic_exchange_n(a->word, 0, __ATOMIC_SEQ_CST);
	uint16_t index;

	silt_fence();
	index = index_now(a);
	if (bits & bit) {
		check_guest_copy_page(a->run->env->guest, GUEST_LOW, a->page * GUEST_PAGE - r->gpa);
		*index_copy(a) = index;
	}
	/* What else was marked is copied in the next pass. */
	a->harvester.marked[a->page / 64] |= bits & ~bit;
}

static bool looks_stale(const struct aimed *a)
{
	return !(__atomic_load_n(a->word, __ATOMIC_RELAXED) >> a->page % 64 & 1) &&
	       *index_copy(a) != index_now(a);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static int build(struct aimed *a)
{
	struct check_trial *run = a->run;
	unsigned int i;

	for (i = 0; i < BUFFERS; i++)
		if (run->env->device->build_lasting(&run->builder, 0, i, SIZE_SMALL,
						    check_trial_request(run, i)) < 0)
			return check_trial_internal(run);
	run->nrequests = BUFFERS;
	check_places_sort(&run->places);
	return 0;
}

static int add_next(struct aimed *a)
{
	struct check_trial *run = a->run;
	struct check_request *r = check_trial_request(run, a->next++ % BUFFERS);

	check_trial_verify(run, r);
	run->env->device->renew(&run->builder, r);
	return check_session_add(&run->session, r);
}

static void follow(int64_t *aim, bool too_late)
{
	*aim += too_late ? -*aim / STEP : *aim / STEP + 1;
	if (*aim > MOST_AIM)
		*aim = MOST_AIM;
}

static void take_in_time(struct aimed *a, int64_t start, uint16_t before, bool napping)
{
	int64_t jitter = check_random_below(&a->run->builder.random, MOST_JITTER);

	while (now_ns() - start < a->aim[napping] + jitter)
		;
	follow(&a->aim[napping], index_now(a) != before);
	take_index(a);
}

static int await(struct aimed *a, uint16_t before)
{
	int64_t start = now_ns();

	while (index_now(a) == before && now_ns() - start < SPIN_NS)
		;
	return check_session_wait(&a->run->session);
}

static int request(struct aimed *a, bool with_aim)
{
	struct check_session *session = &a->run->session;
	bool napping = check_session_wants_kicks(session);
	uint16_t before = index_now(a);
	int ret = add_next(a);
	int64_t start = now_ns();

	if (ret < 0)
		return ret;
	a->naps += napping;
	if (napping)
		check_session_kick(session);
	if (with_aim)
		take_in_time(a, start, before, napping);
	/* It may have fallen asleep just before. */
	check_session_kick(session);
	return await(a, before);
}

/* ---- The scenario ---------------------------------------------------------------------------- */

/* Until the copy looks stale, or it is time to stop. */
static int race(struct aimed *a)
{
	unsigned int i;
	int ret = 0;

	a->naps = 0;
	for (i = 0; i < ROUNDS && a->naps < MOST_NAPS && !ret; i++) {
		ret = request(a, false);
		if (ret == 0)
			ret = request(a, true);
		if (ret == 0 && looks_stale(a)) {
			check_session_wait_idle(&a->run->session);
			if (looks_stale(a))
				break;
		}
	}
	return ret;
}

static int pass(struct aimed *a)
{
	return check_harvester_pass(&a->harvester) < 0 ? check_trial_internal(a->run) : 0;
}

/* The rings are stopped in the end. A stale copy stays so only until the next mark. */
static int work(struct aimed *a)
{
	struct check_session *session = &a->run->session;
	int64_t end = check_process_now_ms() + a->run->env->time_ms;
	int ret;

	for (;;) {
		ret = race(a);
		if (ret == 0)
			ret = check_session_stop(session);
		if (ret == 0)
			ret = pass(a);
		if (ret < 0 || *index_copy(a) != index_now(a) || check_process_now_ms() >= end)
			return ret;
		ret = check_session_start(session);
		if (ret < 0)
			return ret;
	}
}

static int map_log(struct aimed *a)
{
	const struct check_session_log *log = check_trial_log(a->run);

	a->file_size = log->offset + log->size;
	a->file = mmap(NULL, a->file_size, PROT_READ | PROT_WRITE, MAP_SHARED, log->fd, 0);
	if (a->file == MAP_FAILED) {
		silt_err_sys(errno, "cannot map the dirty log");
		return check_trial_internal(a->run);
	}
	a->word = (uint64_t *)(a->file + log->offset) + a->page / 64;
	return 0;
}

static int start(struct aimed *a)
{
	struct check_session *session = &a->run->session;
	int ret = build(a);

	if (ret == 0)
		ret = check_session_set_up(session, true);
	if (ret == 0)
		ret = check_session_start(session);
	if (ret < 0)
		return ret;
	check_compare_begin(a->run->compare);
	ret = check_trial_next_log(a->run, a->run->compare->npages);
	if (ret == 0)
		ret = map_log(a);
	return ret < 0 ? ret : check_session_logging(session, true, true);
}

static int run_aimed(struct aimed *a)
{
	int ret = start(a);

	/* Its thread copies all of memory, and is not needed any more. */
	if (ret == 0 && check_harvester_start(&a->harvester) < 0)
		return check_trial_internal(a->run);
	if (ret == 0 && check_harvester_stop(&a->harvester) < 0)
		return check_trial_internal(a->run);
	if (ret == 0)
		ret = work(a);
	return ret < 0 ? ret : check_shadow_compare(a->run, &a->harvester);
}

int check_aimed_run(struct check_trial *run)
{
	const struct check_session_queue *queue = &run->session.queue[0];
	struct aimed a = {
		.run = run,
		.harvester = {.guest = run->env->guest,
			      .npages = run->compare->npages,
			      .collect = exchange,
			      .arg = &a},
		.file = MAP_FAILED,
		.page = (queue->used + 2) / GUEST_PAGE,
		.index = check_guest_mem(run->env->guest, queue->used + 2),
		.aim = {FIRST_AIM, FIRST_AIM},
	};
	int ret = check_harvester_create(&a.harvester);

	ret = ret < 0 ? check_trial_internal(run) : run_aimed(&a);
	check_harvester_destroy(&a.harvester);
	if (a.file != MAP_FAILED)
		munmap(a.file, a.file_size);
	return ret;
}
