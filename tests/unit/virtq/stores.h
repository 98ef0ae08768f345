/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_VIRTQ_STORES_H
#define TESTS_VIRTQ_STORES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Look at memory between any two stores of a piece of code: what it holds then is what a process
 * leaves that is killed there. The memory is write-protected; each store faults, the callback runs,
 * and the one instruction is let through.
 *
 * Needs a processor flag that makes one instruction trap, which programs can set on x86-64 only.
 */
#ifdef __x86_64__
#define STORES_SEEN true
#else
#define STORES_SEEN false
#endif

/* Whole pages whose stores are to be seen; up to 4 ranges. */
void stores_watch(void *addr, size_t len);

/*
 * Call @before ahead of each store from here on. It runs in a signal handler, and stores to watched
 * memory through other mappings only.
 */
void stores_begin(void (*before)(void *arg), void *arg);
void stores_end(void);

#endif
