/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "check/keep.h"
#include "check/scenario.h"

#define KEEP_DIR "silt-check-keep"
#define PATH_LEN 512

/* Make a directory and those above it. */
static int make_dirs(char *path)
{
	char *slash;

	for (slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0777) && errno != EEXIST)
			return silt_err_sys(errno, "cannot make directory %s", path);
		*slash = '/';
	}
	return 0;
}

static int write_file(const char *dir, const char *name, const void *data, size_t len)
{
	char path[PATH_LEN];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s%s", dir, name);
	f = fopen(path, "w");
	if (!f)
		return silt_err_sys(errno, "cannot write %s", path);
	n = fwrite(data, 1, len, f);
	if (fclose(f) || n != len)
		return silt_err_sys(EIO, "cannot write %s", path);
	return 0;
}

/* The comparison is over, so the copies have changed places. */
static int write_region(const char *dir, const char *name, const struct check_guest_region *r)
{
	char file[64];
	int ret;

	snprintf(file, sizeof(file), "%s-0x%lx-before", name, r->gpa);
	ret = write_file(dir, file, r->after, r->size);
	if (ret < 0)
		return ret;
	snprintf(file, sizeof(file), "%s-0x%lx-after", name, r->gpa);
	return write_file(dir, file, r->before, r->size);
}

int check_keep_span(struct check_trial *run)
{
	const struct check_guest *g = run->env->guest;
	char dir[PATH_LEN];
	int ret;

	if (!run->env->keep || !(run->compare->pending.n || run->compare->misses.n))
		return 0;
	snprintf(dir, sizeof(dir), KEEP_DIR "/%s/span-%u/", run->scenario->name, ++run->kept);
	ret = make_dirs(dir);
	if (ret == 0)
		ret = write_file(dir, "log", run->marked,
				 silt_bitmap_words(run->compare->npages) * sizeof(uint64_t));
	if (ret == 0)
		ret = write_region(dir, "memory", &g->region[GUEST_LOW]);
	return ret < 0 ? ret : write_region(dir, "memory", &g->region[GUEST_HIGH]);
}
