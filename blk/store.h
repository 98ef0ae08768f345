/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_STORE_H
#define BLK_STORE_H

#include <stdint.h>

#include "blk/request.h"

/*
 * Whatever silt blk stores into guest buffers is stored, or marked, here. Offsets count from the
 * request's first device-writable byte.
 */

/* The status byte, the last one of the device-writable bytes. Return: 0 or -EFAULT. */
int blk_store_status(struct blk_queue *q, struct blk_request *req, uint8_t status);

/* The first @len bytes of the answer to get-id. Return: 0 or -EFAULT. */
int blk_store_id(struct blk_queue *q, struct blk_request *req, uint64_t len);

/* Mark data that a system call or the ring stored. Its completion was taken. */
void blk_stored_data(struct blk_queue *q, struct blk_request *req, uint64_t off, uint64_t len);

#endif
