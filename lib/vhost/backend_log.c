/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include <silt/range.h>

#include "base/err.h"
#include "base/mutant.h"
#include "vhost/backend_impl.h"

static bool ring_logged(const struct silt_vring_conf *r)
{
	return r->log_used && r->addr_set && r->num;
}

/*
 * At an address of the frontend's choice? A packed ring is logged where it lies, and so is each
 * ring behind an IOMMU, which is in guest memory.
 */
static bool logged_elsewhere(const struct silt_conf *c, unsigned int q)
{
	return ring_logged(&c->rings[q]) && !silt_conf_iommu(c) && !silt_conf_packed(c);
}

static bool logging(const struct silt_backend *b, const struct silt_conf *c)
{
	if (silt_conf_logs_data(c))
		return true;
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (ring_logged(&c->rings[q]))
			return true;
	}
	return false;
}

/* Pages that a log needs for the used ring of @q, counted from address 0; 0 if its end wraps. */
static uint64_t ring_pages(const struct silt_conf *c, unsigned int q)
{
	const struct silt_vring_conf *r = &c->rings[q];
	uint64_t first, last;

	return silt_range_pages(r->log_gpa, silt_virtq_used_size(r->num), &first, &last) ? last + 1
											 : 0;
}

static int check_ring(const struct silt_conf *c, unsigned int q, bool real)
{
	uint64_t pages = ring_pages(c, q);

	if (!pages)
		return silt_err(ERANGE,
				"queue %u: log address 0x%" PRIx64 " of a used ring of %" PRIu64
				" bytes wraps",
				q, c->rings[q].log_gpa, silt_virtq_used_size(c->rings[q].num));
	if (real && pages > silt_log_pages(c->log))
		return silt_err(ERANGE,
				"queue %u: its used ring is logged up to page 0x%" PRIx64
				", the log covers 0x%" PRIx64 " pages",
				q, pages - 1, silt_log_pages(c->log));
	return 0;
}

/* Are the rings' log addresses possible, and inside the frontend's log if there is one? */
static int check_rings(const struct silt_backend *b, const struct silt_conf *c)
{
	bool real = c->log && !silt_log_held(c->log);
	int ret = 0;

	for (unsigned int q = 0; q < b->ops.nqueues && !ret; q++) {
		if (logged_elsewhere(c, q))
			ret = check_ring(c, q, real);
	}
	return ret;
}

static uint64_t pages_needed(const struct silt_backend *b, const struct silt_conf *c)
{
	uint64_t end = silt_memory_end(c->mem), pages;
	uint64_t need = end ? ((end - 1) >> SILT_LOG_PAGE_SHIFT) + 1 : 1;

	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		pages = logged_elsewhere(c, q) ? ring_pages(c, q) : 0;
		if (pages > need)
			need = pages;
	}
	return need;
}

/* A held log is of no migration but the one that has begun. */
static void plan_age(struct silt_backend *b)
{
	if (b->next->log != b->now->log || !b->next->log || silt_log_held(b->next->log))
		b->next->log_old = false;
	else if (logging(b, b->now) && !logging(b, b->next))
		b->next->log_old = true;
}

int silt_log_plan(struct silt_backend *b)
{
	struct silt_conf *next = b->next;
	uint64_t need = pages_needed(b, next);
	int ret = check_rings(b, next);

	if (ret < 0)
		return ret;
	plan_age(b);
	if (next->log && !silt_log_held(next->log))
		return 0;
	if (!logging(b, next)) {
		next->log = NULL;
		return 0;
	}
	if (next->log && silt_log_pages(next->log) >= need)
		return 0;
	return silt_log_hold(need, &next->log);
}

/*
 * The old log is not complete: everything that it could have told is marked in the new one.
 * Return: 0, -EFAULT, or -ERANGE if that one does not reach so far.
 */
static int mark_everything(const struct silt_backend *b, const struct silt_conf *c)
{
	const struct silt_memory_region *region;
	struct silt_log_writer w;
	unsigned int i;

	silt_log_writer_init(&w);
	silt_log_writer_set(&w, c->log);
	for (i = 0; i < silt_memory_count(c->mem); i++) {
		region = silt_memory_region(c->mem, i);
		silt_log_write(&w, region->gpa, region->size);
	}
	for (i = 0; i < b->ops.nqueues; i++) {
		if (logged_elsewhere(c, i))
			silt_log_write(&w, c->rings[i].log_gpa,
				       silt_virtq_used_size(c->rings[i].num));
	}
	silt_log_writer_set(&w, NULL);
	if (w.count.faults)
		return silt_err(EFAULT, "the dirty log of %" PRIu64 " pages faulted",
				silt_log_pages(c->log));
	if (w.count.outside)
		return silt_err(ERANGE,
				"the dirty log ends after %" PRIu64 " pages, %" PRIu64
				" short of what may be dirty",
				silt_log_pages(c->log), w.count.outside);
	return 0;
}

/*
 * Marks that were kept and do not fit are a reason to refuse a log: unlike a live write, this can
 * be refused, and they stay for the next one. Of trouble in a log of its own the frontend was told
 * when it arose, and a fresh log loses no more than that one did.
 */
int silt_log_carry(struct silt_backend *b)
{
	struct silt_log *old = b->now->log, *log = b->next->log;
	bool told;
	int ret;

	if (!old || !log || old == log)
		return 0;
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].running)
			silt_virtq_flush(b->rings[q].vq);
	}
	/*
	 * A device that starts during a second migration is told to log before it gets the log:
	 * what it marked went to the log of the first one, which nobody reads any more.
	 */
	if (silt_log_trouble(old) || (b->now->log_old && logging(b, b->now))) {
		told = silt_log_trouble(old) && !silt_log_held(old);
		ret = mark_everything(b, b->next);
		return told ? 0 : ret;
	}
	if (!silt_log_held(old) || SILT_FAULT(held_marks_dropped))
		return 0;
	return silt_log_merge(log, old);
}

int silt_set_log_base(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_log *wanted = &msg->payload.log;
	struct silt_conf *next = silt_conf_begin(b);
	uint64_t offset = SILT_FAULT(log_offset_ignored) ? 0 : wanted->mmap_offset;
	int ret;

	ret = silt_log_map(msg->fds[0], wanted->mmap_size, offset, &next->log);
	return ret < 0 ? ret : silt_commit(b);
}

int silt_set_log_fd(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	silt_conf_begin(b)->log_fd = msg->fds[0];
	return silt_commit_fds(b, msg);
}
