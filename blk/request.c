/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "blk/mutant.h"
#include "blk/request.h"
#include "blk/store.h"

#define HEADER_SIZE sizeof(struct virtio_blk_outhdr)

int blk_requests_create(struct blk_queue *q)
{
	q->requests = calloc(BLK_DEPTH, sizeof(*q->requests));
	if (!q->requests)
		return silt_err(ENOMEM, "no memory for the requests of queue %u", q->index);
	q->free = NULL;
	for (unsigned int i = 0; i < BLK_DEPTH; i++) {
		q->requests[i].next_free = q->free;
		q->free = &q->requests[i];
	}
	return 0;
}

void blk_requests_destroy(struct blk_queue *q)
{
	for (unsigned int i = 0; i < BLK_DEPTH; i++) {
		free(q->requests[i].ranges);
		free(q->requests[i].vec);
	}
	free(q->requests);
	q->requests = NULL;
}

static void push(struct blk_queue *q, struct blk_request *req, uint32_t len)
{
	silt_virtq_push(q->vq, req->elem, len);
	req->next_free = q->free;
	q->free = req;
	q->inflight--;
	q->staged++;
}

/*
 * Store the status and push. @filled: bytes of the answer before the status byte that were stored
 * from the first one on. The used length promises that as many bytes from the first one on were
 * stored, so the status byte counts only if nothing before it is missing.
 */
static void answer(struct blk_queue *q, struct blk_request *req, uint8_t status, uint64_t filled)
{
	uint64_t before_status = req->elem->write_len - 1;

	if (blk_store_status(q, req, status) < 0)
		blk_queue_break(q);
	push(q, req, filled == before_status ? filled + 1 : filled);
}

static uint64_t filled(const struct blk_request *req)
{
	return req->type == VIRTIO_BLK_T_IN ? req->done : 0;
}

static void fail(struct blk_queue *q, struct blk_request *req)
{
	answer(q, req, VIRTIO_BLK_S_IOERR, filled(req));
}

/* Are @sectors sectors from @sector on inside the disk? */
static bool on_disk(const struct blk_image *img, uint64_t sector, uint64_t sectors)
{
	uint64_t capacity = img->capacity >> BLK_SECTOR_SHIFT;

	return sector <= capacity && sectors <= capacity - sector;
}

static struct iovec *vec_reserve(struct blk_request *req, unsigned int n)
{
	struct iovec *vec;

	if (n <= req->vec_room)
		return req->vec;
	vec = realloc(req->vec, n * sizeof(*vec));
	if (!vec)
		return NULL;
	req->vec = vec;
	req->vec_room = n;
	return vec;
}

/*
 * Point the step at the data from req->done on. The element's own vector is used where the data
 * begins and ends with a segment, as it does when header and status have descriptors of their own.
 */
static int aim(struct blk_request *req)
{
	const struct silt_virtq_elem *elem = req->elem;
	bool in = req->io.op == BLK_READ;
	const struct iovec *seg = elem->iov + (in ? elem->nread : 0);
	uint64_t skip = req->done + (in ? 0 : HEADER_SIZE);
	uint64_t left = req->total - req->done, sum = 0;
	unsigned int n = 0;
	struct iovec *vec;

	while (skip >= seg->iov_len)
		skip -= seg++->iov_len;
	while (sum < skip + left && n < IOV_MAX)
		sum += seg[n++].iov_len;
	req->io.iov = seg;
	req->io.niov = n;
	req->io.len = sum - skip < left ? sum - skip : left;
	req->io.offset = req->start + req->done;
	if (!skip && sum <= left)
		return 0;

	vec = vec_reserve(req, n);
	if (!vec)
		return -ENOMEM;
	memcpy(vec, seg, n * sizeof(*vec));
	vec[0].iov_base = (uint8_t *)vec[0].iov_base + skip;
	vec[0].iov_len -= skip;
	if (sum > skip + left)
		vec[n - 1].iov_len -= sum - skip - left;
	req->io.iov = vec;
	return 0;
}

static void transfer_step(struct blk_queue *q, struct blk_request *req)
{
	if (aim(req) < 0) {
		fail(q, req);
		return;
	}
	if (req->io.op == BLK_READ)
		blk_mutant_reading(q, req);
	q->engine->ops->start(q->engine, &req->io);
}

