/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/virtio_blk.h>
#include <linux/virtio_ring.h>

#include "base/err.h"
#include "bench/session.h"

#define TIMEOUT_MS 10000
#define BIT(n)	   (UINT64_C(1) << (n))

#define RING_SIZE  512
#define GPA	   UINT64_C(0x40000000)
#define DESC_AT	   0
#define AVAIL_AT   (16 * RING_SIZE)
#define USED_AT	   (AVAIL_AT + 4096)
#define SLOTS_AT   (USED_AT + 8192)
#define SLOT_BYTES 64 /* header and status, on a cache line of their own */
#define DATA_AT	   (SLOTS_AT + SLOT_BYTES * SESSION_DEPTH)
#define MEM_SIZE   (DATA_AT + (uint64_t)SESSION_DATA * SESSION_DEPTH)

struct slot {
	struct virtio_blk_outhdr hdr;
	uint8_t status;
};

static struct slot *slot_of(const struct session *s, unsigned int slot)
{
	return (struct slot *)(s->base + SLOTS_AT + SLOT_BYTES * slot);
}

uint8_t *session_data(const struct session *s, unsigned int slot)
{
	return s->base + DATA_AT + (uint64_t)SESSION_DATA * slot;
}

static uint64_t gpa_of(const struct session *s, const void *p)
{
	return GPA + ((const uint8_t *)p - s->base);
}

static int make_memory(struct session *s)
{
	s->mem_fd = memfd_create("guest memory", MFD_CLOEXEC);
	if (s->mem_fd < 0 || ftruncate(s->mem_fd, MEM_SIZE) < 0)
		return silt_err_sys(errno, "no guest memory");
	s->base = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->mem_fd,
		       0);
	if (s->base == MAP_FAILED)
		return silt_err_sys(errno, "guest memory cannot be mapped");
	memset(s->base, 0, MEM_SIZE);
	s->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->kick_fd < 0 || s->call_fd < 0)
		return silt_err_sys(errno, "no eventfds");
	return 0;
}

static int negotiate(struct session *s, bool logging)
{
	const uint64_t wanted = BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_EVENT_IDX) |
				BIT(VIRTIO_BLK_F_FLUSH) | SILT_VHOST_F_PROTOCOL_FEATURES;
	const uint64_t protocol = SILT_VHOST_PROTOCOL_F_MQ | SILT_VHOST_PROTOCOL_F_REPLY_ACK |
				  SILT_VHOST_PROTOCOL_F_CONFIG | SILT_VHOST_PROTOCOL_F_LOG_SHMFD;
	uint64_t features, offered;
	int ret;

	ret = silt_frontend_get_features(s->frontend, &features);
	if (!ret && logging && !(features & SILT_VHOST_F_LOG_ALL))
		return silt_err(ENOTSUP, "the backend does not offer dirty logging");
	if (!ret && (features & SILT_VHOST_F_PROTOCOL_FEATURES)) {
		ret = silt_frontend_get_protocol_features(s->frontend, &offered);
		if (!ret)
			ret = silt_frontend_set_protocol_features(s->frontend, offered & protocol);
	}
	if (!ret)
		ret = silt_frontend_set_owner(s->frontend);
	s->offered = features;
	s->features = features & wanted;
	return ret;
}

static int start_logging(struct session *s)
{
	uint64_t size = (GPA + MEM_SIZE) / SILT_LOG_PAGE_SIZE / 8 + 1;

	if (s->log_fd < 0) {
		s->log_fd = memfd_create("dirty log", MFD_CLOEXEC);
		if (s->log_fd < 0 || ftruncate(s->log_fd, size) < 0)
			return silt_err_sys(errno, "no dirty log");
	}
	s->features |= SILT_VHOST_F_LOG_ALL;
	return silt_frontend_set_log_base(s->frontend, size, 0, s->log_fd);
}

static int set_addresses(struct session *s, bool logging)
{
	const struct silt_vhost_vring_addr addr = {
		.flags = logging ? SILT_VHOST_VRING_F_LOG : 0,
		.desc_user_addr = GPA + DESC_AT,
		.avail_user_addr = GPA + AVAIL_AT,
		.used_user_addr = GPA + USED_AT,
		.log_guest_addr = GPA + USED_AT,
	};

	return silt_frontend_set_vring_addr(s->frontend, &addr);
}

int session_set_logging(struct session *s, bool on)
{
	int ret = 0;

	if (on && !(s->offered & SILT_VHOST_F_LOG_ALL))
		return silt_err(ENOTSUP, "the backend does not offer dirty logging");
	if (on)
		ret = start_logging(s);
	else
		s->features &= ~SILT_VHOST_F_LOG_ALL;
	if (!ret)
		ret = silt_frontend_set_features(s->frontend, s->features);
	return ret ? ret : set_addresses(s, on);
}

