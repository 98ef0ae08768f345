/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mutant.h"
#include "sync/kernel_abi.h"
#include "sync/sync_internal.h"

/*
 * Regions that a scan asks for: what the kernel buffers. Where more come back, the place that it
 * says it stopped at may be an old one.
 */
#define MAX_REGIONS 512

/*
 * The memory is write-protected once, when the source is attached. From then on a page that is not
 * was written, or thrown away, since it was protected last: the kernel lifts the protection by
 * itself, and a scan puts it back with the same look that finds it gone.
 */
struct pagemap_source {
	struct sync_source source;
	struct sync_block *block;
	uint64_t start; /* address and length of the block's memory */
	uint64_t bytes;
	int uffd;
	int pagemap_fd;
	struct sync_page_region regions[MAX_REGIONS];
	uint64_t first; /* pages [first, end) were found and are not delivered yet */
	uint64_t end;
};

static struct pagemap_source *pagemap_of(struct sync_source *src)
{
	return (struct pagemap_source *)src;
}

/* ---- Scanning -------------------------------------------------------------------------------- */

static void deliver_pending(struct pagemap_source *p)
{
	if (p->first < p->end)
		sync_deliver_pages(&p->source, p->block, p->first, p->end - p->first);
	p->first = p->end;
}

/*
 * Bytes [@from, @end) of the block were written. They come in order; a page of the block that is
 * larger than the host's is delivered, and counted, once.
 */
static void add_pending(struct pagemap_source *p, uint64_t from, uint64_t end)
{
	unsigned int shift = p->source.sync->opt.page_shift;
	uint64_t first = from >> shift;

	if (first > p->end) {
		deliver_pending(p);
		p->first = first;
	}
	p->end = ((end - 1) >> shift) + 1;
}

/* Find what was written in [@from, @end), and protect it again. Return: regions, or -errno. */
static int scan(struct pagemap_source *p, uint64_t from, uint64_t end)
{
	struct sync_scan_arg arg = {
		.size = sizeof(arg),
		.flags = SYNC_SCAN_WP_MATCHING | SYNC_SCAN_CHECK_WPASYNC,
		.start = from,
		.end = end,
		.vec = (uintptr_t)p->regions,
		.vec_len = MAX_REGIONS,
		.category_mask = SYNC_PAGE_IS_WRITTEN,
		.return_mask = SYNC_PAGE_IS_WRITTEN,
	};
	int n = ioctl(p->pagemap_fd, SYNC_PAGEMAP_SCAN, &arg);

	return n < 0 ? -errno : n;
}

static int scan_failed(struct pagemap_source *p, int err, uint64_t at)
{
	add_pending(p, at - p->start, p->bytes);
	return silt_err_sys(err,
			    "source %s: PAGEMAP_SCAN of RAM block %s from offset %#" PRIx64 " on",
			    p->source.name, p->block->name, at - p->start);
}

static int scan_all(struct pagemap_source *p)
{
	uint64_t at = p->start, end = p->start + p->bytes;
	int n, i;

	do {
		n = scan(p, at, end);
		if (n < 0)
			return scan_failed(p, -n, at);
		for (i = 0; i < n; i++)
			add_pending(p, p->regions[i].start - p->start,
				    p->regions[i].end - p->start);
		if (n == MAX_REGIONS)
			at = p->regions[n - 1].end;
	} while (n == MAX_REGIONS && at < end && !SILT_FAULT(sync_pagemap_stop_early));
	return 0;
}

static int pagemap_read(struct sync_source *src)
{
	struct pagemap_source *p = pagemap_of(src);
	int ret;

	p->first = p->end = 0;
	ret = scan_all(p);
	deliver_pending(p);
	return ret;
}

/* ---- Protection ------------------------------------------------------------------------------ */

static int too_old(const struct pagemap_source *p, const char *what)
{
	return silt_err(
		EOPNOTSUPP,
		"RAM block %s cannot be watched: this kernel has no %s (Linux 6.7 brought it)",
		p->block->name, what);
}

/* The protection is lifted by the kernel itself: no fault, of no kind, is ever handed to us. */
static int open_uffd(struct pagemap_source *p)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = SYNC_UFFD_WP_ASYNC | SYNC_UFFD_WP_UNPOPULATED |
			    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};

	p->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (p->uffd < 0 && (errno == ENOSYS || errno == EINVAL))
		return too_old(p, "userfaultfd that serves this");
	if (p->uffd < 0)
		return silt_err_sys(errno, "RAM block %s cannot be watched: userfaultfd",
				    p->block->name);
	if (!ioctl(p->uffd, UFFDIO_API, &api))
		return 0;
	if (errno == EINVAL)
		return too_old(p, "asynchronous write-protection");
	return silt_err_sys(errno, "RAM block %s cannot be watched: UFFDIO_API", p->block->name);
}

