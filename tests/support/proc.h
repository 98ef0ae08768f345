/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SUPPORT_PROC_H
#define TESTS_SUPPORT_PROC_H

#include <stdint.h>

/* What a program could leak: lines of /proc/self/maps that name @what, and open fds. */
unsigned int proc_count_maps(const char *what);
unsigned int proc_count_fds(void);

/* An unlinked file of @size bytes that the tests may seal and truncate; aborts if there is none. */
int proc_memfd(const char *name, uint64_t size);

#endif
