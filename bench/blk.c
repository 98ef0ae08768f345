/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "bench/backend.h"
#include "bench/blk.h"
#include "bench/load.h"
#include "bench/stats.h"

/* All of it stays in the page cache, so that backends are measured and not a disk. */
#define IMAGE_SIZE (UINT64_C(128) << 20)

#define WARM_UP_NS UINT64_C(20000000)

/* Sockets lie there too, and their paths are short. */
#define BENCH_DIR_LEN 96

struct contest {
	struct blk_result result;
	char dir[BENCH_DIR_LEN];
	char image[BENCH_DIR_LEN + sizeof("/disk.img")];
	struct bench_backend backends[BENCH_MAX_BACKENDS];
	struct session sessions[BENCH_MAX_BACKENDS];
	double cpu_us[BENCH_MAX_BACKENDS][BENCH_BLK_MAX_ROUNDS];
};

static const struct blk_load {
	const char *name;
	unsigned int depth;
	uint32_t bytes;
	bool write;
} loads[BENCH_BLK_ROWS] = {
	{"read-4k/1", 1, 4096, false},	   {"write-4k/1", 1, 4096, true},
	{"read-64k/1", 1, 65536, false},   {"write-64k/1", 1, 65536, true},
	{"read-4k/32", 32, 4096, false},   {"write-4k/32", 32, 4096, true},
	{"read-64k/32", 32, 65536, false}, {"write-64k/32", 32, 65536, true},
};

static bool wanted(const struct blk_load *load, const char *only)
{
	return !only || !strncmp(load->name, only, strlen(only));
}

static unsigned int count_loads(const char *only)
{
	unsigned int i, n = 0;

	for (i = 0; i < BENCH_BLK_ROWS; i++)
		n += wanted(&loads[i], only);
	return n;
}

bool bench_blk_has(const char *only)
{
	return count_loads(only);
}

/* ---- The image ------------------------------------------------------------------------------- */

static const char *file_system_name(const char *path)
{
	struct statfs st;

	if (statfs(path, &st) < 0)
		return "unknown";
	switch (st.f_type) {
	case TMPFS_MAGIC:
		return "tmpfs";
	case EXT4_SUPER_MAGIC:
		return "ext4";
	case XFS_SUPER_MAGIC:
		return "xfs";
	case BTRFS_SUPER_MAGIC:
		return "btrfs";
	case OVERLAYFS_SUPER_MAGIC:
		return "overlayfs";
	}
	return "unknown";
}

/* Every byte is written: no holes, and all of it in the page cache. */
static int fill_image(int fd)
{
	static uint8_t chunk[1 << 20];

	errno = posix_fallocate(fd, 0, IMAGE_SIZE);
	if (errno)
		return -1;
	for (size_t i = 0; i < sizeof(chunk); i++)
		chunk[i] = i * 131 >> 3;
	for (uint64_t at = 0; at < IMAGE_SIZE; at += sizeof(chunk))
		if (pwrite(fd, chunk, sizeof(chunk), at) != sizeof(chunk))
			return -1;
	return fsync(fd);
}

static int make_image(struct contest *c)
{
	int fd, ret = 0;

	if (snprintf(c->dir, sizeof(c->dir), "%s/silt-bench-XXXXXX", c->result.opt->dir) >=
	    (int)sizeof(c->dir)) {
		c->dir[0] = '\0';
		return silt_err(ENAMETOOLONG, "a socket in %s would have too long a path",
				c->result.opt->dir);
	}
	if (!mkdtemp(c->dir))
		return silt_err_sys(errno, "no directory for the image in %s", c->result.opt->dir);
	snprintf(c->image, sizeof(c->image), "%s/disk.img", c->dir);
	fd = open(c->image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || fill_image(fd) < 0)
		ret = silt_err_sys(errno, "%s cannot be filled", c->image);
	if (fd >= 0)
		close(fd);
	c->result.file_system = file_system_name(c->dir);
	return ret;
}

/* ---- The backends ---------------------------------------------------------------------------- */

static int start_backend(struct contest *c, const char *name, char *const argv[])
{
	unsigned int i = c->result.nbackends;
	int ret = bench_backend_start(&c->backends[i], c->dir, name, argv);

	if (ret < 0)
		return ret;
	ret = session_open(&c->sessions[i], c->backends[i].socket, c->result.opt->logging);
	if (ret < 0) {
		char why[256];

		snprintf(why, sizeof(why), "%s", silt_errmsg());
		bench_backend_stop(&c->backends[i]);
		return silt_err(-ret, "%s (%s) does not serve: %s", name, argv[0], why);
	}
	c->result.names[i] = name;
	c->result.nbackends++;
	return 0;
}

