/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_PROTO_SHADOW_H
#define TESTS_PROTO_SHADOW_H

#include "rig.h"

/* Bits of the largest log that the tests use: all of the rig's regions, and some beyond. */
#define SHADOW_LOG_SIZE 0x40000
#define SHADOW_PAGES	(8ull * SHADOW_LOG_SIZE)

/* Data buffers of region 0 begin here; below are rings and sources, which the driver writes. */
#define SHADOW_DATA 0xc0000

/* A log as the frontend sees it. */
struct shadow_log {
	int fd;
	uint64_t size, offset;
	uint8_t *file; /* offset bytes, then the log, then as much again that must stay untouched */
};

void shadow_log_make(struct shadow_log *log, uint64_t size, uint64_t offset);
void shadow_log_free(struct shadow_log *log);
bool shadow_log_test(const struct shadow_log *log, uint64_t page);

/* Guest memory as it was. */
struct shadow {
	uint8_t *copy[RIG_REGIONS];
};

void shadow_take(struct shadow *s, const struct rig *rig);
void shadow_free(struct shadow *s);

/* What is logged of a ring. */
struct shadow_ring {
	bool logged;
	uint64_t log_gpa;
};

/*
 * The law, page by page: a data page that changed since @s is marked in one of @logs if @data, a
 * page of a used ring likewise if that ring is logged, at its log address; and nothing else is
 * marked anywhere, nor anything outside the logs written.
 */
void shadow_check(const struct shadow *s, const struct rig *rig, const struct shadow_log *logs,
		  unsigned int nlogs, bool data, const struct shadow_ring *rings);

#endif
