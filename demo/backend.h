/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_BACKEND_H
#define DEMO_BACKEND_H

#include <sys/types.h>

/*
 * silt blk as a process of its own, at the other end of a socket: it ends when that is closed.
 *
 * @silt:  the command's path
 * @image: a file that the process opens again by its descriptor's name in /proc
 * @pid:   set to the process, for backend_wait()
 *
 * Return: the socket, which is the caller's, or -errno.
 */
int backend_start(const char *silt, int image, pid_t *pid);

/* Until it has ended. */
void backend_wait(pid_t pid);

/* It is to end by itself, and is killed if it has not in time. */
void backend_end(pid_t pid, int timeout_ms);

/* Start a program with descriptor @fd as its number 3. Return: 0 or -errno. */
int backend_spawn(const char *program, const char *const argv[], int fd, pid_t *pid);

#endif
