/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_ACCESS_RANGE_H
#define SILT_BASE_ACCESS_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Is @addr inside a range given to silt_access_add_range()? Async-signal-safe. */
bool silt_access_in_range(uintptr_t addr);

#endif
