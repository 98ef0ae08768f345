/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stddef.h>

#include <silt/precopy.h>

#include "base/err.h"
#include "precopy/sum.h"
#include "precopy/wire.h"

struct frame_kind {
	const char *name;
	uint32_t min, max; /* bytes of payload */
};

#define FIXED(type) sizeof(type), sizeof(type)

static const struct frame_kind kinds[WIRE_TYPES] = {
	[WIRE_HELLO] = {"HELLO", sizeof(struct wire_hello), WIRE_MAX_HELLO},
	[WIRE_PAGES] = {"PAGES", sizeof(struct wire_pages) + sizeof(struct wire_run),
			WIRE_MAX_PAGES_FRAME},
	[WIRE_ROUND] = {"ROUND", FIXED(struct wire_round)},
	[WIRE_STATE] = {"STATE", 1, WIRE_MAX_STATE_FRAME},
	[WIRE_LOAD] = {"LOAD", FIXED(struct wire_load)},
	[WIRE_START] = {"START", 0, 0},
	[WIRE_REFUSE] = {"REFUSE", sizeof(struct wire_refuse),
			 sizeof(struct wire_refuse) + WIRE_MAX_REASON},
	[WIRE_ACCEPT] = {"ACCEPT", 0, 0},
	[WIRE_ACK] = {"ACK", FIXED(struct wire_round)},
	[WIRE_LOADED] = {"LOADED", 0, 0},
	[WIRE_STARTED] = {"STARTED", 0, 0},
};

static bool known(unsigned int type)
{
	return type < WIRE_TYPES && kinds[type].name;
}

const char *precopy_wire_name(unsigned int type)
{
	return known(type) ? kinds[type].name : "?";
}

struct wire_text precopy_wire_text(const void *from, size_t n)
{
	const char *at = from;
	struct wire_text text;
	size_t i;

	if (n > WIRE_MAX_REASON)
		n = WIRE_MAX_REASON;
	for (i = 0; i < n; i++)
		text.bytes[i] = at[i] >= ' ' && at[i] <= '~' ? at[i] : '?';
	text.bytes[n] = '\0';
	return text;
}

uint32_t precopy_wire_max(unsigned int type)
{
	return known(type) ? kinds[type].max : 0;
}

uint32_t precopy_wire_min(unsigned int type)
{
	return known(type) ? kinds[type].min : 0;
}

static uint64_t header_sum(const struct wire_header *h)
{
	return precopy_sum(h, offsetof(struct wire_header, header_sum));
}

void precopy_wire_seal(struct wire_header *h, enum wire_type type, uint64_t sequence,
		       const void *payload, uint32_t length)
{
	*h = (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.length = length,
		.sequence = sequence,
		.payload_sum = precopy_sum(payload, length),
	};
	h->header_sum = header_sum(h);
}

/* What a header with a right checksum says may still be wrong, if the peer is. */
static int check_members(const struct wire_header *h, uint64_t sequence)
{
	if (h->sequence != sequence)
		return silt_err(EPROTO, "frame %" PRIu64 " of the peer comes as number %" PRIu64,
				h->sequence, sequence);
	if (!known(h->type))
		return silt_err(EPROTO, "frame %" PRIu64 " has the unknown type %u", sequence,
				h->type);
	if (h->reserved)
		return silt_err(EPROTO, "frame %" PRIu64 " (%s) has %#x where 0 is reserved",
				sequence, kinds[h->type].name, h->reserved);
	if (h->length < kinds[h->type].min || h->length > kinds[h->type].max)
		return silt_err(EPROTO,
				"frame %" PRIu64 " (%s) has %u bytes of payload, not %u to %u",
				sequence, kinds[h->type].name, h->length, kinds[h->type].min,
				kinds[h->type].max);
	return 0;
}

int precopy_wire_check_header(const struct wire_header *h, uint64_t sequence)
{
	if (h->magic != WIRE_MAGIC)
		return silt_err(EPROTO,
				"frame %" PRIu64 " begins with %#x, not %#x: no pre-copy stream",
				sequence, h->magic, WIRE_MAGIC);
	if (h->version != WIRE_VERSION)
		return silt_err(EPROTO, "the peer speaks version %u of the wire, not %u",
				h->version, WIRE_VERSION);
	if (h->header_sum != header_sum(h))
		return silt_err(EBADMSG, "the header of frame %" PRIu64 " came corrupted",
				sequence);
	return check_members(h, sequence);
}

int precopy_wire_check_payload(const struct wire_header *h, const void *payload)
{
	if (h->payload_sum == precopy_sum(payload, h->length))
		return 0;
	return silt_err(EBADMSG, "frame %" PRIu64 " (%s): its %u bytes came corrupted", h->sequence,
			precopy_wire_name(h->type), h->length);
}
