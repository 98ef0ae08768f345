/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_PROTO_RIG_H
#define TESTS_PROTO_RIG_H

#include <silt/silt.h>

/*
 * A backend with a small device, its frontend's end of the socket as bare messages, and guest
 * memory. Everything runs in the test's own thread, so that each run is the same.
 *
 * The device copies: what a buffer's readable segments hold goes to the writable ones.
 */

#define RIG_QUEUES  4
#define RIG_NUM	    16 /* size of the rings that rig_ring() sets up */
#define RIG_REGIONS 3
#define RIG_CONFIG  24 /* bytes of device configuration */

#define RIG_F_DEVICE (UINT64_C(1) << 5) /* a device feature, offered */
#define RIG_FEATURES \
	(RIG_F_DEVICE | UINT64_C(1) << 29 /* EVENT_IDX */ | UINT64_C(1) << 32 /* VERSION_1 */)
#define RIG_F_PACKED (UINT64_C(1) << 34) /* RING_PACKED */

/* The base that a packed ring begins with. */
#define RIG_PACKED_BASE (SILT_VIRTQ_PACKED_START | (uint32_t)SILT_VIRTQ_PACKED_START << 16)

#define RIG_IOMMU (RIG_FEATURES | SILT_VHOST_F_ACCESS_PLATFORM)

struct rig_queue {
	struct silt_virtq *vq;
	int kick_fd;
	bool running;
	bool parked;
	struct silt_virtq_elem *held; /* stored, not yet completed: DMA that is under way */
	struct silt_driver *driver;
};

struct rig_region {
	struct silt_vhost_mem_region r;
	int fd;
	uint8_t *hva; /* as the guest sees it */
};

/* How a message ended. */
enum rig_end {
	RIG_SILENT, /* accepted, without an answer */
	RIG_ANSWER, /* rig->rx.msg holds the answer */
	RIG_CLOSED, /* the connection is unusable */
};

/* The device may keep one buffer back. */
enum rig_hold {
	RIG_HOLD_NONE,
	RIG_HOLD_DMA,	 /* stored, not completed: marked when it is */
	RIG_HOLD_MARKED, /* stored and marked, with nothing flushed yet */
};

struct rig {
	int fd;
	struct silt_backend *b;
	struct silt_backend_ops ops;
	struct silt_vhost_rx rx;
	struct rig_queue queues[RIG_QUEUES];
	struct rig_region
		regions[RIG_REGIONS]; /* the third is above the others, not mapped at first */
	uint64_t device_features;     /* as told to the device */
	unsigned int resets;
	unsigned int fail_start; /* queue + 1 that the device refuses to run, 0 for none */
	enum rig_hold hold;	 /* what becomes of the next buffer */
	uint8_t config[RIG_CONFIG];
};

/* The second offers these features in place of RIG_FEATURES. */
void rig_init(struct rig *rig);
void rig_init_offering(struct rig *rig, uint64_t features);
void rig_fini(struct rig *rig);

/* Send one message, let the backend handle it, and take the answer. Checks the answer's header. */
enum rig_end rig_send(struct rig *rig, const struct silt_vhost_msg *msg);
enum rig_end rig_ask(struct rig *rig, uint32_t request, uint32_t flags, const void *payload,
		     uint32_t size, const int *fds, unsigned int nfds);

/* The same with REPLY_ACK asked for. Return: true if the answer was 0, false if not; no third. */
bool rig_do(struct rig *rig, uint32_t request, const void *payload, uint32_t size, const int *fds,
	    unsigned int nfds);
bool rig_do_u64(struct rig *rig, uint32_t request, uint64_t value);
bool rig_do_state(struct rig *rig, uint32_t request, uint32_t q, uint32_t num);
bool rig_do_fd(struct rig *rig, uint32_t request, uint64_t value, int fd);

/* Acknowledge all protocol features, and @features with the bit for those. */
void rig_negotiate(struct rig *rig, uint64_t features);
bool rig_set_memory(struct rig *rig, unsigned int nregions);
bool rig_add_region(struct rig *rig, unsigned int i);
bool rig_set_log(struct rig *rig, int fd, uint64_t size, uint64_t offset);

/* Where ring @q lies; desc, avail and used as user addresses. */
void rig_ring_addr(const struct rig *rig, unsigned int q, struct silt_vhost_vring_addr *addr);
uint64_t rig_used_gpa(unsigned int q);

/* Set ring @q up, log address and flags as in @addr or NULL, kick, call and enable; and drive it.
 */
void rig_ring(struct rig *rig, unsigned int q, const struct silt_vhost_vring_addr *addr);

/* A buffer for @q: @len bytes from region 0, to be copied to @gpa, filled with @byte. */
void rig_request(struct rig *rig, unsigned int q, uint64_t gpa, uint32_t len, uint8_t byte);
void rig_run(struct rig *rig, unsigned int q);	  /* the device's turn, unless stopped or parked */
void rig_finish(struct rig *rig, unsigned int q); /* complete what is held */
unsigned int rig_collect(struct rig *rig, unsigned int q);

/* GET_VRING_BASE. */
uint32_t rig_base(struct rig *rig, unsigned int q);

/* A guest address as the guest reaches it. */
uint8_t *rig_hva(const struct rig *rig, uint64_t gpa);

/* All that a refused request must not change, in one number. */
uint64_t rig_fingerprint(const struct rig *rig);

#endif
