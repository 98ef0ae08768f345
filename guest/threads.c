/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "guest/pace.h"
#include "guest/threads.h"
#include "guest/walk.h"

#define MAX_SLOTS 16

struct writer {
	struct threads *owner;
	struct program program;
	struct walk walk;
	uint64_t burst_left;
	struct pace pace;
	bool has_program;
	bool has_thread;
	bool running; /* under the lock */
	pthread_t thread;
};

struct threads {
	struct guest_slot slots[MAX_SLOTS];
	unsigned int nslots;
	unsigned int count;
	uint64_t *marks; /* a bit for each page from guest address 0 on */
	uint64_t marks_bytes;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* on the monotonic clock */
	bool stop;		/* written under the lock, read by writers without */
	bool quit;
	struct writer writers[GUEST_MAX_VCPUS];
};

/* What one writer hands to another process of the same program. */
struct state {
	struct program program;
	struct walk walk;
	uint64_t burst_left;
	uint32_t idle_us;
	uint8_t steady;
	uint8_t has_program;
	uint8_t unused[2];
};

static bool must_stop(const struct threads *t)
{
	return __atomic_load_n(&t->stop, __ATOMIC_RELAXED);
}

static uint8_t *translate(const struct threads *t, uint64_t gpa)
{
	unsigned int i;

	for (i = 0; i < t->nslots; i++)
		if (gpa - t->slots[i].gpa < t->slots[i].bytes)
			return (uint8_t *)t->slots[i].memory + (gpa - t->slots[i].gpa);
	return NULL;
}

