/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "check/axes.h"

#define MAX_VALUES 9

struct axis_table {
	const char *name;
	unsigned int n;
	const char *values[MAX_VALUES];
	const char *prefix; /* of a value in scenario names, where the value alone is not clear */
};

/* clang-format off */
static const struct axis_table table[AXES] = {
	[AXIS_REQUEST] = {"request", 9,
		{"read", "get-id", "flush", "beyond", "mixed", "write", "discard", "write-zeroes",
		 "unsupported"}, ""},
	[AXIS_POSITION] = {"position", 5, {"inside", "straddle", "last", "regions", "high"}, ""},
	[AXIS_SHAPE] = {"shape", 5, {"three", "split", "many", "indirect", "joined"}, ""},
	[AXIS_STATUS] = {"status", 2, {"beside", "alone"}, "status-"},
	[AXIS_RING] = {"ring", 4, {"compact", "straddle", "index", "event"}, "ring-"},
	[AXIS_QSIZE] = {"qsize", 4, {"64", "2", "8", "512"}, "q"},
	[AXIS_EVENT_IDX] = {"event_idx", 2, {"off", "on"}, "event-idx-"},
	[AXIS_LOG_OFFSET] = {"log_offset", 2, {"0", "page"}, "log-offset-"},
	[AXIS_RING_LOG] = {"ring_log", 3, {"set", "elsewhere", "off"}, "ring-log-"},
	[AXIS_LOGGING] = {"logging", 3, {"on", "toggle", "late"}, "log-"},
	[AXIS_REPLACE] = {"replace", 3, {"none", "between", "during"}, "replace-"},
	[AXIS_SLOTS] = {"slots", 3, {"static", "added", "cycled"}, "slot-"},
	[AXIS_QUEUES] = {"queues", 2, {"1", "2"}, "queues-"},
	[AXIS_INDEX] = {"index", 2, {"0", "wrap"}, "index-"},
	[AXIS_LAST] = {"last", 2, {"normal", "unwaited"}, "last-"},
	[AXIS_DESCS] = {"descs", 2, {"kept", "rewritten"}, "descs-"},
};
/* clang-format on */

const char *check_axis_name(enum check_axis_id axis)
{
	return table[axis].name;
}

unsigned int check_axis_values(enum check_axis_id axis)
{
	return table[axis].n;
}

const char *check_axis_value_name(enum check_axis_id axis, unsigned int value)
{
	return table[axis].values[value];
}

unsigned int check_scenario_qsize(const struct check_scenario *s)
{
	static const unsigned int sizes[] = {
		[QSIZE_2] = 2, [QSIZE_8] = 8, [QSIZE_64] = 64, [QSIZE_512] = 512};

	return sizes[s->value[AXIS_QSIZE]];
}

unsigned int check_scenario_descs(const struct check_scenario *s)
{
	unsigned int pieces = s->value[AXIS_POSITION] == POSITION_REGIONS ? 2 : 1;

	switch (s->value[AXIS_SHAPE]) {
	case SHAPE_INDIRECT:
		return 1;
	case SHAPE_JOINED:
		return 1 + pieces;
	case SHAPE_SPLIT:
		return 3 + 2 * pieces + 1;
	case SHAPE_MANY:
		return 32;
	default:
		return 2 + pieces;
	}
}

/* Requests that have neither a buffer of their own nor one that may be cut anywhere. */
static bool whole_buffers(unsigned int request)
{
	return request == REQUEST_FLUSH || request == REQUEST_DISCARD ||
	       request == REQUEST_WRITE_ZEROES;
}

static bool sends_data(unsigned int request)
{
	return request == REQUEST_WRITE || request == REQUEST_DISCARD ||
	       request == REQUEST_WRITE_ZEROES;
}

static bool shape_valid(const uint8_t *v)
{
	if (v[AXIS_SHAPE] == SHAPE_JOINED && v[AXIS_STATUS] == STATUS_ALONE &&
	    !sends_data(v[AXIS_REQUEST]))
		return false;
	if (v[AXIS_POSITION] == POSITION_REGIONS && whole_buffers(v[AXIS_REQUEST]))
		return false;
	if (v[AXIS_REQUEST] == REQUEST_FLUSH)
		return v[AXIS_POSITION] != POSITION_STRADDLE && v[AXIS_SHAPE] != SHAPE_MANY &&
		       v[AXIS_SHAPE] != SHAPE_JOINED;
	return v[AXIS_SHAPE] != SHAPE_MANY ||
	       (v[AXIS_REQUEST] != REQUEST_DISCARD && v[AXIS_REQUEST] != REQUEST_WRITE_ZEROES);
}

static bool slots_valid(const uint8_t *v)
{
	/* What is added while logging is the high region, so something must use it. */
	return v[AXIS_SLOTS] == SLOTS_STATIC || v[AXIS_POSITION] == POSITION_REGIONS ||
	       v[AXIS_POSITION] == POSITION_HIGH;
}

static bool ring_valid(const uint8_t *v)
{
	/* 512 descriptors alone fill two pages. */
	if (v[AXIS_RING] == RING_COMPACT && v[AXIS_QSIZE] == QSIZE_512)
		return false;
	/* Without EVENT_IDX nobody writes the event field. */
	return v[AXIS_RING] != RING_EVENT || v[AXIS_EVENT_IDX] == EVENT_IDX_ON;
}

void check_scenario_set_name(struct check_scenario *s)
{
	size_t used = snprintf(s->name, sizeof(s->name), "snapshot");
	unsigned int axis;

	for (axis = 0; axis < AXES && used < sizeof(s->name); axis++)
		if (axis <= AXIS_SHAPE || s->value[axis])
			used += snprintf(s->name + used, sizeof(s->name) - used, "/%s%s",
					 table[axis].prefix, table[axis].values[s->value[axis]]);
}

/* Only buffers that the device writes, and that are large enough to be in flight for a while. */
static bool descs_valid(const uint8_t *v)
{
	return v[AXIS_DESCS] == DESCS_KEPT ||
	       (v[AXIS_REQUEST] == REQUEST_READ && v[AXIS_REPLACE] == REPLACE_NONE &&
		v[AXIS_SHAPE] != SHAPE_JOINED && v[AXIS_POSITION] != POSITION_INSIDE);
}

bool check_scenario_valid(const struct check_scenario *s)
{
	return descs_valid(s->value) && shape_valid(s->value) && slots_valid(s->value) &&
	       ring_valid(s->value) && check_scenario_descs(s) <= check_scenario_qsize(s);
}
