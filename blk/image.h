/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_IMAGE_H
#define BLK_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* A sector of the virtio block protocol, whatever the disk's own block size is. */
#define BLK_SECTOR_SHIFT 9
#define BLK_SECTOR_SIZE	 (1u << BLK_SECTOR_SHIFT)

struct blk_image {
	int fd;
	bool is_device; /* a block device, not a regular file */
	bool read_only;
	uint32_t block_size;
	uint64_t capacity; /* bytes, a multiple of block_size */
};

enum blk_op {
	BLK_READ,
	BLK_WRITE,
	BLK_FLUSH,
	BLK_DISCARD,
	BLK_ZERO,
};

/* One step of I/O on an image. */
struct blk_io {
	enum blk_op op;
	bool stable; /* BLK_WRITE: on stable storage when it completes */
	bool unmap;  /* BLK_ZERO: the range may be deallocated */
	uint64_t offset;
	uint64_t len; /* bytes; of the vector, for BLK_READ and BLK_WRITE */
	const struct iovec *iov;
	unsigned int niov; /* at most IOV_MAX */
	int64_t result;	   /* bytes done or 0, or -errno */
	struct blk_io *next;
};

/*
 * Open an image.
 *
 * @block_size: 512 or 4096, or 0 to take a block device's own and 512 for a file.
 *
 * Return: 0, or -errno with a message that says what to do.
 */
int blk_image_open(struct blk_image *img, const char *path, bool read_only, uint32_t block_size);

void blk_image_close(struct blk_image *img);

/* Do one step with plain system calls. Return: what goes into io->result. Blocks: on the disk. */
int64_t blk_image_run(const struct blk_image *img, const struct blk_io *io);

/* The mode of the fallocate() that does a BLK_DISCARD or BLK_ZERO on a regular file. */
int blk_image_fallocate_mode(const struct blk_io *io);

#endif
