/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VHOST_USER_H
#define SILT_VHOST_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * vhost-user messages. Source: QEMU's docs/interop/vhost-user.rst. Numbers are in the machine's
 * byte order.
 */
enum silt_vhost_request {
	SILT_VHOST_GET_FEATURES = 1,
	SILT_VHOST_SET_FEATURES = 2,
	SILT_VHOST_SET_OWNER = 3,
	SILT_VHOST_RESET_OWNER = 4,
	SILT_VHOST_SET_MEM_TABLE = 5,
	SILT_VHOST_SET_LOG_BASE = 6,
	SILT_VHOST_SET_LOG_FD = 7,
	SILT_VHOST_SET_VRING_NUM = 8,
	SILT_VHOST_SET_VRING_ADDR = 9,
	SILT_VHOST_SET_VRING_BASE = 10,
	SILT_VHOST_GET_VRING_BASE = 11,
	SILT_VHOST_SET_VRING_KICK = 12,
	SILT_VHOST_SET_VRING_CALL = 13,
	SILT_VHOST_SET_VRING_ERR = 14,
	SILT_VHOST_GET_PROTOCOL_FEATURES = 15,
	SILT_VHOST_SET_PROTOCOL_FEATURES = 16,
	SILT_VHOST_GET_QUEUE_NUM = 17,
	SILT_VHOST_SET_VRING_ENABLE = 18,
	SILT_VHOST_SET_BACKEND_REQ_FD = 21,
	SILT_VHOST_IOTLB_MSG = 22,
	SILT_VHOST_GET_CONFIG = 24,
	SILT_VHOST_SET_CONFIG = 25,
	SILT_VHOST_GET_INFLIGHT_FD = 31,
	SILT_VHOST_SET_INFLIGHT_FD = 32,
	SILT_VHOST_RESET_DEVICE = 34,
	SILT_VHOST_GET_MAX_MEM_SLOTS = 36,
	SILT_VHOST_ADD_MEM_REG = 37,
	SILT_VHOST_REM_MEM_REG = 38,
	SILT_VHOST_SET_STATUS = 39,
	SILT_VHOST_GET_STATUS = 40,
};

/** Requests of the backend, on the back channel that SET_BACKEND_REQ_FD gave it. */
enum silt_vhost_backend_request {
	SILT_VHOST_BACKEND_IOTLB_MSG = 1,
};

/** The device's addresses are I/O virtual addresses: IOTLB messages translate them. */
#define SILT_VHOST_F_ACCESS_PLATFORM (UINT64_C(1) << 33)

/** Feature bits that are vhost's own, not the device's. */
#define SILT_VHOST_F_LOG_ALL	       (UINT64_C(1) << 26)
#define SILT_VHOST_F_PROTOCOL_FEATURES (UINT64_C(1) << 30)

/** Protocol feature bits. */
#define SILT_VHOST_PROTOCOL_F_MQ		  (UINT64_C(1) << 0)
#define SILT_VHOST_PROTOCOL_F_LOG_SHMFD		  (UINT64_C(1) << 1)
#define SILT_VHOST_PROTOCOL_F_REPLY_ACK		  (UINT64_C(1) << 3)
#define SILT_VHOST_PROTOCOL_F_BACKEND_REQ	  (UINT64_C(1) << 5)
#define SILT_VHOST_PROTOCOL_F_CONFIG		  (UINT64_C(1) << 9)
#define SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD	  (UINT64_C(1) << 12)
#define SILT_VHOST_PROTOCOL_F_RESET_DEVICE	  (UINT64_C(1) << 13)
#define SILT_VHOST_PROTOCOL_F_CONFIGURE_MEM_SLOTS (UINT64_C(1) << 15)
#define SILT_VHOST_PROTOCOL_F_STATUS		  (UINT64_C(1) << 16)

/** Header flags. */
#define SILT_VHOST_VERSION	0x1u
#define SILT_VHOST_VERSION_MASK 0x3u
#define SILT_VHOST_REPLY	0x4u
#define SILT_VHOST_NEED_REPLY	0x8u

/** vring flags of SET_VRING_ADDR. */
#define SILT_VHOST_VRING_F_LOG 0x1u

/** SET_VRING_KICK, _CALL and _ERR: queue index, and the flag that says no fd comes along. */
#define SILT_VHOST_VRING_INDEX_MASK 0xffu
#define SILT_VHOST_VRING_NO_FD	    0x100u

/** Regions of one SET_MEM_TABLE, fds of one message. */
#define SILT_VHOST_MEM_TABLE_REGIONS 8
#define SILT_VHOST_MAX_FDS	     8

/** Bytes of device configuration that GET_CONFIG and SET_CONFIG carry. */
#define SILT_VHOST_CONFIG_MAX 256

struct silt_vhost_vring_state {
	uint32_t index;
	uint32_t num;
};

struct silt_vhost_vring_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc_user_addr;
	uint64_t used_user_addr;
	uint64_t avail_user_addr;
	uint64_t log_guest_addr;
};

struct silt_vhost_mem_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t user_addr;
	uint64_t mmap_offset;
};

struct silt_vhost_mem_table {
	uint32_t nregions;
	uint32_t padding;
	struct silt_vhost_mem_region regions[SILT_VHOST_MEM_TABLE_REGIONS];
};

struct silt_vhost_mem_reg {
	uint64_t padding;
	struct silt_vhost_mem_region region;
};

struct silt_vhost_log {
	uint64_t mmap_size;
	uint64_t mmap_offset;
};

