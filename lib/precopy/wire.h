/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_WIRE_H
#define SILT_PRECOPY_WIRE_H

#include <stddef.h>
#include <stdint.h>

/*
 * The wire: frames, each a header and a payload, in both directions of one channel. Numbers are
 * little-endian, as the machine's. A page is 4 KiB here, whatever the source's bitmaps count in.
 *
 * Source to destination                     and back
 *     HELLO   first                             ACCEPT  to HELLO
 *     PAGES   any number                        ACK     to each ROUND
 *     ROUND   behind each round's pages         LOADED  to LOAD
 *     STATE   behind the last ROUND             STARTED to START, last
 *     LOAD    behind all STATE
 *     START   once LOADED came, last
 *     REFUSE  instead of any of them, last      REFUSE  at any time but behind STARTED, last
 *
 * What answers what is strict: nobody sends ahead of an answer, so that but for REFUSE at most one
 * frame is under way back. A REFUSE from the source, and an end of the stream before START, mean
 * that the destination never runs the guest. The source may take the guest up again after REFUSE,
 * or as long as it has not sent all bytes of START.
 */
#define WIRE_MAGIC	UINT32_C(0x544c4953) /* "SILT" */
#define WIRE_VERSION	1
#define WIRE_PAGE_SHIFT 12
#define WIRE_PAGE	(1u << WIRE_PAGE_SHIFT)

enum wire_type {
	WIRE_HELLO = 1, /* struct wire_hello, then its blocks */
	WIRE_PAGES,	/* struct wire_pages, its runs, then the data of those that have any */
	WIRE_ROUND,	/* struct wire_round */
	WIRE_STATE,	/* bytes of device state, at least 1 */
	WIRE_LOAD,	/* struct wire_load */
	WIRE_START,	/* nothing */
	WIRE_REFUSE,	/* struct wire_refuse, then why: text without a NUL */
	WIRE_ACCEPT,	/* nothing */
	WIRE_ACK,	/* struct wire_round, as it came */
	WIRE_LOADED,	/* nothing */
	WIRE_STARTED,	/* nothing */
	WIRE_TYPES,	/* how many there are, and 0 */
};

/* Magic and version stay where they are in all versions, so that both ends can name them. */
struct wire_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t length;      /* of the payload, bytes */
	uint32_t reserved;    /* 0 */
	uint64_t sequence;    /* frames before this one in its direction */
	uint64_t payload_sum; /* XXH3, 64 bits, of the payload */
	uint64_t header_sum;  /* and of the members above: a length is believed only then */
};

/* The blocks' names and sizes; on the wire a block is known by its place here, from 0 on. */
struct wire_hello {
	uint32_t nblocks;
	uint32_t reserved; /* 0 */
};

struct wire_block { /* then the name, without a NUL, and no padding */
	uint64_t pages;
	uint16_t name_bytes;
} __attribute__((packed));

enum wire_run_kind {
	WIRE_RUN_DATA, /* its pages' contents follow behind all runs, in the order of the runs */
	WIRE_RUN_ZERO, /* all bytes are 0 */
	WIRE_RUN_SKIP, /* need not arrive; what is there stays */
	WIRE_RUN_KINDS,
};

/* A page comes at most once in a frame. */
struct wire_run {
	uint64_t first;
	uint32_t pages; /* not 0 */
	uint16_t block;
	uint16_t kind;
};

struct wire_pages {
	uint32_t nruns;	     /* not 0 */
	uint32_t data_pages; /* of all runs of data */
};

struct wire_round {
	uint64_t round; /* 1, 2, ... */
	uint64_t pages; /* of all runs of all rounds so far but those to skip */
	uint32_t last;	/* 1: the guest is paused, STATE or LOAD follow; else 0 */
	uint32_t reserved;
};

struct wire_load {
	uint64_t state_bytes; /* of all STATE */
};

struct wire_refuse {
	uint32_t error; /* an errno of Linux */
	uint32_t reserved;
};

/* Bounds that both ends hold to. A frame of pages stays in a second-level cache. */
#define WIRE_MAX_RUNS	    1024u
#define WIRE_MAX_DATA_PAGES 128u
#define WIRE_MAX_PAGES_FRAME                                                   \
	(sizeof(struct wire_pages) + WIRE_MAX_RUNS * sizeof(struct wire_run) + \
	 WIRE_MAX_DATA_PAGES * WIRE_PAGE)
#define WIRE_MAX_HELLO               \
	(sizeof(struct wire_hello) + \
	 SILT_PRECOPY_MAX_BLOCKS * (sizeof(struct wire_block) + SILT_PRECOPY_MAX_NAME))
#define WIRE_MAX_STATE_FRAME (UINT32_C(256) << 10)
#define WIRE_MAX_REASON	     500u

/* "PAGES" and so on; "?" for what is no type. */
const char *precopy_wire_name(unsigned int type);

/* Text from the peer, for messages: with whatever would harm a terminal or a log left out. */
struct wire_text {
	char bytes[WIRE_MAX_REASON + 1];
};

struct wire_text precopy_wire_text(const void *from, size_t n);

/* The largest payload that a frame of this type may have; the smallest. */
uint32_t precopy_wire_max(unsigned int type);
uint32_t precopy_wire_min(unsigned int type);

/* Fill in a whole header for the @length bytes at @payload. */
void precopy_wire_seal(struct wire_header *h, enum wire_type type, uint64_t sequence,
		       const void *payload, uint32_t length);

/*
 * Is this a header of ours, number @sequence, and of a payload of a right size?
 *
 * Return: 0; -EPROTO or -EBADMSG with a message.
 */
int precopy_wire_check_header(const struct wire_header *h, uint64_t sequence);

/* Is this the payload that the checked header speaks of? Return: 0; -EBADMSG with a message. */
int precopy_wire_check_payload(const struct wire_header *h, const void *payload);

#endif
