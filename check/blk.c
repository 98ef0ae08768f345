/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <errno.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "check/blk.h"
#include "check/blk_layout.h"

#define KIB		UINT64_C(1024)
#define MIB		(KIB * KIB)
#define SMALLEST_DISK	(256 * KIB)
#define NOT_A_TYPE	0x1234
#define ANSWER_POISON	0xff
#define LARGE_LEN	(64 * KIB)
#define STRADDLING_LEN	(8 * KIB)
#define FEATURE(f, bit) ((f) >> (bit)&1)

uint64_t check_blk_features(void)
{
	return UINT64_C(1) << VIRTIO_BLK_F_SEG_MAX | UINT64_C(1) << VIRTIO_BLK_F_RO |
	       UINT64_C(1) << VIRTIO_BLK_F_BLK_SIZE | UINT64_C(1) << VIRTIO_BLK_F_FLUSH |
	       UINT64_C(1) << VIRTIO_BLK_F_MQ | UINT64_C(1) << VIRTIO_BLK_F_DISCARD |
	       UINT64_C(1) << VIRTIO_BLK_F_WRITE_ZEROES;
}

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

bool check_blk_disk_varies(const struct check_blk_disk *d)
{
	uint64_t at, same = 0;

	if (!d->known)
		return true;
	for (at = d->block; at + d->block <= d->reads.len; at += d->block)
		same += !memcmp(d->known + at, d->known + at - d->block, d->block);
	return same * 2 < d->reads.len / d->block;
}

bool check_blk_device_writes(enum check_blk_kind kind)
{
	return kind == BLK_READ || kind == BLK_GET_ID || kind == BLK_BEYOND ||
	       kind == BLK_UNSUPPORTED;
}

bool check_blk_fails(enum check_blk_kind kind)
{
	return kind == BLK_BEYOND || kind == BLK_UNSUPPORTED;
}

const char *check_blk_data_name(const struct check_blk_request *r)
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

	return names[r->kind];
}

/* ---- What is asked --------------------------------------------------------------------------- */

static enum check_blk_kind mixed_kind(const struct check_blk_builder *b, unsigned int n)
{
	static const enum check_blk_kind reads[] = {BLK_READ, BLK_GET_ID, BLK_BEYOND, BLK_FLUSH};
	static const enum check_blk_kind all[] = {BLK_READ,  BLK_WRITE,	      BLK_GET_ID,
						  BLK_FLUSH, BLK_UNSUPPORTED, BLK_BEYOND};

	enum check_blk_kind kind = b->may_write ? all[n % 6] : reads[n % 4];

	return kind == BLK_FLUSH && !b->may_flush ? BLK_READ : kind;
}

static enum check_blk_kind choose_kind(const struct check_blk_builder *b, unsigned int n)
{
	static const enum check_blk_kind kinds[] = {
		[REQUEST_READ] = BLK_READ,
		[REQUEST_GET_ID] = BLK_GET_ID,
		[REQUEST_FLUSH] = BLK_FLUSH,
		[REQUEST_BEYOND] = BLK_BEYOND,
		[REQUEST_WRITE] = BLK_WRITE,
		[REQUEST_DISCARD] = BLK_DISCARD,
		[REQUEST_WRITE_ZEROES] = BLK_WRITE_ZEROES,
		[REQUEST_UNSUPPORTED] = BLK_UNSUPPORTED,
	};
	unsigned int request = b->scenario->value[AXIS_REQUEST];

	return request == REQUEST_MIXED ? mixed_kind(b, n) : kinds[request];
}

static uint32_t data_len(const struct check_blk_builder *b, enum check_blk_kind kind)
{
	switch (kind) {
	case BLK_GET_ID:
		return VIRTIO_BLK_ID_BYTES;
	case BLK_FLUSH:
		return 0;
	case BLK_DISCARD:
	case BLK_WRITE_ZEROES:
		return sizeof(struct virtio_blk_discard_write_zeroes);
	default:
		if (b->scenario->value[AXIS_POSITION] == POSITION_INSIDE)
			return b->disk->block;
		return b->large ? LARGE_LEN : STRADDLING_LEN;
	}
}

