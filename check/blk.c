/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <errno.h>
#include <linux/virtio_blk.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "check/blk.h"
#include "check/layout.h"

#define NOT_A_TYPE     0x1234
#define ANSWER_POISON  0xff
#define LARGE_LEN      (64u << 10)
#define STRADDLING_LEN (8u << 10)
#define SMALL_TIMES    16 /* of the requests of varied sizes, the small ones are so many to one */

static struct check_blk_request *blk_of(struct check_request *r)
{
	return (struct check_blk_request *)r;
}

static const struct check_blk_request *const_blk_of(const struct check_request *r)
{
	return (const struct check_blk_request *)r;
}

static struct check_blk_disk *disk_of(const struct check_builder *b)
{
	return b->state;
}

static uint64_t round_down(uint64_t value, uint64_t to)
{
	return value / to * to;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool device_writes(enum check_blk_kind kind)
{
	return kind == BLK_READ || kind == BLK_GET_ID || kind == BLK_BEYOND ||
	       kind == BLK_UNSUPPORTED;
}

bool check_blk_fails(enum check_blk_kind kind)
{
	return kind == BLK_BEYOND || kind == BLK_UNSUPPORTED;
}

/* ---- What is asked --------------------------------------------------------------------------- */

static enum check_blk_kind mixed_kind(const struct check_builder *b, unsigned int n)
{
	static const enum check_blk_kind reads[] = {BLK_READ, BLK_GET_ID, BLK_BEYOND, BLK_FLUSH};
	static const enum check_blk_kind all[] = {BLK_READ,  BLK_WRITE,	      BLK_GET_ID,
						  BLK_FLUSH, BLK_UNSUPPORTED, BLK_BEYOND};

	enum check_blk_kind kind = disk_of(b)->may_write ? all[n % 6] : reads[n % 4];

	return kind == BLK_FLUSH && !disk_of(b)->may_flush ? BLK_READ : kind;
}

static enum check_blk_kind choose_kind(const struct check_builder *b, unsigned int n)
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

static uint32_t data_len(const struct check_builder *b, enum check_blk_kind kind)
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
			return disk_of(b)->block;
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

static void choose_sector(struct check_builder *b, struct check_blk_request *r)
{
	struct check_blk_disk *d = disk_of(b);

	switch (r->base.kind) {
	case BLK_READ:
		r->sector =
			round_down(check_random_below(&b->random, d->reads.len - r->base.len + 1),
				   d->block) /
			BLK_SECTOR;
		break;
	case BLK_BEYOND:
		r->sector = (d->capacity - (r->base.len > d->block ? d->block : 0)) / BLK_SECTOR;
		break;
	case BLK_WRITE:
		r->sector = next_sector(&d->writes, &d->next_write, r->base.len, d->block);
		break;
	case BLK_DISCARD:
	case BLK_WRITE_ZEROES:
		r->affected = affected_sectors(d, r->base.kind);
		r->sector = next_sector(&d->zeroes, &d->next_zero, r->affected * BLK_SECTOR,
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
	const char *name = names[r->base.kind];

	if (r->affected)
		snprintf(r->base.text, sizeof(r->base.text), "#%u %s sector %lu, %u sectors",
			 r->base.id, name, r->sector, r->affected);
	else if (r->base.kind == BLK_READ || r->base.kind == BLK_WRITE ||
		 r->base.kind == BLK_BEYOND)
		snprintf(r->base.text, sizeof(r->base.text), "#%u %s sector %lu, %u bytes",
			 r->base.id, name, r->sector, r->base.len);
	else
		snprintf(r->base.text, sizeof(r->base.text), "#%u %s", r->base.id, name);
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

/* The byte-wise complement of what the disk holds, so that each byte that is read changes. */
static void poison_read(const struct check_builder *b, const struct check_blk_request *r)
{
	const uint8_t *known = disk_of(b)->known + r->sector * BLK_SECTOR - disk_of(b)->reads.start;
	uint8_t buf[LARGE_LEN];
	uint32_t i;

	for (i = 0; i < r->base.len; i++)
		buf[i] = ~known[i];
	check_layout_store(b->guest, &r->base, buf);
}

/* Serials are ASCII, or zero bytes. */
static void poison_id(struct check_builder *b, const struct check_blk_request *r)
{
	uint8_t buf[VIRTIO_BLK_ID_BYTES];
	uint32_t i;

	for (i = 0; i < r->base.len; i++)
		buf[i] = 0x80 | check_random_next(&b->random);
	check_layout_store(b->guest, &r->base, buf);
}

static void store_range(struct check_builder *b, const struct check_blk_request *r)
{
	bool unmap = r->base.kind == BLK_WRITE_ZEROES && disk_of(b)->zero_may_unmap;
	struct virtio_blk_discard_write_zeroes range = {
		.sector = htole64(r->sector),
		.num_sectors = htole32(r->affected),
		.flags = htole32(unmap ? check_random_below(&b->random, 2) : 0),
	};

	check_layout_store(b->guest, &r->base, &range);
}

/* What write-zeroes is to zero is not zero now. */
static int fill_image(struct check_builder *b, const struct check_blk_request *r)
{
	uint8_t buf[LARGE_LEN];
	uint64_t len = least((uint64_t)r->affected * BLK_SECTOR, sizeof(buf));

	if (disk_of(b)->image < 0)
		return 0;
	check_random_fill(&b->random, buf, len);
	if (pwrite(disk_of(b)->image, buf, len, r->sector * BLK_SECTOR) != (ssize_t)len)
		return silt_err_sys(errno, "cannot fill sector %lu of the image", r->sector);
	return 0;
}

static struct virtio_blk_outhdr header_of(const struct check_blk_request *r)
{
	return (struct virtio_blk_outhdr){
		.type = htole32(type_of(r->base.kind)),
		.sector = htole64(r->affected ? 0 : r->sector),
	};
}

static int fill_request(struct check_builder *b, const struct check_blk_request *r)
{
	const struct virtio_blk_outhdr header = header_of(r);

	memcpy(check_guest_mem(b->guest, r->base.header.gpa), &header, sizeof(header));
	*(uint8_t *)check_guest_mem(b->guest, r->base.status.gpa) = ANSWER_POISON;
	if (r->base.kind == BLK_READ && disk_of(b)->known)
		poison_read(b, r);
	else if (r->base.kind == BLK_GET_ID)
		poison_id(b, r);
	else if (r->affected)
		store_range(b, r);
	return r->base.kind == BLK_WRITE_ZEROES ? fill_image(b, r) : 0;
}

static int build(struct check_builder *b, struct check_blk_request *r)
{
	int ret;

	r->base.header = (struct check_part){.len = sizeof(struct virtio_blk_outhdr)};
	r->base.status = (struct check_part){.len = 1, .written = true};
	r->base.data_written = device_writes(r->base.kind);
	name_request(r);
	ret = check_layout(b, &r->base);
	return ret < 0 ? ret : fill_request(b, r);
}

int check_blk_build(struct check_builder *b, unsigned int queue, struct check_request *request)
{
	struct check_blk_request *r = blk_of(request);
	unsigned int n = b->next_id++;

	*r = (struct check_blk_request){
		.base = {.id = n + 1, .queue = queue, .kind = choose_kind(b, n)}};
	r->base.len = data_len(b, r->base.kind);
	choose_sector(b, r);
	return build(b, r);
}

static uint32_t lasting_len(const struct check_builder *b, unsigned int i, unsigned int size)
{
	const uint32_t block = disk_of(b)->block;

	switch (size) {
	case SIZE_SMALL:
		return block;
	case SIZE_64K:
		return LARGE_LEN;
	case SIZE_VARIED:
		return i % SMALL_TIMES ? i % 2 ? block : STRADDLING_LEN : LARGE_LEN;
	default:
		return STRADDLING_LEN;
	}
}

static bool mixed(const struct check_builder *b)
{
	return b->scenario->value[AXIS_REQUEST] == REQUEST_MIXED;
}

/* In a mixture each buffer of a queue may be of another direction, but keeps to it. */
int check_blk_build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			    unsigned int size, struct check_request *request)
{
	struct check_blk_request *r = blk_of(request);
	bool writes = mixed(b) && disk_of(b)->may_write && i % 4 == 3;

	*r = (struct check_blk_request){.base = {.id = ++b->next_id,
						 .queue = queue,
						 .kind = writes ? BLK_WRITE : BLK_READ,
						 .len = lasting_len(b, i, size)},
					.overwritten = writes};
	choose_sector(b, r);
	return build(b, r);
}

static enum check_blk_kind next_kind(struct check_builder *b, enum check_blk_kind kind)
{
	if (kind == BLK_WRITE)
		return BLK_WRITE;
	/* Answers differ, so that the status byte changes. */
	return mixed(b) && !check_random_below(&b->random, 4) ? BLK_BEYOND : BLK_READ;
}

/* The header alone is written. */
void check_blk_renew(struct check_builder *b, struct check_request *request)
{
	struct check_blk_request *r = blk_of(request);
	struct virtio_blk_outhdr header;

	r->base.kind = next_kind(b, r->base.kind);
	r->base.id = ++b->next_id;
	r->base.done = false;
	choose_sector(b, r);
	name_request(r);
	header = header_of(r);
	check_guest_store(b->guest, r->base.header.gpa, &header, sizeof(header));
}

int check_blk_build_read(struct check_builder *b, uint64_t sector, uint32_t len,
			 struct check_blk_request *r)
{
	*r = (struct check_blk_request){.base = {.id = ++b->next_id, .kind = BLK_READ, .len = len},
					.sector = sector};
	return build(b, r);
}

/* ---- What must be answered ------------------------------------------------------------------- */

static bool verify_status(const struct check_blk_request *r, uint8_t status,
			  char why[CHECK_WRONG_LEN])
{
	bool must_fail = check_blk_fails(r->base.kind);

	if (status == ANSWER_POISON)
		return check_device_wrong(why, &r->base, "no status was written");
	if (status > VIRTIO_BLK_S_UNSUPP)
		return check_device_wrong(why, &r->base, "status %u is not one of 0, 1 and 2",
					  status);
	if (must_fail && status == VIRTIO_BLK_S_OK)
		return check_device_wrong(why, &r->base, "status 0, though it cannot succeed");
	/* Not every device has a serial. */
	if (!must_fail && status && !(r->base.kind == BLK_GET_ID && status == VIRTIO_BLK_S_UNSUPP))
		return check_device_wrong(why, &r->base, "status %u", status);
	return true;
}

static bool verify_read(const struct check_blk_disk *d, const struct check_guest *g,
			const struct check_blk_request *r, char why[CHECK_WRONG_LEN])
{
	const uint8_t *known = d->known + r->sector * BLK_SECTOR - d->reads.start;
	uint8_t buf[LARGE_LEN];
	uint32_t i;

	check_layout_load(g, &r->base, buf);
	if (!memcmp(buf, known, r->base.len))
		return true;
	for (i = 0; i < r->base.len; i++)
		if (buf[i] != known[i])
			return check_device_wrong(
				why, &r->base, "byte %u of the data is 0x%02x, the disk has 0x%02x",
				i, buf[i], known[i]);
	return true;
}

static bool verify_image(const struct check_blk_disk *d, const struct check_guest *g,
			 const struct check_blk_request *r, char why[CHECK_WRONG_LEN])
{
	uint8_t buf[LARGE_LEN] = {0}, disk[LARGE_LEN];
	uint64_t len = r->base.kind == BLK_WRITE ? r->base.len : (uint64_t)r->affected * BLK_SECTOR;
	uint64_t i;

	len = least(len, sizeof(disk));
	if (r->base.kind == BLK_WRITE)
		check_layout_load(g, &r->base, buf);
	if (pread(d->image, disk, len, r->sector * BLK_SECTOR) != (ssize_t)len)
		return check_device_wrong(why, &r->base, "the image cannot be read there");
	for (i = 0; i < len; i++)
		if (buf[i] != disk[i])
			return check_device_wrong(why, &r->base,
						  "byte %lu on the disk is 0x%02x, not 0x%02x", i,
						  disk[i], buf[i]);
	return true;
}

bool check_blk_verify(const void *state, const struct check_guest *g,
		      const struct check_request *request, char why[CHECK_WRONG_LEN])
{
	const struct check_blk_request *r = const_blk_of(request);
	const struct check_blk_disk *d = state;
	uint8_t status = *(const uint8_t *)check_guest_mem(g, r->base.status.gpa);

	if (!check_device_verify_used_len(request, why) || !verify_status(r, status, why))
		return false;
	if (r->base.kind == BLK_READ && d->known && !r->base.decoy[0])
		return verify_read(d, g, r, why);
	if ((r->base.kind == BLK_WRITE || r->base.kind == BLK_WRITE_ZEROES) && !r->overwritten &&
	    d->image >= 0)
		return verify_image(d, g, r, why);
	return true;
}
