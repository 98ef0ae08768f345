/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_QUEUE_H
#define BLK_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <silt/virtq.h>

#include "blk/blk.h"
#include "blk/engine.h"
#include "blk/image.h"

/* Requests that one queue works on at a time. More wait in the ring. */
#define BLK_DEPTH 256

/* What a queue tells its owner; called on the queue's thread. */
struct blk_notify {
	void (*call)(void *arg, unsigned int q);  /* the guest must be called */
	void (*error)(void *arg, unsigned int q); /* the queue broke, or its log is in trouble */
	void *arg;
};

/* What all queues of a disk share. */
struct blk_disk {
	struct blk_image img;
	char serial[BLK_SERIAL_BYTES]; /* padded with zeros */
	enum blk_aio aio;
	bool writethrough; /* atomic: the control thread sets it while queues run */
	bool told_sync;	   /* atomic: the notice about the fallback was given */
	struct blk_notify notify;
};

enum blk_queue_state {
	BLK_QUEUE_ENDED, /* it has no thread */
	BLK_QUEUE_STOPPED,
	BLK_QUEUE_RUNNING,
	BLK_QUEUE_PARKED,
};

struct blk_request;

/*
 * One queue and its thread, which lives on with its engine when the queue is stopped. Between start
 * (or resume) and stop (or pause) all of it but the handshake is the thread's.
 */
struct blk_queue {
	struct blk_disk *disk;
	unsigned int index;
	struct silt_virtq *vq;
	struct blk_engine *engine; /* NULL: the last one is out of order, and there is no other */

	struct blk_request *requests; /* BLK_DEPTH of them */
	struct blk_request *free;
	unsigned int inflight;
	unsigned int staged; /* pushed and not yet published */
	bool broken;
	bool stopping;
	bool kicks_on;
	bool log_trouble_told;

	uint64_t idle_since; /* ns, 0 while there is work */
	uint64_t poll_ns;    /* how long to look for work before sleeping */

	/* The handshake. */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum blk_queue_state want, is; /* @want is also read without the lock */
	int start_error;
	int control_fd;
};

void blk_queue_init(struct blk_queue *q, struct blk_disk *disk, unsigned int index);
void blk_queue_destroy(struct blk_queue *q);

/* Make thread and engine now, if there is none; else the first start does. Return: 0 or -errno. */
int blk_queue_prepare(struct blk_queue *q);

/* As the callbacks of struct silt_backend_ops. */
int blk_queue_start(struct blk_queue *q, struct silt_virtq *vq, int kick_fd);
void blk_queue_stop(struct blk_queue *q);
void blk_queue_pause(struct blk_queue *q);
void blk_queue_resume(struct blk_queue *q);

/* Take no more requests; say why (silt_errmsg()) and tell the frontend. The queue's thread. */
void blk_queue_break(struct blk_queue *q);

#endif
