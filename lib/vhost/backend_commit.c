/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mutant.h"
#include "vhost/backend_impl.h"

#define VHOST_BITS (SILT_VHOST_F_LOG_ALL | SILT_VHOST_F_PROTOCOL_FEATURES)

void silt_vring_conf_init(struct silt_vring_conf *r)
{
	*r = (struct silt_vring_conf){.kick_fd = -1, .call_fd = -1, .err_fd = -1, .set_base = -1};
}

struct silt_conf *silt_conf_begin(struct silt_backend *b)
{
	memcpy(b->next, b->now, sizeof(*b->now) + b->ops.nqueues * sizeof(b->now->rings[0]));
	return b->next;
}

static bool aligned(const void *p, uintptr_t align)
{
	return !((uintptr_t)p & (align - 1));
}

/* Where it lies in guest memory, @hva in this process. */
static uint64_t gpa_of(const struct silt_memory *mem, const void *hva)
{
	for (unsigned int i = 0; i < silt_memory_count(mem); i++) {
		const struct silt_memory_region *r = silt_memory_region(mem, i);
		uintptr_t offset = (uintptr_t)hva - (uintptr_t)r->hva;

		if (offset < r->size)
			return r->gpa + offset;
	}
	return UINT64_MAX;
}

bool silt_vring_resolve(const struct silt_conf *c, unsigned int q, struct silt_virtq_layout *l)
{
	const struct silt_vring_conf *r = &c->rings[q];
	bool packed = silt_conf_packed(c);
	uint64_t avail = packed ? SILT_VIRTQ_EVENT_SIZE : silt_virtq_avail_size(r->num);
	uint64_t used = packed ? SILT_VIRTQ_EVENT_SIZE : silt_virtq_used_size(r->num);

	l->num = r->num;
	l->desc = silt_memory_user_to_hva(c->mem, r->desc, silt_virtq_desc_size(l->num));
	l->avail = silt_memory_user_to_hva(c->mem, r->avail, avail);
	l->used = silt_memory_user_to_hva(c->mem, r->used, used);
	l->features = c->features & ~VHOST_BITS;
	if (!l->desc || !l->avail || !l->used)
		return false;
	l->desc_gpa = gpa_of(c->mem, l->desc);
	l->used_gpa = gpa_of(c->mem, l->used);
	return aligned(l->desc, 16) && aligned(l->avail, packed ? 4 : 2) && aligned(l->used, 4);
}

uint32_t silt_vring_base(const struct silt_vring *ring, bool packed)
{
	if (ring->base >= 0)
		return ring->base;
	return packed ? SILT_VIRTQ_PACKED_START | (uint32_t)SILT_VIRTQ_PACKED_START << 16 : 0;
}

/* Does a running ring have to be drained, or may an idle one become ready? */
static bool needs_restart(const struct silt_backend *b, unsigned int q)
{
	const struct silt_conf *now = b->now, *next = b->next;
	const struct silt_vring_conf *old = &now->rings[q], *new = &next->rings[q];

	if (silt_iommu_needs_restart(b, q))
		return true;
	if ((now->features ^ next->features) & ~SILT_VHOST_F_LOG_ALL ||
	    now->inflight != next->inflight)
		return true;
	if (b->rings[q].running ? !silt_memory_kept(now->mem, next->mem) : now->mem != next->mem)
		return true;
	return old->num != new->num || old->addr_set != new->addr_set || old->desc != new->desc ||
	       old->avail != new->avail || old->used != new->used ||
	       old->kick_set != new->kick_set || old->kick_fd != new->kick_fd ||
	       silt_vring_enabled(now, q) != silt_vring_enabled(next, q) || new->set_base >= 0;
}

static bool needs_park(const struct silt_backend *b, unsigned int q)
{
	const struct silt_conf *now = b->now, *next = b->next;
	const struct silt_vring_conf *old = &now->rings[q], *new = &next->rings[q];

	return silt_iommu_needs_park(b, q) || now->mem != next->mem || now->log != next->log ||
	       now->log_fd != next->log_fd ||
	       silt_conf_logs_data(now) != silt_conf_logs_data(next) ||
	       old->log_used != new->log_used || old->log_gpa != new->log_gpa ||
	       old->call_fd != new->call_fd || old->err_fd != new->err_fd;
}

/* Without its log too: that may be replaced while the ring is stopped, and would stay mapped. */
static uint32_t ring_leave(struct silt_vring *ring)
{
	uint32_t base = silt_virtq_stop(ring->vq);

	silt_virtq_set_log(ring->vq, NULL, false, false, 0);
	return base;
}

static void ring_stop(struct silt_backend *b, unsigned int q)
{
	struct silt_vring *ring = &b->rings[q];

	b->ops.queue_stop(b->dev, q);
	/* Behind an IOMMU, what a backend before had taken may be out of reach. */
	if (silt_virtq_resubmits(ring->vq))
		silt_notifier_signal(&ring->err);
	ring->base = ring_leave(ring);
	ring->running = false;
}

