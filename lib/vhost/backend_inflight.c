/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mapping.h"
#include "vhost/backend_impl.h"

#define NUM_MAX 32768

/* An area of inflight regions, mapped. It belongs to the configuration that it is part of. */
struct silt_inflight {
	struct silt_mapping mapping;
	uint16_t num_queues;
	uint16_t queue_size;
};

/* Bytes from one queue's region to the next. */
static uint64_t stride(uint16_t queue_size)
{
	const uint64_t mask = SILT_VHOST_INFLIGHT_ALIGN - 1;

	return (silt_virtq_inflight_size(queue_size) + mask) & ~mask;
}

static uint64_t area_size(const struct silt_vhost_inflight *area)
{
	return area->num_queues * stride(area->queue_size);
}

static int check_queues(const struct silt_backend *b, const struct silt_vhost_inflight *area)
{
	uint16_t num = area->queue_size;

	if (!area->num_queues || area->num_queues > b->ops.nqueues)
		return silt_err(EINVAL, "%u queues, must be 1 to %u", area->num_queues,
				b->ops.nqueues);
	if (!num || num > NUM_MAX || (num & (num - 1) && !silt_conf_packed(b->now)))
		return silt_err(EINVAL, "queue size %u, must be a power of two up to %u", num,
				NUM_MAX);
	return 0;
}

static int check_area(const struct silt_vhost_inflight *area)
{
	if (area->mmap_size < area_size(area))
		return silt_err(EINVAL, "size 0x%" PRIx64 ", %u queues of size %u need 0x%" PRIx64,
				area->mmap_size, area->num_queues, area->queue_size,
				area_size(area));
	if (area->mmap_offset % sizeof(uint64_t))
		return silt_err(EINVAL, "offset 0x%" PRIx64 ", must be a multiple of %zu",
				area->mmap_offset, sizeof(uint64_t));
	return 0;
}

static int create(const struct silt_vhost_inflight *area, int fd, struct silt_inflight **out)
{
	struct silt_inflight *in = malloc(sizeof(*in));
	int ret;

	if (!in)
		return silt_err(ENOMEM, "no memory for an inflight area");
	in->num_queues = area->num_queues;
	in->queue_size = area->queue_size;
	/* All that the frontend says is there, though no more is used than queues need. */
	ret = silt_mapping_create(&in->mapping, fd, area->mmap_offset, area->mmap_size,
				  "inflight area");
	if (ret < 0) {
		free(in);
		return ret;
	}
	*out = in;
	return 0;
}

void silt_inflight_destroy(struct silt_inflight *in)
{
	if (!in)
		return;
	silt_mapping_destroy(&in->mapping);
	free(in);
}

int silt_inflight_attach(const struct silt_backend *b, unsigned int q)
{
	const struct silt_inflight *in = b->now->inflight;

	/* The frontend decides for how many queues it keeps a record. */
	if (!in || q >= in->num_queues)
		return 0;
	return silt_virtq_set_inflight(b->rings[q].vq,
				       (char *)in->mapping.start + q * stride(in->queue_size),
				       in->queue_size);
}

static int use(struct silt_backend *b, const struct silt_vhost_inflight *area, int fd)
{
	int ret = create(area, fd, &silt_conf_begin(b)->inflight);

	return ret < 0 ? ret : silt_commit(b);
}

/* Zeros, and never shorter or longer than they are now. */
static int create_file(uint64_t size)
{
	int fd = memfd_create("silt-inflight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err;

	if (fd < 0)
		return silt_err_sys(errno, "no memory file for an inflight area");
	if (!ftruncate(fd, (off_t)size) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return fd;
	err = errno;
	close(fd);
	return silt_err_sys(err, "a memory file of 0x%" PRIx64 " bytes for an inflight area", size);
}

/* No memory: the frontend goes on without a record. */
static int answer_none(struct silt_backend *b, const struct silt_vhost_msg *msg)
{
	b->reply.payload.inflight = msg->payload.inflight;
	b->reply.payload.inflight.mmap_size = 0;
	b->reply.payload.inflight.mmap_offset = 0;
	return silt_answer(b, msg->hdr.size);
}

/* The area is in use from here on; that the frontend hands it back later is not certain. */
int silt_get_inflight_fd(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	struct silt_vhost_inflight area = msg->payload.inflight;
	int ret = check_queues(b, &area);
	int fd;

	if (ret < 0)
		return ret;
	if (silt_conf_packed(b->now))
		return answer_none(b, msg);
	area.mmap_size = area_size(&area);
	area.mmap_offset = 0;
	area.padding = 0;
	fd = create_file(area.mmap_size);
	if (fd < 0)
		return fd;
	ret = use(b, &area, fd);
	if (!ret) {
		b->reply.payload.inflight = area;
		b->reply.fds[b->reply.nfds++] = fd;
		ret = silt_answer(b, msg->hdr.size);
		b->reply.nfds = 0;
	}
	close(fd);
	return ret;
}

int silt_set_inflight_fd(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_inflight *area = &msg->payload.inflight;
	int ret = check_queues(b, area);

	if (!ret && silt_conf_packed(b->now))
		ret = silt_err(EINVAL, "no record of what is in flight is kept of packed rings");
	if (!ret)
		ret = check_area(area);
	return ret < 0 ? ret : use(b, area, msg->fds[0]);
}
