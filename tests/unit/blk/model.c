/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "model.h"

enum {
	OK = 0,
	IOERR = 1,
	UNSUPP = 2
};
enum {
	IN = 0,
	OUT = 1,
	FLUSH = 4,
	GET_ID = 8,
	DISCARD = 11,
	WRITE_ZEROES = 13
};

static uint64_t number(const uint8_t *p, unsigned int bytes)
{
	uint64_t n = 0;

	while (bytes--)
		n = n << 8 | p[bytes];
	return n;
}

static bool outside(const struct model *m, uint64_t sector, uint64_t sectors)
{
	return (unsigned __int128)sector + sectors > m->size / 512;
}

static int read_sectors(struct model *m, struct model_request *r, uint64_t sector)
{
	size_t len = r->writable_len - 1;

	if (len % 512 || outside(m, sector, len / 512))
		return IOERR;
	if (len)
		memcpy(r->writable, m->bytes + sector * 512, len);
	r->used_len = len;
	return OK;
}

static int write_sectors(struct model *m, struct model_request *r, uint64_t sector)
{
	size_t len = r->readable_len - 16;

	if (m->read_only || len % 512 || outside(m, sector, len / 512))
		return IOERR;
	if (len)
		memcpy(m->bytes + sector * 512, r->readable + 16, len);
	return OK;
}

static int check_ranges(struct model *m, struct model_request *r, bool zero)
{
	size_t len = r->readable_len - 16;

	if (m->read_only || !len || len % 16 || len / 16 > 32)
		return IOERR;
	for (size_t at = 16; at < r->readable_len; at += 16) {
		uint64_t sectors = number(r->readable + at + 8, 4);

		if (number(r->readable + at + 12, 4) > (zero ? 1 : 0))
			return UNSUPP;
		if (sectors > (zero ? 65536 : 4194303) ||
		    outside(m, number(r->readable + at, 8), sectors))
			return IOERR;
	}
	return OK;
}

static int ranges(struct model *m, struct model_request *r, bool zero)
{
	int status = check_ranges(m, r, zero);

	for (size_t at = 16; status == OK && at < r->readable_len; at += 16) {
		uint64_t sector = number(r->readable + at, 8);
		uint64_t sectors = number(r->readable + at + 8, 4);

		if (!sectors)
			continue;
		if (zero) {
			memset(m->bytes + sector * 512, 0, sectors * 512);
			continue;
		}
		r->discarded[r->ndiscarded][0] = sector;
		r->discarded[r->ndiscarded++][1] = sectors;
	}
	return status;
}

static int get_id(struct model *m, struct model_request *r)
{
	char id[20] = {0};
	size_t len = r->writable_len - 1 < 20 ? r->writable_len - 1 : 20;

	memcpy(id, m->serial, strnlen(m->serial, 20));
	memcpy(r->writable, id, len);
	r->used_len = len;
	return OK;
}

static int dispatch(struct model *m, struct model_request *r)
{
	uint64_t sector;

	if (r->readable_len < 16)
		return IOERR;
	sector = number(r->readable + 8, 8);
	switch (number(r->readable, 4)) {
	case IN:
		return read_sectors(m, r, sector);
	case OUT:
		return write_sectors(m, r, sector);
	case FLUSH:
		return OK;
	case GET_ID:
		return get_id(m, r);
	case DISCARD:
		return ranges(m, r, false);
	case WRITE_ZEROES:
		return ranges(m, r, true);
	default:
		return UNSUPP;
	}
}

void model_run(struct model *m, struct model_request *r)
{
	int status;

	r->used_len = 0;
	r->ndiscarded = 0;
	status = dispatch(m, r);
	r->writable[r->writable_len - 1] = status;
	if (r->used_len == r->writable_len - 1)
		r->used_len++;
}
