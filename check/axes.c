/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "check/device.h"

#define MAX_VALUES 9

struct axis_table {
	const char *name;
	unsigned int n;
	const char *values[MAX_VALUES];
	const char *prefix; /* of a value in scenario names, where the value alone is not clear */
};

/* clang-format off */
static const struct axis_table table[AXES] = {
	[AXIS_IOMMU] = {"iommu", 4, {"off", "static", "misses", "moved"}, ""},
	[AXIS_STEPS] = {"steps", 6,
		{"grow", "shrink", "on", "second", "stop-raced", "reconnect"}, ""},
	[AXIS_COLLECT] = {"collect", 2, {"exchange", "fresh"}, ""},
	[AXIS_SIZE] = {"size", 4, {"8k", "small", "64k", "varied"}, ""},
	[AXIS_DEPTH] = {"depth", 3, {"16", "1", "full"}, "depth-"},
	[AXIS_STOP] = {"stop", 2, {"once", "resumed"}, ""},
	[AXIS_KILL] = {"kill", 3, {"busy", "used", "idle"}, ""},
	[AXIS_REQUEST] = {"request", 0, {NULL}, ""},
	[AXIS_POSITION] = {"position", 5, {"inside", "straddle", "last", "regions", "high"}, ""},
	[AXIS_SHAPE] = {"shape", 5, {"three", "split", "many", "indirect", "joined"}, ""},
	[AXIS_STATUS] = {"status", 2, {"beside", "alone"}, "status-"},
	[AXIS_RING] = {"ring", 4, {"compact", "straddle", "index", "event"}, "ring-"},
	[AXIS_FORMAT] = {"format", 2, {"split", "packed"}, ""},
	[AXIS_QSIZE] = {"qsize", 5, {"64", "2", "8", "512", "13"}, "q"},
	[AXIS_EVENT_IDX] = {"event_idx", 2, {"off", "on"}, "event-idx-"},
	[AXIS_IN_ORDER] = {"in_order", 2, {"off", "on"}, "in-order-"},
	[AXIS_LOG_OFFSET] = {"log_offset", 2, {"0", "page"}, "log-offset-"},
	[AXIS_RING_LOG] = {"ring_log", 4, {"set", "elsewhere", "off", "descs"}, "ring-log-"},
	[AXIS_LOGGING] = {"logging", 3, {"on", "toggle", "late"}, "log-"},
	[AXIS_REPLACE] = {"replace", 3, {"none", "between", "during"}, "replace-"},
	[AXIS_SLOTS] = {"slots", 3, {"static", "added", "cycled"}, "slot-"},
	[AXIS_QUEUES] = {"queues", 3, {"1", "2", "4"}, "queues-"},
	[AXIS_INDEX] = {"index", 2, {"0", "wrap"}, "index-"},
	[AXIS_LAST] = {"last", 2, {"normal", "unwaited"}, "last-"},
	[AXIS_DESCS] = {"descs", 2, {"kept", "rewritten"}, "descs-"},
	[AXIS_KILLS] = {"kills", 2, {"1", "3"}, "kills-"},
	[AXIS_BUFFERS] = {"buffers", 3, {"whole", "merged", "pieces"}, "buffers-"},
};
/* clang-format on */

#define BIT(n) (1u << (n))
#define ALL(n) (BIT(n) - 1)

/* Bit i of values says that value i is used; no bit is the same as bit 0. Requests are the
 * device's. */
struct family_table {
	const char *name;
	const char *mode;
	uint64_t known_by; /* axes that are named always */
	uint16_t values[AXES];
};

