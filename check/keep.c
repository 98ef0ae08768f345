/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "check/keep.h"
#include "check/scenario.h"

#define KEEP_DIR "silt-check-keep"
#define PATH_LEN 512

int check_keep_probe(void)
{
	if (!access(KEEP_DIR "/.", W_OK | X_OK) || (errno == ENOENT && !access(".", W_OK | X_OK)))
		return 0;
	return silt_err_sys(errno, "cannot keep anything in " KEEP_DIR);
}

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

static int open_file(const char *dir, const char *name)
{
	char path[PATH_LEN];
	int fd;

	if (snprintf(path, sizeof(path), "%s%s", dir, name) >= (int)sizeof(path))
		return silt_err(ENAMETOOLONG, "%s%s: longer than %d bytes", dir, name,
				PATH_LEN - 1);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	return fd < 0 ? silt_err_sys(errno, "cannot write %s", path) : fd;
}

static int write_log(const char *dir, const struct check_trial *run)
{
	size_t len = silt_bitmap_words(run->compare->npages) * sizeof(uint64_t);
	int fd = open_file(dir, "log");
	ssize_t n;

	if (fd < 0)
		return fd;
	n = write(fd, run->raw, len);
	if (close(fd) || n != (ssize_t)len)
		return silt_err_sys(EIO, "cannot write %slog", dir);
	return 0;
}

/* Pages of @mem that differ from @other; the rest of the file is a hole. */
static int write_memory(const char *dir, const struct check_guest_region *r, uint64_t gpa,
			const char *when, const uint8_t *mem, const uint8_t *other)
{
	char name[64];
	bool ok = true;
	uint64_t at, where;
	int fd;

	snprintf(name, sizeof(name), "memory-0x%lx-%s", gpa, when);
	fd = open_file(dir, name);
	if (fd < 0)
		return fd;
	for (at = 0; at < r->size && ok; at += GUEST_PAGE) {
		where = check_guest_page(r, at / GUEST_PAGE) * GUEST_PAGE;
		if (memcmp(mem + at, other + at, GUEST_PAGE) != 0)
			ok = pwrite(fd, mem + at, GUEST_PAGE, where) == GUEST_PAGE;
	}
	ok = ok && !ftruncate(fd, r->size);
	if (close(fd) || !ok)
		return silt_err_sys(EIO, "cannot write %s%s", dir, name);
	return 0;
}

/* The comparison is over, so the copies have changed places. */
static int write_region(const char *dir, const struct check_guest_region *r, uint64_t gpa)
{
	int ret = write_memory(dir, r, gpa, "before", r->after, r->before);

	return ret < 0 ? ret : write_memory(dir, r, gpa, "after", r->before, r->after);
}

static int write_regions(const char *dir, const struct check_trial *run)
{
	const struct check_guest_region *low = &run->env->guest->region[GUEST_LOW];
	const struct check_guest_region *high = &run->env->guest->region[GUEST_HIGH];
	int ret = write_region(dir, low, low->gpa);

	if (ret == 0 && check_iommu_aliases(&run->session.iommu))
		ret = write_region(dir, low, SESSION_ALIAS);
	return ret < 0 ? ret : write_region(dir, high, high->gpa);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	(void)st;
	(void)flag;
	(void)where;
	return remove(path);
}

/* What an earlier run kept of the same scenario is not to be taken for this one's. */
static void remove_earlier(const char *scenario)
{
	char dir[PATH_LEN];
	unsigned int i = 0;

	do
		snprintf(dir, sizeof(dir), KEEP_DIR "/%s/span-%u", scenario, ++i);
	while (!nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS));
}

int check_keep_span(struct check_trial *run)
{
	char dir[PATH_LEN];
	int ret;

	if (!run->env->keep)
		return 0;
	if (!run->kept)
		remove_earlier(run->scenario->name);
	snprintf(dir, sizeof(dir), KEEP_DIR "/%s/span-%u/", run->scenario->name, ++run->kept);
	ret = make_dirs(dir);
	if (ret == 0)
		ret = write_log(dir, run);
	return ret < 0 ? ret : write_regions(dir, run);
}
