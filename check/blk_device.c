/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <unistd.h>

#include "check/applies.h"
#include "check/blk.h"
#include "check/compare.h"
#include "check/layout.h"

#define BIT(n) (1u << (n))
#define ALL(n) (BIT(n) - 1)

static const char *const requests[] = {
	[REQUEST_READ] = "read",
	[REQUEST_GET_ID] = "get-id",
	[REQUEST_FLUSH] = "flush",
	[REQUEST_BEYOND] = "beyond",
	[REQUEST_MIXED] = "mixed",
	[REQUEST_WRITE] = "write",
	[REQUEST_DISCARD] = "discard",
	[REQUEST_WRITE_ZEROES] = "write-zeroes",
	[REQUEST_UNSUPPORTED] = "unsupported",
};

static const enum check_role roles[] = {ROLE_REQUESTS};

#define NREQUESTS (sizeof(requests) / sizeof(requests[0]))

/* ---- Which scenarios ------------------------------------------------------------------------- */

static const struct check_choice snapshots[][CHECK_CHOICES] = {
	{{AXIS_REQUEST, REQUEST_GET_ID}, {AXIS_STATUS, STATUS_ALONE}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, REQUEST_BEYOND}, {AXIS_STATUS, STATUS_ALONE}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, REQUEST_UNSUPPORTED}, {AXIS_STATUS, STATUS_ALONE}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, REQUEST_FLUSH}, {AXIS_POSITION, POSITION_LAST}, CHECK_CHOICES_END},
};

static const struct check_choice shadows[][CHECK_CHOICES] = {
	{{AXIS_LOGGING, LOGGING_TOGGLE},
	 {AXIS_STOP, STOP_RESUMED},
	 {AXIS_SIZE, SIZE_VARIED},
	 {AXIS_REQUEST, REQUEST_MIXED},
	 CHECK_CHOICES_END},
};

