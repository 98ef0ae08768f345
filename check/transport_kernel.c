/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <linux/virtio_vsock.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "check/tap.h"
#include "check/transport.h"

/* Receive and transmit: vsock's event queue is the monitor's, and net's control queue, too. */
#define RINGS	     2
#define IDLE_NUM     2
#define IDLE_SIZE    4096
#define MOST_REGIONS 8

/* No other guest's, as long as there is one guest for each process. */
#define CID_BASE 0x40000000

/* A log as the kernel sees it: a mapping of our own, since vhost writes to our addresses. */
struct mapping {
	uint8_t *at;
	uint64_t size;
};

struct kernel;

struct kernel_device {
	const char *path;
	int (*open)(struct kernel *k);
	int (*run)(struct kernel *k, unsigned int ring);
	int (*stop)(struct kernel *k, unsigned int ring);
};

struct kernel {
	struct check_transport base;
	const struct kernel_device *device;
	int fd; /* the vhost device */
	FILE *trace;
	struct mapping log;
	struct mapping old_log; /* what still comes there is seen by who harvests it */
	bool is_set[RINGS];
	void *idle; /* where rings lie that are never used */
	struct check_tap *tap;
	uint64_t cid;
};

/* The ioctl, with the words and values that say what it is about: " ring %u". */
#define CALL(k, request, arg, ...) call(k, request, arg, #request __VA_ARGS__)

static __attribute__((format(printf, 4, 5))) int call(struct kernel *k, unsigned long request,
						      const void *arg, const char *format, ...)
{
	int ret = ioctl(k->fd, request, arg) < 0 ? -errno : 0;
	char what[128];
	va_list ap;

	va_start(ap, format);
	vsnprintf(what, sizeof(what), format, ap);
	va_end(ap);
	if (k->trace)
		fprintf(k->trace, "%s%s%s\n", what, ret ? ": " : "", ret ? strerror(-ret) : "");
	return ret < 0 ? silt_err_sys(-ret, "%s", what) : 0;
}

