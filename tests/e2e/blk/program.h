/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_BLK_PROGRAM_H
#define TESTS_BLK_PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

/* The real silt blk as a child process. Whatever it does takes at most so long. */
#define PROGRAM_TIMEOUT_MS 20000

struct program {
	pid_t pid;
	int pidfd;
	int output; /* its stdout and stderr, in one file */
	char text[8192];
};

/* Where silt is; set from argv[1] of the test. */
extern const char *program_silt;

/*
 * Start "silt blk ..." with the NULL-terminated @args after it. If @fd is not -1, the child has it
 * as number 3.
 */
void program_start(struct program *p, int fd, const char *const args[]);

/* The same under a seccomp filter that denies io_uring, as container runtimes do. */
void program_start_filtered(struct program *p, const char *const args[]);

/* Wait for the end. Return: its exit code, or 128 + the signal that ended it. */
int program_wait(struct program *p);

/* Send a signal, then program_wait(). */
int program_end(struct program *p, int sig);

bool program_running(const struct program *p);

/* What it has printed so far. */
const char *program_output(struct program *p);

/* What program_output() or the end left in p->text, but that this machine has no io_uring. */
const char *program_complaint(struct program *p);

/* Wait until it has printed @what. */
void program_expect(struct program *p, const char *what);

#endif
