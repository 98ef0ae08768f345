/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/applies.h"
#include "check/fs.h"
#include "check/layout.h"
#include "check/probe.h"

#define LEAST_FILE (64u << 10)
#define MOST_KNOWN (256u << 10)
#define READ_LEN   (32u << 10)
#define REPLY_MAX  (64u << 10)

/* The session in which the directory is looked at. */
struct trial {
	struct check_session *s;
	struct check_builder builder;
	struct check_fs *fs;
	uint8_t reply[REPLY_MAX];
	uint32_t len; /* of what is in it, behind the header */
};

/* Return: 0, or -errno: -EPROTO and the session's sentence if the backend does not answer. */
static int ask(struct trial *t, enum check_fs_kind kind, uint64_t offset, uint32_t len)
{
	struct check_fs_request r;
	int ret;

	if (check_fs_build_kind(&t->builder, kind, offset, len, &r.base) < 0)
		return check_session_error(t->s, "%s", silt_errmsg());
	ret = check_session_add(t->s, &r.base);
	check_session_kick(t->s);
	if (ret == 0)
		ret = check_session_wait(t->s);
	if (ret < 0)
		return ret;
	check_layout_load(t->builder.guest, &r.base, t->reply);
	t->len = r.base.used_len < r.base.len ? r.base.used_len : r.base.len;
	t->len -= t->len < sizeof(struct fuse_out_header) ? t->len : sizeof(struct fuse_out_header);
	memmove(t->reply, t->reply + sizeof(struct fuse_out_header), t->len);
	return check_fs_learn(t->fs, t->builder.guest, &r.base);
}

/* Is this entry the file that is looked for? */
static bool suits(struct trial *t, const char *name, uint32_t len)
{
	if (len > FS_NAME_MAX)
		return false;
	memcpy(t->fs->name, name, len);
	t->fs->name[len] = '\0';
	return ask(t, FS_LOOKUP, 0, 0) == 0 && t->fs->size >= LEAST_FILE;
}

/* Return: 1 if there is a file that is large enough, 0 if not. */
static int look_through(struct trial *t)
{
	uint8_t entries[REPLY_MAX];
	struct fuse_dirent d;
	uint32_t at = 0, len = t->len;

	memcpy(entries, t->reply, len);
	while (at + FUSE_NAME_OFFSET <= len) {
		memcpy(&d, entries + at, FUSE_NAME_OFFSET);
		if (d.namelen > len - at - FUSE_NAME_OFFSET)
			break;
		if (d.type == 8 && suits(t, (char *)entries + at + FUSE_NAME_OFFSET, d.namelen))
			return 1;
		at += FUSE_DIRENT_SIZE(&d);
	}
	return 0;
}

static int read_file(struct trial *t)
{
	struct check_fs *fs = t->fs;
	uint32_t len = fs->size < MOST_KNOWN ? fs->size : MOST_KNOWN, at, n;
	uint8_t *known = malloc(len);
	int ret = known ? ask(t, FS_OPEN, 0, 0) : -ENOMEM;

	for (at = 0; at < len && !ret; at += n) {
		n = len - at < READ_LEN ? len - at : READ_LEN;
		ret = ask(t, FS_READ, at, n);
		if (ret == 0 && t->len != n)
			ret = -EPROTO;
		if (ret == 0)
			memcpy(known + at, t->reply, n);
	}
	if (ret < 0) {
		free(known);
		return ret;
	}
	fs->known = known;
	fs->known_len = len;
	return 0;
}

static int look(struct trial *t)
{
	int ret = ask(t, FS_INIT, 0, 0);

	if (ret == 0)
		ret = ask(t, FS_OPENDIR, 0, 0);
	if (ret == 0)
		ret = ask(t, FS_READDIR, 0, 0);
	if (ret == 0 && look_through(t))
		ret = read_file(t);
	return ret;
}

int check_fs_probe(const struct check_scenario_env *env, struct check_session *s,
		   struct check_applies *a)
{
	struct trial *t = calloc(1, sizeof(*t));
	struct check_scenario usual;
	int ret;

	if (!t)
		return check_session_error(s, "no memory");
	*t = (struct trial){.s = s, .fs = env->state};
	ret = check_probe_start(env, s, &usual, &t->builder);
	if (ret == 0)
		ret = look(t);
	free(t);
	if (ret < 0 && !s->error[0])
		return check_session_error(s, "the backend answered the first requests with %s",
					   strerrordesc_np(-ret));
	if (ret == 0 && !((struct check_fs *)env->state)->known)
		a->unfit = "the shared directory has no regular file of 64 KiB or more";
	return ret < 0 ? ret : check_session_stop(s);
}