/* The next @len bytes of a zone, from its beginning again when it is used up. */
static uint64_t next_sector(const struct check_blk_zone *zone, uint64_t *next, uint64_t len,
			    uint64_t align)
{
	uint64_t at = (*next + align - 1) / align * align;

	if (at + len > zone->len)
		at = 0;
	*next = at + len;
	return (zone->start + at) / BLK_SECTOR;
}

static uint32_t affected_sectors(const struct check_blk_disk *d, enum check_blk_kind kind)
{
	uint32_t most = kind == BLK_DISCARD ? d->discard_sectors : d->zero_sectors;
	uint32_t align = d->block / BLK_SECTOR;

	if (kind == BLK_DISCARD && d->discard_alignment > align)
		align = d->discard_alignment;
	return align > 8 || most < 8 ? align : 8;
}

static void choose_sector(struct check_blk_builder *b, struct check_blk_request *r)
{
	const struct check_blk_disk *d = b->disk;

	switch (r->kind) {
	case BLK_READ:
		r->sector = round_down(check_random_below(&b->random, d->reads.len - r->len + 1),
				       d->block) /
			    BLK_SECTOR;
		break;
	case BLK_BEYOND:
		r->sector = (d->capacity - (r->len > d->block ? d->block : 0)) / BLK_SECTOR;
		break;
	case BLK_WRITE:
		r->sector = next_sector(&d->writes, &b->next_write, r->len, d->block);
		break;
	case BLK_DISCARD:
	case BLK_WRITE_ZEROES:
		r->affected = affected_sectors(d, r->kind);
		r->sector = next_sector(&d->zeroes, &b->next_zero, r->affected * BLK_SECTOR,
					r->affected * BLK_SECTOR);
		break;
	default:
		r->sector = 0;
	}
}

static void name_request(struct check_blk_request *r)
{
	static const char *const names[] = {
		[BLK_READ] = "read",
		[BLK_GET_ID] = "get-id",
		[BLK_FLUSH] = "flush",
		[BLK_BEYOND] = "read beyond the end,",
		[BLK_WRITE] = "write",
		[BLK_DISCARD] = "discard",
		[BLK_WRITE_ZEROES] = "write-zeroes",
		[BLK_UNSUPPORTED] = "unsupported request",
	};
	const char *name = names[r->kind];

	if (r->affected)
		snprintf(r->text, sizeof(r->text), "#%u %s sector %lu, %u sectors", r->id, name,
			 r->sector, r->affected);
	else if (r->kind == BLK_READ || r->kind == BLK_WRITE || r->kind == BLK_BEYOND)
		snprintf(r->text, sizeof(r->text), "#%u %s sector %lu, %u bytes", r->id, name,
			 r->sector, r->len);
	else
		snprintf(r->text, sizeof(r->text), "#%u %s", r->id, name);
}

/* ---- What memory holds before ---------------------------------------------------------------- */

static uint32_t type_of(enum check_blk_kind kind)
{
	static const uint32_t types[] = {
		[BLK_READ] = VIRTIO_BLK_T_IN,	  [BLK_GET_ID] = VIRTIO_BLK_T_GET_ID,
		[BLK_FLUSH] = VIRTIO_BLK_T_FLUSH, [BLK_BEYOND] = VIRTIO_BLK_T_IN,
		[BLK_WRITE] = VIRTIO_BLK_T_OUT,	  [BLK_DISCARD] = VIRTIO_BLK_T_DISCARD,
		[BLK_UNSUPPORTED] = NOT_A_TYPE,	  [BLK_WRITE_ZEROES] = VIRTIO_BLK_T_WRITE_ZEROES,
	};

	return types[kind];
}

/* Copy to or from the pieces of a request's buffer. */
static void copy_data(const struct check_guest *g, const struct check_blk_request *r, uint8_t *buf,
		      bool store)
{
	const struct check_blk_piece *p;

	for (p = r->piece; p < r->piece + r->npieces; buf += p->len, p++) {
		if (store)
			memcpy(check_guest_mem(g, p->gpa), buf, p->len);
		else
			memcpy(buf, check_guest_mem(g, p->gpa), p->len);
	}
}