/** What an IOTLB message says. */
enum silt_vhost_iotlb_type {
	SILT_VHOST_IOTLB_MISS = 1,	 /* from the backend: iova, perm */
	SILT_VHOST_IOTLB_UPDATE = 2,	 /* from the frontend: all fields */
	SILT_VHOST_IOTLB_INVALIDATE = 3, /* from the frontend: iova, size */
	SILT_VHOST_IOTLB_ACCESS_FAIL = 4 /* from the backend: iova, perm */
};

/** Field perm of an IOTLB message: as SILT_IOTLB_READ and SILT_IOTLB_WRITE. */
struct silt_vhost_iotlb {
	uint64_t iova;
	uint64_t size;
	uint64_t user_addr;
	uint8_t perm;
	uint8_t type;
	uint8_t padding[6]; /* of the compilers, sent by all peers that are known */
};

struct silt_vhost_config {
	uint32_t offset;
	uint32_t size;
	uint32_t flags;
	uint8_t region[SILT_VHOST_CONFIG_MAX];
};

/*
 * The area in which a backend records what is in flight: one region for each queue from 0 on, each
 * padded to SILT_VHOST_INFLIGHT_ALIGN bytes. The padding is not in the specification; it is what
 * backends do.
 */
struct silt_vhost_inflight {
	uint64_t mmap_size;
	uint64_t mmap_offset;
	uint16_t num_queues;
	uint16_t queue_size; /* descriptors that each region has room for */
	uint32_t padding;    /* of the compilers, sent by all peers that are known */
};

#define SILT_VHOST_INFLIGHT_ALIGN 64

struct silt_vhost_header {
	uint32_t request;
	uint32_t flags;
	uint32_t size; /* bytes of payload */
};

/** Largest payload that either end accepts. */
#define SILT_VHOST_PAYLOAD_MAX 4096

/** One message with its fds. */
struct silt_vhost_msg {
	struct silt_vhost_header hdr;
	union {
		uint64_t u64;
		struct silt_vhost_vring_state state;
		struct silt_vhost_vring_addr addr;
		struct silt_vhost_mem_table mem_table;
		struct silt_vhost_mem_reg mem_reg;
		struct silt_vhost_log log;
		struct silt_vhost_iotlb iotlb;
		struct silt_vhost_config config;
		struct silt_vhost_inflight inflight;
		uint8_t bytes[SILT_VHOST_PAYLOAD_MAX];
	} payload;
	int fds[SILT_VHOST_MAX_FDS];
	unsigned int nfds;
};

/**
 * silt_vhost_send() - send one whole message
 * @fd:         a connected Unix stream socket
 * @msg:        hdr.size bytes of payload and msg->nfds fds are sent; fds stay the caller's
 * @timeout_ms: bound on the whole call, -1 for none
 *
 * Return: 0; -EINVAL size or fds over the bound; -ETIMEDOUT; -EPIPE (no signal is raised); -errno.
 * Thread: one sender for each socket. Owns: nothing. Blocks: up to @timeout_ms.
 */
SILT_API int silt_vhost_send(int fd, const struct silt_vhost_msg *msg, int timeout_ms);

/**
 * struct silt_vhost_rx - a message on its way in; zero it before the first use
 *
 * Holds what has come of one message, so that a peer that cuts messages in two, or sends them byte
 * by byte, neither confuses nor blocks the receiver.
 */
struct silt_vhost_rx {
	struct silt_vhost_msg msg;
	size_t have; /* bytes of header and payload received */
};

/**
 * silt_vhost_recv() - go on receiving one message, without blocking
 * @fd: a connected Unix stream socket
 * @rx: the message so far; when it is complete, take rx->msg (its fds are then the caller's) and
 *      call silt_vhost_rx_reset()
 *
 * Return: 1 complete, 0 more to come; -ECONNRESET the peer closed (-EPROTO if in the middle of a
 * message); -EPROTO wrong version, or a payload or a number of fds over the bound; -errno. On an
 * error all fds that came along are closed.
 *
 * Thread: one receiver for each socket. Owns: fds in rx->msg belong to @rx until the message is
 * complete. Blocks: never.
 */
SILT_API int silt_vhost_recv(int fd, struct silt_vhost_rx *rx);

/* The functions below: Thread: one at a time for each message. Owns: nothing. Blocks: never. */

/** silt_vhost_rx_reset() - be ready for the next message; does not close fds. */
SILT_API void silt_vhost_rx_reset(struct silt_vhost_rx *rx);

/** silt_vhost_rx_discard() - close the fds of a message that will not be taken, and reset. */
SILT_API void silt_vhost_rx_discard(struct silt_vhost_rx *rx);

/** silt_vhost_close_fds() - close a message's fds, and set msg->nfds to 0. */
SILT_API void silt_vhost_close_fds(struct silt_vhost_msg *msg);

/**
 * silt_vhost_request_name() - "SET_LOG_BASE"; "request 99" for one that silt does not know
 *
 * Return: a string, valid until this thread's next call. Thread: any.
 */
SILT_API const char *silt_vhost_request_name(uint32_t request);

/**
 * silt_vhost_msg_format() - one line that says what a message says, for traces
 * @msg:   a message
 * @reply: it went from the backend to the frontend
 * @buf:   gets the line, without a newline, always terminated
 * @len:   size of @buf
 *
 * Return: @buf. Thread: any. Blocks: never.
 */
SILT_API char *silt_vhost_msg_format(const struct silt_vhost_msg *msg, bool reply, char *buf,
				     size_t len);

SILT_END_DECLS

#endif
