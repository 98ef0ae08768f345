/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_TRANSPORT_H
#define CHECK_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <silt/frontend.h>

/*
 * How a session reaches its backend: by vhost-user messages, or by the ioctls of a vhost device of
 * the kernel. The operations are those of the messages, and return what silt_frontend_*() says.
 */
struct check_transport;

struct check_transport_ops {
	int (*set_owner)(struct check_transport *t);
	int (*get_features)(struct check_transport *t, uint64_t *features);
	int (*set_features)(struct check_transport *t, uint64_t features);
	int (*get_queue_num)(struct check_transport *t, uint64_t *n);
	int (*get_config)(struct check_transport *t, uint32_t offset, void *buf, uint32_t len);
	int (*set_mem_table)(struct check_transport *t, const struct silt_vhost_mem_region *regions,
			     const int *fds, unsigned int n);

	/* On success nothing is marked in the log before any more. */
	int (*set_log_base)(struct check_transport *t, uint64_t size, uint64_t offset, int fd);

	int (*set_vring_num)(struct check_transport *t, unsigned int ring, uint32_t num);
	int (*set_vring_base)(struct check_transport *t, unsigned int ring, uint32_t base);
	int (*set_vring_addr)(struct check_transport *t, const struct silt_vhost_vring_addr *addr);
	int (*set_vring_kick)(struct check_transport *t, unsigned int ring, int fd);
	int (*set_vring_call)(struct check_transport *t, unsigned int ring, int fd);
	int (*set_vring_err)(struct check_transport *t, unsigned int ring, int fd);

	/* Whether or not the backend has to be told; all rings that are to run have been set up. */
	int (*enable_vring)(struct check_transport *t, unsigned int ring);

	/* The ring does not run afterwards. Return: the available index, or -errno. */
	int64_t (*get_vring_base)(struct check_transport *t, unsigned int ring);

	/*
	 * Where the device is behind an IOMMU: updates and invalidations go to it, and what is sent
	 * has taken effect by the next answer; misses and access failures come from it, of which
	 * one is answered before the next is taken. iotlb_recv() returns 1, 0 for none, or -errno.
	 */
	int (*iotlb_open)(struct check_transport *t);
	void (*iotlb_close)(struct check_transport *t);
	int (*iotlb_send)(struct check_transport *t, const struct silt_vhost_iotlb *m);
	int (*iotlb_recv)(struct check_transport *t, struct silt_vhost_iotlb *m);
	int (*iotlb_answer)(struct check_transport *t, bool done);

	/* Each request from now on is a line there; NULL for none. */
	void (*trace)(struct check_transport *t, FILE *to);
	void (*destroy)(struct check_transport *t);
};

struct check_transport {
	const struct check_transport_ops *ops;
	struct silt_frontend *frontend; /* for what vhost-user alone has, or NULL */
	int fd;				/* hangs up when the backend is gone; -1: it stays */
	int iotlb_fd;			/* readable when a miss has come; -1: not open */
};

#define check_transport_call(t, op, ...) ((t)->ops->op((t), ##__VA_ARGS__))

/*
 * Speak vhost-user on a connected socket, which the transport owns from here on, also on failure.
 * Return: 0 or -ENOMEM. Owns: free with check_transport_destroy().
 */
int check_transport_user(int fd, int timeout_ms, struct check_transport **out);

/*
 * Open a vhost device of the kernel, /dev/vhost-net or /dev/vhost-vsock, and make what is at its
 * other end: an interface from where all frames come back with their addresses swapped, or a CID.
 * Return: 0 or -errno. Owns: free with check_transport_destroy().
 */
int check_transport_kernel(const char *path, struct check_transport **out);

/* @t may be NULL. */
void check_transport_destroy(struct check_transport *t);

#endif
