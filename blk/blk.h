/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_BLK_H
#define BLK_BLK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * silt blk: a vhost-user block backend that serves a raw file or a block device.
 *
 *     serve.c    sockets, signals, one connection after another
 *     device.c   features, configuration space, what the vhost-user backend calls
 *     queue.c    one thread for each queue: its loop and its handshake with the control thread
 *     request.c  from a virtqueue buffer to I/O and back to a status byte
 *     store.c    the only place that stores into guest memory, or marks what a system call stored
 *     engine.h   how I/O is done: io_uring.c or sync.c
 *     image.c    the file
 *     sandbox.c  what is given up before the first connection
 *     remover.c  what removes the socket's file from outside the sandbox
 */

enum blk_aio {
	BLK_AIO_AUTO,  /* io_uring where it works, else sync */
	BLK_AIO_URING, /* the same, but say so if it does not */
	BLK_AIO_SYNC,  /* plain system calls on the queue's thread */
};

#define BLK_MAX_QUEUES	 64
#define BLK_SERIAL_BYTES 20

struct blk_options {
	const char *image;
	bool read_only;
	uint32_t block_size;  /* 512 or 4096; 0: what suits the image */
	unsigned int nqueues; /* 1 to BLK_MAX_QUEUES */
	const char *serial;   /* up to BLK_SERIAL_BYTES bytes */
	enum blk_aio aio;
	bool in_order; /* offer VIRTIO_F_IN_ORDER */
	bool sandbox;
	const char *socket_path; /* listen here, or NULL */
	int fd;			 /* a listening or a connected socket, or -1 */
};

/* What --print-capabilities prints, per docs/interop/vhost-user.json of QEMU. */
extern const char blk_capabilities[];

/*
 * Serve until SIGTERM, SIGINT or SIGHUP, or until the one connection that was passed in ends.
 *
 * Notices about connections and queues go to stderr. With opt->sandbox this process is good for
 * nothing but serving afterwards.
 *
 * Return: 0, or -errno with silt_errmsg() set: the image or the socket cannot be used, or (for a
 * connected socket) the connection ended by an error.
 *
 * Thread: the main one, before any other exists: it blocks the two signals and sets up recovery
 * of SIGBUS and SIGSEGV. Blocks: all the time.
 */
int blk_serve(const struct blk_options *opt);

#endif
