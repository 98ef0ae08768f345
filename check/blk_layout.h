/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_BLK_LAYOUT_H
#define CHECK_BLK_LAYOUT_H

#include "check/blk.h"

/* Does the device write the request's data, or does it read it? */
bool check_blk_device_writes(enum check_blk_kind kind);

/*
 * Take memory for a request whose kind and length are set, note what lies where, and describe it
 * in segments. Return: 0, -ENOSPC if guest memory is full, -ENOMEM.
 */
int check_blk_layout(struct check_blk_builder *b, struct check_blk_request *r);

#endif
