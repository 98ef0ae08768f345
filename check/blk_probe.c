/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <errno.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/applies.h"
#include "check/blk.h"
#include "check/layout.h"
#include "check/probe.h"

#define KIB		UINT64_C(1024)
#define MIB		(KIB * KIB)
#define SMALLEST_DISK	(256 * KIB)
#define READ_LEN	65536
#define FEATURE(f, bit) ((f) >> (bit)&1)

/* ---- Configuration --------------------------------------------------------------------------- */

uint32_t check_blk_config_len(uint64_t features)
{
	if (FEATURE(features, VIRTIO_BLK_F_DISCARD) || FEATURE(features, VIRTIO_BLK_F_WRITE_ZEROES))
		return offsetof(struct virtio_blk_config, max_secure_erase_sectors);
	return offsetof(struct virtio_blk_config, max_discard_sectors);
}

static uint64_t round_down(uint64_t value, uint64_t to)
{
	return value / to * to;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A quarter for reads, then one for writes, the last one for what leaves zeroes or nothing. */
static void divide(struct check_blk_disk *d)
{
	uint64_t quarter = round_down(least(d->capacity / 4, 4 * MIB), 4 * KIB);

	d->reads = (struct check_blk_zone){0, quarter};
	d->writes = (struct check_blk_zone){quarter, quarter};
	d->zeroes = (struct check_blk_zone){2 * quarter, 2 * quarter};
}

int check_blk_disk_init(struct check_blk_disk *d, const void *config, size_t len, uint64_t features)
{
	struct virtio_blk_config c = {0};

	memcpy(&c, config, least(len, sizeof(c)));
	d->capacity = least(le64toh(c.capacity), UINT64_MAX / BLK_SECTOR) * BLK_SECTOR;
	d->block = FEATURE(features, VIRTIO_BLK_F_BLK_SIZE) ? le32toh(c.blk_size) : BLK_SECTOR;
	d->max_segs = FEATURE(features, VIRTIO_BLK_F_SEG_MAX) ? le32toh(c.seg_max) : 1;
	d->discard_sectors = le32toh(c.max_discard_sectors);
	d->discard_alignment = le32toh(c.discard_sector_alignment);
	d->zero_sectors = le32toh(c.max_write_zeroes_sectors);
	d->zero_may_unmap = c.write_zeroes_may_unmap;
	if (d->block < BLK_SECTOR || d->block > 4 * KIB || d->block & (d->block - 1))
		return silt_err(EINVAL, "the backend's block size is %u, not 512 to 4096",
				d->block);
	if (d->capacity < SMALLEST_DISK)
		return silt_err(EINVAL, "the disk has %lu bytes, the check needs at least %lu",
				d->capacity, SMALLEST_DISK);
	divide(d);
	return 0;
}

/* ---- Contents -------------------------------------------------------------------------------- */

/* A disk that does not suit the check is no error: then nothing applies. */
static int get_config(struct check_session *s, struct check_blk_disk *disk, struct check_applies *a)
{
	static char unfit[256];
	struct virtio_blk_config config = {0};
	uint32_t len;
	int ret;

	if (!(s->protocol & SILT_VHOST_PROTOCOL_F_CONFIG)) {
		a->unfit = "the backend does not offer CONFIG: the size of its disk is unknown";
		return 0;
	}
	len = check_blk_config_len(s->offered);
	ret = check_transport_call(s->transport, get_config, 0, &config, len);
	if (ret < 0)
		return check_session_failed(s, ret, "GET_CONFIG");
	if (check_blk_disk_init(disk, &config, len, s->offered) < 0) {
		strncpy(unfit, silt_errmsg(), sizeof(unfit) - 1);
		a->unfit = unfit;
	}
	return 0;
}

static int read_image(struct check_blk_disk *disk)
{
	ssize_t n;

	disk->known = malloc(disk->reads.len);
	if (!disk->known)
		return silt_err_sys(ENOMEM, "cannot hold what is on the disk");
	n = pread(disk->image, disk->known, disk->reads.len, disk->reads.start);
	if (n < 0)
		return silt_err_sys(errno, "cannot read the image");
	if (n == (ssize_t)disk->reads.len)
		return 0;
	return silt_err(EIO,
			"the image ends at byte %zd, but the backend says that its disk has %lu", n,
			disk->capacity);
}

static uint64_t copy_read(const struct check_guest *g, const struct check_request *r, uint8_t *to)
{
	check_layout_load(g, r, to);
	return r->len;
}

static int read_once(struct check_session *s, struct check_builder *b, uint64_t at, uint32_t len,
		     struct check_blk_request *r)
{
	int ret;

	if (check_blk_build_read(b, at / BLK_SECTOR, len, r) < 0)
		return check_session_error(s, "%s", silt_errmsg());
	ret = check_session_add(s, &r->base);
	check_session_kick(s);
	if (ret == 0)
		ret = check_session_wait(s);
	if (ret == 0 && *(uint8_t *)check_guest_mem(b->guest, r->base.status.gpa))
		ret = check_session_error(s, "%s failed", r->base.text);
	return ret;
}

static int read_zone(struct check_session *s, struct check_builder *b, uint8_t *to)
{
	const struct check_blk_zone *zone = &((struct check_blk_disk *)b->state)->reads;
	struct check_blk_request r;
	uint64_t at;
	int ret = 0;

	for (at = 0; at < zone->len && !ret; at += copy_read(b->guest, &r.base, to + at))
		ret = read_once(s, b, zone->start + at, least(zone->len - at, READ_LEN), &r);
	return ret;
}

/*
 * Read a disk that is not ours, with logging off. If that does not work it stays unknown, and the
 * scenarios show what is wrong.
 */
static void learn_disk(const struct check_scenario_env *env, struct check_session *s)
{
	struct check_blk_disk *disk = check_blk_disk_of(env);
	uint8_t *known = malloc(disk->reads.len);
	struct check_scenario usual;
	struct check_builder builder;
	int ret = known ? check_probe_start(env, s, &usual, &builder) : -ENOMEM;

	if (ret == 0)
		ret = read_zone(s, &builder, known);
	if (ret == 0)
		ret = check_session_stop(s);
	if (ret == 0)
		disk->known = known;
	else
		free(known);
}

static bool varies(const struct check_blk_disk *d)
{
	uint64_t at, same = 0;

	if (!d->known)
		return true;
	for (at = d->block; at + d->block <= d->reads.len; at += d->block)
		same += !memcmp(d->known + at, d->known + at - d->block, d->block);
	return same * 2 < d->reads.len / d->block;
}

int check_blk_probe(const struct check_scenario_env *env, struct check_session *s,
		    struct check_applies *a)
{
	struct check_blk_disk *disk = check_blk_disk_of(env);
	int ret;

	disk->image = env->target->image;
	disk->read_only = FEATURE(s->offered, VIRTIO_BLK_F_RO);
	disk->may_write = a->may_change && !disk->read_only;
	ret = get_config(s, disk, a);
	if (ret < 0 || a->unfit)
		return ret;
	if (check_target_has_image(env->target))
		ret = read_image(disk) < 0 ? check_session_error(s, "%s", silt_errmsg()) : 0;
	else
		learn_disk(env, s);
	disk->varies = varies(disk);
	return ret;
}