static const struct family_table families[FAMILIES] = {
	[FAMILY_SNAPSHOT] = {.name = "snapshot",
			     .mode = "snapshot",
			     .known_by = BIT(AXIS_REQUEST) | BIT(AXIS_POSITION) | BIT(AXIS_SHAPE),
			     .values = {[AXIS_POSITION] = ALL(5),
					[AXIS_SHAPE] = ALL(5),
					[AXIS_STATUS] = ALL(2),
					[AXIS_RING] = ALL(4),
					[AXIS_FORMAT] = ALL(2),
					[AXIS_IN_ORDER] = ALL(2),
					[AXIS_QSIZE] = ALL(5),
					[AXIS_EVENT_IDX] = ALL(2),
					[AXIS_LOG_OFFSET] = ALL(2),
					[AXIS_RING_LOG] = ALL(4),
					[AXIS_LOGGING] = ALL(3),
					[AXIS_REPLACE] = ALL(3),
					[AXIS_SLOTS] = ALL(3),
					[AXIS_QUEUES] = BIT(QUEUES_1) | BIT(QUEUES_2),
					[AXIS_INDEX] = ALL(2),
					[AXIS_LAST] = ALL(2),
					[AXIS_BUFFERS] = ALL(3),
					[AXIS_DESCS] = ALL(2)}},
	[FAMILY_MIGRATION] = {.name = "migration",
			      .mode = "snapshot",
			      .known_by = BIT(AXIS_STEPS),
			      .values = {[AXIS_STEPS] = ALL(6),
					 [AXIS_POSITION] = BIT(POSITION_REGIONS),
					 [AXIS_RING] = BIT(RING_COMPACT) | BIT(RING_INDEX),
					 [AXIS_FORMAT] = ALL(2),
					 [AXIS_EVENT_IDX] = ALL(2),
					 [AXIS_LOG_OFFSET] = ALL(2),
					 [AXIS_REPLACE] = BIT(REPLACE_NONE) | BIT(REPLACE_DURING),
					 [AXIS_QUEUES] = BIT(QUEUES_1) | BIT(QUEUES_2),
					 [AXIS_INDEX] = ALL(2),
					 [AXIS_BUFFERS] = ALL(3)}},
	[FAMILY_SHADOW] = {.name = "shadow",
			   .mode = "shadow",
			   .known_by = BIT(AXIS_COLLECT) | BIT(AXIS_SIZE),
			   .values = {[AXIS_COLLECT] = ALL(2),
				      [AXIS_SIZE] = ALL(4),
				      [AXIS_DEPTH] = ALL(3),
				      [AXIS_STOP] = ALL(2),
				      [AXIS_POSITION] = BIT(POSITION_STRADDLE) |
							BIT(POSITION_REGIONS) | BIT(POSITION_HIGH),
				      [AXIS_SHAPE] = BIT(SHAPE_THREE) | BIT(SHAPE_MANY) |
						     BIT(SHAPE_INDIRECT),
				      [AXIS_STATUS] = ALL(2),
				      [AXIS_RING] = ALL(4),
				      [AXIS_QSIZE] = BIT(QSIZE_64) | BIT(QSIZE_512),
				      [AXIS_FORMAT] = ALL(2),
				      [AXIS_IN_ORDER] = ALL(2),
				      [AXIS_EVENT_IDX] = ALL(2),
				      [AXIS_LOG_OFFSET] = ALL(2),
				      [AXIS_LOGGING] = BIT(LOGGING_ON) | BIT(LOGGING_TOGGLE),
				      [AXIS_QUEUES] = ALL(3),
				      [AXIS_INDEX] = ALL(2),
				      [AXIS_BUFFERS] = ALL(3)}},
	[FAMILY_RESTART] = {.name = "restart",
			    .mode = "restart",
			    .known_by = BIT(AXIS_KILL) | BIT(AXIS_REQUEST),
			    .values = {[AXIS_KILL] = ALL(3),
				       [AXIS_POSITION] =
					       BIT(POSITION_STRADDLE) | BIT(POSITION_REGIONS),
				       [AXIS_RING] = BIT(RING_STRADDLE) | BIT(RING_INDEX) |
						     BIT(RING_EVENT),
				       [AXIS_EVENT_IDX] = ALL(2),
				       [AXIS_LOG_OFFSET] = ALL(2),
				       [AXIS_LOGGING] = BIT(LOGGING_ON) | BIT(LOGGING_LATE),
				       [AXIS_QUEUES] = BIT(QUEUES_1) | BIT(QUEUES_2),
				       [AXIS_INDEX] = ALL(2),
				       [AXIS_KILLS] = ALL(2)}},
	[FAMILY_IOMMU] = {.name = "iommu",
			  .mode = "snapshot",
			  .known_by = BIT(AXIS_IOMMU) | BIT(AXIS_REQUEST) | BIT(AXIS_POSITION),
			  .values = {[AXIS_IOMMU] = BIT(IOMMU_STATIC) | BIT(IOMMU_MISSES) |
						    BIT(IOMMU_MOVED),
				     [AXIS_POSITION] = BIT(POSITION_STRADDLE) | BIT(POSITION_LAST) |
						       BIT(POSITION_REGIONS) | BIT(POSITION_HIGH),
				     [AXIS_SHAPE] = BIT(SHAPE_THREE) | BIT(SHAPE_MANY) |
						    BIT(SHAPE_INDIRECT),
				     [AXIS_STATUS] = ALL(2),
				     [AXIS_RING] = ALL(4),
				     [AXIS_QSIZE] = BIT(QSIZE_64) | BIT(QSIZE_8),
				     [AXIS_EVENT_IDX] = ALL(2),
				     [AXIS_LOGGING] = BIT(LOGGING_ON) | BIT(LOGGING_LATE),
				     [AXIS_REPLACE] = ALL(3),
				     [AXIS_SLOTS] = BIT(SLOTS_STATIC) | BIT(SLOTS_ADDED),
				     [AXIS_QUEUES] = BIT(QUEUES_1) | BIT(QUEUES_2),
				     [AXIS_INDEX] = ALL(2)}},
	/* With an event index, nothing but completions marks the page of the used index. */
	[FAMILY_AIMED] = {.name = "shadow/aimed",
			  .mode = "shadow",
			  .known_by = BIT(AXIS_RING),
			  .values = {[AXIS_RING] = BIT(RING_INDEX) | BIT(RING_EVENT),
				     [AXIS_EVENT_IDX] = BIT(EVENT_IDX_ON)}},
};

