/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_AXES_H
#define CHECK_AXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/check.h"

/*
 * A scenario is one value on each axis. Value 0 of each axis is its usual one and is left out of
 * names, except for the first three axes.
 */
enum check_axis_id {
	AXIS_REQUEST,
	AXIS_POSITION,
	AXIS_SHAPE,
	AXIS_STATUS,
	AXIS_RING,
	AXIS_QSIZE,
	AXIS_EVENT_IDX,
	AXIS_LOG_OFFSET,
	AXIS_RING_LOG,
	AXIS_LOGGING,
	AXIS_REPLACE,
	AXIS_SLOTS,
	AXIS_QUEUES,
	AXIS_INDEX,
	AXIS_LAST,
	AXIS_DESCS,
	AXES,
};

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

enum {
	POSITION_INSIDE,
	POSITION_STRADDLE,
	POSITION_LAST,	  /* ends with the last byte of a region */
	POSITION_REGIONS, /* one request in both regions */
	POSITION_HIGH,	  /* above 4 GiB, the rings too where they can be */
};

enum {
	SHAPE_THREE,	/* header, data, status */
	SHAPE_SPLIT,	/* each part in several descriptors */
	SHAPE_MANY,	/* data in many small segments, some of 2 bytes over a page boundary */
	SHAPE_INDIRECT, /* the same three in an indirect table */
	SHAPE_JOINED,	/* status and data in one descriptor, or header and data for writes */
};

enum {
	STATUS_BESIDE,
	STATUS_ALONE
};

enum {
	RING_COMPACT,  /* all of it in one page */
	RING_STRADDLE, /* tables and rings, and one used entry, lie across page boundaries */
	RING_INDEX,    /* used flags and index end a page that holds nothing else */
	RING_EVENT,    /* the event field begins a page that holds nothing else */
};

enum {
	QSIZE_64,
	QSIZE_2,
	QSIZE_8,
	QSIZE_512
};
enum {
	EVENT_IDX_OFF,
	EVENT_IDX_ON
};
enum {
	LOG_OFFSET_0,
	LOG_OFFSET_PAGE
};
enum {
	RING_LOG_SET,
	RING_LOG_ELSEWHERE,
	RING_LOG_OFF
};

enum {
	LOGGING_ON,
	LOGGING_TOGGLE, /* off, on, off, on, each time with a fresh log */
	LOGGING_LATE,	/* the device starts with logging on, the log comes last */
};

enum {
	REPLACE_NONE,
	REPLACE_BETWEEN,
	REPLACE_DURING
};
enum {
	SLOTS_STATIC,
	SLOTS_ADDED,
	SLOTS_CYCLED
};
enum {
	QUEUES_1,
	QUEUES_2
};
enum {
	INDEX_0,
	INDEX_WRAP
};
enum {
	LAST_NORMAL,
	LAST_UNWAITED
};

enum {
	DESCS_KEPT,
	DESCS_REWRITTEN, /* the guest changes descriptors that the device has already */
};

struct check_scenario {
	uint8_t value[AXES];
	bool quick; /* part of the quick set */
	char name[192];
};

struct check_scenario_list {
	struct check_scenario *v;
	unsigned int n;
};

const char *check_axis_name(enum check_axis_id axis);
unsigned int check_axis_values(enum check_axis_id axis);
const char *check_axis_value_name(enum check_axis_id axis, unsigned int value);

unsigned int check_scenario_qsize(const struct check_scenario *s);

/* Descriptors of the ring that one request takes at most. */
unsigned int check_scenario_descs(const struct check_scenario *s);

/* Build the name from the values. */
void check_scenario_set_name(struct check_scenario *s);

/* Do the values make sense together? */
bool check_scenario_valid(const struct check_scenario *s);

/*
 * Is there a scenario that has @a on @axis_a and @b on @axis_b? If so and @out is not NULL, it is
 * one, without a name.
 */
bool check_scenario_pair(enum check_axis_id axis_a, unsigned int a, enum check_axis_id axis_b,
			 unsigned int b, struct check_scenario *out);

/*
 * The scenarios of a seed: those known to be worth having, then as many as it takes to have each
 * pair of values that can occur. Return: 0 or -ENOMEM. Owns: free with check_scenario_list_free().
 */
int check_scenario_generate(uint64_t seed, struct check_scenario_list *list);
void check_scenario_list_free(struct check_scenario_list *list);

#endif
