/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_BLK_H
#define CHECK_BLK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/device.h"
#include "check/scenario.h"

/* The block device: what is asked of it, and what it must answer. */

#define BLK_SECTOR 512

/* The values of the axis "request". */
enum {
	REQUEST_READ,
	REQUEST_GET_ID,
	REQUEST_FLUSH,
	REQUEST_BEYOND, /* a read that ends beyond the disk */
	REQUEST_MIXED,
	REQUEST_WRITE,
	REQUEST_DISCARD,
	REQUEST_WRITE_ZEROES,
	REQUEST_UNSUPPORTED,
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

/* A stretch of the disk, in bytes. */
struct check_blk_zone {
	uint64_t start;
	uint64_t len;
};

/* What is known of the backend, and how far a scenario has got on its disk. */
struct check_blk_disk {
	uint64_t capacity;
	uint32_t block;		    /* bytes that requests are multiples of */
	uint32_t max_segs;	    /* data segments of a request */
	uint32_t discard_sectors;   /* the most that one discard may name */
	uint32_t discard_alignment; /* sectors */
	uint32_t zero_sectors;
	bool zero_may_unmap;
	bool read_only;
	bool may_write;
	bool varies; /* reads of different sectors give different contents, if that is known */
	struct check_blk_zone reads, writes, zeroes; /* what each kind of request works on */
	uint8_t *known;				     /* contents of the reads zone, or NULL */
	int image;				     /* the disk itself if it is ours, -1 if not */
	uint64_t next_write;			     /* offset into the writes zone */
	uint64_t next_zero;			     /* into the zeroes zone */
	bool may_flush;
};

struct check_blk_request {
	struct check_request base;
	uint64_t sector;
	uint32_t affected; /* sectors that a discard or write-zeroes names */
	bool overwritten;  /* others write to the same sectors: what is there now says nothing */
};

static inline struct check_blk_disk *check_blk_disk_of(const struct check_scenario_env *env)
{
	return env->state;
}

/*
 * Read the device's configuration as GET_CONFIG returned it, and divide the disk into zones.
 * Return: 0, or -EINVAL if the disk is too small to work on.
 */
int check_blk_disk_init(struct check_blk_disk *disk, const void *config, size_t len,
			uint64_t features);

/* Bytes of configuration that a device with such features has: some refuse to be asked for more. */
uint32_t check_blk_config_len(uint64_t features);

/* struct check_device, probe. */
int check_blk_probe(const struct check_scenario_env *env, struct check_session *s,
		    struct check_applies *a);

/* struct check_device, build, build_lasting, renew, verify. */
int check_blk_build(struct check_builder *b, unsigned int queue, struct check_request *r);
int check_blk_build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			    unsigned int size, struct check_request *r);
void check_blk_renew(struct check_builder *b, struct check_request *r);
bool check_blk_verify(const void *disk, const struct check_guest *guest,
		      const struct check_request *r, char why[CHECK_WRONG_LEN]);

/* A plain read of @len bytes at @sector of the disk. Return: as check_blk_build(). */
int check_blk_build_read(struct check_builder *b, uint64_t sector, uint32_t len,
			 struct check_blk_request *r);

/* Is it a request that no device can carry out? */
bool check_blk_fails(enum check_blk_kind kind);

#endif