/* The byte-wise complement of what the disk holds, so that each byte that is read changes. */
static void poison_read(const struct check_blk_builder *b, const struct check_blk_request *r)
{
	const uint8_t *known = b->disk->known + r->sector * BLK_SECTOR - b->disk->reads.start;
	uint8_t buf[LARGE_LEN];
	uint32_t i;

	for (i = 0; i < r->len; i++)
		buf[i] = ~known[i];
	copy_data(b->guest, r, buf, true);
}

/* Serials are ASCII, or zero bytes. */
static void poison_id(struct check_blk_builder *b, const struct check_blk_request *r)
{
	uint8_t buf[VIRTIO_BLK_ID_BYTES];
	uint32_t i;

	for (i = 0; i < r->len; i++)
		buf[i] = 0x80 | check_random_next(&b->random);
	copy_data(b->guest, r, buf, true);
}

static void store_range(struct check_blk_builder *b, const struct check_blk_request *r)
{
	bool unmap = r->kind == BLK_WRITE_ZEROES && b->disk->zero_may_unmap;
	struct virtio_blk_discard_write_zeroes range = {
		.sector = htole64(r->sector),
		.num_sectors = htole32(r->affected),
		.flags = htole32(unmap ? check_random_below(&b->random, 2) : 0),
	};

	copy_data(b->guest, r, (uint8_t *)&range, true);
}

/* What write-zeroes is to zero is not zero now. */
static int fill_image(struct check_blk_builder *b, const struct check_blk_request *r)
{
	uint8_t buf[LARGE_LEN];
	uint64_t len = least((uint64_t)r->affected * BLK_SECTOR, sizeof(buf));

	if (b->disk->image < 0)
		return 0;
	check_random_fill(&b->random, buf, len);
	if (pwrite(b->disk->image, buf, len, r->sector * BLK_SECTOR) != (ssize_t)len)
		return silt_err_sys(errno, "cannot fill sector %lu of the image", r->sector);
	return 0;
}

static struct virtio_blk_outhdr header_of(const struct check_blk_request *r)
{
	return (struct virtio_blk_outhdr){
		.type = htole32(type_of(r->kind)),
		.sector = htole64(r->affected ? 0 : r->sector),
	};
}

static int fill_request(struct check_blk_builder *b, const struct check_blk_request *r)
{
	const struct virtio_blk_outhdr header = header_of(r);

	memcpy(check_guest_mem(b->guest, r->header), &header, sizeof(header));
	*(uint8_t *)check_guest_mem(b->guest, r->status) = ANSWER_POISON;
	if (r->kind == BLK_READ && b->disk->known)
		poison_read(b, r);
	else if (r->kind == BLK_GET_ID)
		poison_id(b, r);
	else if (r->affected)
		store_range(b, r);
	return r->kind == BLK_WRITE_ZEROES ? fill_image(b, r) : 0;
}

static int build(struct check_blk_builder *b, struct check_blk_request *r)
{
	int ret;

	name_request(r);
	ret = check_blk_layout(b, r);
	return ret < 0 ? ret : fill_request(b, r);
}

int check_blk_build(struct check_blk_builder *b, unsigned int queue, struct check_blk_request *r)
{
	unsigned int n = b->next_id++;

	*r = (struct check_blk_request){.id = n + 1, .queue = queue, .kind = choose_kind(b, n)};
	r->len = data_len(b, r->kind);
	choose_sector(b, r);
	return build(b, r);
}

int check_blk_build_kind(struct check_blk_builder *b, enum check_blk_kind kind, uint32_t len,
			 unsigned int queue, struct check_blk_request *r)
{
	*r = (struct check_blk_request){.id = ++b->next_id,
					.queue = queue,
					.kind = kind,
					.len = len,
					.overwritten = kind == BLK_WRITE};
	choose_sector(b, r);
	return build(b, r);
}

void check_blk_renew(struct check_blk_builder *b, enum check_blk_kind kind,
		     struct check_blk_request *r)
{
	struct virtio_blk_outhdr header;

	r->id = ++b->next_id;
	r->kind = kind;
	r->done = false;
	choose_sector(b, r);
	name_request(r);
	header = header_of(r);
	check_guest_store(b->guest, r->header, &header, sizeof(header));
}

