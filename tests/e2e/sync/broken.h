/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_E2E_SYNC_BROKEN_H
#define TESTS_E2E_SYNC_BROKEN_H

#include <errno.h>

#include "world.h"

/* How ioctls fail in a world that is failing. */
#define BROKEN_ERRNO EIO

/* A silt_sync_ioctl_fn for a world that is broken or failing. */
int broken_ioctl(void *opaque, int fd, unsigned long request, void *arg);

/* BREAK_RING: before rings are emptied. */
void broken_ring(struct world *w);

#endif
