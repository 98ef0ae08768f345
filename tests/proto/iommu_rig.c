/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "iommu_rig.h"
#include "support/proc.h"

static void set_memory(struct rig *rig)
{
	const struct silt_vhost_mem_region *first = &rig->regions[0].r;
	struct silt_vhost_mem_table table = {
		.nregions = 3,
		.regions = {*first,
			    rig->regions[1].r,
			    {ALIAS, 0x20000, first->user_addr + ALIASED, ALIASED}},
	};
	const int fds[] = {rig->regions[0].fd, rig->regions[1].fd, rig->regions[0].fd};

	assert_true(rig_do(rig, SILT_VHOST_SET_MEM_TABLE, &table,
			   offsetof(struct silt_vhost_mem_table, regions[3]), fds, 3));
}

void iommu_give_channel(struct iommu_rig *f)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_true(rig_do(&f->rig, SILT_VHOST_SET_BACKEND_REQ_FD, NULL, 0, &fds[1], 1));
	close(fds[1]);
	if (f->channel >= 0)
		close(f->channel);
	f->channel = fds[0];
}

void iommu_start(struct iommu_rig *f)
{
	*f = (struct iommu_rig){.fds = proc_count_fds(), .channel = -1};
	rig_init_offering(&f->rig, RIG_IOMMU);
	rig_negotiate(&f->rig, RIG_IOMMU | SILT_VHOST_F_LOG_ALL);
	iommu_give_channel(f);
	set_memory(&f->rig);
	f->log_fd = proc_memfd("silt-test-log", LOG_SIZE);
	assert_int_equal(silt_log_map(f->log_fd, LOG_SIZE, 0, &f->log), 0);
	assert_true(rig_set_log(&f->rig, f->log_fd, LOG_SIZE, 0));
}

void iommu_stop(struct iommu_rig *f)
{
	rig_fini(&f->rig);
	silt_vhost_rx_discard(&f->rx);
	silt_log_put(f->log);
	close(f->log_fd);
	close(f->channel);
	assert_int_equal(proc_count_fds(), f->fds);
}

void iommu_process(struct iommu_rig *f)
{
	assert_int_equal(silt_backend_process(f->rig.b), 0);
}

bool iommu_iotlb(struct iommu_rig *f, uint8_t type, uint64_t iova, uint64_t size, uint64_t gpa,
		 uint8_t perm)
{
	const struct silt_vhost_iotlb m = {
		.iova = iova,
		.size = size,
		.user_addr =
			type == SILT_VHOST_IOTLB_UPDATE ? f->rig.regions[0].r.user_addr + gpa : 0,
		.perm = perm,
		.type = type,
	};

	return rig_do(&f->rig, SILT_VHOST_IOTLB_MSG, &m, sizeof(m), NULL, 0);
}

void iommu_map(struct iommu_rig *f, uint64_t gpa, uint64_t size, uint8_t perm)
{
	assert_true(iommu_iotlb(f, SILT_VHOST_IOTLB_UPDATE, gpa + SHIFT, size, gpa, perm));
}

void iommu_unmap(struct iommu_rig *f, uint64_t gpa, uint64_t size)
{
	assert_true(iommu_iotlb(f, SILT_VHOST_IOTLB_INVALIDATE, gpa + SHIFT, size, 0, 0));
}

void iommu_expect(struct iommu_rig *f, uint8_t type, uint64_t gpa, uint8_t perm)
{
	const struct silt_vhost_iotlb *m = &f->rx.msg.payload.iotlb;
	uint32_t answer = type == SILT_VHOST_IOTLB_MISS ? SILT_VHOST_NEED_REPLY : 0;

	assert_int_equal(silt_vhost_recv(f->channel, &f->rx), 1);
	assert_int_equal(f->rx.msg.hdr.request, SILT_VHOST_BACKEND_IOTLB_MSG);
	assert_int_equal(f->rx.msg.hdr.flags, SILT_VHOST_VERSION | answer);
	assert_int_equal(f->rx.msg.hdr.size, sizeof(*m));
	assert_int_equal(m->type, type);
	assert_int_equal(m->iova, gpa + SHIFT);
	assert_int_equal(m->perm, perm);
	silt_vhost_rx_reset(&f->rx);
}

