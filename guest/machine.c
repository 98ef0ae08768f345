/* SPDX-License-Identifier: BSD-3-Clause */
/* The virtual machine: its making, its end, what is counted. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/err.h"
#include "guest/guest_internal.h"

/* Of the guest's own slot: the callers' come before it. */
#define SELF_SLOT GUEST_MAX_SLOTS

/* Newer than the headers that silt is built with. */
#ifndef KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP
#define KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP 225
#endif

static bool has_ring(enum guest_log log)
{
	return log == GUEST_LOG_RING || log == GUEST_LOG_RING_BITMAP;
}

static int check_options(const struct guest_options *opt)
{
	if (opt->vcpus < 1 || opt->vcpus > GUEST_MAX_VCPUS)
		return silt_err(EINVAL, "guest: %u vCPUs, 1 to %u are possible", opt->vcpus,
				GUEST_MAX_VCPUS);
	if (opt->log < GUEST_LOG_GET_CLEARS || opt->log > GUEST_LOG_RING_BITMAP)
		return silt_err(EINVAL, "guest: no kind %d of log", opt->log);
	if (has_ring(opt->log) && (!opt->ring_full || !opt->ring_bytes))
		return silt_err(EINVAL, "guest: a ring wants a size, and someone who empties it");
	return 0;
}

static int open_kvm(struct guest *g)
{
	int version, run_bytes;

	g->kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (g->kvm_fd < 0)
		return silt_err_sys(errno, "/dev/kvm");
	version = ioctl(g->kvm_fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION)
		return silt_err(EOPNOTSUPP, "/dev/kvm: version %d, not %d", version,
				KVM_API_VERSION);
	run_bytes = ioctl(g->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (run_bytes < 0)
		return silt_err_sys(errno, "/dev/kvm: KVM_GET_VCPU_MMAP_SIZE");
	g->run_bytes = (size_t)run_bytes;
	g->vm_fd = ioctl(g->kvm_fd, KVM_CREATE_VM, 0);
	if (g->vm_fd < 0)
		return silt_err_sys(errno, "/dev/kvm: KVM_CREATE_VM");
	return 0;
}

/* @must: bits that the capability has to have. */
static int enable(const struct guest *g, uint32_t cap, const char *name, uint64_t must,
		  uint64_t value)
{
	struct kvm_enable_cap enable = {.cap = cap, .args = {value}};
	int has = ioctl(g->vm_fd, KVM_CHECK_EXTENSION, cap);

	if (has <= 0 || ((uint64_t)has & must) != must)
		return silt_err(EOPNOTSUPP, "/dev/kvm: has no %s", name);
	if (ioctl(g->vm_fd, KVM_ENABLE_CAP, &enable))
		return silt_err_sys(errno, "/dev/kvm: %s of %llu", name, (unsigned long long)value);
	return 0;
}

static int enable_log(const struct guest *g)
{
	uint64_t manual = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE;
	int ret;

	switch (g->opt.log) {
	case GUEST_LOG_INITIALLY_SET:
		manual |= KVM_DIRTY_LOG_INITIALLY_SET;
		/* fall through */
	case GUEST_LOG_MANUAL:
		return enable(g, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
			      "KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2", manual, manual);
	case GUEST_LOG_RING:
	case GUEST_LOG_RING_BITMAP:
		ret = enable(g, KVM_CAP_DIRTY_LOG_RING, "KVM_CAP_DIRTY_LOG_RING", 0,
			     g->opt.ring_bytes);
		if (ret < 0 || g->opt.log == GUEST_LOG_RING)
			return ret;
		return enable(g, KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP,
			      "KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP", 0, 0);
	case GUEST_LOG_GET_CLEARS:
		break;
	}
	return 0;
}

static int add_self(struct guest *g)
{
	struct kvm_userspace_memory_region slot = {.slot = SELF_SLOT,
						   .guest_phys_addr = GUEST_SELF_GPA,
						   .memory_size = PROGRAM_BELLS - GUEST_SELF_GPA};
	int ret;

	g->self = guest_memory_map(GUEST_SELF_BYTES);
	if (!g->self)
		return -ENOMEM;
	ret = arch_fill_memory(g);
	if (ret < 0)
		return ret;
	slot.userspace_addr = (uintptr_t)g->self;
	if (ioctl(g->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot))
		return silt_err_sys(errno, "guest: KVM_SET_USER_MEMORY_REGION for itself");
	return 0;
}

static int set_up(struct guest *g)
{
	unsigned int i;
	int ret = open_kvm(g);

	if (ret < 0)
		return ret;
	/* Rings must be there before any vCPU or slot is. */
	ret = enable_log(g);
	if (ret < 0)
		return ret;
	ret = add_self(g);
	for (i = 0; i < g->opt.vcpus && ret >= 0; i++)
		ret = vcpu_create(g, i);
	return ret;
}

static void init_locks(struct guest *g)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&g->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&g->changed, &attr);
	pthread_condattr_destroy(&attr);
}

int guest_create(const struct guest_options *opt, struct guest **out)
{
	struct guest *g;
	unsigned int i;
	int ret = check_options(opt);

	if (ret < 0)
		return ret;
	g = calloc(1, sizeof(*g));
	if (!g)
		return silt_err(ENOMEM, "guest: no memory");
	g->opt = *opt;
	g->kvm_fd = g->vm_fd = -1;
	for (i = 0; i < GUEST_MAX_VCPUS; i++)
		g->vcpus[i].fd = -1;
	init_locks(g);
	ret = set_up(g);
	if (ret < 0) {
		guest_destroy(g);
		return ret;
	}
	*out = g;
	return 0;
}

bool guest_missing(int err)
{
	return err == -ENOENT || err == -EACCES || err == -EPERM || err == -ENODEV ||
	       err == -EOPNOTSUPP;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void guest_destroy(struct guest *g)
{
	unsigned int i;

	if (!g)
		return;
	vcpus_quit(g);
	for (i = 0; i < g->opt.vcpus; i++)
		vcpu_destroy(&g->vcpus[i]);
	close_fd(g->vm_fd);
	close_fd(g->kvm_fd);
	if (g->self)
		guest_memory_unmap(g->self, GUEST_SELF_BYTES);
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

int guest_vm_fd(const struct guest *g)
{
	return g->vm_fd;
}

int guest_vcpu_fd(const struct guest *g, unsigned int vcpu)
{
	return g->vcpus[vcpu].fd;
}

uint64_t guest_vcpu_writes(const struct guest *g, unsigned int vcpu)
{
	return __atomic_load_n(&g->vcpus[vcpu].program->counter, __ATOMIC_RELAXED) -
	       program_first_number(vcpu);
}

const struct program *guest_vcpu_program(const struct guest *g, unsigned int vcpu)
{
	return g->vcpus[vcpu].program;
}

uint64_t guest_writes(const struct guest *g)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < g->opt.vcpus; i++)
		sum += guest_vcpu_writes(g, i);
	return sum;
}

uint64_t guest_dropped(const struct guest *g)
{
	return __atomic_load_n(&g->dropped, __ATOMIC_RELAXED);
}

uint64_t guest_ring_exits(const struct guest *g)
{
	return __atomic_load_n(&g->ring_exits, __ATOMIC_RELAXED);
}
