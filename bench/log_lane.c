/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/log_lane.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/bitmap.h>
#include <silt/log.h>

#include "base/err.h"
#include "bench/stats.h"

/* Ranges of a pass whose time is taken, and of one of a thread that is only there to disturb. */
#define PASS	4096
#define DISTURB 256

/* A pass counts if the other thread has made so many of its own meanwhile. */
#define DISTURBED 4

/* But on a busy machine, not for longer than so many times the time there should be. */
#define PATIENCE 20

/* ---- A case ---------------------------------------------------------------------------------- */

/* A log of @bytes; with @lost its file has been truncated under it. */
static int map_log(uint64_t bytes, bool lost, struct silt_log **log)
{
	int fd = memfd_create("silt-bench-log", MFD_CLOEXEC), ret;

	if (fd < 0)
		return silt_err_sys(errno, "no file for a log");
	ret = ftruncate(fd, (off_t)bytes) < 0
		      ? silt_err_sys(errno, "a log of %llu bytes", (unsigned long long)bytes)
		      : silt_log_map(fd, bytes, 0, log);
	if (!ret && lost && ftruncate(fd, 0) < 0)
		ret = silt_err_sys(errno, "a log that cannot be truncated");
	close(fd);
	return ret;
}

static int make_logs(struct log_stage *s, bool replaced)
{
	uint64_t bytes = (log_case_log_pages(s->c) + 7) / 8;
	struct silt_log_writer w;
	int ret = map_log(bytes, false, &s->log);

	if (!ret && replaced)
		ret = map_log(bytes, true, &s->lost);
	if (ret)
		return ret;
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, s->log);
	s->words = w.whole;
	silt_log_writer_set(&w, NULL);
	return 0;
}

static int make_lane(struct log_stage *s, unsigned int i)
{
	struct log_lane *lane = &s->lanes[i];

	lane->stage = s;
	lane->index = i;
	lane->ops = malloc(s->nops * sizeof(*lane->ops));
	lane->memory = aligned_alloc(4096, (sizeof(*lane->memory) + 4095) / 4096 * 4096);
	if (!lane->ops || !lane->memory)
		return silt_err(ENOMEM, "no memory for %u ranges", s->nops);
	memset(lane->memory, 0, sizeof(*lane->memory));
	log_case_fill(s->c, i, lane->ops);
	return 0;
}

static void expect(struct log_stage *s, uint64_t gpa, uint64_t len)
{
	uint64_t page;

	for (page = gpa / 4096; page <= (gpa + len - 1) / 4096; page++)
		s->expected.words[page / 64] |= UINT64_C(1) << page % 64;
}

static void expect_all(struct log_stage *s)
{
	unsigned int t;
	uint32_t i;

	for (t = 0; t < s->c->threads; t++) {
		for (i = 0; i < s->nops; i++)
			expect(s, s->lanes[t].ops[i].gpa, s->lanes[t].ops[i].len);
	}
	if (s->c->descriptors)
		expect(s, LOG_INDEX_GPA, LOG_EVENT_GPA + 2 - LOG_INDEX_GPA);
}

int log_stage_create(struct log_stage *s, const struct log_case *c, bool replaced)
{
	uint64_t pages = log_case_log_pages(c);
	unsigned int i;
	int ret;

	memset(s, 0, sizeof(*s));
	s->c = c;
	s->nops = log_case_ops(c);
	ret = make_logs(s, replaced);
	for (i = 0; i < c->threads && !ret; i++)
		ret = make_lane(s, i);
	if (!ret)
		ret = bench_bitmap_make(&s->expected, pages + 64);
	if (!ret)
		ret = bench_bitmap_make(&s->harvested, pages + 64);
	if (!ret)
		expect_all(s);
	return ret;
}

