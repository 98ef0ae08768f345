/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_SANDBOX_H
#define BLK_SANDBOX_H

#include <stdbool.h>

#include "blk/blk.h"

/* Does this build have one? A sanitizer's run-time opens files and starts programs as it likes. */
bool blk_sandbox_possible(void);

/* What has to come before the first thread, if there is to be a sandbox. */
void blk_sandbox_prepare(void);

/*
 * Give up what serving does not need, for good and in all threads: no new privileges, and a filter
 * of system calls. What is not allowed kills the process. Whatever threads and rings will be needed
 * must be there.
 *
 * @aio: without io_uring (BLK_AIO_SYNC) its system calls are given up, too
 * @ring_fds: rings are entered by file descriptors, which are whatever the monitor passes
 *
 * Return: 0, or -errno. Thread: any.
 */
int blk_sandbox_enter(enum blk_aio aio, bool ring_fds);

#endif
