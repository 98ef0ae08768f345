/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_BLOCK_H
#define SILT_SYNC_BLOCK_H

#include "sync/sync_internal.h"

/* NULL is nothing to free. */
void sync_block_free(struct silt_sync *s, struct sync_block *block);
void sync_slot_free(struct sync_slot *slot);

#endif
