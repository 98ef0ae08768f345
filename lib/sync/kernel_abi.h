/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_KERNEL_ABI_H
#define SILT_SYNC_KERNEL_ABI_H

#include <linux/ioctl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>

/*
 * What the kernel offers and the headers of older distributions lack. Under names of our own, so
 * that newer headers may come in beside them.
 */

/* Linux 6.7. Source: Linux Documentation/admin-guide/mm/userfaultfd.rst */
#define SYNC_UFFD_WP_UNPOPULATED (1u << 13)
#define SYNC_UFFD_WP_ASYNC	 (1u << 15)

/* Linux 6.7. Source: Linux Documentation/admin-guide/mm/pagemap.rst, Pagemap Scan IOCTL */
struct sync_page_region {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};

struct sync_scan_arg {
	uint64_t size;
	uint64_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t walk_end;
	uint64_t vec;
	uint64_t vec_len;
	uint64_t max_pages;
	uint64_t category_inverted;
	uint64_t category_mask;
	uint64_t category_anyof_mask;
	uint64_t return_mask;
};

#define SYNC_PAGEMAP_SCAN	_IOWR('f', 16, struct sync_scan_arg)
#define SYNC_SCAN_WP_MATCHING	(UINT64_C(1) << 0)
#define SYNC_SCAN_CHECK_WPASYNC (UINT64_C(1) << 1)
#define SYNC_PAGE_IS_WRITTEN	(UINT64_C(1) << 1)

/*
 * Where a vCPU's file shows its dirty ring, in host pages: the same on all architectures that have
 * rings. Source: Linux Documentation/virt/kvm/api.rst, KVM_CAP_DIRTY_LOG_RING
 */
#define SYNC_RING_PAGE_OFFSET 64

#endif
