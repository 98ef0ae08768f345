/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SILT_VHOST_LOG_WRITE_H
#define SILT_VHOST_LOG_WRITE_H

#include <linux/compiler.h>
#include <linux/jump_label.h>
#include <linux/percpu.h>
#include <linux/types.h>

/* What became of words of the log, but @failed, which counts whole log writes. */
struct silt_counters {
	u64 direct;    /* set by direct access */
	u64 skipped;   /* had all their bits already */
	u64 faulted;   /* direct access faulted */
	u64 contended; /* direct access lost too often */
	u64 pinned;    /* set through a pinned page */
	u64 failed;    /* log writes of which at least one page could not be logged */
};

DECLARE_PER_CPU(struct silt_counters, silt_counters);

/* Look whether the bits are set before setting them: a full barrier, and no write if they are. */
DECLARE_STATIC_KEY_FALSE(silt_test_first);

#ifdef SILT_BROKEN
struct dentry;

/* How often to relax between reading a word and writing it, for those methods that do both. */
extern unsigned int silt_window;

void silt_debug_create(struct dentry *directory);
#endif

struct silt_method {
	const char *name;
	/* In place of vhost's function of this name. */
	int (*log_write)(void __user *log_base, u64 write_address, u64 write_length);
};

/* The best first; ends with one that has no name. */
extern const struct silt_method silt_methods[];

#endif
