/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_FRONTEND_H
#define SILT_FRONTEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/vhost_user.h>
#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * The frontend end of a vhost-user connection: one function for each request. Where REPLY_ACK was
 * negotiated each request asks for an answer and waits for it, so that success means the backend
 * said so. Every call is bounded by the frontend's timeout.
 *
 * All functions return 0 (or a value where said), or: -EINVAL an argument is out of bounds;
 * -ETIMEDOUT no answer in time; -ECONNRESET the backend closed; -EREMOTEIO the backend refused the
 * request; -EPROTO the answer breaks the specification (silt_errmsg() says how); -EOPNOTSUPP the
 * protocol feature that the request needs was not negotiated; -errno. After any of them but
 * -EINVAL, -EREMOTEIO and -EOPNOTSUPP the connection is unusable.
 *
 * Thread: one at a time for each frontend. Owns: fds passed in stay the caller's. Blocks: up to the
 * timeout. Source: QEMU's docs/interop/vhost-user.rst.
 */
struct silt_frontend;

/** Called for each message sent (@from_backend false) or received (true). */
typedef void silt_frontend_trace_fn(void *arg, const struct silt_vhost_msg *msg, bool from_backend);

/**
 * silt_frontend_create() - speak on a connected socket
 * @fd:         a connected Unix stream socket; the frontend owns it from here on, also on failure
 * @timeout_ms: bound on each request, -1 for none
 * @out:        the frontend
 *
 * Return: 0, -ENOMEM. Owns: free with silt_frontend_destroy(). Blocks: never.
 */
SILT_API int silt_frontend_create(int fd, int timeout_ms, struct silt_frontend **out);

/**
 * silt_frontend_connect() - connect to a backend, and silt_frontend_create()
 * @path:       of its listening Unix socket
 * @timeout_ms: bound on the connecting, and on each request
 * @out:        the frontend
 *
 * Return: also -ENAMETOOLONG, and what connect() says. Owns: free with silt_frontend_destroy().
 */
SILT_API int silt_frontend_connect(const char *path, int timeout_ms, struct silt_frontend **out);

/** silt_frontend_destroy() - close the connection. @f may be NULL. */
SILT_API void silt_frontend_destroy(struct silt_frontend *f);

/** silt_frontend_fd() - the socket, to see whether the backend closed it. Blocks: never. */
SILT_API int silt_frontend_fd(const struct silt_frontend *f);

/**
 * silt_frontend_trace() - have a function called for each message from now on
 * @fn:  the function, or NULL for none
 * @arg: handed to it
 *
 * Blocks: never.
 */
SILT_API void silt_frontend_trace(struct silt_frontend *f, silt_frontend_trace_fn *fn, void *arg);

/** Features the backend offered, and those acknowledged; protocol features likewise. */
SILT_API int silt_frontend_get_features(struct silt_frontend *f, uint64_t *features);
SILT_API int silt_frontend_set_features(struct silt_frontend *f, uint64_t features);
SILT_API int silt_frontend_get_protocol_features(struct silt_frontend *f, uint64_t *features);
SILT_API int silt_frontend_set_protocol_features(struct silt_frontend *f, uint64_t features);
SILT_API uint64_t silt_frontend_protocol_features(const struct silt_frontend *f);

SILT_API int silt_frontend_set_owner(struct silt_frontend *f);
SILT_API int silt_frontend_get_queue_num(struct silt_frontend *f, uint64_t *nqueues);
SILT_API int silt_frontend_reset_device(struct silt_frontend *f);
SILT_API int silt_frontend_get_status(struct silt_frontend *f, uint64_t *status);
SILT_API int silt_frontend_set_status(struct silt_frontend *f, uint64_t status);

/** @fds: one for each region. At most SILT_VHOST_MEM_TABLE_REGIONS. */
SILT_API int silt_frontend_set_mem_table(struct silt_frontend *f,
					 const struct silt_vhost_mem_region *regions,
					 const int *fds, unsigned int n);
SILT_API int silt_frontend_get_max_mem_slots(struct silt_frontend *f, uint64_t *slots);
SILT_API int silt_frontend_add_mem_reg(struct silt_frontend *f,
				       const struct silt_vhost_mem_region *region, int fd);
SILT_API int silt_frontend_rem_mem_reg(struct silt_frontend *f,
				       const struct silt_vhost_mem_region *region);

/**
 * silt_frontend_set_log_base() - waits for the reply, which every backend with LOG_SHMFD sends; 0,
 * 8 or 16 bytes of payload are accepted; a u64 (8 bytes) that is neither 0 nor @size, which some
 * backends send back, is a refusal if REPLY_ACK was negotiated
 */
SILT_API int silt_frontend_set_log_base(struct silt_frontend *f, uint64_t size, uint64_t offset,
					int fd);
SILT_API int silt_frontend_set_log_fd(struct silt_frontend *f, int fd);

/**
 * silt_frontend_set_backend_req_fd() - give the backend a back channel to send requests on
 * @fd: its end of a socket pair
 */
SILT_API int silt_frontend_set_backend_req_fd(struct silt_frontend *f, int fd);

