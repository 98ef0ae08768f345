/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_VIRTQ_PROGRAM_H
#define TESTS_VIRTQ_PROGRAM_H

#include "model.h"
#include "support/rng.h"

/* A random program: a driver and a device on one ring, and a model of what they do. */

#define MAX_NUM	 256
#define MAX_SEGS 16
#define MAX_LEN	 9000
#define NTABLES	 248

struct buffer {
	bool in_use;
	uint16_t head; /* of a packed ring the buffer ID */
	unsigned int nsegs;
	struct silt_driver_seg seg[MAX_SEGS];
	int table; /* its number, or -1 */
	unsigned int ndescs;
	uint16_t desc[MAX_SEGS];
	uint64_t read_len, write_len;
	struct silt_virtq_elem *elem;
	bool done; /* IN_ORDER: pushed, and perhaps waiting for others */
	uint32_t used_len;
};

/* A first-in first-out list of buffers. */
struct fifo {
	struct buffer *buf[MAX_NUM];
	unsigned int n;
};

struct program {
	struct rng rng;
	struct guest guest;
	struct guest_ring ring;
	struct model model;
	const struct format *format;
	bool event_idx, indirect, in_order;
	struct silt_driver *driver;
	struct silt_virtq *vq;

	struct buffer buffer[MAX_NUM];
	bool desc_busy[MAX_NUM]; /* descriptors of a split ring, IDs of a packed one */
	bool table_busy[NTABLES];
	unsigned int ndescs_free;
	struct fifo added, available, popped, order, staged, used;
	/* Indexes of a split ring; offset and, in bit 15, wrap counter of a packed one. */
	uint16_t avail_idx, last_avail, used_idx, last_used;
	uint16_t shown;	      /* avail_idx when the driver published last */
	uint16_t first_flags; /* packed: of the descriptor there, which are still to be stored */
};

/* What the two formats store, and where. */
struct format {
	/* Choose size, place and first index. */
	void (*place)(struct program *p);
	/* The driver wrote a buffer's descriptors: check them, and repeat it in the model. */
	void (*added)(struct program *p, struct buffer *b);
	/* What was added is published. Return: must the device be kicked? */
	bool (*shown)(struct program *p);
	/* What is staged is published. Return: must the driver be called? */
	bool (*used)(struct program *p);
	void (*collected)(struct program *p, const struct buffer *b);
	void (*popped)(struct program *p, const struct buffer *b);
	void (*want_kick)(struct program *p, bool wanted);
	void (*want_call)(struct program *p, bool wanted);
	/* What SET_VRING_BASE would have. */
	uint32_t (*base)(const struct program *p);
};

extern const struct format split_format, packed_format;

static inline uint64_t below(struct program *p, uint64_t bound)
{
	return rng_below(&p->rng, bound);
}

static inline bool chance(struct program *p, unsigned int percent)
{
	return below(p, 100) < percent;
}

uint64_t program_table_gpa(int table);

/* The last staged element that the used entry of element @i stands for. */
unsigned int program_run_end(const struct program *p, unsigned int i);

#endif
