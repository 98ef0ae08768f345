/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/silt.h>

/*
 * A guest with one virtio-blk queue, connected to a vhost-user backend.
 *
 * Memory is one region: ring, headers and statuses, then the data buffers. All of it is touched
 * before the first request.
 */
#define SESSION_DEPTH 128 /* slots; a queue of 512 descriptors holds them all */
#define SESSION_DATA  (64 * 1024)

struct session {
	struct silt_frontend *frontend;
	struct silt_driver *driver;
	int mem_fd, log_fd, kick_fd, call_fd;
	uint8_t *base;
	uint64_t offered;  /* features */
	uint64_t features; /* acknowledged */
};

/*
 * Connect to the backend at @path and start the queue. @logging: switch dirty logging on.
 *
 * Return: 0, or -errno with silt_errmsg() set. Blocks: up to the frontend's timeout for each
 * request.
 */
int session_open(struct session *s, const char *path, bool logging);

/* The same on a connection that is there already, and is the session's from here on. */
int session_start(struct session *s, struct silt_frontend *frontend, bool logging);

void session_close(struct session *s);

/*
 * Switch dirty logging on or off as a migration that begins or is cancelled does. Nothing is in
 * flight. Return: 0 or -errno.
 */
int session_set_logging(struct session *s, bool on);

struct session_request {
	uint32_t type; /* VIRTIO_BLK_T_... */
	uint64_t sector;
	uint32_t len; /* bytes of data, at most SESSION_DATA */
};

/* The data buffer of a slot. */
uint8_t *session_data(const struct session *s, unsigned int slot);

/* Make a request available in a slot that is free; session_submit() publishes it. */
int session_add(struct session *s, unsigned int slot, const struct session_request *r);

/* Publish what was added, and kick if the backend wants it. */
int session_submit(struct session *s);

/* Take one answer. Return: its slot, -EAGAIN if there is none, -EIO a bad status, -errno. */
int session_collect(struct session *s);

/* Sleep until there is an answer. Return: 0, -ETIMEDOUT, -errno. */
int session_wait(struct session *s);

#endif
