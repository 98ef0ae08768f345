/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_ERROR_H
#define SILT_ERROR_H

#include <silt/visibility.h>

SILT_BEGIN_DECLS

/**
 * silt_errmsg() - what went wrong in this thread's last failed call
 *
 * A silt function that fails returns -errno and leaves here one line that says
 * what was wrong, with the value and the bound it broke.
 *
 * Return: a string, never NULL; empty if nothing has failed in this thread yet.
 *
 * Thread: each thread has its own message.
 * Owns:   the library; the string is valid until this thread's next silt call.
 * Blocks: never.
 */
SILT_API const char *silt_errmsg(void);

SILT_END_DECLS

#endif
