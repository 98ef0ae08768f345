/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "check/fs.h"
#include "check/layout.h"

#define REQUEST_QUEUE 1
#define OUT_LEN	      ((uint32_t)sizeof(struct fuse_out_header))
#define IN_MAX	      (sizeof(struct fuse_in_header) + FS_NAME_MAX + 1)
#define ABSENT	      "silt-check-absent"

/* A version of the protocol that backends of today know, and many a little older. */
#define FUSE_MINOR 31

#define INSIDE_LEN   2048u
#define STRADDLE_LEN ((8u << 10) - OUT_LEN)
#define LARGE_LEN    ((64u << 10) - OUT_LEN)
#define DIR_LEN	     4096u
#define POISON	     0xff
#define SMALL_TIMES  16 /* of the reads of varied sizes, the small ones are so many to one */

static struct check_fs_request *fs_request(struct check_request *r)
{
	return (struct check_fs_request *)r;
}

static const struct check_fs_request *const_fs_request(const struct check_request *r)
{
	return (const struct check_fs_request *)r;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* ---- What is asked --------------------------------------------------------------------------- */

static uint32_t opcode_of(enum check_fs_kind kind)
{
	static const uint32_t opcodes[] = {
		[FS_INIT] = FUSE_INIT,	   [FS_OPENDIR] = FUSE_OPENDIR, [FS_READDIR] = FUSE_READDIR,
		[FS_LOOKUP] = FUSE_LOOKUP, [FS_ABSENT] = FUSE_LOOKUP,	[FS_OPEN] = FUSE_OPEN,
		[FS_READ] = FUSE_READ,	   [FS_GETATTR] = FUSE_GETATTR, [FS_STATFS] = FUSE_STATFS,
	};

	return opcodes[kind];
}

static uint64_t node_of(const struct check_fs *fs, enum check_fs_kind kind)
{
	bool file = kind == FS_OPEN || kind == FS_READ || kind == FS_GETATTR;

	return kind == FS_INIT ? 0 : file ? fs->node : FUSE_ROOT_ID;
}

static uint32_t append(uint8_t *to, uint32_t used, const void *from, size_t len)
{
	memcpy(to + used, from, len);
	return used + len;
}

/* The arguments behind the header. Return: where they end. */
static uint32_t add_arguments(const struct check_fs *fs, const struct check_fs_request *r,
			      uint8_t in[IN_MAX], uint32_t used)
{
	const struct fuse_init_in init = {.major = FUSE_KERNEL_VERSION,
					  .minor = FUSE_MINOR,
					  .max_readahead = 128 << 10,
					  .flags = FUSE_ASYNC_READ};
	const struct fuse_open_in open = {.flags = O_RDONLY};
	struct fuse_read_in read = {.size = r->base.len - OUT_LEN, .offset = r->offset};
	const struct fuse_getattr_in getattr = {0};

	switch (r->base.kind) {
	case FS_INIT:
		return append(in, used, &init, offsetof(struct fuse_init_in, flags2));
	case FS_OPENDIR:
	case FS_OPEN:
		return append(in, used, &open, sizeof(open));
	case FS_READ:
	case FS_READDIR:
		read.fh = r->base.kind == FS_READ ? fs->file : fs->dir;
		return append(in, used, &read, sizeof(read));
	case FS_LOOKUP:
		return append(in, used, fs->name, strlen(fs->name) + 1);
	case FS_ABSENT:
		return append(in, used, ABSENT, sizeof(ABSENT));
	case FS_GETATTR:
		return append(in, used, &getattr, sizeof(getattr));
	default:
		return used;
	}
}

static uint64_t unique_of(const struct check_request *r)
{
	return 2 * (uint64_t)r->id;
}

/* What the device reads. Return: its length. */
static uint32_t make_in(const struct check_fs *fs, const struct check_fs_request *r,
			uint8_t in[IN_MAX])
{
	struct fuse_in_header h = {.opcode = opcode_of(r->base.kind),
				   .unique = unique_of(&r->base),
				   .nodeid = node_of(fs, r->base.kind)};

	h.len = add_arguments(fs, r, in, sizeof(h));
	memcpy(in, &h, sizeof(h));
	return h.len;
}

static uint32_t payload_of(enum check_fs_kind kind, uint32_t len)
{
	switch (kind) {
	case FS_INIT:
		return sizeof(struct fuse_init_out);
	case FS_OPENDIR:
	case FS_OPEN:
		return sizeof(struct fuse_open_out);
	case FS_LOOKUP:
	case FS_ABSENT:
		return sizeof(struct fuse_entry_out);
	case FS_GETATTR:
		return sizeof(struct fuse_attr_out);
	case FS_STATFS:
		return sizeof(struct fuse_statfs_out);
	case FS_READDIR:
		return DIR_LEN;
	default:
		return len;
	}
}

static void name_request(struct check_fs_request *r)
{
	static const char *const names[] = {
		[FS_INIT] = "init",
		[FS_OPENDIR] = "opendir",
		[FS_READDIR] = "readdir",
		[FS_LOOKUP] = "lookup",
		[FS_ABSENT] = "lookup of what is not there",
		[FS_OPEN] = "open",
		[FS_READ] = "read",
		[FS_GETATTR] = "getattr",
		[FS_STATFS] = "statfs",
	};
	struct check_request *base = &r->base;

	if (base->kind == FS_READ)
		snprintf(base->text, sizeof(base->text), "#%u read offset %lu, %u bytes", base->id,
			 r->offset, base->len - OUT_LEN);
	else
		snprintf(base->text, sizeof(base->text), "#%u %s", base->id, names[base->kind]);
}

/* Each byte that is read differs from what is there before. */
static void poison(struct check_builder *b, const struct check_fs_request *r)
{
	const struct check_fs *fs = check_fs_of(b);
	uint8_t bytes[OUT_LEN + LARGE_LEN];
	uint64_t unique = ~unique_of(&r->base);
	uint32_t i;

	memset(bytes, POISON, r->base.len);
	memcpy(bytes + offsetof(struct fuse_out_header, unique), &unique, sizeof(unique));
	for (i = OUT_LEN; i < r->base.len && r->base.kind == FS_READ && fs->known; i++)
		bytes[i] = ~fs->known[r->offset + i - OUT_LEN];
	check_layout_store(b->guest, &r->base, bytes);
}

int check_fs_build_kind(struct check_builder *b, enum check_fs_kind kind, uint64_t offset,
			uint32_t len, struct check_request *request)
{
	struct check_fs_request *r = fs_request(request);
	uint8_t in[IN_MAX];
	int ret;

	*r = (struct check_fs_request){.base = {.id = ++b->next_id,
						.queue = REQUEST_QUEUE,
						.kind = kind,
						.len = OUT_LEN + payload_of(kind, len),
						.data_written = true},
				       .offset = offset};
	r->base.header.len = make_in(check_fs_of(b), r, in);
	name_request(r);
	ret = check_layout(b, request);
	if (ret < 0)
		return ret;
	memcpy(check_guest_mem(b->guest, r->base.header.gpa), in, r->base.header.len);
	poison(b, r);
	return 0;
}

/* Of what is known, so that the answer can be checked. */
static uint64_t choose_offset(struct check_builder *b, uint32_t len)
{
	return check_random_below(&b->random, check_fs_of(b)->known_len - len + 1);
}

static int build_read(struct check_builder *b, uint32_t len, struct check_request *r)
{
	len = least(len, check_fs_of(b)->known_len);
	return check_fs_build_kind(b, FS_READ, choose_offset(b, len), len, r);
}

static enum check_fs_kind choose_kind(const struct check_builder *b)
{
	static const enum check_fs_kind kinds[] = {
		[FS_REQUEST_READ] = FS_READ,	   [FS_REQUEST_GETATTR] = FS_GETATTR,
		[FS_REQUEST_LOOKUP] = FS_LOOKUP,   [FS_REQUEST_STATFS] = FS_STATFS,
		[FS_REQUEST_READDIR] = FS_READDIR, [FS_REQUEST_ERROR] = FS_ABSENT,
	};
	static const enum check_fs_kind all[] = {FS_READ,   FS_GETATTR, FS_ABSENT,
						 FS_STATFS, FS_READDIR, FS_LOOKUP};
	unsigned int request = b->scenario->value[AXIS_REQUEST];

	return request == FS_REQUEST_MIXED ? all[b->next_id % 6] : kinds[request];
}

int check_fs_build(struct check_builder *b, unsigned int queue, struct check_request *r)
{
	enum check_fs_kind kind = choose_kind(b);
	uint32_t len = b->large ? LARGE_LEN : STRADDLE_LEN;

	(void)queue;
	if (b->scenario->value[AXIS_POSITION] == POSITION_INSIDE)
		len = INSIDE_LEN;
	return kind == FS_READ ? build_read(b, len, r) : check_fs_build_kind(b, kind, 0, 0, r);
}

int check_fs_build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			   unsigned int size, struct check_request *r)
{
	static const uint32_t lens[] = {
		[SIZE_8K] = STRADDLE_LEN, [SIZE_SMALL] = INSIDE_LEN, [SIZE_64K] = LARGE_LEN};

	(void)queue;
	if (size == SIZE_VARIED)
		size = i % SMALL_TIMES ? i % 2 ? SIZE_SMALL : SIZE_8K : SIZE_64K;
	return build_read(b, lens[size], r);
}