void silt_stop_all(struct silt_backend *b)
{
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].running)
			ring_stop(b, q);
	}
}

static void begin_restart(struct silt_backend *b, unsigned int q)
{
	b->rings[q].step = SILT_VRING_RESTART;
	b->rings[q].failed = false;
	if (b->rings[q].running)
		ring_stop(b, q);
}

/* What it is working on is looked at while it is parked. */
static void begin_park(struct silt_backend *b, unsigned int q)
{
	b->rings[q].step = SILT_VRING_PARK;
	b->ops.queue_pause(b->dev, q);
	if (!silt_iommu_in_use(b, q))
		return;
	b->ops.queue_resume(b->dev, q);
	begin_restart(b, q);
}

static void quiesce(struct silt_backend *b)
{
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		b->rings[q].step = SILT_VRING_KEEP;
		if (needs_restart(b, q))
			begin_restart(b, q);
		else if (b->rings[q].running && needs_park(b, q))
			begin_park(b, q);
	}
}

/* Give a parked ring, or one about to run, all that may change without draining it. */
static void ring_configure(struct silt_backend *b, unsigned int q)
{
	const struct silt_vring_conf *r = &b->now->rings[q];
	struct silt_vring *ring = &b->rings[q];
	bool data = silt_conf_logs_data(b->now);
	bool where_it_lies = silt_conf_iommu(b->now) && !SILT_FAULT(iommu_ring_iova_logged);

	silt_virtq_set_log(ring->vq, b->now->log, data, r->log_used,
			   where_it_lies ? ring->used_gpa : r->log_gpa);
	silt_notifier_set(&ring->call, r->call_fd);
	silt_notifier_set(&ring->err, r->err_fd);
	silt_notifier_set(&ring->log, data || r->log_used ? b->now->log_fd : -1);
	if (ring->owes_call && r->call_fd >= 0) {
		silt_notifier_signal(&ring->call);
		ring->owes_call = false;
	}
}

/* Return: 1 it can be started, 0 not yet, -errno it cannot be. */
static int ring_ready(struct silt_backend *b, unsigned int q, struct silt_virtq_layout *l)
{
	const struct silt_vring_conf *r = &b->now->rings[q];

	silt_miss_forget(b, q);
	if (!r->num || !r->addr_set || !r->kick_set || !silt_vring_enabled(b->now, q) ||
	    b->rings[q].failed)
		return 0;
	if (silt_conf_iommu(b->now))
		return silt_iommu_resolve(b, q, l);
	return silt_vring_resolve(b->now, q, l);
}

static void miss(void *arg, uint64_t iova, unsigned int access)
{
	struct silt_vring *ring = arg;

	silt_miss_note(ring->backend, ring - ring->backend->rings, iova, access);
}

static void ring_set_iotlb(struct silt_backend *b, unsigned int q)
{
	struct silt_iotlb *iotlb = silt_conf_iommu(b->now) ? b->iommu.iotlb : NULL;

	silt_virtq_set_iotlb(b->rings[q].vq, iotlb, miss, &b->rings[q]);
}

/*
 * A backend before this one may have died before it called the guest. And if there is no log yet,
 * the one before may not have had one either: the marks that it kept are lost, so that anything
 * may be dirty.
 */
static void take_over(struct silt_backend *b, struct silt_vring *ring)
{
	ring->owes_call = true;
	if (b->now->log && silt_log_held(b->now->log))
		silt_log_set_trouble(b->now->log, SILT_LOG_OUTSIDE);
}

static int ring_start(struct silt_backend *b, unsigned int q)
{
	struct silt_vring *ring = &b->rings[q];
	struct silt_virtq_layout layout;
	int ret;

	ret = ring_ready(b, q, &layout);
	if (!ret)
		return 0;
	if (ret > 0) {
		ring_set_iotlb(b, q);
		ret = silt_virtq_start(ring->vq, &layout, b->now->mem,
				       silt_vring_base(ring, silt_conf_packed(b->now)));
	}
	if (ret < 0) {
		ring->failed = true;
		return ret;
	}
	ret = silt_inflight_attach(b, q);
	if (ret < 0) {
		silt_virtq_stop(ring->vq);
		ring->failed = true;
		return ret;
	}
	if (ret)
		take_over(b, ring);
	ring_configure(b, q);
	ret = b->ops.queue_start(b->dev, q, ring->vq, b->now->rings[q].kick_fd);
	if (ret < 0) {
		ring_leave(ring);
		ring->failed = true;
		return silt_err_sys(-ret, "queue %u: the device cannot run it", q);
	}
	ring->running = true;
	ring->status_reset = false;
	return 0;
}

