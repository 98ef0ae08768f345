/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_BACKEND_H
#define BENCH_BACKEND_H

#include <stdint.h>
#include <sys/types.h>

/* A vhost-user backend program, started on a listening socket that it inherits. */
struct bench_backend {
	pid_t pid;
	char socket[108]; /* connect here */
};

/* The inherited socket's number; programs are told it in their arguments. */
#define BENCH_BACKEND_FD 3

/*
 * Keep the calling thread, which drives, on one CPU, and every backend started later on the others:
 * where the scheduler would put them differs from run to run, and so would the figures. Does
 * nothing on a single CPU.
 */
void bench_backend_set_apart(void);

/*
 * Start argv[0] with BENCH_BACKEND_FD listening at @dir/@name.sock. A frontend may connect at
 * once: it is answered when the program has come so far.
 *
 * Return: 0 or -errno. Owns: end it with bench_backend_stop(), which removes the socket file too.
 */
int bench_backend_start(struct bench_backend *b, const char *dir, const char *name,
			char *const argv[]);

/* Send SIGTERM and wait for the end. */
void bench_backend_stop(struct bench_backend *b);

/* CPU time that the program has used so far, in nanoseconds; 0 if it cannot be told. */
uint64_t bench_backend_cpu_ns(const struct bench_backend *b);

#endif
