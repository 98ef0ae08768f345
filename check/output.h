/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_OUTPUT_H
#define CHECK_OUTPUT_H

#include <stddef.h>

/*
 * What a program prints into a pipe. It is never kept waiting, however much it prints, and only the
 * end of it is kept.
 */
struct check_output;

#define CHECK_OUTPUT_TAIL 2048

/*
 * Begin to listen; what is written to *@fd, which is the caller's to close, is taken by a thread.
 * Return: 0 or -errno. Owns: end with check_output_destroy().
 */
int check_output_create(struct check_output **out, int *fd);

/* The last of what was printed so far. Return: bytes in @tail. @o may be NULL. */
size_t check_output_tail(struct check_output *o, char tail[CHECK_OUTPUT_TAIL]);

/* Whoever still prints gets a SIGPIPE. @o may be NULL. */
void check_output_destroy(struct check_output *o);

#endif
