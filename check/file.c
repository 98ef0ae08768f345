/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "check/file.h"

/* A symbolic link stays one: what it points to is replaced. Return: a name to free, or NULL. */
static char *resolve(const char *path)
{
	char *real = realpath(path, NULL);

	return real ? real : strdup(path);
}

static bool is_special(const char *path)
{
	struct stat st;

	return !stat(path, &st) && !S_ISREG(st.st_mode);
}

/* A template for mkostemp() in the directory of @path, so that rename() stays on one disk. */
static char *temp_name(const char *path)
{
	char *name;

	return asprintf(&name, "%s.XXXXXX", path) < 0 ? NULL : name;
}

/* Permissions that open() would have given; mkostemp() gives only the owner's. */
static int fix_mode(int fd, const char *path)
{
	struct stat st;
	mode_t mask;

	if (!stat(path, &st))
		return fchmod(fd, st.st_mode & 0777);
	mask = umask(0);
	umask(mask);
	return fchmod(fd, 0666 & ~mask);
}

static int open_temp(struct check_file *file)
{
	int fd;

	file->temp = temp_name(file->path);
	if (!file->temp)
		return -ENOMEM;
	fd = mkostemp(file->temp, O_CLOEXEC);
	if (fd < 0) {
		int err = errno;

		free(file->temp);
		file->temp = NULL;
		return -err;
	}
	if (fix_mode(fd, file->path) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	file->out = fdopen(fd, "w");
	return file->out ? 0 : -errno;
}

int check_file_open(const char *path, struct check_file *file)
{
	int ret = 0;

	*file = (struct check_file){.path = resolve(path)};
	if (!file->path)
		return silt_err_sys(ENOMEM, "cannot write %s", path);
	if (is_special(file->path)) {
		file->out = fopen(file->path, "we");
		ret = file->out ? 0 : -errno;
	} else {
		ret = open_temp(file);
	}
	if (ret < 0) {
		check_file_abandon(file);
		return silt_err_sys(-ret, "cannot write %s", path);
	}
	return 0;
}

int check_file_probe(const char *path)
{
	struct check_file file;
	struct stat st;
	int ret;

	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return silt_err_sys(EISDIR, "cannot write %s", path);
	if (is_special(path))
		return access(path, W_OK) ? silt_err_sys(errno, "cannot write %s", path) : 0;
	ret = check_file_open(path, &file);
	if (!ret)
		check_file_abandon(&file);
	return ret;
}

int check_file_commit(struct check_file *file)
{
	int err = 0;

	if (fflush(file->out) || ferror(file->out))
		err = errno ? errno : EIO;
	if (!err && file->temp && fsync(fileno(file->out)))
		err = errno;
	if (!err && file->temp && rename(file->temp, file->path))
		err = errno;
	if (err) {
		silt_err_sys(err, "cannot write %s", file->path);
	} else {
		free(file->temp);
		file->temp = NULL;
	}
	check_file_abandon(file);
	return -err;
}

void check_file_abandon(struct check_file *file)
{
	if (file->out)
		fclose(file->out);
	if (file->temp)
		unlink(file->temp);
	free(file->temp);
	free(file->path);
	*file = (struct check_file){0};
}
