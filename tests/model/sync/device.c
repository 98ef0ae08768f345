/* SPDX-License-Identifier: BSD-3-Clause */
/* The other end of vhost logs and of the caller's sources. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

static uint64_t log_page(const struct world *w, const struct source *src, uint64_t at)
{
	return w->base[src->space] / UNIT + at;
}

static bool log_covers(const struct world *w, const struct source *src, uint64_t at)
{
	return log_page(w, src, at) / 8 < src->log.bytes;
}

static bool log_bit(const struct world *w, const struct source *src, uint64_t at)
{
	uint64_t page = log_page(w, src, at);

	return src->log.map[src->log.offset + page / 8] >> page % 8 & 1;
}

/* A device stores to guest memory and marks it. Return: false if the log does not reach so far. */
bool device_mark(struct world *w, struct source *src, uint64_t at)
{
	uint64_t page = log_page(w, src, at);
	struct slot *s = slot_at(w, src->space, at);

	if (!log_covers(w, src, at))
		return false;
	if (s)
		store(w, s->block, s->offset + at - s->at);
	__atomic_fetch_or(&src->log.map[src->log.offset + page / 8], 1 << page % 8,
			  __ATOMIC_RELAXED);
	src->log.marked[at] = 1;
	return true;
}

void device_compare_log(struct world *w, struct source *src)
{
	uint64_t at;

	for (at = 0; at < WINDOW && log_covers(w, src, at); at++) {
		if (log_bit(w, src, at) != src->log.marked[at])
			differs(w, "%s: bit of page %#lx is %d, not %d", src->name,
				log_page(w, src, at), log_bit(w, src, at), src->log.marked[at]);
	}
}

static void mark_some(struct world *w, struct source *src)
{
	uint64_t n = pick(w, 4);

	while (src->log.map && n--)
		device_mark(w, src, pick(w, WINDOW));
}

/* A device goes over to a log that is refused then, and back: what it marked there counts. */
static void try_log(struct world *w, struct source *src, const struct silt_sync_log_file *file)
{
	struct device_log *log = &src->log, old = *log;
	uint64_t bytes = file->offset + file->bytes;

	log->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (log->map == MAP_FAILED) {
		differs(w, "%s: a log of %lu bytes cannot be mapped", src->name, file->bytes);
	} else {
		log->offset = file->offset;
		if (log->bytes > file->bytes)
			log->bytes = file->bytes;
		mark_some(w, src);
		munmap(log->map, bytes);
	}
	log->map = old.map;
	log->offset = old.offset;
	log->bytes = old.bytes;
}

static void use_log(struct device_log *log, const struct silt_sync_log_file *file)
{
	if (log->map) {
		munmap(log->map, log->offset + log->bytes);
		close(log->fd);
	}
	memcpy(log->before, log->marked, sizeof(log->before));
	memset(log->marked, 0, sizeof(log->marked));
	log->fd = dup(file->fd);
	log->bytes = file->bytes;
	log->offset = file->offset;
	log->map = mmap(NULL, log->offset + log->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, log->fd,
			0);
	log->replaced = true;
}

int device_replace(void *opaque, const struct silt_sync_log_file *file)
{
	struct source *src = opaque;
	struct world *w = src->world;
	int refuse = src->log.refuse;

	/* The devices run on while they are told, one after the other. */
	mark_some(w, src);
	src->log.refuse = 0;
	if (refuse) {
		if (src->log.map)
			try_log(w, src, file);
		return -refuse;
	}
	if (src->log.replaced)
		differs(w, "%s: replaced twice in one call", src->name);
	if (!(fcntl(file->fd, F_GET_SEALS) & F_SEAL_SHRINK))
		differs(w, "%s: its file is not sealed against shrinking", src->name);
	use_log(&src->log, file);
	if (src->log.map == MAP_FAILED) {
		src->log.map = NULL;
		differs(w, "%s: %lu bytes at %lu cannot be mapped", src->name, file->bytes,
			file->offset);
		return -EIO;
	}
	mark_some(w, src);
	return 0;
}

/* What the log before had is in the new one, or was delivered. */
static void settle_unit(struct world *w, struct source *src, uint64_t at)
{
	struct device_log *log = &src->log;
	struct slot *s = slot_at(w, src->space, at);
	bool is = log_covers(w, src, at) && log_bit(w, src, at);

	if (log->marked[at] ? !is : is && !log->before[at])
		differs(w, "%s: bit of page %#lx in the new log is %d", src->name,
			log_page(w, src, at), is);
	if (log->before[at] && !is) {
		if (s)
			model_mark(w, &w->blocks[s->block], s->offset + at - s->at, 1);
		else if (log_covers(w, src, at))
			differs(w, "%s: the mark of page %#lx, in no slot, is gone", src->name,
				log_page(w, src, at));
	}
	log->marked[at] = is;
}

void device_settle(struct world *w)
{
	unsigned int i;
	uint64_t at;

	for (i = 0; i < MAX_SOURCES; i++) {
		struct source *src = &w->sources[i];

		if (src->id == NONE || !src->log.replaced)
			continue;
		for (at = 0; at < WINDOW; at++)
			settle_unit(w, src, at);
		src->log.replaced = false;
	}
}

uint64_t own_granule(const struct world *w, const struct source *src, uint64_t at)
{
	uint64_t base = w->base[src->space];

	return ((base + at * UNIT) >> src->shift) - (base >> src->shift);
}

int own_read(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	struct source *src = opaque;
	struct world *w = src->world;
	struct own *own = &src->own;
	uint64_t first = (gpa >> src->shift) - (w->base[src->space] >> src->shift), i;
	bool fails = own->fail && own->fail_after-- == 0;

	if (gpa & ((UINT64_C(1) << src->shift) - 1) || own->ncalls == MAX_SLOTS ||
	    first + granules > WINDOW) {
		differs(w, "%s: asked for %lu granules from %#lx", src->name, granules, gpa);
		return -EINVAL;
	}
	own->calls[own->ncalls++] = (struct own_stretch){first, granules, fails};
	for (i = 0; i < granules; i++) {
		if (bitmap[i / 64] >> i % 64 & 1)
			differs(w, "%s: the bitmap is not empty", src->name);
		if (!fails && own->written[first + i])
			bitmap[i / 64] |= UINT64_C(1) << i % 64;
		own->got[first + i] = fails || own->written[first + i];
		own->written[first + i] = 0;
	}
	return fails ? -own->fail : 0;
}

static bool was_asked(const struct own *own, uint64_t first, uint64_t n)
{
	unsigned int i, times = 0;

	for (i = 0; i < own->ncalls; i++)
		times += own->calls[i].first == first && own->calls[i].n == n;
	return times == 1;
}

/* One call for each run of granules that slots have a part of. */
void own_expect_calls(struct world *w, struct source *src)
{
	uint8_t shown[WINDOW + 1] = {0};
	unsigned int calls = 0, i;
	uint64_t at, first, end;

	for (i = 0; i < MAX_SLOTS; i++) {
		const struct slot *s = &w->slots[i];

		for (at = 0; s->id != NONE && s->space == src->space && at < s->units; at++)
			shown[own_granule(w, src, s->at + at)] = 1;
	}
	for (first = 0; first < WINDOW; first = end + 1) {
		for (end = first; shown[end]; end++)
			;
		if (end == first)
			continue;
		calls++;
		if (!was_asked(&src->own, first, end - first))
			differs(w, "%s: %lu granules from %lu on were not asked for once",
				src->name, end - first, first);
	}
	if (src->own.ncalls != calls)
		differs(w, "%s: asked %u times, not %u", src->name, src->own.ncalls, calls);
}