int check_blk_build_read(struct check_blk_builder *b, uint64_t sector, uint32_t len,
			 struct check_blk_request *r)
{
	*r = (struct check_blk_request){
		.id = ++b->next_id, .kind = BLK_READ, .sector = sector, .len = len};
	return build(b, r);
}

/* ---- What must be answered ------------------------------------------------------------------- */

static bool wrong(char why[BLK_WRONG_LEN], const struct check_blk_request *r, const char *format,
		  ...) __attribute__((format(printf, 3, 4)));

static bool wrong(char why[BLK_WRONG_LEN], const struct check_blk_request *r, const char *format,
		  ...)
{
	int used = snprintf(why, BLK_WRONG_LEN, "wrong answer to %s: ", r->text);
	va_list ap;

	va_start(ap, format);
	vsnprintf(why + used, BLK_WRONG_LEN - used, format, ap);
	va_end(ap);
	return false;
}

static bool verify_used_len(const struct check_blk_request *r, char why[BLK_WRONG_LEN])
{
	uint64_t room = 0;
	unsigned int i;

	for (i = 0; i < r->nsegs; i++)
		room += r->seg[i].device_writes ? r->seg[i].len : 0;
	if (r->used_len <= room)
		return true;
	return wrong(why, r, "used length %u, but its buffers have %lu writable bytes", r->used_len,
		     room);
}

static bool verify_status(const struct check_blk_request *r, uint8_t status,
			  char why[BLK_WRONG_LEN])
{
	bool must_fail = check_blk_fails(r->kind);

	if (status == ANSWER_POISON)
		return wrong(why, r, "no status was written");
	if (status > VIRTIO_BLK_S_UNSUPP)
		return wrong(why, r, "status %u is not one of 0, 1 and 2", status);
	if (must_fail && status == VIRTIO_BLK_S_OK)
		return wrong(why, r, "status 0, though it cannot succeed");
	/* Not every device has a serial. */
	if (!must_fail && status && !(r->kind == BLK_GET_ID && status == VIRTIO_BLK_S_UNSUPP))
		return wrong(why, r, "status %u", status);
	return true;
}

static bool verify_read(const struct check_blk_disk *d, const struct check_guest *g,
			const struct check_blk_request *r, char why[BLK_WRONG_LEN])
{
	const uint8_t *known = d->known + r->sector * BLK_SECTOR - d->reads.start;
	uint8_t buf[LARGE_LEN];
	uint32_t i;

	copy_data(g, r, buf, false);
	if (!memcmp(buf, known, r->len))
		return true;
	for (i = 0; i < r->len; i++)
		if (buf[i] != known[i])
			return wrong(why, r, "byte %u of the data is 0x%02x, the disk has 0x%02x",
				     i, buf[i], known[i]);
	return true;
}

static bool verify_image(const struct check_blk_disk *d, const struct check_guest *g,
			 const struct check_blk_request *r, char why[BLK_WRONG_LEN])
{
	uint8_t buf[LARGE_LEN] = {0}, disk[LARGE_LEN];
	uint64_t len = r->kind == BLK_WRITE ? r->len : (uint64_t)r->affected * BLK_SECTOR;
	uint64_t i;

	len = least(len, sizeof(disk));
	if (r->kind == BLK_WRITE)
		copy_data(g, r, buf, false);
	if (pread(d->image, disk, len, r->sector * BLK_SECTOR) != (ssize_t)len)
		return wrong(why, r, "the image cannot be read there");
	for (i = 0; i < len; i++)
		if (buf[i] != disk[i])
			return wrong(why, r, "byte %lu on the disk is 0x%02x, not 0x%02x", i,
				     disk[i], buf[i]);
	return true;
}

bool check_blk_verify(const struct check_blk_disk *d, const struct check_guest *g,
		      const struct check_blk_request *r, char why[BLK_WRONG_LEN])
{
	uint8_t status = *(const uint8_t *)check_guest_mem(g, r->status);

	if (!verify_used_len(r, why) || !verify_status(r, status, why))
		return false;
	if (r->kind == BLK_READ && d->known && !r->decoy[0])
		return verify_read(d, g, r, why);
	if ((r->kind == BLK_WRITE || r->kind == BLK_WRITE_ZEROES) && !r->overwritten &&
	    d->image >= 0)
		return verify_image(d, g, r, why);
	return true;
}