static struct kernel *kernel_of(struct check_transport *t)
{
	return (struct kernel *)t;
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static int set_vring_num(struct check_transport *t, unsigned int ring, uint32_t num)
{
	const struct vhost_vring_state state = {.index = ring, .num = num};

	return CALL(kernel_of(t), VHOST_SET_VRING_NUM, &state, " ring %u: %u", ring, num);
}

static int set_vring_base(struct check_transport *t, unsigned int ring, uint32_t base)
{
	const struct vhost_vring_state state = {.index = ring, .num = base};

	return CALL(kernel_of(t), VHOST_SET_VRING_BASE, &state, " ring %u: %u", ring, base);
}

static int set_vring_addr(struct check_transport *t, const struct silt_vhost_vring_addr *addr)
{
	const struct vhost_vring_addr a = {
		.index = addr->index,
		.flags = addr->flags & SILT_VHOST_VRING_F_LOG ? 1 << VHOST_VRING_F_LOG : 0,
		.desc_user_addr = addr->desc_user_addr,
		.used_user_addr = addr->used_user_addr,
		.avail_user_addr = addr->avail_user_addr,
		.log_guest_addr = addr->log_guest_addr,
	};
	struct kernel *k = kernel_of(t);

	if (addr->index < RINGS)
		k->is_set[addr->index] = true;
	return CALL(k, VHOST_SET_VRING_ADDR, &a, " ring %u: flags %u, log at 0x%lx", a.index,
		    a.flags, addr->log_guest_addr);
}

static int set_vring_kick(struct check_transport *t, unsigned int ring, int fd)
{
	const struct vhost_vring_file file = {.index = ring, .fd = fd};

	return CALL(kernel_of(t), VHOST_SET_VRING_KICK, &file, " ring %u", ring);
}

static int set_vring_call(struct check_transport *t, unsigned int ring, int fd)
{
	const struct vhost_vring_file file = {.index = ring, .fd = fd};

	return CALL(kernel_of(t), VHOST_SET_VRING_CALL, &file, " ring %u", ring);
}

static int set_vring_err(struct check_transport *t, unsigned int ring, int fd)
{
	const struct vhost_vring_file file = {.index = ring, .fd = fd};

	return CALL(kernel_of(t), VHOST_SET_VRING_ERR, &file, " ring %u", ring);
}

/* ---- Devices --------------------------------------------------------------------------------- */

static int net_open(struct kernel *k)
{
	return check_tap_create(&k->tap);
}

static int net_set_backend(struct kernel *k, unsigned int ring, int fd)
{
	const struct vhost_vring_file backend = {.index = ring, .fd = fd};

	return CALL(k, VHOST_NET_SET_BACKEND, &backend, " ring %u: %s", ring,
		    fd < 0 ? "none" : "the tap");
}

static int net_run(struct kernel *k, unsigned int ring)
{
	return net_set_backend(k, ring, k->tap->fd);
}

static int net_stop(struct kernel *k, unsigned int ring)
{
	return net_set_backend(k, ring, -1);
}

static int vsock_open(struct kernel *k)
{
	k->cid = CID_BASE + getpid();
	return CALL(k, VHOST_VSOCK_SET_GUEST_CID, &k->cid, ": %lu", k->cid);
}

/* The device runs as a whole, so rings that nobody uses have to lie somewhere, too. */
static int set_idle_ring(struct kernel *k, unsigned int ring)
{
	const uintptr_t at = (uintptr_t)k->idle + ring * IDLE_SIZE / RINGS;
	const struct silt_vhost_vring_addr addr = {
		.index = ring,
		.desc_user_addr = at,
		.avail_user_addr = at + 16 * IDLE_NUM,
		.used_user_addr = at + 32 * IDLE_NUM,
	};
	int ret = set_vring_num(&k->base, ring, IDLE_NUM);

	if (ret == 0)
		ret = set_vring_base(&k->base, ring, 0);
	return ret < 0 ? ret : set_vring_addr(&k->base, &addr);
}

static int vsock_set_running(struct kernel *k, int running)
{
	return CALL(k, VHOST_VSOCK_SET_RUNNING, &running, ": %d", running);
}

static int vsock_run(struct kernel *k, unsigned int ring)
{
	unsigned int other = !ring;
	int ret = k->is_set[other] ? 0 : set_idle_ring(k, other);

	return ret < 0 ? ret : vsock_set_running(k, 1);
}

static int vsock_stop(struct kernel *k, unsigned int ring)
{
	(void)ring;
	return vsock_set_running(k, 0);
}

static const struct kernel_device devices[] = {
	{"/dev/vhost-net", net_open, net_run, net_stop},
	{"/dev/vhost-vsock", vsock_open, vsock_run, vsock_stop},
};

static const struct kernel_device *find_device(const char *path)
{
	unsigned int i;

	for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (!strcmp(path, devices[i].path))
			return &devices[i];
	return NULL;
}

static int enable_vring(struct check_transport *t, unsigned int ring)
{
	struct kernel *k = kernel_of(t);

	return k->device->run(k, ring);
}

static int64_t get_vring_base(struct check_transport *t, unsigned int ring)
{
	struct vhost_vring_state state = {.index = ring};
	struct kernel *k = kernel_of(t);
	int ret = k->device->stop(k, ring);

	if (ret == 0)
		ret = CALL(k, VHOST_GET_VRING_BASE, &state, " ring %u", ring);
	return ret < 0 ? ret : (int64_t)state.num;
}

/* ---- The device as a whole ------------------------------------------------------------------- */

static int set_owner(struct check_transport *t)
{
	return CALL(kernel_of(t), VHOST_SET_OWNER, NULL, "");
}

static int get_features(struct check_transport *t, uint64_t *features)
{
	return CALL(kernel_of(t), VHOST_GET_FEATURES, features, "");
}

static int set_features(struct check_transport *t, uint64_t features)
{
	return CALL(kernel_of(t), VHOST_SET_FEATURES, &features, ": 0x%lx", features);
}

/* Sets of them. */
static int get_queue_num(struct check_transport *t, uint64_t *n)
{
	(void)t;
	*n = 1;
	return 0;
}

/* In-kernel vhost has none: the monitor answers for it. */
static int get_config(struct check_transport *t, uint32_t offset, void *buf, uint32_t len)
{
	const struct virtio_vsock_config config = {.guest_cid = htole64(kernel_of(t)->cid)};

	if (offset > sizeof(config) || len > sizeof(config) - offset)
		return silt_err(EINVAL, "%u bytes at %u of a configuration of %zu", len, offset,
				sizeof(config));
	memcpy(buf, (const uint8_t *)&config + offset, len);
	return 0;
}

static int set_mem_table(struct check_transport *t, const struct silt_vhost_mem_region *regions,
			 const int *fds, unsigned int n)
{
	union {
		struct vhost_memory table;
		uint8_t room[sizeof(struct vhost_memory) +
			     MOST_REGIONS * sizeof(struct vhost_memory_region)];
	} all = {.table.nregions = n};
	unsigned int i;

	(void)fds; /* the kernel is where we are */
	if (n > MOST_REGIONS)
		return silt_err(E2BIG, "%u regions of memory, at most %d", n, MOST_REGIONS);
	for (i = 0; i < n; i++)
		all.table.regions[i] = (struct vhost_memory_region){
			.guest_phys_addr = regions[i].gpa,
			.memory_size = regions[i].size,
			.userspace_addr = regions[i].user_addr,
		};
	return CALL(kernel_of(t), VHOST_SET_MEM_TABLE, &all.table, ": %u regions", n);
}

static void unmap(struct mapping *m)
{
	if (m->at)
		munmap(m->at, m->size);
	*m = (struct mapping){0};
}

static int set_log_base(struct check_transport *t, uint64_t size, uint64_t offset, int fd)
{
	struct kernel *k = kernel_of(t);
	struct mapping log = {.size = offset + size};
	uint64_t base;
	int ret;

	log.at = mmap(NULL, log.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (log.at == MAP_FAILED)
		return silt_err_sys(errno, "cannot map a log of %lu bytes", log.size);
	base = (uintptr_t)log.at + offset;
	ret = CALL(k, VHOST_SET_LOG_BASE, &base, ": %lu bytes", size);
	if (ret < 0) {
		unmap(&log);
		return ret;
	}
	unmap(&k->old_log);
	k->old_log = k->log;
	k->log = log;
	return 0;
}

/* ---- The device's IOTLB ---------------------------------------------------------------------- */

static int iotlb_open(struct check_transport *t)
{
	t->iotlb_fd = kernel_of(t)->fd;
	return 0;
}

static void iotlb_close(struct check_transport *t)
{
	t->iotlb_fd = -1;
}

/* It has taken effect once it is written. */
static int iotlb_send(struct check_transport *t, const struct silt_vhost_iotlb *m)
{
	const struct vhost_msg msg = {
		.type = VHOST_IOTLB_MSG,
		.iotlb = {.iova = m->iova,
			  .size = m->size,
			  .uaddr = m->user_addr,
			  .perm = m->perm,
			  .type = m->type},
	};
	struct kernel *k = kernel_of(t);

	if (k->trace)
		fprintf(k->trace, "IOTLB type %u: 0x%lx bytes at 0x%lx\n", m->type, m->size,
			m->iova);
	if (write(k->fd, &msg, sizeof(msg)) == sizeof(msg))
		return 0;
	return silt_err_sys(errno, "IOTLB message %u for 0x%lx bytes at 0x%lx", m->type, m->size,
			    m->iova);
}

static int iotlb_recv(struct check_transport *t, struct silt_vhost_iotlb *m)
{
	struct vhost_msg msg;
	ssize_t n = read(kernel_of(t)->fd, &msg, sizeof(msg));

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)
		return silt_err_sys(errno, "cannot read IOTLB messages");
	if (n != sizeof(msg) || msg.type != VHOST_IOTLB_MSG)
		return silt_err(EPROTO, "%zd bytes of type %d are no IOTLB message", n, msg.type);
	*m = (struct silt_vhost_iotlb){
		.iova = msg.iotlb.iova, .perm = msg.iotlb.perm, .type = msg.iotlb.type};
	return 1;
}

/* The update is the answer. */
static int iotlb_answer(struct check_transport *t, bool done)
{
	(void)t;
	(void)done;
	return 0;
}

static void trace(struct check_transport *t, FILE *to)
{
	kernel_of(t)->trace = to;
}

/* Closing it waits for its worker, which may log until then. */
static void destroy(struct check_transport *t)
{
	struct kernel *k = kernel_of(t);

	if (k->fd >= 0)
		close(k->fd);
	check_tap_destroy(k->tap);
	unmap(&k->log);
	unmap(&k->old_log);
	if (k->idle)
		munmap(k->idle, IDLE_SIZE);
	free(k);
}

static const struct check_transport_ops ops = {
	.set_owner = set_owner,
	.get_features = get_features,
	.set_features = set_features,
	.get_queue_num = get_queue_num,
	.get_config = get_config,
	.set_mem_table = set_mem_table,
	.set_log_base = set_log_base,
	.set_vring_num = set_vring_num,
	.set_vring_base = set_vring_base,
	.set_vring_addr = set_vring_addr,
	.set_vring_kick = set_vring_kick,
	.set_vring_call = set_vring_call,
	.set_vring_err = set_vring_err,
	.enable_vring = enable_vring,
	.get_vring_base = get_vring_base,
	.iotlb_open = iotlb_open,
	.iotlb_close = iotlb_close,
	.iotlb_send = iotlb_send,
	.iotlb_recv = iotlb_recv,
	.iotlb_answer = iotlb_answer,
	.trace = trace,
	.destroy = destroy,
};

static int open_device(struct kernel *k)
{
	void *idle =
		mmap(NULL, IDLE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (idle == MAP_FAILED)
		return silt_err_sys(errno, "cannot make a ring of no use");
	k->idle = idle;
	k->fd = open(k->device->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (k->fd < 0)
		return silt_err_sys(errno, "cannot open %s", k->device->path);
	return k->device->open(k);
}

int check_transport_kernel(const char *path, struct check_transport **out)
{
	const struct kernel_device *device = find_device(path);
	struct kernel *k;
	int ret;

	if (!device)
		return silt_err(EINVAL, "%s is neither %s nor %s", path, devices[0].path,
				devices[1].path);
	k = calloc(1, sizeof(*k));
	if (!k)
		return silt_err_sys(ENOMEM, "cannot use %s", path);
	k->base = (struct check_transport){.ops = &ops, .fd = -1, .iotlb_fd = -1};
	k->device = device;
	k->fd = -1;
	ret = open_device(k);
	if (ret < 0)
		destroy(&k->base);
	else
		*out = &k->base;
	return ret;
}