const char *check_family_name(enum check_family family)
{
	return families[family].name;
}

const char *check_family_mode(enum check_family family)
{
	return families[family].mode;
}

static unsigned int values(const struct check_device *device, enum check_family family,
			   enum check_axis_id axis)
{
	unsigned int v = axis == AXIS_REQUEST ? device->family_requests[family]
					      : families[family].values[axis];

	if (device->axis_values[axis])
		v &= device->axis_values[axis];
	return v ? v : BIT(0);
}

bool check_family_varies(const struct check_device *device, enum check_family family,
			 enum check_axis_id axis)
{
	unsigned int v = values(device, family, axis);

	return v & (v - 1);
}

bool check_family_has(const struct check_device *device, enum check_family family,
		      enum check_axis_id axis, unsigned int value)
{
	return values(device, family, axis) >> value & 1;
}

unsigned int check_family_usual(const struct check_device *device, enum check_family family,
				enum check_axis_id axis)
{
	return __builtin_ctz(values(device, family, axis));
}

const char *check_axis_name(enum check_axis_id axis)
{
	return table[axis].name;
}

unsigned int check_axis_values(const struct check_device *device, enum check_axis_id axis)
{
	return axis == AXIS_REQUEST ? device->nrequests : table[axis].n;
}

const char *check_axis_value_name(const struct check_device *device, enum check_axis_id axis,
				  unsigned int value)
{
	if (axis == AXIS_REQUEST)
		return device->requests[value];
	return axis == AXIS_SIZE && device->sizes ? device->sizes[value]
						  : table[axis].values[value];
}

unsigned int check_scenario_sets(const struct check_scenario *s)
{
	return 1u << s->value[AXIS_QUEUES];
}

unsigned int check_scenario_queues(const struct check_scenario *s)
{
	return check_scenario_sets(s) * s->device->nroles;
}