static void transfer_begin(struct blk_queue *q, struct blk_request *req, enum blk_op op,
			   uint64_t sector, uint64_t len)
{
	const struct blk_image *img = &q->disk->img;

	if (len % BLK_SECTOR_SIZE || !on_disk(img, sector, len >> BLK_SECTOR_SHIFT) ||
	    (op == BLK_WRITE && img->read_only)) {
		fail(q, req);
		return;
	}
	req->io.op = op;
	req->io.stable = __atomic_load_n(&q->disk->writethrough, __ATOMIC_RELAXED);
	req->start = sector << BLK_SECTOR_SHIFT;
	req->total = len;
	if (len)
		transfer_step(q, req);
	else
		answer(q, req, VIRTIO_BLK_S_OK, 0);
}

static void transfer_advance(struct blk_queue *q, struct blk_request *req)
{
	struct blk_io *io = &req->io;

	/* A read that failed or fell short may have stored anything in its range. */
	if (io->op == BLK_READ)
		blk_stored_data(q, req, req->done, io->len);
	if (io->result == -EINTR) {
		transfer_step(q, req);
		return;
	}
	if (io->result <= 0) {
		fail(q, req);
		return;
	}
	req->done += io->result;
	if (req->done < req->total)
		transfer_step(q, req);
	else
		answer(q, req, VIRTIO_BLK_S_OK, filled(req));
}

/* Zeros for files whose file system cannot make them. Never written to. */
static uint8_t zeros[64 * 1024];

#define ZERO_VECS 64

static void write_zeros_step(struct blk_queue *q, struct blk_request *req)
{
	struct iovec *vec = vec_reserve(req, ZERO_VECS);
	uint64_t left = req->total - req->done;
	unsigned int n = 0;

	if (!vec) {
		fail(q, req);
		return;
	}
	req->io.op = BLK_WRITE;
	req->io.stable = false;
	req->io.offset = req->start + req->done;
	req->io.len = 0;
	for (; left && n < ZERO_VECS; n++) {
		vec[n].iov_base = zeros;
		vec[n].iov_len = left < sizeof(zeros) ? left : sizeof(zeros);
		left -= vec[n].iov_len;
		req->io.len += vec[n].iov_len;
	}
	req->io.iov = vec;
	req->io.niov = n;
	q->engine->ops->start(q->engine, &req->io);
}

static void flush_step(struct blk_queue *q, struct blk_request *req)
{
	req->io.op = BLK_FLUSH;
	q->engine->ops->start(q->engine, &req->io);
}

/* Begin on range req->range, or answer if there is none left. */
static void range_step(struct blk_queue *q, struct blk_request *req)
{
	bool zero = req->type == VIRTIO_BLK_T_WRITE_ZEROES;
	const struct virtio_blk_discard_write_zeroes *r;

	while (req->range < req->nranges && !req->ranges[req->range].num_sectors)
		req->range++;
	if (req->range == req->nranges) {
		/* In writethrough mode zeros are on stable storage like any other data. */
		if (zero && __atomic_load_n(&q->disk->writethrough, __ATOMIC_RELAXED))
			flush_step(q, req);
		else
			answer(q, req, VIRTIO_BLK_S_OK, 0);
		return;
	}
	r = &req->ranges[req->range];
	req->start = r->sector << BLK_SECTOR_SHIFT;
	req->total = (uint64_t)r->num_sectors << BLK_SECTOR_SHIFT;
	req->done = 0;
	req->io.op = zero ? BLK_ZERO : BLK_DISCARD;
	req->io.unmap = r->flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
	req->io.offset = req->start;
	req->io.len = req->total;
	q->engine->ops->start(q->engine, &req->io);
}

/* Return: the status that the ranges call for. */
static uint8_t ranges_check(const struct blk_image *img, const struct blk_request *req)
{
	bool zero = req->type == VIRTIO_BLK_T_WRITE_ZEROES;
	uint32_t flags = zero ? VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP : 0;
	uint32_t most = zero ? BLK_MAX_ZERO_SECTORS : BLK_MAX_DISCARD_SECTORS;

	for (unsigned int i = 0; i < req->nranges; i++) {
		const struct virtio_blk_discard_write_zeroes *r = &req->ranges[i];

		if (r->flags & ~flags)
			return VIRTIO_BLK_S_UNSUPP;
		if (r->num_sectors > most || !on_disk(img, r->sector, r->num_sectors))
			return VIRTIO_BLK_S_IOERR;
	}
	return VIRTIO_BLK_S_OK;
}

