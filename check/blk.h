/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_BLK_H
#define CHECK_BLK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/virtq.h>

#include "check/axes.h"
#include "check/guest.h"
#include "check/places.h"
#include "check/random.h"

/* The block device: what is asked of it, and what it must answer. */

#define BLK_SECTOR     512
#define BLK_MAX_SEGS   32
#define BLK_MAX_PIECES 2
#define BLK_WRONG_LEN  256

/* A stretch of the disk, in bytes. */
struct check_blk_zone {
	uint64_t start;
	uint64_t len;
};

struct check_blk_disk {
	uint64_t capacity;
	uint32_t block;		    /* bytes that requests are multiples of */
	uint32_t max_segs;	    /* data segments of a request */
	uint32_t discard_sectors;   /* the most that one discard may name */
	uint32_t discard_alignment; /* sectors */
	uint32_t zero_sectors;
	bool zero_may_unmap;
	struct check_blk_zone reads, writes, zeroes; /* what each kind of request works on */
	uint8_t *known;				     /* contents of the reads zone, or NULL */
	int image;				     /* the disk itself if it is ours, -1 if not */
};

enum check_blk_kind {
	BLK_READ,
	BLK_GET_ID,
	BLK_FLUSH,
	BLK_BEYOND,
	BLK_WRITE,
	BLK_DISCARD,
	BLK_WRITE_ZEROES,
	BLK_UNSUPPORTED,
};

struct check_blk_piece {
	uint64_t gpa;
	uint32_t len;
};

struct check_blk_request {
	unsigned int id; /* as people see it, from 1 */
	unsigned int queue;
	enum check_blk_kind kind;
	uint64_t sector;
	uint32_t len;	   /* bytes of data */
	uint32_t affected; /* sectors that a discard or write-zeroes names */
	struct check_blk_piece piece[BLK_MAX_PIECES];
	unsigned int npieces;
	uint64_t decoy[BLK_MAX_PIECES]; /* other memory that the device may be sent to, or 0 */
	uint64_t header;
	uint64_t status;
	uint64_t table; /* of an indirect request, or 0 */
	struct silt_driver_seg seg[BLK_MAX_SEGS];
	unsigned int nsegs;
	uint16_t desc; /* the head descriptor it was given */
	bool done;
	bool overwritten; /* others write to the same sectors: what is there now says nothing */
	uint32_t used_len;
	char text[64]; /* "#3 read sector 8, 8192 bytes" */
};

/* Builds the requests of one scenario. */
struct check_blk_builder {
	const struct check_scenario *scenario;
	const struct check_blk_disk *disk;
	struct check_guest *guest;
	struct check_places *places;
	struct check_random random;
	unsigned int next_id;
	uint64_t next_write; /* offset into the writes zone */
	uint64_t next_zero;  /* into the zeroes zone */
	bool large;	     /* requests that take a while */
	bool low_only;	     /* the high region is not there yet */
	bool may_write;
	bool may_flush;
};

/*
 * Read the device's configuration as GET_CONFIG returned it, and divide the disk into zones.
 * Return: 0, or -EINVAL if the disk is too small to work on.
 */
int check_blk_disk_init(struct check_blk_disk *disk, const void *config, size_t len,
			uint64_t features);

/* Bytes of configuration that a device with such features has: some refuse to be asked for more. */
uint32_t check_blk_config_len(uint64_t features);

/* Feature bits that the checker knows how to use. */
uint64_t check_blk_features(void);

/*
 * Build the scenario's next request: choose its kind, place and poison its buffers, note its
 * places. Return: 0, -ENOSPC if guest memory is full, -ENOMEM, -errno of the image.
 */
int check_blk_build(struct check_blk_builder *b, unsigned int queue, struct check_blk_request *r);

/* The same for a plain read of @len bytes at @sector of the disk. */
int check_blk_build_read(struct check_blk_builder *b, uint64_t sector, uint32_t len,
			 struct check_blk_request *r);

/*
 * A request that is to be renewed: of a kind and a length. Return: as check_blk_build().
 */
int check_blk_build_kind(struct check_blk_builder *b, enum check_blk_kind kind, uint32_t len,
			 unsigned int queue, struct check_blk_request *r);

/*
 * Ask for something else, of a kind that moves data in the same direction, with the same buffers,
 * which stay as the device left them. Only the header is written.
 */
void check_blk_renew(struct check_blk_builder *b, enum check_blk_kind kind,
		     struct check_blk_request *r);

/* Do reads of different sectors give different contents? True if that is not known. */
bool check_blk_disk_varies(const struct check_blk_disk *disk);

/* Is the answer to a finished request right? If not, @why says what is wrong. */
bool check_blk_verify(const struct check_blk_disk *disk, const struct check_guest *guest,
		      const struct check_blk_request *r, char why[BLK_WRONG_LEN]);

/* Is it a request that no device can carry out? */
bool check_blk_fails(enum check_blk_kind kind);

/* Names of a request's buffer: "read data". */
const char *check_blk_data_name(const struct check_blk_request *r);

#endif