void iommu_expect_silence(struct iommu_rig *f)
{
	assert_int_equal(silt_vhost_recv(f->channel, &f->rx), 0);
}

void iommu_answer(struct iommu_rig *f, uint64_t code)
{
	const struct silt_vhost_msg msg = {.hdr = {SILT_VHOST_BACKEND_IOTLB_MSG,
						   SILT_VHOST_VERSION | SILT_VHOST_REPLY,
						   sizeof(code)},
					   .payload.u64 = code};

	assert_int_equal(silt_vhost_send(f->channel, &msg, 0), 0);
}

void iommu_ring_addr(const struct rig *rig, unsigned int q, struct silt_vhost_vring_addr *addr)
{
	uint64_t user = rig->regions[0].r.user_addr;

	rig_ring_addr(rig, q, addr);
	addr->desc_user_addr += SHIFT - user;
	addr->avail_user_addr += SHIFT - user;
	addr->used_user_addr += SHIFT - user;
	addr->log_guest_addr += SHIFT;
	addr->flags = SILT_VHOST_VRING_F_LOG;
}

void iommu_map_ring(struct iommu_rig *f, unsigned int q)
{
	iommu_map(f, q * 0x10000, 0x10000, BOTH);
	iommu_map(f, 0x80000 + q * 0x10000, 0x1000, READ);
}

void iommu_run_ring(struct iommu_rig *f, unsigned int q)
{
	struct silt_vhost_vring_addr addr;

	iommu_map_ring(f, q);
	iommu_ring_addr(&f->rig, q, &addr);
	rig_ring(&f->rig, q, &addr);
}

void iommu_request(struct iommu_rig *f, unsigned int q, uint64_t gpa, uint32_t len, uint8_t byte)
{
	uint64_t from = 0x80000 + q * 0x10000;
	const struct silt_driver_seg segs[] = {{from + SHIFT, len, false},
					       {gpa + SHIFT, len, true}};

	memset(rig_hva(&f->rig, from), byte, len);
	assert_true(silt_driver_add(f->rig.queues[q].driver, segs, 2, NULL, 0, f) >= 0);
	assert_true(silt_driver_publish(f->rig.queues[q].driver) >= 0);
}

void iommu_run(struct iommu_rig *f, unsigned int q)
{
	rig_run(&f->rig, q);
	iommu_process(f);
}

void iommu_expect_marks(struct iommu_rig *f, const uint64_t *gpas, unsigned int n)
{
	uint64_t pages = silt_log_pages(f->log), bit = 0, *marks;

	marks = test_calloc(pages / 64 + 1, sizeof(*marks));
	assert_int_equal(silt_log_harvest(f->log, marks), n);
	for (unsigned int i = 0; i < n; i++) {
		bit = gpas[i] >> SILT_LOG_PAGE_SHIFT;
		if (!(marks[bit / 64] >> bit % 64 & 1))
			fail_msg("page 0x%llx is not marked", (unsigned long long)gpas[i]);
	}
	test_free(marks);
}

void iommu_drop_marks(struct iommu_rig *f)
{
	uint64_t *marks = test_calloc(silt_log_pages(f->log) / 64 + 1, sizeof(*marks));

	assert_true(silt_log_harvest(f->log, marks) >= 0);
	test_free(marks);
}

bool iommu_filled(const struct iommu_rig *f, uint64_t gpa, uint32_t len, uint8_t byte)
{
	const uint8_t *p = rig_hva(&f->rig, gpa);

	for (uint32_t i = 0; i < len; i++)
		if (p[i] != byte)
			return false;
	return true;
}
