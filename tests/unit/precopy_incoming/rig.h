/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_PRECOPY_INCOMING_RIG_H
#define TESTS_UNIT_PRECOPY_INCOMING_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "support/rng.h"
#include "unit/precopy_incoming/stream.h"

#define RIG_BLOCKS 6

/* A RAM block of the destination, and what a model says that it holds. */
struct rig_block {
	char name[16];
	uint64_t pages;
	bool zeroed;
	int fd;
	uint8_t *host; /* nothing is mapped before it and behind it */
	uint8_t *want;
	bool *came, *stored;
};

/*
 * A source that is a list of bytes, written beforehand, and the destination's monitor. What the
 * functions below write, they also do to the model.
 */
struct rig {
	struct rng rng;
	struct rig_block blocks[RIG_BLOCKS];
	unsigned int nblocks;
	unsigned int order[RIG_BLOCKS]; /* of the blocks, on the wire */

	struct bytes stream, payload;
	uint64_t frames, rounds, pages, zero_pages, skipped;
	struct bytes state;

	size_t at;	      /* bytes of the stream that were read */
	bool split;	      /* reads give fewer bytes than asked for, at random */
	struct bytes answer;  /* what the destination sent */
	uint64_t answers;     /* and how many frames the stream has asked for */
	size_t answer_at[64]; /* how far the stream is read when they may come */

	struct silt_incoming *in;
	uint64_t max_state;
	int fail_round, fail_load, fail_start; /* what callbacks return */
	bool cancel_round, cancel_start;       /* and whether they cancel */
	unsigned int lost_answer;	       /* writing a frame of this type fails */
	unsigned int rounds_seen;
	bool loaded, started;
};

/* Make blocks: @pages each, or with 0 at random. */
void rig_create(struct rig *rig, uint64_t stream, unsigned int nblocks, uint64_t pages);
void rig_destroy(struct rig *rig);

/* Memory is as before the first run, and so are monitor and reader; the stream stays. */
void rig_reset(struct rig *rig);

/* End a frame with what is in payload. */
void rig_frame(struct rig *rig, unsigned int type);

void rig_hello(struct rig *rig);

/* A frame of pages is begun, is given runs, and ends. @block is an index here. */
void rig_run(struct rig *rig, unsigned int kind, unsigned int block, uint64_t first, uint32_t n);
void rig_pages(struct rig *rig);

/* One frame with one run. */
void rig_one_run(struct rig *rig, unsigned int kind, unsigned int block, uint64_t first,
		 uint32_t n);
/* All pages, by frames of one run. */
void rig_all(struct rig *rig, unsigned int kind);
void rig_round(struct rig *rig, bool last);
void rig_state(struct rig *rig, size_t n);
void rig_load(struct rig *rig);
void rig_start(struct rig *rig);

/* Receive the first @n bytes of the stream. Return: what silt_incoming_run() did. */
int rig_receive(struct rig *rig, size_t n);

/* All of memory is what the model says. */
void rig_check_memory(const struct rig *rig);

/* A REFUSE of @error is the last frame that was sent, unless it is 0: then there is none. */
void rig_check_refusal(const struct rig *rig, int error);

#endif
