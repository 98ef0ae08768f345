/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_MUTANT_H
#define BLK_MUTANT_H

#include <stdbool.h>
#include <stdint.h>

#include "blk/request.h"

/*
 * The deliberate faults of silt blk (see lib/base/mutant.h). Each hook returns true if the fault
 * took the place of what would have been done.
 */
#ifdef SILT_MUTANTS
struct io_uring_sqe;

bool blk_mutant_begin(struct blk_queue *q, struct blk_request *req);
void blk_mutant_reading(struct blk_queue *q, struct blk_request *req);
bool blk_mutant_data(struct blk_queue *q, struct blk_request *req, uint64_t off, uint64_t len);
bool blk_mutant_status(struct blk_queue *q, struct blk_request *req, uint8_t status);
bool blk_mutant_id(struct blk_queue *q, struct blk_request *req, uint64_t len);
void blk_mutant_parked(struct blk_queue *q);
void blk_mutant_submit(struct io_uring_sqe *sqe);
#else
#define blk_mutant_begin(q, req)	  false
#define blk_mutant_reading(q, req)	  ((void)0)
#define blk_mutant_data(q, req, off, len) false
#define blk_mutant_status(q, req, status) false
#define blk_mutant_id(q, req, len)	  false
#define blk_mutant_parked(q)		  ((void)0)
#define blk_mutant_submit(sqe)		  ((void)0)
#endif

#endif
