/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/falloc.h>
#include <linux/fs.h>

#include "base/err.h"
#include "blk/image.h"
#include "blk/notice.h"

static int check_kind(const struct stat *st, const char *path)
{
	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
		return 0;
	return silt_err(EINVAL, "%s is neither a file nor a block device", path);
}

static int open_file(struct blk_image *img, const char *path)
{
	struct stat st;

	/* Looked at first: to open a fifo may take for ever. */
	if (!stat(path, &st) && check_kind(&st, path) < 0)
		return -EINVAL;
	img->fd = open(path, (img->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (img->fd >= 0)
		return 0;
	if (!img->read_only && (errno == EACCES || errno == EPERM || errno == EROFS))
		return silt_err_sys(errno,
				    "%s cannot be opened for writing (--read-only serves it "
				    "as it is)",
				    path);
	return silt_err_sys(errno, "%s cannot be opened", path);
}

static int device_geometry(struct blk_image *img, const char *path, uint64_t *size)
{
	int block = 0;

	img->is_device = true;
	if (ioctl(img->fd, BLKGETSIZE64, size) < 0 || ioctl(img->fd, BLKSSZGET, &block) < 0)
		return silt_err_sys(errno, "%s does not tell its size", path);
	if (!img->block_size)
		img->block_size = block;
	return 0;
}

static int measure(struct blk_image *img, const char *path)
{
	struct stat st;
	uint64_t size;
	int ret;

	if (fstat(img->fd, &st) < 0)
		return silt_err_sys(errno, "%s cannot be examined", path);
	ret = check_kind(&st, path);
	size = st.st_size;
	if (!ret && S_ISBLK(st.st_mode))
		ret = device_geometry(img, path, &size);
	if (ret < 0)
		return ret;
	if (!img->block_size)
		img->block_size = BLK_SECTOR_SIZE;
	img->capacity = size - size % img->block_size;
	if (!img->capacity)
		return silt_err(EINVAL,
				"%s has %" PRIu64 " bytes, less than one block of %u "
				"(truncate -s SIZE %s makes an empty disk)",
				path, size, img->block_size, path);
	if (img->capacity != size)
		blk_notice("%s: the last %" PRIu64 " bytes are no whole block of %u and are not "
			   "served",
			   path, size - img->capacity, img->block_size);
	return 0;
}

int blk_image_open(struct blk_image *img, const char *path, bool read_only, uint32_t block_size)
{
	int ret;

	*img = (struct blk_image){.fd = -1, .read_only = read_only, .block_size = block_size};
	ret = open_file(img, path);
	if (ret < 0)
		return ret;
	ret = measure(img, path);
	if (ret < 0)
		blk_image_close(img);
	return ret;
}

void blk_image_close(struct blk_image *img)
{
	if (img->fd >= 0)
		close(img->fd);
	img->fd = -1;
}

int blk_image_fallocate_mode(const struct blk_io *io)
{
	if (io->op == BLK_DISCARD || io->unmap)
		return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	return FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
}

static int change_range(const struct blk_image *img, const struct blk_io *io)
{
	uint64_t range[2] = {io->offset, io->len};

	if (!img->is_device)
		return fallocate(img->fd, blk_image_fallocate_mode(io), io->offset, io->len);
	return ioctl(img->fd, io->op == BLK_DISCARD ? BLKDISCARD : BLKZEROOUT, range);
}

int64_t blk_image_run(const struct blk_image *img, const struct blk_io *io)
{
	int64_t ret = -1;

	switch (io->op) {
	case BLK_READ:
		ret = preadv(img->fd, io->iov, io->niov, io->offset);
		break;
	case BLK_WRITE:
		ret = pwritev2(img->fd, io->iov, io->niov, io->offset, io->stable ? RWF_DSYNC : 0);
		break;
	case BLK_FLUSH:
		ret = fdatasync(img->fd);
		break;
	case BLK_DISCARD:
	case BLK_ZERO:
		ret = change_range(img, io);
		break;
	}
	return ret < 0 ? -errno : ret;
}
