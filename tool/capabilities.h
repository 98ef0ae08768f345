/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TOOL_CAPABILITIES_H
#define TOOL_CAPABILITIES_H

#include <stddef.h>

/*
 * Run "@program --print-capabilities", as backend programs have it by convention, and leave in
 * @type what kind of device it says that it is.
 *
 * Return: 0; -ETIMEDOUT it does not end within @timeout_ms, -EPROTO it says nothing of the kind,
 * -errno; silt_errmsg() says what.
 *
 * Source: QEMU, docs/interop/vhost-user.rst, section Backend program conventions.
 */
int capabilities_type(const char *program, int timeout_ms, char *type, size_t len);

#endif