void log_stage_destroy(struct log_stage *s)
{
	unsigned int i;

	for (i = 0; i < LOG_MAX_THREADS; i++) {
		free(s->lanes[i].ops);
		free(s->lanes[i].memory);
	}
	bench_bitmap_free(&s->expected);
	bench_bitmap_free(&s->harvested);
	silt_log_put(s->log);
	silt_log_put(s->lost);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Each thread has a CPU of its own, as long as there are enough. */
static void take_cpu(unsigned int index)
{
	cpu_set_t all, mine;
	int cpu;

	if (sched_getaffinity(0, sizeof(all), &all) || CPU_COUNT(&all) < 2)
		return;
	CPU_ZERO(&mine);
	for (cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&mine); cpu++) {
		if (CPU_ISSET(cpu, &all) && !index--)
			CPU_SET(cpu, &mine);
	}
	if (CPU_COUNT(&mine))
		pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine);
}

static void start_together(struct log_stage *s, unsigned int n)
{
	__atomic_add_fetch(&s->ready, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) < n)
		sched_yield();
}

static bool stopped(const struct log_stage *s)
{
	return __atomic_load_n(&s->stop, __ATOMIC_ACQUIRE);
}

static unsigned int threads_of(const struct log_stage *s)
{
	return s->c->threads + s->c->harvested;
}

static struct log_pass next_pass(struct log_lane *lane, uint32_t n)
{
	struct log_stage *s = lane->stage;
	struct log_pass pass = {&lane->ops[lane->next], n, s->c->burst, lane->memory};

	if (pass.n > s->nops - lane->next)
		pass.n = s->nops - lane->next;
	lane->next = (lane->next + pass.n) % s->nops;
	return pass;
}

static void run_pass(struct log_lane *lane, const struct log_pass *pass)
{
	const struct log_variant *v = lane->stage->variant;

	if (lane->stage->c->descriptors)
		v->descriptors(lane->state, pass);
	else
		v->calls(lane->state, pass);
	__atomic_store_n(&lane->passes, lane->passes + 1, __ATOMIC_RELEASE);
}

/* What a harvest before the pass would have done. */
static void unmark(struct log_stage *s, const struct log_pass *pass)
{
	uint32_t i;

	for (i = 0; i < pass->n; i++)
		s->words[pass->ops[i].gpa / 4096 / 64] = 0;
	s->words[LOG_RING_GPA / 4096 / 64] = 0;
	silt_fence();
}

static uint32_t pass_ranges(const struct log_case *c)
{
	if (!c->fresh || c->pages > PASS)
		return PASS;
	return c->pages < 32 ? 32 : (uint32_t)c->pages;
}

/* True unless another thread should have run and has not. */
static bool disturbed(const struct log_stage *s, unsigned int before)
{
	return s->c->threads < 2 ||
	       __atomic_load_n(&s->lanes[1].passes, __ATOMIC_ACQUIRE) - before >= DISTURBED;
}

static void run_timed(struct log_lane *lane)
{
	struct log_stage *s = lane->stage;
	uint32_t ranges = pass_ranges(s->c);
	uint64_t now = bench_now_ns(), deadline = now + s->slot_ns;
	uint64_t patience = now + s->slot_ns * PATIENCE;

	while (s->nsamples < LOG_MAX_SAMPLES && (now < deadline || !s->nsamples)) {
		struct log_pass pass = next_pass(lane, ranges);
		unsigned int before = __atomic_load_n(&s->lanes[1].passes, __ATOMIC_ACQUIRE);
		uint64_t began;

		if (s->c->fresh)
			unmark(s, &pass);
		began = bench_now_ns();
		run_pass(lane, &pass);
		now = bench_now_ns();
		if (disturbed(s, before) || now >= patience)
			s->samples[s->nsamples++] = (double)(now - began) / pass.n;
	}
}

static void run_lane(struct log_lane *lane)
{
	struct log_stage *s = lane->stage;
	struct log_pass pass;
	uint32_t done;

	start_together(s, threads_of(s));
	if (s->slot_ns && lane->index == 0) {
		run_timed(lane);
		__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
		return;
	}
	for (done = 0; s->slot_ns ? !stopped(s) : done < s->nops; done += pass.n) {
		pass = next_pass(lane, DISTURB);
		run_pass(lane, &pass);
	}
}

