/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "check/blame.h"

static size_t describe_thing(const struct check_device *device, const struct check_hit *h,
			     char *buf, size_t len)
{
	uint64_t total = h->kind == PLACE_DATA ? h->request->len : h->total;

	switch (h->kind) {
	case PLACE_DATA:
		return snprintf(buf, len, "%s, bytes %lu-%lu of %lu",
				device->part_name(h->request, h->kind), h->first, h->last, total);
	case PLACE_HEADER:
		return snprintf(buf, len, "%s, bytes %lu-%lu of %lu",
				device->part_name(h->request, h->kind), h->first, h->last, total);
	case PLACE_STATUS:
		return snprintf(buf, len, "%s", device->part_name(h->request, h->kind));
	case PLACE_USED_ENTRIES:
		return snprintf(buf, len, "used entry, slots %lu-%lu of %lu", h->first / 8,
				h->last / 8, total / 8);
	case PLACE_USED_INDEX:
		return snprintf(buf, len, "used index");
	case PLACE_USED_FLAGS:
		return snprintf(buf, len, "used ring flags");
	case PLACE_USED_EVENT:
		return snprintf(buf, len, "event field (avail_event)");
	case PLACE_RING_DESCS:
		return snprintf(buf, len, "used descriptor, slots %lu-%lu of %lu", h->first / 16,
				h->last / 16, total / 16);
	case PLACE_DEVICE_AREA:
		return snprintf(buf, len, "device area (event suppression)");
	case PLACE_READABLE:
		return snprintf(buf, len, "buffer that the device may only read, bytes %lu-%lu",
				h->first, h->last);
	case PLACE_TABLE:
		return snprintf(buf, len, "indirect table, bytes %lu-%lu", h->first, h->last);
	case PLACE_DESC:
		return snprintf(buf, len, "descriptor table, bytes %lu-%lu", h->first, h->last);
	case PLACE_AVAIL:
		return snprintf(buf, len, "available ring, bytes %lu-%lu", h->first, h->last);
	case PLACE_NOTHING:
		break;
	}
	return snprintf(buf, len, "memory that no request named, bytes %lu-%lu of the page",
			h->first, h->last);
}

char *check_blame_what(const struct check_device *device, const struct check_hit *h, char *buf,
		       size_t len)
{
	size_t used = describe_thing(device, h, buf, len);

	if (h->log_gpa && used < len)
		used += snprintf(buf + used, len - used, ", logged from 0x%lx on", h->log_gpa);
	if (h->late && used < len)
		snprintf(buf + used, len - used, ", written after GET_VRING_BASE was answered");
	return buf;
}

char *check_blame_request(const struct check_hit *h, char *buf, size_t len)
{
	bool shared = check_place_used_ring(h->kind) && h->kind != PLACE_USED_ENTRIES &&
		      h->kind != PLACE_RING_DESCS;

	if (h->request)
		snprintf(buf, len, "%s%s", shared ? "queue's last: " : "", h->request->text);
	else if (h->kind == PLACE_NOTHING)
		snprintf(buf, len, "none");
	else
		snprintf(buf, len, "queue %u, no request done yet", h->queue);
	return buf;
}

const char *check_blame_consequence(const struct check_device *device, const struct check_hit *h)
{
	static const char *const texts[] = {
		[PLACE_DATA] = "the migrated guest finds old bytes in a buffer whose request "
			       "succeeded: silent corruption",
		[PLACE_HEADER] = "the migrated guest finds an old header, and takes what follows "
				 "for something else",
		[PLACE_STATUS] = "the migrated guest finds an old status byte: a finished request "
				 "looks failed, or a failed one fine",
		[PLACE_USED_ENTRIES] = "the migrated guest takes back a wrong buffer, or one that "
				       "it never gave away",
		[PLACE_USED_INDEX] = "the migrated guest never sees these requests finish: its "
				     "I/O hangs",
		[PLACE_USED_FLAGS] = "the migrated guest may keep back a kick that the device "
				     "waits for, or send kicks that nobody needs",
		[PLACE_USED_EVENT] = "the migrated guest may keep back a kick that the device "
				     "waits for, and a request then waits until the next one",
		[PLACE_RING_DESCS] = "the migrated guest never sees these requests finish: its "
				     "I/O hangs",
		[PLACE_DEVICE_AREA] = "the migrated guest may keep back a kick that the device "
				      "waits for, and a request then waits until the next one",
		[PLACE_READABLE] = "the migrated guest keeps what it wrote itself, the source has "
				   "what the device wrote over it",
		[PLACE_TABLE] = "the migrated guest's indirect table differs from the source's",
		[PLACE_DESC] = "the migrated guest's descriptors differ from the source's",
		[PLACE_AVAIL] = "the migrated guest's available ring differs from the source's",
		[PLACE_NOTHING] = "the device changed memory that was never given to it, and the "
				  "migrated guest's differs from the source's",
	};

	const char *special = h->request ? device->consequence(h) : NULL;

	return special ? special : texts[h->kind];
}
