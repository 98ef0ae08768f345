/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include <silt/error.h>
#include <silt/range.h>
#include <silt/vhost_user.h>

#include "base/err.h"
#include "blk/device.h"
#include "blk/notice.h"
#include "blk/request.h"

#define BIT(n) (UINT64_C(1) << (n))

/* A request of so many segments fits a ring of 128 with its header and status. */
#define SEG_MAX 126

static int start(void *arg, unsigned int q, struct silt_virtq *vq, int kick_fd)
{
	struct blk_device *dev = arg;

	return blk_queue_start(&dev->queues[q], vq, kick_fd);
}

static void stop(void *arg, unsigned int q)
{
	struct blk_device *dev = arg;

	blk_queue_stop(&dev->queues[q]);
}

static void pause_queue(void *arg, unsigned int q)
{
	struct blk_device *dev = arg;

	blk_queue_pause(&dev->queues[q]);
}

static void resume(void *arg, unsigned int q)
{
	struct blk_device *dev = arg;

	blk_queue_resume(&dev->queues[q]);
}

static void call(void *arg, unsigned int q)
{
	struct blk_device *dev = arg;

	silt_backend_call(dev->backend, q);
}

static void error(void *arg, unsigned int q)
{
	struct blk_device *dev = arg;

	silt_backend_queue_error(dev->backend, q);
}

/*
 * VIRTIO 1.2, 5.2.6.2: the cache mode is what the driver wrote if it knows the field, else
 * writeback if it knows how to flush, else writethrough.
 */
static void choose_cache_mode(struct blk_device *dev)
{
	bool writeback = dev->features & BIT(VIRTIO_BLK_F_CONFIG_WCE)
				 ? dev->writeback
				 : !!(dev->features & BIT(VIRTIO_BLK_F_FLUSH));

	__atomic_store_n(&dev->disk.writethrough, !writeback, __ATOMIC_RELAXED);
}

static void set_features(void *arg, uint64_t features)
{
	struct blk_device *dev = arg;

	dev->features = features;
	choose_cache_mode(dev);
}

static void reset(void *arg)
{
	struct blk_device *dev = arg;

	dev->writeback = true;
	dev->features = 0;
	choose_cache_mode(dev);
}

static void fill_config(const struct blk_device *dev, struct virtio_blk_config *c)
{
	const struct blk_image *img = &dev->disk.img;

	*c = (struct virtio_blk_config){
		.capacity = img->capacity >> BLK_SECTOR_SHIFT,
		.seg_max = SEG_MAX,
		.blk_size = img->block_size,
		.wce = dev->writeback,
		.num_queues = dev->nqueues,
	};
	if (img->read_only)
		return;
	c->max_discard_sectors = BLK_MAX_DISCARD_SECTORS;
	c->max_discard_seg = BLK_MAX_RANGES;
	c->discard_sector_alignment = img->block_size >> BLK_SECTOR_SHIFT;
	c->max_write_zeroes_sectors = BLK_MAX_ZERO_SECTORS;
	c->max_write_zeroes_seg = BLK_MAX_RANGES;
	c->write_zeroes_may_unmap = 1;
}

/* What lies beyond the structure that this program knows reads as zeros. */
static int get_config(void *arg, void *buf, uint32_t offset, uint32_t len)
{
	union {
		struct virtio_blk_config fields;
		uint8_t bytes[SILT_VHOST_CONFIG_MAX];
	} config = {.bytes = {0}};

	if (!silt_range_within(offset, len, 0, sizeof(config)))
		return silt_err(EINVAL, "configuration bytes %u to %u: there are %zu", offset,
				offset + len, sizeof(config));
	fill_config(arg, &config.fields);
	memcpy(buf, config.bytes + offset, len);
	return 0;
}

static int set_config(void *arg, const void *buf, uint32_t offset, uint32_t len, bool migration)
{
	struct blk_device *dev = arg;
	uint8_t wce;

	(void)migration;
	if (offset != offsetof(struct virtio_blk_config, wce) || len != sizeof(wce))
		return silt_err(EINVAL,
				"configuration bytes %u to %u: only byte %zu (wce) can be "
				"written",
				offset, offset + len, offsetof(struct virtio_blk_config, wce));
	memcpy(&wce, buf, sizeof(wce));
	if (wce > 1)
		return silt_err(EINVAL, "wce %u is neither 0 nor 1", wce);
	dev->writeback = wce;
	choose_cache_mode(dev);
	/* What was written before is to be as stable as what comes. */
	if (!wce && !dev->disk.img.read_only && fdatasync(dev->disk.img.fd) < 0)
		return silt_err_sys(errno, "the image cannot be flushed");
	return 0;
}

