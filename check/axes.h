/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_AXES_H
#define CHECK_AXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/check.h"

struct check_device;

/* Queues that scenarios use at most. */
#define AXES_MAX_QUEUES 8

/*
 * Scenarios come in families. Each family uses some axes, and some of their values; all others are
 * at value 0, the usual one.
 */
enum check_family {
	FAMILY_SNAPSHOT,
	FAMILY_MIGRATION, /* the order of messages in a migration */
	FAMILY_SHADOW,	  /* requests and the harvest at the same time */
	FAMILY_RESTART,	  /* the backend is killed, and goes on */
	FAMILY_IOMMU,	  /* the device's addresses are translated */
	FAMILY_AIMED,	  /* the harvest comes just when the used index is stored */
	FAMILIES,
};

/*
 * A scenario is one value on each axis. A usual value is left out of names, except for the axes
 * that a family is known by.
 */
enum check_axis_id {
	AXIS_IOMMU,
	AXIS_STEPS,
	AXIS_COLLECT,
	AXIS_SIZE,
	AXIS_DEPTH,
	AXIS_STOP,
	AXIS_KILL,
	AXIS_REQUEST, /* the device knows its values */
	AXIS_POSITION,
	AXIS_SHAPE,
	AXIS_STATUS,
	AXIS_RING,
	AXIS_FORMAT,
	AXIS_QSIZE,
	AXIS_EVENT_IDX,
	AXIS_IN_ORDER,
	AXIS_LOG_OFFSET,
	AXIS_RING_LOG,
	AXIS_LOGGING,
	AXIS_REPLACE,
	AXIS_SLOTS,
	AXIS_QUEUES,
	AXIS_INDEX,
	AXIS_LAST,
	AXIS_DESCS,
	AXIS_KILLS,
	AXIS_BUFFERS,
	AXES,
};

enum {
	IOMMU_OFF,
	IOMMU_STATIC, /* all of memory is mapped at first, and lies at two guest addresses */
	IOMMU_MISSES, /* pages lie anywhere; each is mapped when the backend asks, up to what ends
			 there */
	IOMMU_MOVED,  /* the same; and mappings that were used are taken away, and rings move */
};

enum {
	STEPS_GROW,	  /* the log grows, then the memory table */
	STEPS_SHRINK,	  /* the memory table shrinks, then the log */
	STEPS_ON,	  /* logging comes on while requests are in flight */
	STEPS_SECOND,	  /* a second migration after a failed one, on running rings */
	STEPS_STOP_RACED, /* buffers and kicks go on coming while the rings are stopped */
	STEPS_RECONNECT,  /* the connection is lost in the middle of switching logging on */
};

enum {
	COLLECT_EXCHANGE, /* words of one log are exchanged with zero */
	COLLECT_FRESH,	  /* each pass gives the backend a fresh log and harvests the one before */
};

enum {
	SIZE_8K,
	SIZE_SMALL, /* one block */
	SIZE_64K,
	SIZE_VARIED,
};

enum {
	DEPTH_16,
	DEPTH_1,
	DEPTH_FULL, /* as many as the ring holds */
};

enum {
	STOP_ONCE,
	STOP_RESUMED, /* also in the middle, and started again */
};

/* When the backend is killed. */
enum {
	KILL_BUSY, /* requests are in flight */
	KILL_USED, /* a completion was seen in the used ring just now: is it marked? */
	KILL_IDLE, /* nothing is in flight */
};

enum {
	KILLS_1,
	KILLS_3,
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
	/* Used flags and index, or a packed ring's first descriptor, end a page of their own. */
	RING_INDEX,
	/* The event field, or a packed ring's device area, begins a page of its own. */
	RING_EVENT,
};

enum {
	QSIZE_64,
	QSIZE_2,
	QSIZE_8,
	QSIZE_512,
	QSIZE_13, /* of a packed ring */
};

enum {
	FORMAT_SPLIT,
	FORMAT_PACKED,
};

enum {
	IN_ORDER_OFF,
	IN_ORDER_ON,
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
	RING_LOG_OFF,
	RING_LOG_DESCS, /* at a packed ring's descriptors; what is usual is its device area */
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
	QUEUES_2,
	QUEUES_4
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

/* One value on one axis, of those that a scenario is chosen by. The last one is no choice. */
struct check_choice {
	uint8_t axis;
	uint8_t value;
};

#define CHECK_CHOICES 7
#define CHECK_CHOICES_END \
	{                 \
		AXES, 0   \
	}

enum {
	BUFFERS_WHOLE,	/* each is large enough for any frame */
	BUFFERS_MERGED, /* a frame may fill several, and fits into one */
	BUFFERS_PIECES, /* most frames fill several */
};

struct check_scenario {
	const struct check_device *device;
	enum check_family family;
	uint8_t value[AXES];
	bool quick; /* part of the quick set */
	char name[192];
};

struct check_scenario_list {
	struct check_scenario *v;
	unsigned int n;
};

const char *check_axis_name(enum check_axis_id axis);
unsigned int check_axis_values(const struct check_device *device, enum check_axis_id axis);
const char *check_axis_value_name(const struct check_device *device, enum check_axis_id axis,
				  unsigned int value);

const char *check_family_name(enum check_family family);
const char *check_family_mode(enum check_family family);

/* Does the family use the axis, with more than one value? */
bool check_family_varies(const struct check_device *device, enum check_family family,
			 enum check_axis_id axis);

/* Does it use this value? */
bool check_family_has(const struct check_device *device, enum check_family family,
		      enum check_axis_id axis, unsigned int value);

/* The value that its scenarios usually have. */
unsigned int check_family_usual(const struct check_device *device, enum check_family family,
				enum check_axis_id axis);

/* Its sets of queues, and all queues of these. */
unsigned int check_scenario_sets(const struct check_scenario *s);
unsigned int check_scenario_queues(const struct check_scenario *s);
unsigned int check_scenario_qsize(const struct check_scenario *s);

/*
 * Descriptors of a ring that one request takes at most, with those that belong together with it;
 * and how many such requests a ring holds.
 */
unsigned int check_scenario_descs(const struct check_scenario *s);
unsigned int check_scenario_room(const struct check_scenario *s);

/* Build the name from the values. */
void check_scenario_set_name(struct check_scenario *s);

/* Do the values make sense together? */
bool check_scenario_valid(const struct check_scenario *s);

/* Do those of the rings alone? */
bool check_scenario_ring_valid(const struct check_scenario *s);

/*
 * Is there a scenario of the family that has @a on @axis_a and @b on @axis_b? If so and @out is not
 * NULL, it is one, without a name.
 */
bool check_scenario_pair(const struct check_device *device, enum check_family family,
			 enum check_axis_id axis_a, unsigned int a, enum check_axis_id axis_b,
			 unsigned int b, struct check_scenario *out);

/*
 * The scenarios of a seed, family by family: those known to be worth having, then as many as it
 * takes to have each pair of values that can occur. Return: 0 or -ENOMEM. Owns: free with
 * check_scenario_list_free().
 */
int check_scenario_generate(const struct check_device *device, uint64_t seed,
			    struct check_scenario_list *list);
void check_scenario_list_free(struct check_scenario_list *list);

#endif
