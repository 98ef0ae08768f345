/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_TARGET_PROCESS_H
#define CHECK_TARGET_PROCESS_H

#include <stdint.h>

#include "check/target.h"

/*
 * The backend as a child process, in a process group of its own so that what it starts ends with
 * it. What leaves the group, as daemons do, is handed to this process by the kernel and ended, too.
 * If this process dies, so does the backend.
 */

/* Return: 0 or -errno. What it prints goes to t->output. */
int check_process_start(struct check_target *t);

/*
 * To all of it, if it runs. Thread: any, as long as no other begins to start one. With SIGKILL the
 * program has to end: a thread that looks at the backend again waits for ever.
 */
void check_process_signal(int sig);

/* Notice if it has ended by itself. */
void check_process_reap(struct check_target *t);

/* Send SIGTERM. Return: has it ended within @timeout_ms? Also if none runs. */
bool check_process_terminate(struct check_target *t, int timeout_ms);

/* End it: SIGTERM, then SIGKILL. Does nothing if none runs. */
void check_process_end(struct check_target *t);

/* End it with SIGKILL, and wait until it has ended. Does nothing if none runs. */
void check_process_kill(struct check_target *t);

int64_t check_process_now_ms(void);

#endif