/* The store, and the mark behind it; the locked OR is the fence that the order wants. */
static void write_next(struct writer *w)
{
	struct threads *t = w->owner;
	struct walk_write write = walk_next(&w->walk, &w->program);
	uint8_t *at = translate(t, write.gpa);
	uint64_t page = write.gpa / GUEST_PAGE;

	if (at) {
		__atomic_store_n((uint64_t *)at, write.number, __ATOMIC_RELAXED);
		__atomic_fetch_or(&t->marks[page / 64], UINT64_C(1) << page % 64, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&w->program.counter, write.number, __ATOMIC_RELAXED);
}

static void be_idle(struct writer *w)
{
	struct threads *t = w->owner;
	struct timespec until = pace_next(&w->pace);
	int ret = 0;

	pthread_mutex_lock(&t->lock);
	while (!t->stop && !ret)
		ret = pthread_cond_timedwait(&t->changed, &t->lock, &until);
	pthread_mutex_unlock(&t->lock);
}

static void write_until_stopped(struct writer *w)
{
	const uint64_t first = program_first_number((unsigned int)(w - w->owner->writers));

	pace_begin(&w->pace);
	while (!must_stop(w->owner) && w->walk.number - first < w->program.writes) {
		if (!w->burst_left) {
			w->burst_left = w->program.burst;
			be_idle(w);
			continue;
		}
		write_next(w);
		w->burst_left--;
	}
}

static void *writer_thread(void *arg)
{
	struct writer *w = arg;
	struct threads *t = w->owner;

	pthread_mutex_lock(&t->lock);
	while (!t->quit) {
		if (!w->running) {
			pthread_cond_wait(&t->changed, &t->lock);
			continue;
		}
		pthread_mutex_unlock(&t->lock);
		write_until_stopped(w);
		pthread_mutex_lock(&t->lock);
		w->running = false;
		pthread_cond_broadcast(&t->changed);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

/* Signals are for the program's other threads. */
static int start_writer(struct threads *t, unsigned int number)
{
	struct writer *w = &t->writers[number];
	sigset_t all, before;
	int ret;

	w->owner = t;
	w->walk.number = w->program.counter = program_first_number(number);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&w->thread, NULL, writer_thread, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret)
		return silt_err_sys(ret, "guest: a thread that writes memory");
	w->has_thread = true;
	return 0;
}

static int map_marks(struct threads *t)
{
	uint64_t end = 0;
	unsigned int i;

	for (i = 0; i < t->nslots; i++)
		if (t->slots[i].gpa + t->slots[i].bytes > end)
			end = t->slots[i].gpa + t->slots[i].bytes;
	t->marks_bytes = (end / GUEST_PAGE / 64 + 1) * 8;
	t->marks = mmap(NULL, t->marks_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	if (t->marks != MAP_FAILED)
		return 0;
	t->marks = NULL;
	return silt_err_sys(errno, "guest: a bitmap of %llu bytes",
			    (unsigned long long)t->marks_bytes);
}

static int check_options(const struct threads_options *opt)
{
	unsigned int i;

	if (opt->count < 1 || opt->count > GUEST_MAX_VCPUS)
		return silt_err(EINVAL, "guest: %u threads, 1 to %u are possible", opt->count,
				GUEST_MAX_VCPUS);
	if (opt->nslots > MAX_SLOTS)
		return silt_err(EINVAL, "guest: %u slots, at most %u", opt->nslots, MAX_SLOTS);
	for (i = 0; i < opt->nslots; i++)
		if (opt->slots[i].gpa >= GUEST_END ||
		    opt->slots[i].bytes > GUEST_END - opt->slots[i].gpa)
			return silt_err(ERANGE, "guest: slot %u ends beyond %#llx", i,
					(unsigned long long)GUEST_END);
	return 0;
}

static void init_locks(struct threads *t)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &attr);
	pthread_condattr_destroy(&attr);
}

int threads_create(const struct threads_options *opt, struct threads **out)
{
	struct threads *t;
	unsigned int i;
	int ret = check_options(opt);

	if (ret < 0)
		return ret;
	t = calloc(1, sizeof(*t));
	if (!t)
		return silt_err(ENOMEM, "guest: no memory");
	memcpy(t->slots, opt->slots, opt->nslots * sizeof(t->slots[0]));
	t->nslots = opt->nslots;
	t->count = opt->count;
	t->stop = true;
	init_locks(t);
	ret = map_marks(t);
	for (i = 0; i < t->count && ret >= 0; i++)
		ret = start_writer(t, i);
	if (ret < 0) {
		threads_destroy(t);
		return ret;
	}
	*out = t;
	return 0;
}

void threads_destroy(struct threads *t)
{
	unsigned int i;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	__atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	for (i = 0; i < t->count; i++)
		if (t->writers[i].has_thread)
			pthread_join(t->writers[i].thread, NULL);
	if (t->marks)
		munmap(t->marks, t->marks_bytes);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static int refuse_running(struct threads *t)
{
	unsigned int i;
	bool running = false;

	pthread_mutex_lock(&t->lock);
	for (i = 0; i < t->count; i++)
		running = running || t->writers[i].running;
	pthread_mutex_unlock(&t->lock);
	return running ? silt_err(EBUSY, "guest: its threads write") : 0;
}

int threads_program(struct threads *t, unsigned int number, const struct guest_program *program)
{
	struct writer *w;
	struct program made = {0};
	int ret = refuse_running(t);

	if (ret >= 0 && number >= t->count)
		ret = silt_err(EINVAL, "guest: thread %u of %u", number, t->count);
	if (ret >= 0)
		ret = program_make(&made, program);
	if (ret < 0)
		return ret;
	w = &t->writers[number];
	made.counter = w->program.counter;
	w->program = made;
	walk_begin(&w->walk, &w->program, w->program.counter);
	w->burst_left = w->program.burst;
	w->pace.us = program->idle_us;
	w->pace.steady = program->steady;
	w->has_program = true;
	return 0;
}

void threads_resume(struct threads *t)
{
	unsigned int i;

	pthread_mutex_lock(&t->lock);
	__atomic_store_n(&t->stop, false, __ATOMIC_RELAXED);
	for (i = 0; i < t->count; i++)
		t->writers[i].running = t->writers[i].has_program;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

void threads_pause(struct threads *t)
{
	unsigned int i;

	pthread_mutex_lock(&t->lock);
	__atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&t->changed);
	for (i = 0; i < t->count; i++)
		while (t->writers[i].running)
			pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

uint64_t threads_writes(const struct threads *t, unsigned int number)
{
	return __atomic_load_n(&t->writers[number].program.counter, __ATOMIC_RELAXED) -
	       program_first_number(number);
}

const struct program *threads_program_of(const struct threads *t, unsigned int number)
{
	return &t->writers[number].program;
}

size_t threads_state_bytes(const struct threads *t)
{
	return t->count * sizeof(struct state);
}

int threads_save(struct threads *t, void *state)
{
	unsigned int i;
	int ret = refuse_running(t);

	for (i = 0; i < t->count && ret >= 0; i++) {
		const struct writer *w = &t->writers[i];
		struct state s = {.program = w->program,
				  .walk = w->walk,
				  .burst_left = w->burst_left,
				  .idle_us = w->pace.us,
				  .steady = w->pace.steady,
				  .has_program = w->has_program};

		memcpy((uint8_t *)state + i * sizeof(s), &s, sizeof(s));
	}
	return ret;
}

/* A run that is under way may lie anywhere: where no slot is, writes are dropped. */
static int load(struct writer *w, const uint8_t *from)
{
	struct state s;
	int ret;

	memcpy(&s, from, sizeof(s));
	ret = s.has_program ? program_check(&s.program) : 0;
	if (ret < 0)
		return ret;
	if (s.walk.next % GUEST_PAGE)
		return silt_err(EINVAL, "guest: a run goes on at %#llx, which is inside a page",
				(unsigned long long)s.walk.next);
	if (s.has_program && s.walk.place >= s.program.places)
		return silt_err(ERANGE, "guest: place %llu of %llu is the next one",
				(unsigned long long)s.walk.place,
				(unsigned long long)s.program.places);
	w->program = s.program;
	w->walk = s.walk;
	w->burst_left = s.burst_left;
	w->pace.us = s.idle_us;
	w->pace.steady = s.steady;
	w->has_program = s.has_program;
	return 0;
}

int threads_load(struct threads *t, const void *state, size_t bytes)
{
	unsigned int i;
	int ret = refuse_running(t);

	if (ret >= 0 && bytes != threads_state_bytes(t))
		return silt_err(EINVAL, "guest: a state of %zu bytes, %u threads have %zu", bytes,
				t->count, threads_state_bytes(t));
	for (i = 0; i < t->count && ret >= 0; i++)
		ret = load(&t->writers[i], (const uint8_t *)state + i * sizeof(struct state));
	return ret;
}

int threads_read_marks(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	struct threads *t = opaque;
	const uint64_t first = gpa / GUEST_PAGE;
	uint64_t i, page, bit, word;

	for (i = 0; i < granules; i++) {
		page = first + i;
		word = __atomic_load_n(&t->marks[page / 64], __ATOMIC_RELAXED);
		bit = UINT64_C(1) << page % 64;
		if (word & bit) {
			__atomic_fetch_and(&t->marks[page / 64], ~bit, __ATOMIC_SEQ_CST);
			bitmap[i / 64] |= UINT64_C(1) << i % 64;
		} else if (!word) {
			i += 63 - page % 64;
		}
	}
	return 0;
}
