/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend behind an IOMMU: updates, invalidations, and what is logged where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "iommu_rig.h"

/* A part that is scattered in memory cannot be used, and is refused. */
static void test_scattered_ring(void **state)
{
	struct silt_vhost_vring_addr addr;
	struct iommu_rig f;
	const char *last;

	(void)state;
	iommu_start(&f);
	iommu_ring_addr(&f.rig, 0, &addr);
	iommu_map(&f, 0, 0x3000, BOTH);
	assert_true(iommu_iotlb(&f, SILT_VHOST_IOTLB_UPDATE, 0x3000 + SHIFT, 0x1000, 0x8000, BOTH));
	assert_true(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_NUM, 0, RIG_NUM));
	assert_true(rig_do(&f.rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_fd(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	assert_false(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_ENABLE, 0, 1));
	silt_backend_refusals(f.rig.b, &last);
	assert_non_null(strstr(last, "in one piece"));
	iommu_stop(&f);
}

/* Buffers cross mappings, which end where the buffer ends; what is logged are GPAs, all of them. */
static void test_data(void **state)
{
	const uint64_t used = rig_used_gpa(0);
	/* The used ring with its event field; the data, at both of its addresses. */
	const uint64_t marked[] = {
		used,	       used + 0x1000,	       DATA,
		DATA + 0x1000, ALIAS + DATA - ALIASED, ALIAS + DATA - ALIASED + 0x1000};
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_drop_marks(&f);
	iommu_request(&f, 0, DATA + 0xf00, 0x200, 7);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, DATA + 0xf00, WRITE);
	iommu_map(&f, DATA, 0x1000, BOTH);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, DATA + 0x1000, WRITE);
	/* It is asked for once. */
	iommu_run(&f, 0);
	iommu_expect_silence(&f);
	assert_int_equal(rig_collect(&f.rig, 0), 0);
	iommu_map(&f, DATA + 0x1000, 0x100, WRITE);
	iommu_run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	assert_true(iommu_filled(&f, DATA + 0xf00, 0x200, 7));
	iommu_expect_marks(&f, marked, 6);
	iommu_expect_silence(&f);
	/* The answers come late, and mean nothing any more. */
	iommu_answer(&f, 1);
	iommu_answer(&f, 0);
	iommu_process(&f);
	iommu_process(&f);
	iommu_expect_silence(&f);
	iommu_request(&f, 0, DATA + 0xf00, 0x200, 8);
	iommu_run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	iommu_stop(&f);
}

/*
 * An invalidation is answered when nothing uses the mapping (the rig's queue_stop sees that it was
 * not before), and disturbs nobody who does not.
 */
static void test_invalidate_in_flight(void **state)
{
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_map(&f, PLAIN, 0x4000, BOTH);
	f.rig.hold = RIG_HOLD_DMA;
	iommu_request(&f, 0, PLAIN + 0x1ff0, 64, 7);
	iommu_run(&f, 0);
	assert_non_null(f.rig.queues[0].held);
	iommu_unmap(&f, PLAIN, 0x1ff0);
	iommu_unmap(&f, PLAIN + 0x2030, 0x1000);
	assert_non_null(f.rig.queues[0].held);
	iommu_unmap(&f, PLAIN + 0x202f, 1);
	assert_null(f.rig.queues[0].held);
	assert_true(f.rig.queues[0].running);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	assert_true(iommu_filled(&f, PLAIN + 0x1ff0, 64, 7));
	/* An update that contradicts does the same. */
	iommu_request(&f, 0, PLAIN + 0x1ff0, 16, 8);
	iommu_run(&f, 0);
	assert_true(
		iommu_iotlb(&f, SILT_VHOST_IOTLB_UPDATE, PLAIN + 0x1ff0 + SHIFT, 8, 0xd0000, BOTH));
	assert_null(f.rig.queues[0].held);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	iommu_stop(&f);
}

/* The ring's own mapping goes, and comes back elsewhere: no store reaches the old place. */
static void test_ring_moves(void **state)
{
	const uint64_t moved = 0xe0000;
	uint8_t *from, *to;
	uint16_t idx;
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_map(&f, PLAIN, 0x1000, BOTH);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	iommu_unmap(&f, 0x3000, 0x1000);
	assert_false(f.rig.queues[0].running);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, 0x3000, WRITE);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	iommu_request(&f, 0, PLAIN, 64, 8);

	from = rig_hva(&f.rig, 0);
	to = rig_hva(&f.rig, moved);
	memcpy(to, from, 0x4000);
	iommu_drop_marks(&f);
	assert_true(iommu_iotlb(&f, SILT_VHOST_IOTLB_UPDATE, SHIFT, 0x4000, moved, BOTH));
	assert_true(f.rig.queues[0].running);
	iommu_run(&f, 0);
	memcpy(&idx, to + 0x2fc2, sizeof(idx));
	assert_int_equal(idx, 2);
	memcpy(&idx, from + 0x2fc2, sizeof(idx));
	assert_int_equal(idx, 1);
	iommu_expect_marks(&f, (uint64_t[]){moved + 0x2000, moved + 0x3000, PLAIN}, 3);
	iommu_stop(&f);
}

/* With the IOMMU goes all that was said about addresses. */
static void test_toggle(void **state)
{
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	assert_true(rig_do_u64(&f.rig, SILT_VHOST_SET_FEATURES,
			       RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES));
	assert_false(f.rig.queues[0].running);
	assert_true(rig_do_u64(&f.rig, SILT_VHOST_SET_FEATURES,
			       RIG_IOMMU | SILT_VHOST_F_PROTOCOL_FEATURES));
	assert_false(f.rig.queues[0].running);
	rig_ask(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, &(uint64_t){SILT_VHOST_VRING_NO_FD}, 8, NULL,
		0);
	iommu_expect_silence(&f);
	iommu_stop(&f);
}

/* The IOTLB of a region that is gone is asked for anew. */
static void test_region_removed(void **state)
{
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	assert_true(iommu_iotlb(&f, SILT_VHOST_IOTLB_UPDATE, PLAIN + SHIFT, 0x1000,
				f.rig.regions[1].r.user_addr - f.rig.regions[0].r.user_addr, BOTH));
	assert_true(rig_do(&f.rig, SILT_VHOST_REM_MEM_REG,
			   &(struct silt_vhost_mem_reg){.region = f.rig.regions[1].r},
			   sizeof(struct silt_vhost_mem_reg), NULL, 0));
	assert_true(f.rig.queues[0].running);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	assert_true(rig_add_region(&f.rig, 1));
	iommu_run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	iommu_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scattered_ring),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_invalidate_in_flight),
		cmocka_unit_test(test_ring_moves),
		cmocka_unit_test(test_toggle),
		cmocka_unit_test(test_region_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