static unsigned int descs(const struct check_scenario *s)
{
	return check_layout_descs(s, 2);
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

static bool valid(const struct check_scenario *s)
{
	/* The guest changes its mind about buffers that the device writes. */
	if (s->value[AXIS_DESCS] != DESCS_KEPT && s->value[AXIS_REQUEST] != REQUEST_READ)
		return false;
	return shape_valid(s->value);
}

static const char *request_lacks(const struct check_applies *a, unsigned int request)
{
	bool changes_disk = request == REQUEST_WRITE || request == REQUEST_DISCARD ||
			    request == REQUEST_WRITE_ZEROES;

	if ((changes_disk || request == REQUEST_UNSUPPORTED) && !a->may_change)
		return "only reads, get-id and flush are sent to a disk that may hold something, "
		       "see --allow-writes";
	if (changes_disk && check_applies_offers(a, VIRTIO_BLK_F_RO))
		return "the disk is read-only";
	if (request == REQUEST_FLUSH && !check_applies_offers(a, VIRTIO_BLK_F_FLUSH))
		return "the backend does not offer VIRTIO_BLK_F_FLUSH";
	if (request == REQUEST_DISCARD && !check_applies_offers(a, VIRTIO_BLK_F_DISCARD))
		return "the backend does not offer VIRTIO_BLK_F_DISCARD";
	if (request == REQUEST_WRITE_ZEROES && !check_applies_offers(a, VIRTIO_BLK_F_WRITE_ZEROES))
		return "the backend does not offer VIRTIO_BLK_F_WRITE_ZEROES";
	return NULL;
}

static const char *segments_lack(const struct check_applies *a, const uint8_t *v)
{
	const struct check_blk_disk *disk = a->state;
	unsigned int need = v[AXIS_POSITION] == POSITION_REGIONS ? 2 : 1;

	if (v[AXIS_SHAPE] == SHAPE_SPLIT || v[AXIS_SHAPE] == SHAPE_MANY)
		need *= 2;
	if (need > disk->max_segs)
		return "the backend takes fewer data segments in a request (seg_max)";
	return NULL;
}

static const char *blk_lacks(const struct check_applies *a, const struct check_scenario *s)
{
	const struct check_blk_disk *disk = a->state;
	const char *why = NULL;

	if (s->family == FAMILY_SHADOW && !disk->varies)
		why = "most of the disk holds the same, so that reads would not change memory";
	if (!why)
		why = request_lacks(a, s->value[AXIS_REQUEST]);
	return why ? why : segments_lack(a, s->value);
}

/* ---- Words ----------------------------------------------------------------------------------- */

static const char *data_name(enum check_blk_kind kind)
{
	static const char *const names[] = {
		[BLK_READ] = "read data",
		[BLK_GET_ID] = "get-id data",
		[BLK_FLUSH] = "flush data",
		[BLK_BEYOND] = "failed read's data",
		[BLK_WRITE] = "write data",
		[BLK_DISCARD] = "discard segment",
		[BLK_WRITE_ZEROES] = "write-zeroes segment",
		[BLK_UNSUPPORTED] = "unsupported request's data",
	};

	return names[kind];
}

static const char *status_name(enum check_blk_kind kind)
{
	static const char *const names[] = {
		[BLK_READ] = "status of read",
		[BLK_GET_ID] = "status of get-id",
		[BLK_FLUSH] = "status of flush",
		[BLK_BEYOND] = "status of failed read",
		[BLK_WRITE] = "status of write",
		[BLK_DISCARD] = "status of discard",
		[BLK_WRITE_ZEROES] = "status of write-zeroes",
		[BLK_UNSUPPORTED] = "status of unsupported request",
	};

	return names[kind];
}

static const char *part_name(const struct check_request *r, enum check_place_kind kind)
{
	return kind == PLACE_STATUS ? status_name(r->kind) : data_name(r->kind);
}

static const char *consequence(const struct check_hit *h)
{
	if (h->kind == PLACE_DATA && check_blk_fails(h->request->kind))
		return "the migrated guest finds old bytes where the source has new ones, in a "
		       "buffer whose request failed";
	return NULL;
}

static void describe(const void *state, struct check_backend_info *info)
{
	const struct check_blk_disk *disk = state;

	info->capacity = disk->capacity;
	info->read_only = disk->read_only;
}

/* ---- A scenario ------------------------------------------------------------------------------ */

static void begin(struct check_builder *b, uint64_t features)
{
	struct check_blk_disk *disk = b->state;

	disk->next_write = disk->next_zero = 0;
	disk->may_flush = features >> VIRTIO_BLK_F_FLUSH & 1;
	b->max_segs = disk->max_segs;
}

/* What is cached is read at once. */
static void slow_down(const void *state)
{
	const struct check_blk_disk *disk = state;

	if (disk->image >= 0 && !fdatasync(disk->image))
		posix_fadvise(disk->image, 0, 0, POSIX_FADV_DONTNEED);
}

static void close_disk(void *state)
{
	struct check_blk_disk *disk = state;

	free(disk->known);
	disk->known = NULL;
}

const struct check_device check_device_block = {
	.name = "block",
	.features = UINT64_C(1) << VIRTIO_BLK_F_SEG_MAX | UINT64_C(1) << VIRTIO_BLK_F_RO |
		    UINT64_C(1) << VIRTIO_BLK_F_BLK_SIZE | UINT64_C(1) << VIRTIO_BLK_F_FLUSH |
		    UINT64_C(1) << VIRTIO_BLK_F_MQ | UINT64_C(1) << VIRTIO_BLK_F_DISCARD |
		    UINT64_C(1) << VIRTIO_BLK_F_WRITE_ZEROES,
	.roles = roles,
	.nroles = sizeof(roles) / sizeof(roles[0]),
	.axis_values = {[AXIS_BUFFERS] = BIT(BUFFERS_WHOLE)},
	.requests = requests,
	.nrequests = NREQUESTS,
	.nharmless = REQUEST_WRITE,
	.family_requests =
		{
			[FAMILY_SNAPSHOT] = ALL(NREQUESTS),
			[FAMILY_MIGRATION] = BIT(REQUEST_READ) | BIT(REQUEST_MIXED),
			[FAMILY_SHADOW] = BIT(REQUEST_READ) | BIT(REQUEST_MIXED),
			[FAMILY_RESTART] =
				BIT(REQUEST_READ) | BIT(REQUEST_MIXED) | BIT(REQUEST_WRITE),
			[FAMILY_IOMMU] =
				BIT(REQUEST_READ) | BIT(REQUEST_MIXED) | BIT(REQUEST_WRITE),
			[FAMILY_AIMED] = BIT(REQUEST_READ),
		},
	.worth =
		{
			[FAMILY_SNAPSHOT] = {snapshots, sizeof(snapshots) / sizeof(snapshots[0])},
			[FAMILY_SHADOW] = {shadows, sizeof(shadows) / sizeof(shadows[0])},
		},
	.state_size = sizeof(struct check_blk_disk),
	.request_size = sizeof(struct check_blk_request),
	.probe = check_blk_probe,
	.close = close_disk,
	.describe = describe,
	.lacks = blk_lacks,
	.valid = valid,
	.descs = descs,
	.begin = begin,
	.build = check_blk_build,
	.build_lasting = check_blk_build_lasting,
	.renew = check_blk_renew,
	.verify = check_blk_verify,
	.part_name = part_name,
	.consequence = consequence,
	.slow_down = slow_down,
};
