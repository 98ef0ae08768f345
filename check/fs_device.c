/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/fuse.h>
#include <stddef.h>
#include <stdlib.h>

#include "check/applies.h"
#include "check/compare.h"
#include "check/fs.h"
#include "check/layout.h"

#define BIT(n)	  (1u << (n))
#define ALL(n)	  (BIT(n) - 1)
#define COUNT(of) (sizeof(of) / sizeof((of)[0]))

static const char *const requests[] = {
	[FS_REQUEST_READ] = "read",	  [FS_REQUEST_GETATTR] = "getattr",
	[FS_REQUEST_LOOKUP] = "lookup",	  [FS_REQUEST_STATFS] = "statfs",
	[FS_REQUEST_READDIR] = "readdir", [FS_REQUEST_ERROR] = "error",
	[FS_REQUEST_MIXED] = "mixed",
};

/* High priority, where only what is to be forgotten goes, and requests. */
static const enum check_role roles[] = {ROLE_REQUESTS, ROLE_REQUESTS};

static const struct check_choice snapshots[][CHECK_CHOICES] = {
	{{AXIS_REQUEST, FS_REQUEST_ERROR}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, FS_REQUEST_LOOKUP}, {AXIS_POSITION, POSITION_STRADDLE}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, FS_REQUEST_READDIR}, {AXIS_POSITION, POSITION_STRADDLE}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, FS_REQUEST_STATFS}, {AXIS_SHAPE, SHAPE_INDIRECT}, CHECK_CHOICES_END},
};

static unsigned int descs(const struct check_scenario *s)
{
	return check_layout_descs(s, 1);
}

static bool valid(const struct check_scenario *s)
{
	return s->value[AXIS_DESCS] == DESCS_KEPT || s->value[AXIS_REQUEST] == FS_REQUEST_READ;
}

static const char *lacks(const struct check_applies *a, const struct check_scenario *s)
{
	(void)a;
	(void)s;
	return NULL;
}

static unsigned int share(struct check_builder *b, unsigned int queue)
{
	(void)b;
	return queue % COUNT(roles);
}

static const char *part_name(const struct check_request *r, enum check_place_kind kind)
{
	static const char *const names[] = {
		[FS_INIT] = "init reply",	[FS_OPENDIR] = "opendir reply",
		[FS_READDIR] = "readdir reply", [FS_LOOKUP] = "lookup reply",
		[FS_ABSENT] = "error reply",	[FS_OPEN] = "open reply",
		[FS_READ] = "read reply",	[FS_GETATTR] = "getattr reply",
		[FS_STATFS] = "statfs reply",
	};

	(void)kind;
	return names[r->kind];
}

static const char *consequence(const struct check_hit *hit)
{
	if (hit->kind == PLACE_DATA && hit->first < sizeof(struct fuse_out_header))
		return "the migrated guest finds an old reply header: a request fails that "
		       "succeeded, or its file system stops";
	return NULL;
}

static void begin(struct check_builder *b, uint64_t features)
{
	(void)b;
	(void)features;
}

static void describe(const void *state, struct check_backend_info *info)
{
	(void)state;
	info->queues = COUNT(roles);
}

static void close_fs(void *state)
{
	struct check_fs *fs = state;

	free(fs->known);
	fs->known = NULL;
}

const struct check_device check_device_fs = {
	.name = "fs",
	.roles = roles,
	.nroles = COUNT(roles),
	.axis_values = {[AXIS_QUEUES] = BIT(QUEUES_1),
			[AXIS_STATUS] = BIT(STATUS_BESIDE),
			[AXIS_BUFFERS] = BIT(BUFFERS_WHOLE),
			[AXIS_SHAPE] = ALL(SHAPE_JOINED)},
	.requests = requests,
	.nrequests = COUNT(requests),
	.nharmless = COUNT(requests),
	.family_requests =
		{
			[FAMILY_SNAPSHOT] = ALL(COUNT(requests)),
			[FAMILY_MIGRATION] = BIT(FS_REQUEST_READ) | BIT(FS_REQUEST_MIXED),
			[FAMILY_SHADOW] = BIT(FS_REQUEST_READ),
		},
	.worth = {[FAMILY_SNAPSHOT] = {snapshots, COUNT(snapshots)}},
	.state_size = sizeof(struct check_fs),
	.request_size = sizeof(struct check_fs_request),
	.probe = check_fs_probe,
	.close = close_fs,
	.describe = describe,
	.lacks = lacks,
	.valid = valid,
	.descs = descs,
	.share = share,
	.begin = begin,
	.open = check_fs_open,
	.build = check_fs_build,
	.build_lasting = check_fs_build_lasting,
	.renew = check_fs_renew,
	.verify = check_fs_verify,
	.part_name = part_name,
	.consequence = consequence,
};
