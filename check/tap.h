/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_TAP_H
#define CHECK_TAP_H

#include <pthread.h>
#include <stdint.h>

#include "base/err.h"

/*
 * A tap interface in a network namespace of its own, in which every frame that comes out of the tap
 * goes back into it with its addresses swapped.
 */
struct check_tap {
	int fd; /* the tap: frames with a virtio_net_hdr_v1 in front */
	int packets;
	int stop;
	struct silt_failure failure; /* of the thread that makes it */
	pthread_t thread;
	pthread_barrier_t made;
	uint8_t frame[65536];
};

/* Return: 0 or -errno. Owns: free with check_tap_destroy(). */
int check_tap_create(struct check_tap **out);

/* @tap may be NULL. */
void check_tap_destroy(struct check_tap *tap);

#endif
