/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_REQUEST_H
#define CHECK_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/virtq.h>

/*
 * One buffer that the driver makes available, whatever device it is for: a header, data, a status,
 * each of which may be empty. Devices embed it as the first member of a request of their own
 * (struct check_device, request_size).
 */

#define CHECK_MAX_SEGS	  32
#define CHECK_MAX_PIECES  2
#define CHECK_REQUEST_LEN 64

/* What lies in one piece: a header before the data, or a status behind it. */
struct check_part {
	uint64_t gpa;
	uint32_t len;
	bool written; /* by the device */
	/* Its last bytes, so many, get a page of their own where the scenario wants that. */
	uint32_t tail;
};

struct check_piece {
	uint64_t gpa;
	uint32_t len;
};

struct check_request {
	unsigned int id; /* as people see it, from 1 */
	unsigned int queue;
	unsigned int kind; /* the device knows which there are */
	uint32_t len;	   /* bytes of data */
	bool data_written; /* by the device */
	struct check_part header, status;
	struct check_piece piece[CHECK_MAX_PIECES]; /* of the data */
	unsigned int npieces;
	uint64_t decoy[CHECK_MAX_PIECES]; /* other memory that the device may be sent to, or 0 */
	uint64_t table;			  /* of an indirect request, or 0 */
	struct silt_driver_seg seg[CHECK_MAX_SEGS];
	unsigned int nsegs;
	uint16_t desc; /* the head descriptor it was given */
	bool done;
	/* Buffers of another queue that the device fills because of this one. */
	unsigned int answers;
	unsigned int answer_queue;
	uint32_t used_len;
	char text[CHECK_REQUEST_LEN]; /* "#3 read sector 8, 8192 bytes" */
};

#endif
