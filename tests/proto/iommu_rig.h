/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_PROTO_IOMMU_RIG_H
#define TESTS_PROTO_IOMMU_RIG_H

#include "rig.h"

/* A rig whose backend is behind an IOMMU, with a log and the frontend's end of the back channel. */

#define LOG_SIZE 0x60000
#define SHIFT	 UINT64_C(0x40000000) /* from a GPA of the first region to its IOVA */
#define ALIASED	 UINT64_C(0x90000)    /* GPA of what lies at ALIAS too */
#define ALIAS	 UINT64_C(0x280000000)
#define DATA	 UINT64_C(0x94000) /* in the aliased part */
#define PLAIN	 UINT64_C(0xc0000)

#define READ  SILT_IOTLB_READ
#define WRITE SILT_IOTLB_WRITE
#define BOTH  (READ | WRITE)

struct iommu_rig {
	struct rig rig;
	struct silt_log *log;
	int log_fd;
	int channel;
	struct silt_vhost_rx rx; /* of the back channel */
	unsigned int fds;
};

void iommu_give_channel(struct iommu_rig *f);
void iommu_start(struct iommu_rig *f);
void iommu_stop(struct iommu_rig *f);
void iommu_process(struct iommu_rig *f);
bool iommu_iotlb(struct iommu_rig *f, uint8_t type, uint64_t iova, uint64_t size, uint64_t gpa,
		 uint8_t perm);

/* A range of GPAs of the first region is mapped at its IOVAs. */
void iommu_map(struct iommu_rig *f, uint64_t gpa, uint64_t size, uint8_t perm);
void iommu_unmap(struct iommu_rig *f, uint64_t gpa, uint64_t size);

/* The next message on the back channel, which must be there. */
void iommu_expect(struct iommu_rig *f, uint8_t type, uint64_t gpa, uint8_t perm);
void iommu_expect_silence(struct iommu_rig *f);

/* Put an answer to a miss into the channel. */
void iommu_answer(struct iommu_rig *f, uint64_t code);
void iommu_ring_addr(const struct rig *rig, unsigned int q, struct silt_vhost_vring_addr *addr);

/* All that the ring @q takes, and the source of its requests. */
void iommu_map_ring(struct iommu_rig *f, unsigned int q);
void iommu_run_ring(struct iommu_rig *f, unsigned int q);

/* The same as rig_request(), at IOVAs. */
void iommu_request(struct iommu_rig *f, unsigned int q, uint64_t gpa, uint32_t len, uint8_t byte);
void iommu_run(struct iommu_rig *f, unsigned int q);

/* Exactly the pages of @gpas, of which there are @n, are marked. */
void iommu_expect_marks(struct iommu_rig *f, const uint64_t *gpas, unsigned int n);
void iommu_drop_marks(struct iommu_rig *f);
bool iommu_filled(const struct iommu_rig *f, uint64_t gpa, uint32_t len, uint8_t byte);

#endif