/* The header alone is written. */
void check_fs_renew(struct check_builder *b, struct check_request *request)
{
	struct check_fs_request *r = fs_request(request);
	uint8_t in[IN_MAX];
	uint32_t len;

	r->base.id = ++b->next_id;
	r->base.done = false;
	r->offset = choose_offset(b, r->base.len - OUT_LEN);
	name_request(r);
	len = make_in(check_fs_of(b), r, in);
	check_guest_store(b->guest, r->base.header.gpa, in, len);
}

/* A session, the directory, and the file in it. */
int check_fs_open(struct check_builder *b, unsigned int step, const struct check_request *before,
		  struct check_request *r)
{
	static const enum check_fs_kind steps[] = {FS_INIT, FS_OPENDIR, FS_LOOKUP, FS_OPEN};
	int ret = before ? check_fs_learn(check_fs_of(b), b->guest, before) : 0;

	if (ret < 0)
		return silt_err(-ret, "%s was answered with %s", before->text,
				strerrordesc_np(-ret));
	if (step == sizeof(steps) / sizeof(steps[0]))
		return 0;
	ret = check_fs_build_kind(b, steps[step], 0, 0, r);
	return ret < 0 ? ret : 1;
}

/* ---- What must be answered ------------------------------------------------------------------- */

static struct fuse_out_header load_reply(const struct check_guest *g, const struct check_request *r,
					 uint8_t bytes[OUT_LEN + LARGE_LEN])
{
	struct fuse_out_header h;

	check_layout_load(g, r, bytes);
	memcpy(&h, bytes, sizeof(h));
	return h;
}