/*
 * In order, a request that is done waits for all that came before it, while a disk may do them in
 * any order: it is offered only if that is wanted.
 */
static uint64_t offered(const struct blk_device *dev)
{
	uint64_t f = BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_ACCESS_PLATFORM) |
		     BIT(VIRTIO_F_RING_PACKED) | (dev->in_order ? BIT(VIRTIO_F_IN_ORDER) : 0) |
		     BIT(VIRTIO_RING_F_EVENT_IDX) | BIT(VIRTIO_RING_F_INDIRECT_DESC) |
		     BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_BLK_SIZE) |
		     BIT(VIRTIO_BLK_F_FLUSH) | BIT(VIRTIO_BLK_F_CONFIG_WCE) | BIT(VIRTIO_BLK_F_MQ);

	if (dev->disk.img.read_only)
		return f | BIT(VIRTIO_BLK_F_RO);
	return f | BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES);
}

static int check_options(const struct blk_options *opt)
{
	if (opt->nqueues < 1 || opt->nqueues > BLK_MAX_QUEUES)
		return silt_err(EINVAL, "%u queues: 1 to %u are possible", opt->nqueues,
				BLK_MAX_QUEUES);
	if (opt->block_size && opt->block_size != 512 && opt->block_size != 4096)
		return silt_err(EINVAL, "block size %u: 512 and 4096 are possible",
				opt->block_size);
	if (strlen(opt->serial) > BLK_SERIAL_BYTES)
		return silt_err(EINVAL, "serial '%s' is longer than %u bytes", opt->serial,
				BLK_SERIAL_BYTES);
	return 0;
}

/* Say at once, and not at the first connection, that io_uring cannot be had. */
static int probe_engine(struct blk_disk *disk)
{
	struct blk_engine *engine;
	int ret;

	if (disk->aio == BLK_AIO_SYNC)
		return 0;
	ret = blk_uring_create(&disk->img, -1, &engine);
	if (!ret) {
		engine->ops->destroy(engine);
		return 0;
	}
	if (disk->aio == BLK_AIO_URING)
		return ret;
	blk_notice("%s; going on with plain system calls", silt_errmsg());
	disk->aio = BLK_AIO_SYNC;
	return 0;
}

int blk_device_create(struct blk_device *dev, const struct blk_options *opt)
{
	int ret = check_options(opt);

	if (ret < 0)
		return ret;
	memset(dev, 0, sizeof(*dev));
	ret = blk_image_open(&dev->disk.img, opt->image, opt->read_only, opt->block_size);
	if (ret < 0)
		return ret;
	dev->disk.aio = opt->aio;
	ret = probe_engine(&dev->disk);
	if (ret < 0) {
		blk_image_close(&dev->disk.img);
		return ret;
	}
	memcpy(dev->disk.serial, opt->serial, strlen(opt->serial));
	dev->disk.notify = (struct blk_notify){.call = call, .error = error, .arg = dev};
	dev->nqueues = opt->nqueues;
	dev->in_order = opt->in_order;
	for (unsigned int i = 0; i < dev->nqueues; i++)
		blk_queue_init(&dev->queues[i], &dev->disk, i);
	dev->ops = (struct silt_backend_ops){
		.size = sizeof(dev->ops),
		.features = offered(dev),
		.nqueues = dev->nqueues,
		.queue_start = start,
		.queue_stop = stop,
		.queue_pause = pause_queue,
		.queue_resume = resume,
		.set_features = set_features,
		.get_config = get_config,
		.set_config = set_config,
		.reset = reset,
	};
	reset(dev);
	return 0;
}

int blk_device_prepare(struct blk_device *dev)
{
	int ret = 0;

	for (unsigned int i = 0; i < dev->nqueues && !ret; i++)
		ret = blk_queue_prepare(&dev->queues[i]);
	return ret;
}

bool blk_device_enters_by_fd(const struct blk_device *dev)
{
	for (unsigned int i = 0; i < dev->nqueues; i++)
		if (dev->queues[i].engine->entered_by_fd)
			return true;
	return false;
}

void blk_device_destroy(struct blk_device *dev)
{
	for (unsigned int i = 0; i < dev->nqueues; i++)
		blk_queue_destroy(&dev->queues[i]);
	blk_image_close(&dev->disk.img);
}
