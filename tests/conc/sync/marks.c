/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices store to pages and mark them in one shared log, flat out, while a monitor syncs, takes
 * and reads, and gives them another log now and then: behind each pass no copy is older than its
 * page.
 *
 *     conc_sync_marks MARKS               ends well if no page is stale
 *     conc_sync_marks read-early|mark-first    the order is broken; ends well once that was seen
 */
#include <string.h>

#include <silt/sync.h>

#include "conc/log/common.h"
#include "support/rng.h"

#define PAGES	 UINT64_C(4096)
#define HALF	 (PAGES / 2)
#define DEVICES	 UINT64_C(2)
#define BURST	 16
#define LOG_PAGE UINT64_C(4096)
/* One slot lies in the log as in the block, the other does not. */
#define GPA_OF_FIRST  UINT64_C(64)
#define GPA_OF_SECOND UINT64_C(2203)

enum order {
	RIGHT,
	READ_EARLY, /* the monitor reads the pages, and then syncs */
	MARK_FIRST, /* devices mark pages, and then store to them */
};

struct device {
	struct race *race;
	uint64_t number;
	unsigned int generation; /* of the log that it writes to; atomic, as is the next */
	bool parked;
	pthread_t thread;
};

struct race {
	enum order order;
	struct silt_sync *sync;
	int block;
	int source;
	int consumers;
	struct device devices[DEVICES];
	pthread_mutex_t switching;
	struct silt_log *log;
	unsigned int generation; /* of the log; atomic */
	uint64_t passes;
	uint64_t syncs;
	uint64_t memory[PAGES]; /* the first word of each page */
	uint64_t early[PAGES];
	uint64_t copy[2][PAGES];
	pthread_barrier_t barrier;
	unsigned int done; /* devices that are through with the pass */
	bool over;
};

static bool is_parked(const struct device *d)
{
	return __atomic_load_n(&d->parked, __ATOMIC_SEQ_CST);
}

/* Once each device has gone over, or is parked and goes over before it marks again. */
static void await_devices(struct race *r)
{
	unsigned int i;

	for (i = 0; i < DEVICES; i++) {
		const struct device *d = &r->devices[i];

		while (!is_parked(d) &&
		       __atomic_load_n(&d->generation, __ATOMIC_SEQ_CST) != r->generation)
			sched_yield();
	}
}

static int replace(void *opaque, const struct silt_sync_log_file *file)
{
	struct race *r = opaque;
	struct silt_log *old = r->log;

	pthread_mutex_lock(&r->switching);
	must(!silt_log_map(file->fd, file->bytes, file->offset, &r->log));
	__atomic_fetch_add(&r->generation, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&r->switching);
	await_devices(r);
	silt_log_put(old);
	return 0;
}