/**
 * silt_frontend_iotlb_update() - tell the backend where I/O virtual addresses lie
 * @iova:      the first of them
 * @size:      bytes
 * @user_addr: where they lie, as in the memory regions' user addresses
 * @access:    SILT_IOTLB_READ, SILT_IOTLB_WRITE or both
 *
 * An answer to a miss on the back channel comes after the update that it is about.
 */
SILT_API int silt_frontend_iotlb_update(struct silt_frontend *f, uint64_t iova, uint64_t size,
					uint64_t user_addr, unsigned int access);

/**
 * silt_frontend_iotlb_invalidate() - take translations away
 * @size: bytes; both 0 mean all addresses
 *
 * With REPLY_ACK the backend uses none of them any more when this returns.
 */
SILT_API int silt_frontend_iotlb_invalidate(struct silt_frontend *f, uint64_t iova, uint64_t size);

/** silt_frontend_iotlb_msg() - send an IOTLB message as it is */
SILT_API int silt_frontend_iotlb_msg(struct silt_frontend *f, const struct silt_vhost_iotlb *m);

/*
 * The frontend's end of a back channel: IOTLB misses and access failures come here. To a miss
 * answer with an update first, if there is a translation that allows what is asked for, and then
 * with silt_backchannel_answer().
 *
 * Where a function below does not say otherwise: Thread: one at a time for each channel; it need
 * not be the frontend's. Owns: nothing. Blocks: never.
 */
struct silt_backchannel;

/**
 * silt_backchannel_create() - make a back channel, and give the backend its end
 * @f:   a frontend that negotiated BACKEND_REQ
 * @out: the channel
 *
 * Return: as the frontend's functions. Thread: the frontend's. Owns: free with
 * silt_backchannel_destroy(). Blocks: up to the frontend's timeout.
 */
SILT_API int silt_backchannel_create(struct silt_frontend *f, struct silt_backchannel **out);

/** silt_backchannel_destroy() - close it. @c may be NULL. */
SILT_API void silt_backchannel_destroy(struct silt_backchannel *c);

/** silt_backchannel_fd() - to poll for POLLIN. */
SILT_API int silt_backchannel_fd(const struct silt_backchannel *c);

/**
 * silt_backchannel_recv() - take the next message
 * @c:   the channel
 * @msg: set to it: a miss or an access failure
 *
 * Return: 1; 0 none has come; -ECONNRESET the backend closed the channel; -EPROTO it sent something
 * else; -errno.
 */
SILT_API int silt_backchannel_recv(struct silt_backchannel *c, struct silt_vhost_iotlb *msg);

/**
 * silt_backchannel_answer() - answer the message that was taken last, if it asks for an answer
 * @c:    the channel
 * @code: 0, or another number if nothing could be done about it
 *
 * Return: 0; -EAGAIN the backend does not take its answers; -errno.
 */
SILT_API int silt_backchannel_answer(struct silt_backchannel *c, uint64_t code);

/**
 * silt_frontend_get_inflight_fd() - have the backend make memory to record in what is in flight
 * @area: num_queues and queue_size are the caller's wish; the rest is set to what the backend says.
 *        Keep it with @fd: both are what silt_frontend_set_inflight_fd() wants.
 * @fd:   set to the memory's file, which is the caller's to close
 *
 * Return: 0; also -EREMOTEIO: the backend keeps no record (it answered with a size of 0).
 */
SILT_API int silt_frontend_get_inflight_fd(struct silt_frontend *f,
					   struct silt_vhost_inflight *area, int *fd);

/**
 * silt_frontend_set_inflight_fd() - hand that memory over, before the rings are started
 *
 * To a backend that was restarted, with what the one before recorded: it finishes that first.
 */
SILT_API int silt_frontend_set_inflight_fd(struct silt_frontend *f,
					   const struct silt_vhost_inflight *area, int fd);

SILT_API int silt_frontend_set_vring_num(struct silt_frontend *f, unsigned int q, uint32_t num);
SILT_API int silt_frontend_set_vring_addr(struct silt_frontend *f,
					  const struct silt_vhost_vring_addr *addr);
/**
 * A base, as silt_virtq_start() takes it: of a split ring the available index, of a packed one two
 * places. silt_frontend_get_vring_base() returns one, or -errno.
 */
SILT_API int silt_frontend_set_vring_base(struct silt_frontend *f, unsigned int q, uint32_t base);
SILT_API int64_t silt_frontend_get_vring_base(struct silt_frontend *f, unsigned int q);

/** @fd -1: send the flag that says no fd comes along. */
SILT_API int silt_frontend_set_vring_kick(struct silt_frontend *f, unsigned int q, int fd);
SILT_API int silt_frontend_set_vring_call(struct silt_frontend *f, unsigned int q, int fd);
SILT_API int silt_frontend_set_vring_err(struct silt_frontend *f, unsigned int q, int fd);
SILT_API int silt_frontend_set_vring_enable(struct silt_frontend *f, unsigned int q, bool enable);

/** Return: 0, -EREMOTEIO if the backend answered with an empty payload, its way to say no. */
SILT_API int silt_frontend_get_config(struct silt_frontend *f, uint32_t offset, void *buf,
				      uint32_t len);
SILT_API int silt_frontend_set_config(struct silt_frontend *f, uint32_t offset, const void *buf,
				      uint32_t len, uint32_t flags);

SILT_END_DECLS

#endif
