/* SPDX-License-Identifier: BSD-3-Clause */
#include "blk/store.h"
#include "blk/mutant.h"

int blk_store_status(struct blk_queue *q, struct blk_request *req, uint8_t status)
{
	uint64_t off = req->elem->write_len - 1;

	if (blk_mutant_status(q, req, status))
		return 0;
	return silt_virtq_write(q->vq, req->elem, off, &status, sizeof(status));
}

int blk_store_id(struct blk_queue *q, struct blk_request *req, uint64_t len)
{
	if (blk_mutant_id(q, req, len))
		return 0;
	return silt_virtq_write(q->vq, req->elem, 0, q->disk->serial, len);
}

void blk_stored_data(struct blk_queue *q, struct blk_request *req, uint64_t off, uint64_t len)
{
	if (blk_mutant_data(q, req, off, len))
		return;
	silt_virtq_wrote(q->vq, req->elem, off, len);
}