static void *lane_thread(void *arg)
{
	struct log_lane *lane = arg;

	take_cpu(lane->index);
	run_lane(lane);
	return NULL;
}

static void *harvest_thread(void *arg)
{
	struct log_stage *s = arg;

	take_cpu(s->c->threads);
	start_together(s, threads_of(s));
	do {
		if (silt_log_harvest(s->log, s->harvested.words) < 0)
			break;
	} while (!stopped(s));
	return NULL;
}

/* ---- Running --------------------------------------------------------------------------------- */

static int start_threads(struct log_stage *s)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < s->c->threads && !ret; i++) {
		ret = pthread_create(&s->lanes[i].thread, NULL, lane_thread, &s->lanes[i]);
		s->lanes[i].running = !ret;
	}
	if (!ret && s->c->harvested)
		ret = pthread_create(&s->harvester, NULL, harvest_thread, s);
	return ret ? silt_err(ret, "no thread to write a log with") : 0;
}

static int run(struct log_stage *s)
{
	unsigned int i;
	int ret = start_threads(s);

	/* Those that wait for one that there is not go on, and see that they are to stop. */
	if (ret) {
		__atomic_store_n(&s->ready, threads_of(s), __ATOMIC_RELEASE);
		__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
	}
	for (i = 0; i < s->c->threads; i++) {
		if (s->lanes[i].running)
			pthread_join(s->lanes[i].thread, NULL);
		s->lanes[i].running = false;
	}
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
	if (!ret && s->c->harvested)
		pthread_join(s->harvester, NULL);
	return ret;
}

static int run_variant(struct log_stage *s, const struct log_variant *variant)
{
	unsigned int i;
	int ret = 0;

	s->variant = variant;
	s->ready = s->stop = s->nsamples = 0;
	for (i = 0; i < s->c->threads; i++) {
		s->lanes[i].next = 0;
		s->lanes[i].state = variant->open(s->log, s->lost);
		if (!s->lanes[i].state)
			ret = silt_err(ENOMEM, "no memory for a writer");
	}
	if (!ret)
		ret = run(s);
	for (i = 0; i < s->c->threads; i++) {
		if (s->lanes[i].state)
			variant->close(s->lanes[i].state);
	}
	return ret;
}

int log_stage_sample(struct log_stage *s, const struct log_variant *variant, double seconds,
		     double *ns)
{
	int ret;

	s->slot_ns = (uint64_t)(seconds * 1e9);
	ret = run_variant(s, variant);
	if (!ret)
		*ns = stats_median(s->samples, s->nsamples);
	return ret;
}

int log_stage_again(struct log_stage *s, const struct log_variant *variant)
{
	s->slot_ns = 0;
	return run_variant(s, variant);
}

/* ---- That they mark what they should --------------------------------------------------------- */

static int compare(const struct log_stage *s)
{
	uint64_t i, have, want, wrong;
	bool none = s->variant == &log_variants[LOG_NONE];

	for (i = 0; i < silt_bitmap_words(log_case_log_pages(s->c)); i++) {
		have = s->words[i] | s->harvested.words[i];
		want = none ? 0 : s->expected.words[i];
		wrong = have ^ want;
		/* Without a lock marks may be lost, and nothing else. */
		if (!s->variant->safe)
			wrong &= have;
		if (wrong)
			return silt_err(EPROTO, "%s, %s: page %llu is %s", s->c->name,
					s->variant->name,
					(unsigned long long)(i * 64 + __builtin_ctzll(wrong)),
					have & wrong ? "marked and was not written"
						     : "written and not marked");
	}
	return 0;
}

int log_stage_check(struct log_stage *s, const struct log_variant *variant)
{
	int ret;

	memset(s->words, 0, silt_log_pages(s->log) / 8);
	memset(s->harvested.words, 0, silt_log_pages(s->log) / 8);
	s->slot_ns = 0;
	ret = run_variant(s, variant);
	return ret ? ret : compare(s);
}
