/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <silt/range.h>

#include "base/err.h"
#include "base/mutant.h"
#include "vhost/backend_impl.h"

/* ---- Life ------------------------------------------------------------------------------------ */

static int watch(struct silt_backend *b, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(b->iommu.poll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return silt_err_sys(errno, "epoll_ctl");
	return 0;
}

int silt_iommu_create(struct silt_backend *b)
{
	struct silt_backend_iommu *io = &b->iommu;
	int ret = silt_iotlb_create(&io->iotlb);

	if (ret < 0)
		return ret;
	pthread_mutex_init(&io->lock, NULL);
	io->channel = -1;
	io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	io->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (io->wake_fd < 0 || io->poll_fd < 0)
		return silt_err_sys(errno, "no fds for an IOMMU");
	ret = watch(b, b->fd);
	return ret < 0 ? ret : watch(b, io->wake_fd);
}

void silt_iommu_destroy(struct silt_backend *b)
{
	struct silt_backend_iommu *io = &b->iommu;

	if (!io->iotlb)
		return;
	silt_channel_close(b);
	if (io->wake_fd >= 0)
		close(io->wake_fd);
	if (io->poll_fd >= 0)
		close(io->poll_fd);
	pthread_mutex_destroy(&io->lock);
	silt_iotlb_put(io->iotlb);
}

void silt_iommu_clear(struct silt_backend *b)
{
	silt_iotlb_invalidate(b->iommu.iotlb, 0, 0);
}

/* ---- A ring's own addresses ------------------------------------------------------------------ */

struct part {
	const char *name;
	uint64_t iova;
	uint64_t size;
	unsigned int access;
	char *hva;
	uint64_t gpa;
};

#define PARTS 3

static void list_packed(const struct silt_vring_conf *r, struct part parts[PARTS])
{
	parts[0] = (struct part){.name = "descriptor ring",
				 .iova = r->desc,
				 .size = silt_virtq_desc_size(r->num),
				 .access = SILT_IOTLB_READ | SILT_IOTLB_WRITE};
	parts[1] = (struct part){.name = "driver area",
				 .iova = r->avail,
				 .size = SILT_VIRTQ_EVENT_SIZE,
				 .access = SILT_IOTLB_READ};
	parts[2] = (struct part){.name = "device area",
				 .iova = r->used,
				 .size = SILT_VIRTQ_EVENT_SIZE,
				 .access = SILT_IOTLB_WRITE};
}

static void list_split(const struct silt_vring_conf *r, struct part parts[PARTS])
{
	parts[0] = (struct part){.name = "descriptor table",
				 .iova = r->desc,
				 .size = silt_virtq_desc_size(r->num),
				 .access = SILT_IOTLB_READ};
	parts[1] = (struct part){.name = "available ring",
				 .iova = r->avail,
				 .size = silt_virtq_avail_size(r->num),
				 .access = SILT_IOTLB_READ};
	parts[2] = (struct part){.name = "used ring",
				 .iova = r->used,
				 .size = silt_virtq_used_size(r->num),
				 .access = SILT_IOTLB_WRITE};
}

static void list_parts(const struct silt_backend *b, unsigned int q, struct part parts[PARTS])
{
	if (silt_conf_packed(b->now))
		list_packed(&b->now->rings[q], parts);
	else
		list_split(&b->now->rings[q], parts);
}

/* Several mappings may make up a part, if they continue each other in this process, too. */
static int resolve_part(struct silt_backend *b, unsigned int q, struct part *p)
{
	uint64_t done = 0, len, gpa, last;
	char *hva;

	if (__builtin_add_overflow(p->iova, p->size - 1, &last))
		return silt_err(EINVAL,
				"queue %u: the %s at I/O virtual address 0x%" PRIx64
				" wraps around 2^64",
				q, p->name, p->iova);
	for (; done < p->size; done += len) {
		len = p->size - done;
		hva = silt_iotlb_translate(b->iommu.iotlb, b->now->mem, p->iova + done, &len,
					   p->access, &gpa);
		if (!hva) {
			silt_miss_note(b, q, p->iova + done, p->access);
			return 0;
		}
		if (!done) {
			p->hva = hva;
			p->gpa = gpa;
		}
		if (hva != p->hva + done || gpa != p->gpa + done)
			return silt_err(EINVAL,
					"queue %u: the %s at I/O virtual address 0x%" PRIx64
					" does not lie in memory in one piece",
					q, p->name, p->iova);
	}
	return 1;
}

int silt_iommu_resolve(struct silt_backend *b, unsigned int q, struct silt_virtq_layout *layout)
{
	const struct silt_vring_conf *r = &b->now->rings[q];
	struct part parts[PARTS];
	int ret = 1;

	list_parts(b, q, parts);
	for (unsigned int i = 0; i < PARTS && ret > 0; i++)
		ret = resolve_part(b, q, &parts[i]);
	if (ret <= 0)
		return ret;
	*layout = (struct silt_virtq_layout){
		.num = r->num,
		.desc = parts[0].hva,
		.avail = parts[1].hva,
		.used = parts[2].hva,
		.features = b->now->features,
		.desc_gpa = parts[0].gpa,
		.used_gpa = parts[2].gpa,
	};
	b->rings[q].used_gpa = parts[2].gpa;
	return 1;
}

/* ---- What a message concerns ----------------------------------------------------------------- */

static bool ring_goes(const struct silt_backend *b, unsigned int q)
{
	uint64_t first = b->iommu.gone_iova, last = first + b->iommu.gone_size - 1;
	struct part parts[PARTS];

	list_parts(b, q, parts);
	for (unsigned int i = 0; i < PARTS; i++)
		if (parts[i].iova <= last && parts[i].iova + (parts[i].size - 1) >= first)
			return !SILT_FAULT(iommu_ring_kept);
	return false;
}

bool silt_iommu_needs_restart(const struct silt_backend *b, unsigned int q)
{
	const struct silt_vring *ring = &b->rings[q];

	return ring->running ? b->iommu.gone && ring_goes(b, q) : ring->found;
}

bool silt_iommu_needs_park(const struct silt_backend *b, unsigned int q)
{
	return b->iommu.gone || b->rings[q].found;
}

bool silt_iommu_in_use(const struct silt_backend *b, unsigned int q)
{
	return b->iommu.gone && !SILT_FAULT(iommu_use_unawaited) &&
	       silt_virtq_uses(b->rings[q].vq, b->iommu.gone_iova, b->iommu.gone_size);
}

/* ---- The message ----------------------------------------------------------------------------- */

static int update(struct silt_backend *b, const struct silt_vhost_iotlb *m)
{
	if (!silt_memory_covers(b->now->mem, m->user_addr, m->size))
		return silt_err(EFAULT,
				"%" PRIu64 " bytes at user address 0x%" PRIx64
				" are not all in memory regions",
				m->size, m->user_addr);
	return silt_iotlb_update(b->iommu.iotlb, m->iova, m->size, m->user_addr, m->perm);
}

/* Return: 0; 1 translations that may be in use were taken away; -errno. */
static int apply(struct silt_backend *b, const struct silt_vhost_iotlb *m)
{
	int ret;

	switch (m->type) {
	case SILT_VHOST_IOTLB_UPDATE:
		return update(b, m);
	case SILT_VHOST_IOTLB_INVALIDATE:
		ret = silt_iotlb_invalidate(b->iommu.iotlb, m->iova, m->size);
		return ret < 0 ? ret : 1;
	default:
		return silt_err(EINVAL, "type %u, must be %u or %u", m->type,
				SILT_VHOST_IOTLB_UPDATE, SILT_VHOST_IOTLB_INVALIDATE);
	}
}

/*
 * What was taken away is not looked up any more, but may be in use: it is answered when no ring
 * and no buffer in flight lies there. If a ring cannot go on, the entry stays all the same, as the
 * IOTLB is only a cache.
 */
int silt_iotlb_msg(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_iotlb *m = &msg->payload.iotlb;
	int ret;

	if (!silt_conf_iommu(b->now))
		return silt_err(EPERM, "ACCESS_PLATFORM was not acknowledged");
	ret = apply(b, m);
	if (ret < 0)
		return ret;
	b->iommu.gone = ret;
	b->iommu.gone_iova = m->iova;
	b->iommu.gone_size = m->size;
	ret = silt_miss_commit(b);
	b->iommu.gone = false;
	return ret;
}