int check_fs_learn(struct check_fs *fs, const struct check_guest *g, const struct check_request *r)
{
	uint8_t bytes[OUT_LEN + LARGE_LEN];
	struct fuse_out_header h = load_reply(g, r, bytes);
	struct fuse_entry_out entry;
	struct fuse_open_out open;

	if (h.unique != unique_of(r) || h.error > 0 || h.error < -4095)
		return -EPROTO;
	memcpy(&entry, bytes + OUT_LEN, least(sizeof(entry), r->len - OUT_LEN));
	memcpy(&open, bytes + OUT_LEN, sizeof(open));
	if (h.error < 0)
		return h.error;
	if (r->kind == FS_LOOKUP) {
		fs->node = entry.nodeid;
		fs->size = entry.attr.size;
	} else if (r->kind == FS_OPEN) {
		fs->file = open.fh;
	} else if (r->kind == FS_OPENDIR) {
		fs->dir = open.fh;
	}
	return 0;
}

static bool verify_header(const struct check_request *r, const struct fuse_out_header *h,
			  char why[CHECK_WRONG_LEN])
{
	int expected = r->kind == FS_ABSENT ? -ENOENT : 0;

	if (h->unique != unique_of(r))
		return check_device_wrong(why, r, "unique is %lu, not %lu", (uint64_t)h->unique,
					  unique_of(r));
	if (h->len != r->used_len)
		return check_device_wrong(why, r, "its header has length %u, the used entry %u",
					  h->len, r->used_len);
	if (h->error != expected)
		return check_device_wrong(why, r, "error %d, not %d", h->error, expected);
	return true;
}

static bool verify_read(const struct check_fs *fs, const struct check_fs_request *r,
			const uint8_t *bytes, char why[CHECK_WRONG_LEN])
{
	const uint8_t *known = fs->known + r->offset;
	uint32_t i;

	if (r->base.used_len != r->base.len)
		return check_device_wrong(why, &r->base, "used length %u, not %u", r->base.used_len,
					  r->base.len);
	for (i = 0; i < r->base.len - OUT_LEN; i++)
		if (bytes[OUT_LEN + i] != known[i])
			return check_device_wrong(
				why, &r->base, "byte %u of the data is 0x%02x, the file has 0x%02x",
				i, bytes[OUT_LEN + i], known[i]);
	return true;
}

bool check_fs_verify(const void *state, const struct check_guest *g, const struct check_request *r,
		     char why[CHECK_WRONG_LEN])
{
	const struct check_fs *fs = state;
	uint8_t bytes[OUT_LEN + LARGE_LEN];
	struct fuse_out_header h;

	if (!check_device_verify_used_len(r, why))
		return false;
	/* A guest that changes its mind finds the answer here or there. */
	if (r->decoy[0])
		return true;
	h = load_reply(g, r, bytes);
	if (!verify_header(r, &h, why))
		return false;
	return r->kind != FS_READ || verify_read(fs, const_fs_request(r), bytes, why);
}