static int start_queue(struct session *s, bool logging)
{
	int ret = silt_frontend_set_vring_num(s->frontend, 0, RING_SIZE);

	if (!ret)
		ret = silt_frontend_set_vring_base(s->frontend, 0, 0);
	if (!ret)
		ret = set_addresses(s, logging);
	if (!ret)
		ret = silt_frontend_set_vring_call(s->frontend, 0, s->call_fd);
	if (!ret)
		ret = silt_frontend_set_vring_kick(s->frontend, 0, s->kick_fd);
	if (!ret)
		ret = silt_frontend_set_vring_enable(s->frontend, 0, true);
	return ret;
}

static int start(struct session *s, bool logging)
{
	struct silt_vhost_mem_region region = {GPA, MEM_SIZE, GPA, 0};
	struct silt_virtq_layout layout = {RING_SIZE, NULL, NULL, NULL, 0};
	int ret = make_memory(s);

	if (!ret)
		ret = negotiate(s, logging);
	if (!ret)
		ret = silt_frontend_set_mem_table(s->frontend, &region, &s->mem_fd, 1);
	if (!ret && logging)
		ret = start_logging(s);
	if (!ret)
		ret = silt_frontend_set_features(s->frontend, s->features);
	if (ret)
		return ret;
	layout.desc = s->base + DESC_AT;
	layout.avail = s->base + AVAIL_AT;
	layout.used = s->base + USED_AT;
	layout.features = s->features;
	ret = silt_driver_create(&layout, 0, &s->driver);
	return ret ? ret : start_queue(s, logging);
}

int session_start(struct session *s, struct silt_frontend *frontend, bool logging)
{
	int ret;

	*s = (struct session){
		.frontend = frontend,
		.mem_fd = -1,
		.log_fd = -1,
		.kick_fd = -1,
		.call_fd = -1,
		.base = MAP_FAILED,
	};
	ret = start(s, logging);
	if (ret < 0)
		session_close(s);
	return ret;
}

int session_open(struct session *s, const char *path, bool logging)
{
	struct silt_frontend *frontend;
	int ret = silt_frontend_connect(path, TIMEOUT_MS, &frontend);

	return ret < 0 ? ret : session_start(s, frontend, logging);
}

void session_close(struct session *s)
{
	const int fds[] = {s->mem_fd, s->log_fd, s->kick_fd, s->call_fd};

	silt_frontend_destroy(s->frontend);
	if (s->driver)
		silt_driver_destroy(s->driver);
	if (s->base != MAP_FAILED)
		munmap(s->base, MEM_SIZE);
	for (unsigned int i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int session_add(struct session *s, unsigned int slot, const struct session_request *r)
{
	struct slot *sl = slot_of(s, slot);
	bool in = r->type == VIRTIO_BLK_T_IN || r->type == VIRTIO_BLK_T_GET_ID;
	struct silt_driver_seg segs[3] = {{gpa_of(s, &sl->hdr), sizeof(sl->hdr), false}};
	unsigned int n = 1;

	sl->hdr = (struct virtio_blk_outhdr){.type = r->type, .sector = r->sector};
	sl->status = 0xff;
	if (r->len)
		segs[n++] = (struct silt_driver_seg){gpa_of(s, session_data(s, slot)), r->len, in};
	segs[n++] = (struct silt_driver_seg){gpa_of(s, &sl->status), sizeof(sl->status), true};
	return silt_driver_add(s->driver, segs, n, NULL, 0, sl);
}

int session_submit(struct session *s)
{
	int ret = silt_driver_publish(s->driver);

	if (ret > 0)
		ret = eventfd_write(s->kick_fd, 1);
	return ret;
}

int session_collect(struct session *s)
{
	struct slot *sl;
	void *token;
	uint32_t len;
	int ret = silt_driver_collect(s->driver, &token, &len);

	if (ret <= 0)
		return ret ? ret : -EAGAIN;
	sl = token;
	if (sl->status != VIRTIO_BLK_S_OK)
		return silt_err(EIO, "request of type %u at sector %llu ended with status %u",
				sl->hdr.type, (unsigned long long)sl->hdr.sector, sl->status);
	return ((uint8_t *)sl - (s->base + SLOTS_AT)) / SLOT_BYTES;
}

int session_wait(struct session *s)
{
	struct pollfd fd = {s->call_fd, POLLIN, 0};
	eventfd_t count;
	int ret = silt_driver_enable_call(s->driver);

	if (ret)
		return ret < 0 ? ret : 0;
	do {
		ret = poll(&fd, 1, TIMEOUT_MS);
	} while (ret < 0 && errno == EINTR);
	if (ret < 0)
		return silt_err_sys(errno, "poll");
	if (!ret)
		return silt_err(ETIMEDOUT, "no answer within %d ms", TIMEOUT_MS);
	eventfd_read(s->call_fd, &count);
	return silt_driver_disable_call(s->driver);
}