static void ranges_begin(struct blk_queue *q, struct blk_request *req, uint64_t len)
{
	uint64_t n = len / sizeof(*req->ranges);
	uint8_t status;

	if (q->disk->img.read_only || !len || len % sizeof(*req->ranges) || n > BLK_MAX_RANGES) {
		fail(q, req);
		return;
	}
	if (!req->ranges)
		req->ranges = calloc(BLK_MAX_RANGES, sizeof(*req->ranges));
	if (!req->ranges || silt_virtq_read(q->vq, req->elem, HEADER_SIZE, req->ranges, len) < 0) {
		fail(q, req);
		return;
	}
	req->nranges = n;
	req->range = 0;
	status = ranges_check(&q->disk->img, req);
	if (status == VIRTIO_BLK_S_OK)
		range_step(q, req);
	else
		answer(q, req, status, 0);
}

static void ranges_advance(struct blk_queue *q, struct blk_request *req)
{
	int64_t result = req->io.result;

	if (req->io.op == BLK_FLUSH) {
		answer(q, req, result < 0 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK, 0);
		return;
	}
	if (result == -EINTR) {
		q->engine->ops->start(q->engine, &req->io);
		return;
	}
	if (req->io.op == BLK_ZERO && (result == -EOPNOTSUPP || result == -ENOTTY)) {
		write_zeros_step(q, req);
		return;
	}
	/* A discard is advice: what cannot be deallocated stays as it is. */
	if (req->io.op == BLK_DISCARD && (result == -EOPNOTSUPP || result == -ENOTTY))
		result = 0;
	if (result < 0 || (req->io.op == BLK_WRITE && !result)) {
		fail(q, req);
		return;
	}
	if (req->io.op == BLK_WRITE) {
		req->done += result;
		if (req->done < req->total) {
			write_zeros_step(q, req);
			return;
		}
	}
	req->range++;
	range_step(q, req);
}

static void get_id(struct blk_queue *q, struct blk_request *req)
{
	uint64_t len = req->elem->write_len - 1;

	if (len > BLK_SERIAL_BYTES)
		len = BLK_SERIAL_BYTES;
	if (len && blk_store_id(q, req, len) < 0)
		fail(q, req);
	else
		answer(q, req, VIRTIO_BLK_S_OK, len);
}

static void dispatch(struct blk_queue *q, struct blk_request *req, uint64_t sector)
{
	uint64_t readable = req->elem->read_len - HEADER_SIZE;
	uint64_t writable = req->elem->write_len - 1;

	switch (req->type) {
	case VIRTIO_BLK_T_IN:
		transfer_begin(q, req, BLK_READ, sector, writable);
		break;
	case VIRTIO_BLK_T_OUT:
		transfer_begin(q, req, BLK_WRITE, sector, readable);
		break;
	case VIRTIO_BLK_T_FLUSH:
		flush_step(q, req);
		break;
	case VIRTIO_BLK_T_GET_ID:
		get_id(q, req);
		break;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		ranges_begin(q, req, readable);
		break;
	default:
		answer(q, req, VIRTIO_BLK_S_UNSUPP, 0);
	}
}

int blk_request_begin(struct blk_queue *q, struct silt_virtq_elem *elem)
{
	struct blk_request *req = q->free;
	struct virtio_blk_outhdr hdr;

	q->free = req->next_free;
	q->inflight++;
	req->elem = elem;
	req->type = UINT32_MAX;
	req->done = 0;
	if (!elem->write_len) {
		push(q, req, 0);
		return silt_err(EPROTO, "request at descriptor %u has no byte for its status",
				elem->head);
	}
	if (silt_virtq_read(q->vq, elem, 0, &hdr, sizeof(hdr)) < 0) {
		fail(q, req);
		return 0;
	}
	req->type = hdr.type;
	if (!blk_mutant_begin(q, req))
		dispatch(q, req, hdr.sector);
	return 0;
}

void blk_request_advance(struct blk_queue *q, struct blk_io *io)
{
	struct blk_request *req = (struct blk_request *)io;

	switch (req->type) {
	case VIRTIO_BLK_T_IN:
	case VIRTIO_BLK_T_OUT:
		transfer_advance(q, req);
		break;
	case VIRTIO_BLK_T_FLUSH:
		answer(q, req, io->result < 0 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK, 0);
		break;
	default:
		ranges_advance(q, req);
	}
}
