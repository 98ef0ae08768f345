/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_POOL_H
#define SILT_SYNC_POOL_H

#include "sync/sync_internal.h"

/*
 * A pool for @threads threads, that of the caller of sync_pool_run() among them. *@out is NULL for
 * one, which sync_pool_run() and sync_pool_destroy() take as well.
 *
 * Return: 0; -ENOMEM; -errno of pthread_create().
 */
int sync_pool_create(unsigned int threads, struct sync_pool **out);
void sync_pool_destroy(struct sync_pool *pool);

/*
 * Between these two the workers look for jobs without a sleep: a job of a sync is often shorter
 * than it takes to wake a thread. One caller at a time; jobs may be run outside as well.
 */
void sync_pool_begin(struct sync_pool *pool);
void sync_pool_end(struct sync_pool *pool);

#endif