static int start_silt(struct contest *c)
{
	char file[BENCH_DIR_LEN + 32];
	char self[4096], aio[32];
	char *argv[] = {self, (char[]){"blk"}, file, aio, (char[]){"--fd=3"}, NULL};

	snprintf(self, sizeof(self), "%s", c->result.opt->self);
	snprintf(aio, sizeof(aio), "--aio=%s", c->result.opt->aio);
	snprintf(file, sizeof(file), "--blk-file=%s", c->image);
	return start_backend(c, "silt", argv);
}

/* The peer with an I/O thread that polls as it does by default, and the same cache mode. */
static int start_peer(struct contest *c, const char *name, const char *aio)
{
	char path[4096], file[256];
	char *argv[] = {
		path,
		(char[]){"--object"},
		(char[]){"iothread,id=io"},
		(char[]){"--blockdev"},
		file,
		(char[]){"--export"},
		(char[]){"type=vhost-user-blk,id=export,node-name=disk,addr.type=fd,addr.str=3,"
			 "writable=on,num-queues=1,iothread=io"},
		NULL,
	};

	snprintf(path, sizeof(path), "%s", c->result.opt->peer);
	snprintf(file, sizeof(file),
		 "driver=file,node-name=disk,filename=%s,locking=off,aio=%s,cache.direct=off,"
		 "cache.no-flush=off",
		 c->image, aio);
	return start_backend(c, name, argv);
}

static int start_all(struct contest *c)
{
	int ret;

	bench_backend_set_apart();
	ret = start_silt(c);
	if (!ret && c->result.opt->peer)
		ret = start_peer(c, "qsd-threads", "threads");
	/* It has no fallback where io_uring cannot be had. */
	if (!ret && c->result.opt->peer && start_peer(c, "qsd-io_uring", "io_uring") < 0)
		fprintf(stderr, "silt bench: %s; it is left out\n", silt_errmsg());
	return ret;
}

static void stop_all(struct contest *c)
{
	while (c->result.nbackends) {
		unsigned int i = --c->result.nbackends;

		session_close(&c->sessions[i]);
		bench_backend_stop(&c->backends[i]);
	}
}

/* ---- The measurement ------------------------------------------------------------------------- */

/* One slice, of a load that has been warmed up. */
static int measure(struct contest *c, unsigned int backend, const struct load *load, uint64_t seed,
		   double *iops, double *cpu_us)
{
	const struct bench_backend *b = &c->backends[backend];
	struct load_result result;
	uint64_t cpu;
	int ret;

	ret = load_run(&c->sessions[backend], load, WARM_UP_NS, seed, &result);
	if (ret < 0)
		return ret;
	cpu = bench_backend_cpu_ns(b);
	ret = load_run(&c->sessions[backend], load, c->result.slice_s * 1e9, seed + 1, &result);
	if (ret < 0)
		return ret;
	cpu = bench_backend_cpu_ns(b) - cpu;
	*iops = result.requests * 1e9 / result.ns;
	*cpu_us = cpu / 1e3 / result.requests;
	return 0;
}

/* Medians and extremes of one row; the rounds keep their order. */
static void evaluate(struct contest *c, struct blk_row *row)
{
	unsigned int n = c->result.opt->rounds;
	double sorted[BENCH_BLK_MAX_ROUNDS];

	row->best = 0;
	for (unsigned int b = 0; b < c->result.nbackends; b++) {
		struct blk_figure *f = &row->figures[b];

		memcpy(sorted, f->rounds, n * sizeof(*sorted));
		f->iops = stats_median(sorted, n);
		f->min = sorted[0];
		f->max = sorted[n - 1];
		f->cpu_us = stats_median(c->cpu_us[b], n);
		for (unsigned int i = 0; i < n; i++)
			sorted[i] = row->figures[0].rounds[i] / f->rounds[i];
		f->ratio = stats_median(sorted, n);
		f->ratio_min = sorted[0];
		f->ratio_max = sorted[n - 1];
		if (b && (!row->best || f->iops > row->figures[row->best].iops))
			row->best = b;
	}
}