static int protect(struct pagemap_source *p)
{
	struct uffdio_register reg = {
		.range = {.start = p->start, .len = p->bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_writeprotect wp = {
		.range = reg.range,
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (ioctl(p->uffd, UFFDIO_REGISTER, &reg) < 0)
		return silt_err_sys(errno, "RAM block %s cannot be watched: UFFDIO_REGISTER",
				    p->block->name);
	if (!(reg.ioctls & UINT64_C(1) << _UFFDIO_WRITEPROTECT))
		return silt_err(EOPNOTSUPP,
				"RAM block %s cannot be watched: its kind of memory cannot be "
				"write-protected",
				p->block->name);
	if (ioctl(p->uffd, UFFDIO_WRITEPROTECT, &wp) < 0)
		return silt_err_sys(errno, "RAM block %s cannot be watched: UFFDIO_WRITEPROTECT",
				    p->block->name);
	return 0;
}

/* A first scan, of what is clean, shows whether scans are to be had. */
static int open_pagemap(struct pagemap_source *p)
{
	int ret;

	p->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (p->pagemap_fd < 0)
		return silt_err_sys(errno, "RAM block %s cannot be watched: /proc/self/pagemap",
				    p->block->name);
	ret = scan(p, p->start, p->start);
	if (ret == -ENOTTY)
		return too_old(p, "PAGEMAP_SCAN");
	if (ret < 0)
		return silt_err_sys(-ret, "RAM block %s cannot be watched: PAGEMAP_SCAN",
				    p->block->name);
	return 0;
}

/* ---- The source ------------------------------------------------------------------------------ */

static bool pagemap_watches(struct sync_source *src, const struct sync_block *block)
{
	return pagemap_of(src)->block == block;
}

static void pagemap_destroy(struct sync_source *src)
{
	struct pagemap_source *p = pagemap_of(src);
	struct uffdio_range range = {.start = p->start, .len = p->bytes};

	/* A child that was forked since may hold the descriptor still. */
	if (p->uffd >= 0) {
		ioctl(p->uffd, UFFDIO_UNREGISTER, &range);
		close(p->uffd);
	}
	if (p->pagemap_fd >= 0)
		close(p->pagemap_fd);
	free(src->name);
	free(p);
}

static const struct sync_source_ops pagemap_ops = {
	.kind = "pagemap",
	.step = offsetof(struct silt_sync_stats, pagemap_ns),
	.read = pagemap_read,
	.watches = pagemap_watches,
	.destroy = pagemap_destroy,
};

static int check_block(const struct silt_sync *s, const struct sync_block *block)
{
	uint64_t host_page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t bytes = block->pages << s->opt.page_shift;

	if (!block->host)
		return silt_err(EINVAL, "RAM block %s cannot be watched: it is not mapped here",
				block->name);
	if (((uintptr_t)block->host | bytes) % host_page)
		return silt_err(EINVAL,
				"RAM block %s cannot be watched: %#" PRIx64 " bytes at %p are no "
				"multiples of the host's page of %" PRIu64,
				block->name, bytes, block->host, host_page);
	return 0;
}

static struct pagemap_source *make(const struct silt_sync *s, struct sync_block *block)
{
	struct pagemap_source *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->block = block;
	p->start = (uintptr_t)block->host;
	p->bytes = block->pages << s->opt.page_shift;
	p->uffd = -1;
	p->pagemap_fd = -1;
	return p;
}

static int watch(struct silt_sync *s, struct pagemap_source *p, const char *name)
{
	int ret = open_uffd(p);

	if (!ret)
		ret = protect(p);
	if (!ret)
		ret = open_pagemap(p);
	return ret ? ret : sync_source_attach(s, &p->source, name, &pagemap_ops);
}

static int add(struct silt_sync *s, const struct silt_sync_pagemap *opt)
{
	struct sync_block *block = sync_block_find(s, opt->block);
	struct pagemap_source *p;
	int ret = block ? check_block(s, block) : -ENOENT;

	if (ret)
		return ret;
	p = make(s, block);
	if (!p)
		return silt_err(ENOMEM, "no memory for a source");
	ret = watch(s, p, opt->name);
	if (ret < 0)
		pagemap_destroy(&p->source);
	return ret;
}

int silt_sync_add_pagemap(struct silt_sync *s, const struct silt_sync_pagemap *options)
{
	struct silt_sync_pagemap opt;
	int ret = silt_options_get(&opt, sizeof(opt), options, "watched memory");

	if (ret)
		return ret;
	pthread_rwlock_wrlock(&s->topology);
	ret = add(s, &opt);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
