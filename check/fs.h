/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_FS_H
#define CHECK_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "check/device.h"
#include "check/scenario.h"

/*
 * The file system device: a FUSE session on its first request queue. Each scenario begins one, and
 * opens the directory and the file that were found when the backend was looked at.
 */

#define FS_NAME_MAX 255

/* The values of the axis "request". */
enum {
	FS_REQUEST_READ,
	FS_REQUEST_GETATTR,
	FS_REQUEST_LOOKUP,
	FS_REQUEST_STATFS,
	FS_REQUEST_READDIR,
	FS_REQUEST_ERROR, /* a lookup of what is not there */
	FS_REQUEST_MIXED,
};

enum check_fs_kind {
	FS_INIT,
	FS_OPENDIR,
	FS_READDIR,
	FS_LOOKUP,
	FS_ABSENT,
	FS_OPEN,
	FS_READ,
	FS_GETATTR,
	FS_STATFS,
};

/* What is known of the backend, and of the session. */
struct check_fs {
	char name[FS_NAME_MAX + 1]; /* of the file */
	uint8_t *known;		    /* what it begins with, or NULL */
	uint32_t known_len;
	uint64_t node, file, dir; /* as the backend numbers them in this session */
	uint64_t size;		  /* of the file */
};

struct check_fs_request {
	struct check_request base;
	uint64_t offset; /* of a read */
};

static inline struct check_fs *check_fs_of(const struct check_builder *b)
{
	return b->state;
}

/* A request of a kind; @offset and @len are of what a read is to give. Return: as build(). */
int check_fs_build_kind(struct check_builder *b, enum check_fs_kind kind, uint64_t offset,
			uint32_t len, struct check_request *r);

/*
 * Learn from the answer to a request what later ones need. Return: 0, -EPROTO if it is none, or
 * -errno as the backend answered.
 */
int check_fs_learn(struct check_fs *fs, const struct check_guest *g, const struct check_request *r);

/* struct check_device, probe, open, build, build_lasting, renew, verify. */
int check_fs_probe(const struct check_scenario_env *env, struct check_session *s,
		   struct check_applies *a);
int check_fs_open(struct check_builder *b, unsigned int step, const struct check_request *before,
		  struct check_request *r);
int check_fs_build(struct check_builder *b, unsigned int queue, struct check_request *r);
int check_fs_build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			   unsigned int size, struct check_request *r);
void check_fs_renew(struct check_builder *b, struct check_request *r);
bool check_fs_verify(const void *fs, const struct check_guest *guest, const struct check_request *r,
		     char why[CHECK_WRONG_LEN]);

#endif