/* With the faults, a parked ring keeps the log it had, or forgets it when memory is added. */
static void ring_reconfigure(struct silt_backend *b, unsigned int q)
{
	bool replaced = b->now->log && b->next->log && b->now->log != b->next->log;

	if (!SILT_FAULT(log_swap_lost) || !replaced)
		ring_configure(b, q);
	silt_virtq_retry(b->rings[q].vq);
	if (b->now->mem == b->next->mem)
		return;
	silt_virtq_set_memory(b->rings[q].vq, b->now->mem);
	if (SILT_FAULT(new_region_unlogged))
		silt_virtq_set_log(b->rings[q].vq, NULL, false, false, 0);
}

/* Parked rings go on last: while a ring may still fail to start, they have not moved. */
static int wake(struct silt_backend *b)
{
	unsigned int q;
	int ret;

	for (q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].step != SILT_VRING_RESTART || b->rings[q].running)
			continue;
		ret = ring_start(b, q);
		if (ret < 0)
			return ret;
	}
	for (q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].step != SILT_VRING_PARK)
			continue;
		ring_reconfigure(b, q);
		b->ops.queue_resume(b->dev, q);
	}
	return 0;
}

/* Go on as before. A ring that cannot even do that stays stopped, and the frontend is told. */
static void wake_as_before(struct silt_backend *b)
{
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].step == SILT_VRING_RESTART)
			b->rings[q].failed = false;
	}
	while (wake(b) < 0)
		;
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].step == SILT_VRING_RESTART && b->rings[q].failed)
			silt_notifier_signal(&b->rings[q].err);
	}
}

static void tell_features(struct silt_backend *b)
{
	const struct silt_conf *now = b->now, *before = b->next;

	if (b->ops.set_features && now->acked &&
	    (!before->acked || (now->features ^ before->features) & ~VHOST_BITS))
		b->ops.set_features(b->dev, now->features & ~VHOST_BITS);
}

static void swap_confs(struct silt_backend *b)
{
	struct silt_conf *now = b->now;

	b->now = b->next;
	b->next = now;
	if (silt_conf_iommu(b->now) != silt_conf_iommu(now))
		silt_iommu_clear(b);
	tell_features(b);
}

static void put_unshared(const struct silt_conf *gone, const struct silt_conf *kept)
{
	if (gone->mem != kept->mem)
		silt_memory_put(gone->mem);
	if (gone->log != kept->log)
		silt_log_put(gone->log);
	if (gone->inflight != kept->inflight)
		silt_inflight_destroy(gone->inflight);
}

static void close_replaced(int gone, int kept)
{
	if (gone >= 0 && gone != kept)
		close(gone);
}

static void close_unshared(const struct silt_conf *gone, const struct silt_conf *kept,
			   unsigned int nqueues)
{
	close_replaced(gone->log_fd, kept->log_fd);
	for (unsigned int q = 0; q < nqueues; q++) {
		close_replaced(gone->rings[q].kick_fd, kept->rings[q].kick_fd);
		close_replaced(gone->rings[q].call_fd, kept->rings[q].call_fd);
		close_replaced(gone->rings[q].err_fd, kept->rings[q].err_fd);
	}
}

static void take_bases(struct silt_backend *b)
{
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (b->now->rings[q].set_base >= 0) {
			b->rings[q].base = b->now->rings[q].set_base;
			b->rings[q].status_reset = false;
		}
		b->now->rings[q].set_base = -1;
	}
}

/* A ring did not start: back to the old configuration, now in b->next. */
static void roll_back(struct silt_backend *b, const int64_t *bases)
{
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (b->rings[q].step != SILT_VRING_RESTART)
			continue;
		if (!b->rings[q].running) {
			b->rings[q].base = bases[q];
			continue;
		}
		ring_stop(b, q);
		/* What it wrote meanwhile may be unknown to the old log. */
		if (b->next->log)
			silt_log_set_trouble(b->next->log, SILT_LOG_OUTSIDE);
	}
	swap_confs(b);
	wake_as_before(b);
}

int silt_commit(struct silt_backend *b)
{
	int64_t bases[SILT_QUEUES_MAX];
	int ret = silt_log_plan(b);

	if (ret < 0) {
		put_unshared(b->next, b->now);
		return ret;
	}
	quiesce(b);
	for (unsigned int q = 0; q < b->ops.nqueues; q++)
		bases[q] = b->rings[q].base;
	ret = silt_log_carry(b);
	if (ret < 0) {
		wake_as_before(b);
		put_unshared(b->next, b->now);
		return ret;
	}
	swap_confs(b);
	take_bases(b);
	ret = wake(b);
	if (ret < 0) {
		roll_back(b, bases);
		put_unshared(b->next, b->now);
		return ret;
	}
	put_unshared(b->next, b->now);
	close_unshared(b->next, b->now, b->ops.nqueues);
	return 0;
}

int silt_commit_fds(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	int ret = silt_commit(b);

	if (!ret)
		msg->nfds = 0;
	return ret;
}