unsigned int check_scenario_qsize(const struct check_scenario *s)
{
	static const unsigned int sizes[] = {
		[QSIZE_2] = 2, [QSIZE_8] = 8, [QSIZE_64] = 64, [QSIZE_512] = 512, [QSIZE_13] = 13,
	};

	return sizes[s->value[AXIS_QSIZE]];
}

unsigned int check_scenario_descs(const struct check_scenario *s)
{
	return s->device->descs(s);
}

unsigned int check_scenario_room(const struct check_scenario *s)
{
	return check_scenario_qsize(s) / check_scenario_descs(s);
}

static bool slots_valid(const uint8_t *v)
{
	/* What is added while logging is the high region, so something must use it. */
	return v[AXIS_SLOTS] == SLOTS_STATIC || v[AXIS_POSITION] == POSITION_REGIONS ||
	       v[AXIS_POSITION] == POSITION_HIGH;
}

bool check_scenario_ring_valid(const struct check_scenario *s)
{
	const uint8_t *v = s->value;

	/* 512 descriptors alone fill two pages. */
	if (v[AXIS_RING] == RING_COMPACT && v[AXIS_QSIZE] == QSIZE_512)
		return false;
	/* Only a packed ring has any size, and two parts that the device writes. */
	if (v[AXIS_FORMAT] == FORMAT_SPLIT &&
	    (v[AXIS_QSIZE] == QSIZE_13 || v[AXIS_RING_LOG] == RING_LOG_DESCS))
		return false;
	/* And one address cannot move both. */
	if (v[AXIS_FORMAT] == FORMAT_PACKED && v[AXIS_RING_LOG] == RING_LOG_ELSEWHERE)
		return false;
	/* Without EVENT_IDX nobody writes the event field. */
	return v[AXIS_RING] != RING_EVENT || v[AXIS_EVENT_IDX] == EVENT_IDX_ON;
}

static bool named(const struct check_scenario *s, unsigned int axis)
{
	return check_family_varies(s->device, s->family, axis) &&
	       (families[s->family].known_by >> axis & 1 ||
		s->value[axis] != check_family_usual(s->device, s->family, axis));
}

void check_scenario_set_name(struct check_scenario *s)
{
	size_t used = snprintf(s->name, sizeof(s->name), "%s", check_family_name(s->family));
	unsigned int axis;

	for (axis = 0; axis < AXES && used < sizeof(s->name); axis++)
		if (named(s, axis))
			used += snprintf(s->name + used, sizeof(s->name) - used, "/%s%s",
					 table[axis].prefix,
					 check_axis_value_name(s->device, axis, s->value[axis]));
}

/* Only buffers that are large enough to be in flight for a while. */
static bool descs_valid(const uint8_t *v)
{
	return v[AXIS_DESCS] == DESCS_KEPT ||
	       (v[AXIS_REPLACE] == REPLACE_NONE && v[AXIS_SHAPE] != SHAPE_JOINED &&
		v[AXIS_POSITION] != POSITION_INSIDE);
}

/* That logging comes on while nothing is in flight is what all scenarios do. */
static bool steps_valid(const uint8_t *v)
{
	if (v[AXIS_STEPS] == STEPS_ON)
		return v[AXIS_REPLACE] == REPLACE_DURING;
	/* What was in flight when a connection ended is not known to the next. */
	return v[AXIS_STEPS] != STEPS_RECONNECT || v[AXIS_REPLACE] == REPLACE_NONE;
}

/* Rings are moved where logs are replaced. */
static bool iommu_valid(const uint8_t *v)
{
	return v[AXIS_IOMMU] != IOMMU_MOVED || v[AXIS_REPLACE] != REPLACE_NONE;
}

bool check_scenario_valid(const struct check_scenario *s)
{
	return iommu_valid(s->value) && steps_valid(s->value) && descs_valid(s->value) &&
	       s->device->valid(s) && slots_valid(s->value) && check_scenario_ring_valid(s) &&
	       check_scenario_descs(s) <= check_scenario_qsize(s);
}
