/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_BLK_MODEL_H
#define TESTS_BLK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A disk as the virtio specification describes it, on flat memory: no rings, no segments, no I/O,
 * and nothing of blk/'s code.
 */
struct model {
	uint8_t *bytes;
	uint64_t size;
	bool read_only;
	const char *serial;
};

/* A request as one flat run of readable and one of writable bytes. */
struct model_request {
	const uint8_t *readable;
	size_t readable_len;
	uint8_t *writable; /* what it held before; the answer is stored over it */
	size_t writable_len;
	uint32_t used_len;
	/* Sectors that were discarded: they may hold what they held, or zeros. */
	uint64_t discarded[64][2];
	unsigned int ndiscarded;
};

/* Do it. The writable part has room for a status. */
void model_run(struct model *m, struct model_request *r);

#endif
