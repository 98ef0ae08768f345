/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "base/err.h"
#include "demo/backend.h"
#include "demo/disk_device.h"
#include "demo/disk_layout.h"

#define TIMEOUT_MS 10000
#define BIT(n)	   (UINT64_C(1) << (n))

static int negotiate(struct disk_device *v)
{
	const uint64_t wanted = BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_EVENT_IDX) |
				SILT_VHOST_F_PROTOCOL_FEATURES;
	const uint64_t protocol = SILT_VHOST_PROTOCOL_F_REPLY_ACK | SILT_VHOST_PROTOCOL_F_LOG_SHMFD;
	uint64_t features;
	int ret = silt_frontend_get_features(v->frontend, &features);

	if (ret < 0)
		return ret;
	if (!(features & SILT_VHOST_F_LOG_ALL))
		return silt_err(EOPNOTSUPP, "demo: the disk's backend does not log");
	ret = silt_frontend_set_protocol_features(v->frontend, protocol);
	if (ret >= 0)
		ret = silt_frontend_set_owner(v->frontend);
	v->features = features & wanted;
	return ret < 0 ? ret : silt_frontend_set_features(v->frontend, v->features);
}

static int share_memory(struct disk_device *v)
{
	struct silt_vhost_mem_region regions[RAM_SLOTS];
	int fds[RAM_SLOTS];
	unsigned int i;

	for (i = 0; i < RAM_SLOTS; i++) {
		const struct ram_slot *s = &v->ram->slots[i];

		/* Slots that show the same have the same user address; GPAs are unique. */
		regions[i] = (struct silt_vhost_mem_region){
			.gpa = s->is.gpa,
			.size = s->is.bytes,
			.user_addr = s->is.gpa,
			.mmap_offset = s->offset,
		};
		fds[i] = v->ram->blocks[s->block].fd;
	}
	return silt_frontend_set_mem_table(v->frontend, regions, fds, RAM_SLOTS);
}

int disk_device_open(struct disk_device *v, const struct ram *ram, const char *silt, int image)
{
	int fd, ret;

	*v = (struct disk_device){.ram = ram, .source = -1, .pid_fd = -1};
	v->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	v->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (v->kick_fd < 0 || v->call_fd < 0)
		return silt_err_sys(errno, "demo: eventfd");
	fd = backend_start(silt, image, &v->pid);
	if (fd < 0)
		return fd;
	v->pid_fd = pidfd_open(v->pid, 0);
	ret = silt_frontend_create(fd, TIMEOUT_MS, &v->frontend);
	if (ret >= 0)
		ret = negotiate(v);
	return ret < 0 ? ret : share_memory(v);
}

void disk_device_close(struct disk_device *v)
{
	silt_frontend_destroy(v->frontend);
	if (v->pid)
		backend_wait(v->pid);
	if (v->pid_fd >= 0)
		close(v->pid_fd);
	if (v->kick_fd > 0)
		close(v->kick_fd);
	if (v->call_fd > 0)
		close(v->call_fd);
}

int disk_device_check(const struct disk_device *v)
{
	struct pollfd p = {v->pid_fd, POLLIN, 0};

	return poll(&p, 1, 0) > 0 ? silt_err(EPIPE, "demo: the disk's silt blk has ended") : 0;
}

static int set_addresses(struct disk_device *v)
{
	const uint64_t gpa = v->ram->slots[0].is.gpa;
	struct silt_vhost_vring_addr addr = {
		.flags = v->logging ? SILT_VHOST_VRING_F_LOG : 0,
		.desc_user_addr = gpa + DISK_DESC_AT,
		.avail_user_addr = gpa + DISK_AVAIL_AT,
		.used_user_addr = gpa + DISK_USED_AT,
		.log_guest_addr = gpa + DISK_USED_AT,
	};

	return silt_frontend_set_vring_addr(v->frontend, &addr);
}

int disk_device_start(struct disk_device *v, uint16_t index)
{
	int ret = silt_frontend_set_vring_num(v->frontend, 0, DISK_RING_SIZE);

	if (ret >= 0)
		ret = silt_frontend_set_vring_base(v->frontend, 0, index);
	if (ret >= 0)
		ret = set_addresses(v);
	if (ret >= 0)
		ret = silt_frontend_set_vring_call(v->frontend, 0, v->call_fd);
	if (ret >= 0)
		ret = silt_frontend_set_vring_kick(v->frontend, 0, v->kick_fd);
	return ret < 0 ? ret : silt_frontend_set_vring_enable(v->frontend, 0, true);
}

int disk_device_stop(struct disk_device *v)
{
	return silt_frontend_get_vring_base(v->frontend, 0);
}

static int replace_log(void *opaque, const struct silt_sync_log_file *log)
{
	struct disk_device *v = opaque;

	return silt_frontend_set_log_base(v->frontend, log->bytes, log->offset, log->fd);
}

/* Used entries are logged only once the ring's address says so, and data once the feature does. */
static int set_logging(struct disk_device *v, bool on)
{
	int ret;

	v->logging = on;
	ret = silt_frontend_set_features(v->frontend,
					 v->features | (on ? SILT_VHOST_F_LOG_ALL : 0));
	return ret < 0 ? ret : set_addresses(v);
}

int disk_device_log_on(struct disk_device *v, struct silt_sync *sync)
{
	struct silt_sync_log log = {
		.size = sizeof(log), .name = "disk", .replace = replace_log, .opaque = v};
	int ret = silt_sync_add_log(sync, &log);

	if (ret < 0)
		return ret;
	v->sync = sync;
	v->source = ret;
	return set_logging(v, true);
}

int disk_device_log_off(struct disk_device *v)
{
	int ret = v->logging ? set_logging(v, false) : 0;
	int removed = v->source >= 0 ? silt_sync_source_remove(v->sync, v->source) : 0;

	v->source = -1;
	return ret < 0 ? ret : removed;
}