static void tell(const struct contest *c, const struct blk_row *row, unsigned int round,
		 unsigned int backend)
{
	if (c->result.opt->progress)
		fprintf(stderr, "\r%s %u KiB, depth %u, round %u of %u, %s\x1b[K",
			row->write ? "write" : "read", row->bytes / 1024, row->depth, round + 1,
			c->result.opt->rounds, c->result.names[backend]);
}

static int run_round(struct contest *c, struct blk_row *row, const struct load *load,
		     unsigned int round)
{
	int ret = 0;

	for (unsigned int b = 0; !ret && b < c->result.nbackends; b++) {
		tell(c, row, round, b);
		ret = measure(c, b, load, round, &row->figures[b].rounds[round],
			      &c->cpu_us[b][round]);
	}
	return ret;
}

/* Both slices of a pair have the same requests; every other pair begins with logging on. */
static int run_pair(struct contest *c, unsigned int backend, const struct load *load,
		    unsigned int round, struct blk_pair *pair)
{
	double cpu_us;
	int ret = 0;

	for (unsigned int i = 0; !ret && i < 2; i++) {
		bool on = (round + i) % 2;

		ret = session_set_logging(&c->sessions[backend], on);
		if (!ret)
			ret = measure(c, backend, load, round, on ? &pair->on : &pair->off,
				      &cpu_us);
	}
	return ret;
}

static int run_pairs(struct contest *c, struct blk_row *row, const struct load *load,
		     unsigned int round)
{
	int ret = 0;

	for (unsigned int b = 0; !ret && b < c->result.nbackends; b++) {
		tell(c, row, round, b);
		ret = run_pair(c, b, load, round, &row->costs[b].pairs[round]);
	}
	return ret;
}

static void evaluate_cost(struct blk_cost *cost, unsigned int n)
{
	double off[BENCH_BLK_MAX_ROUNDS], on[BENCH_BLK_MAX_ROUNDS], ratio[BENCH_BLK_MAX_ROUNDS];

	for (unsigned int i = 0; i < n; i++) {
		off[i] = cost->pairs[i].off;
		on[i] = cost->pairs[i].on;
		ratio[i] = off[i] / on[i];
	}
	cost->bound = stats_median_bound(ratio, n);
	cost->ratio = stats_median(ratio, n);
	cost->off = stats_median(off, n);
	cost->on = stats_median(on, n);
}

static int run_row(struct contest *c, struct blk_row *row)
{
	const struct bench_blk_options *opt = c->result.opt;
	struct load load = {row->depth, row->bytes, row->write, IMAGE_SIZE, opt->wait};
	int ret = 0;

	for (unsigned int round = 0; !ret && round < opt->rounds; round++)
		ret = opt->log_cost ? run_pairs(c, row, &load, round)
				    : run_round(c, row, &load, round);
	if (!ret && !opt->log_cost)
		evaluate(c, row);
	for (unsigned int b = 0; !ret && opt->log_cost && b < c->result.nbackends; b++)
		evaluate_cost(&row->costs[b], opt->rounds);
	return ret;
}

static int run_all(struct contest *c)
{
	struct blk_result *r = &c->result;
	unsigned int slices = count_loads(r->opt->only) * r->opt->rounds * r->nbackends;
	int ret = 0;

	r->slice_s = r->opt->seconds / (r->opt->log_cost ? 2 * slices : slices);
	for (unsigned int i = 0; !ret && i < BENCH_BLK_ROWS; i++) {
		struct blk_row *row = &r->rows[r->nrows];

		if (!wanted(&loads[i], r->opt->only))
			continue;
		row->depth = loads[i].depth;
		row->bytes = loads[i].bytes;
		row->write = loads[i].write;
		ret = run_row(c, row);
		r->nrows++;
	}
	if (r->opt->progress)
		fputs("\r\x1b[K", stderr);
	return ret;
}

static int run_contest(struct contest *c)
{
	int ret = make_image(c);

	if (!ret)
		ret = start_all(c);
	if (!ret)
		ret = run_all(c);
	if (!ret)
		(c->result.opt->log_cost ? bench_blk_print_costs : bench_blk_print)(&c->result);
	if (!ret && c->result.opt->json)
		ret = bench_blk_write_json(&c->result, c->result.opt->json);
	stop_all(c);
	unlink(c->image);
	rmdir(c->dir);
	return ret;
}

int bench_blk(const struct bench_blk_options *opt)
{
	struct contest *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return silt_err(ENOMEM, "no memory for the benchmark");
	c->result.opt = opt;
	ret = run_contest(c);
	free(c);
	return ret;
}
