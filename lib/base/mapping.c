/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <silt/access.h>

#include "base/err.h"
#include "base/mapping.h"

/* Since Linux 5.1; older headers lack it. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int check_size(int fd, uint64_t offset, uint64_t size, const char *what)
{
	struct stat st;
	uint64_t end;

	if (!size)
		return silt_err(EINVAL, "%s: size is 0", what);
	if (__builtin_add_overflow(offset, size, &end) || end > INT64_MAX)
		return silt_err(EINVAL,
				"%s: offset %#" PRIx64 " plus size %#" PRIx64
				" is more than a file can hold",
				what, offset, size);
	if (fstat(fd, &st) < 0)
		return silt_err_sys(errno, "%s: fstat of fd %d", what, fd);
	if (!S_ISREG(st.st_mode))
		return silt_err(ENODEV, "%s: fd %d is not a regular file (mode %#o)", what, fd,
				st.st_mode);
	if (end > (uint64_t)st.st_size)
		return silt_err(EINVAL,
				"%s: offset %#" PRIx64 " plus size %#" PRIx64
				" lies beyond the file's end at %#" PRIx64,
				what, offset, size, (uint64_t)st.st_size);
	return 0;
}

static int check_rights(int fd, const char *what)
{
	int flags = fcntl(fd, F_GETFL);
	int seals = fcntl(fd, F_GET_SEALS);

	if (flags < 0)
		return silt_err_sys(errno, "%s: F_GETFL of fd %d", what, fd);
	if ((flags & O_ACCMODE) != O_RDWR)
		return silt_err(EACCES, "%s: fd %d is not open for reading and writing", what, fd);
	/* A file that cannot be sealed answers with an error: then it is not sealed. */
	if (seals > 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return silt_err(EPERM, "%s: fd %d is sealed against writing (seals %#x)", what, fd,
				seals);
	return 0;
}

/* What offset and length of a mapping must be multiples of. */
static uint64_t granule(int fd)
{
	struct statfs fs;

	if (!fstatfs(fd, &fs) && fs.f_type == HUGETLBFS_MAGIC)
		return (uint64_t)fs.f_bsize;
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

int silt_mapping_create(struct silt_mapping *m, int fd, uint64_t offset, uint64_t size,
			const char *what)
{
	uint64_t page, skip;
	int ret = check_size(fd, offset, size, what);

	if (!ret)
		ret = check_rights(fd, what);
	if (ret)
		return ret;
	page = granule(fd);
	skip = offset % page;
	m->len = (skip + size + page - 1) / page * page;
	m->addr = mmap(NULL, m->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
		       (off_t)(offset - skip));
	if (m->addr == MAP_FAILED)
		return silt_err_sys(
			errno, "%s: cannot map %#" PRIx64 " bytes at offset %#" PRIx64 " of fd %d",
			what, size, offset, fd);
	m->start = (char *)m->addr + skip;
	/* Peers' memory has no place in this program's core dumps; a refusal harms nobody. */
	madvise(m->addr, m->len, MADV_DONTDUMP);
	ret = silt_access_add_range(m->addr, m->len);
	if (ret < 0)
		munmap(m->addr, m->len);
	return ret;
}

void silt_mapping_destroy(struct silt_mapping *m)
{
	silt_access_del_range(m->addr, m->len);
	munmap(m->addr, m->len);
}