/* Between two bursts: what is pending goes into the log before. */
static void follow_log(struct device *d, struct silt_log_writer *w)
{
	struct race *r = d->race;

	if (d->generation == __atomic_load_n(&r->generation, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&r->switching);
	silt_log_writer_set(w, r->log);
	__atomic_store_n(&d->generation, r->generation, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&r->switching);
}

static void store(struct race *r, const uint64_t *pages, uint64_t version)
{
	unsigned int i;

	for (i = 0; i < BURST; i++)
		__atomic_store_n(&r->memory[pages[i]], version, __ATOMIC_RELAXED);
}

static void mark(struct silt_log_writer *w, const uint64_t *pages)
{
	unsigned int i;

	for (i = 0; i < BURST; i++) {
		uint64_t gpa =
			pages[i] < HALF ? GPA_OF_FIRST + pages[i] : GPA_OF_SECOND + pages[i] - HALF;

		silt_log_write(w, gpa * LOG_PAGE, 8);
	}
	silt_log_flush(w);
}

/*
 * Every other page, the neighbours of another device's, and each once: so each mark is the last one
 * of its page.
 */
static void one_pass(struct device *d, struct silt_log_writer *w, struct rng *rng, uint64_t version)
{
	uint64_t at = rng_next(rng), step = rng_next(rng) | 1, i, k, pages[BURST];
	struct race *r = d->race;

	for (i = 0; i < PAGES / DEVICES; i += BURST) {
		follow_log(d, w);
		for (k = 0; k < BURST; k++) {
			at += step;
			pages[k] = at % (PAGES / DEVICES) * DEVICES + d->number;
		}
		if (r->order == MARK_FIRST)
			mark(w, pages);
		store(r, pages, version);
		if (r->order != MARK_FIRST)
			mark(w, pages);
	}
}

static void *run_device(void *arg)
{
	struct device *d = arg;
	struct race *r = d->race;
	struct rng rng = rng_make(d->number);
	struct silt_log_writer w;
	uint64_t pass;

	take_cpus(false);
	silt_log_writer_init(&w);
	for (pass = 1;; pass++) {
		pthread_barrier_wait(&r->barrier);
		if (r->over)
			break;
		__atomic_store_n(&d->parked, false, __ATOMIC_SEQ_CST);
		one_pass(d, &w, &rng, pass);
		__atomic_store_n(&d->parked, true, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&r->done, 1, __ATOMIC_RELEASE);
	}
	silt_log_writer_set(&w, NULL);
	return NULL;
}

static void read_all(struct race *r, uint64_t *to)
{
	uint64_t page;

	for (page = 0; page < PAGES; page++)
		to[page] = __atomic_load_n(&r->memory[page], __ATOMIC_RELAXED);
}

static void read_taken(struct race *r, int consumer)
{
	uint64_t first = 0, page, end;
	int64_t n;

	for (;;) {
		n = silt_sync_take(r->sync, consumer, r->block, first, PAGES, &first);
		must(n >= 0);
		if (!n)
			return;
		for (page = first, end = first + (uint64_t)n; page < end; page++)
			r->copy[consumer][page] =
				r->order == READ_EARLY
					? r->early[page]
					: __atomic_load_n(&r->memory[page], __ATOMIC_RELAXED);
		first = end;
	}
}

static void sync_and_read(struct race *r)
{
	int i;

	if (r->order == READ_EARLY)
		read_all(r, r->early);
	must(silt_sync_run(r->sync, 0) >= 0);
	for (i = 0; i < r->consumers; i++)
		read_taken(r, i);
	r->syncs++;
}

/* Return: pages that are stale in some copy. */
static unsigned int monitor_pass(struct race *r)
{
	unsigned int stale = 0;
	uint64_t page;
	int i;

	__atomic_store_n(&r->done, 0, __ATOMIC_RELAXED);
	pthread_barrier_wait(&r->barrier);
	while (__atomic_load_n(&r->done, __ATOMIC_ACQUIRE) < DEVICES) {
		sync_and_read(r);
		if (r->syncs % 64 == 0)
			must(!silt_sync_log_replace(r->sync, r->source));
	}
	sync_and_read(r);
	for (i = 0; i < r->consumers; i++) {
		for (page = 0; page < PAGES; page++)
			stale += r->copy[i][page] != r->memory[page];
	}
	return stale;
}

static void add_slot(struct race *r, uint32_t number, uint64_t gpa, uint64_t offset)
{
	struct silt_sync_slot slot = {
		.size = sizeof(slot),
		.number = number,
		.block = r->block,
		.gpa = gpa * LOG_PAGE,
		.bytes = HALF * LOG_PAGE,
		.offset = offset * LOG_PAGE,
	};

	must(silt_sync_slot_add(r->sync, &slot) >= 0);
}

static void add_consumer(struct race *r)
{
	must(silt_sync_consumer_add(r->sync, true) == r->consumers);
	r->consumers++;
}

static void build(struct race *r)
{
	struct silt_sync_log log = {.size = sizeof(log), .replace = replace, .opaque = r};
	unsigned int i;

	pthread_mutex_init(&r->switching, NULL);
	must(!silt_sync_create(NULL, &r->sync));
	r->block = silt_sync_block_add(r->sync, "ram", PAGES * LOG_PAGE, NULL);
	must(r->block >= 0);
	add_slot(r, 0, GPA_OF_FIRST, 0);
	add_slot(r, 1, GPA_OF_SECOND, HALF);
	for (i = 0; i < DEVICES; i++)
		r->devices[i] = (struct device){.race = r, .number = i, .parked = true};
	r->source = silt_sync_add_log(r->sync, &log);
	must(r->source >= 0);
	add_consumer(r);
	pthread_barrier_init(&r->barrier, NULL, DEVICES + 1);
}

/* With one consumer the log goes straight into its bitmap, with two it does not. */
static unsigned int run_passes(struct race *r)
{
	unsigned int stale = 0;
	uint64_t pass;

	for (pass = 0; pass < r->passes && !stale; pass++) {
		if (pass == r->passes / 2)
			add_consumer(r);
		stale = monitor_pass(r);
	}
	printf("%lu passes of %lu marks, %lu syncs, %u pages are stale\n", pass, PAGES, r->syncs,
	       stale);
	r->over = true;
	pthread_barrier_wait(&r->barrier);
	return stale;
}

int main(int argc, char **argv)
{
	static struct race r;
	uint64_t marks = argc > 1 ? strtoull(argv[1], NULL, 0) : 0, i;
	unsigned int stale;

	if (argc > 1 && !strcmp(argv[1], "read-early"))
		r.order = READ_EARLY;
	else if (argc > 1 && !strcmp(argv[1], "mark-first"))
		r.order = MARK_FIRST;
	r.passes = (r.order == RIGHT ? marks : 100 * 1000 * 1000) / PAGES;
	if (getenv("SILT_TEST_SLOW") && r.order == RIGHT)
		r.passes /= 10;
	must(r.passes >= 2);
	build(&r);
	for (i = 0; i < DEVICES; i++)
		must(!pthread_create(&r.devices[i].thread, NULL, run_device, &r.devices[i]));
	take_cpus(true);
	stale = run_passes(&r);
	for (i = 0; i < DEVICES; i++)
		pthread_join(r.devices[i].thread, NULL);
	silt_sync_destroy(r.sync);
	silt_log_put(r.log);
	return !stale == !(r.order == RIGHT);
}
