/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_TRACKING_H
#define DEMO_TRACKING_H

#include <stdbool.h>

#include <silt/sync.h>

#include "demo/demo.h"

/* The sync engine of one migration, and the guest's dirty logging. */
struct tracking {
	struct machine *machine;
	demo_read_kvm_fn *read_kvm; /* NULL: the engine reads */
	struct silt_sync *sync;
	int consumer;
	int blocks[RAM_BLOCKS]; /* the engine's ids */
};

/** tracking_open() - an engine that knows the RAM blocks; nothing is logged. Return: 0, -errno. */
int tracking_open(struct tracking *t, struct machine *m, demo_read_kvm_fn *read_kvm);
void tracking_close(struct tracking *t);

/**
 * tracking_switch() - logging on in KVM and in the disk, and both read by the engine; or off
 *
 * Return: 0; -errno: then it is off.
 */
int tracking_switch(struct tracking *t, bool on);

/** tracking_sync() - as silt_sync_run() for the consumer */
int64_t tracking_sync(struct tracking *t);

#endif
