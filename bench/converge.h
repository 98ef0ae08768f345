/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_CONVERGE_H
#define BENCH_CONVERGE_H

#include <stdbool.h>
#include <stdint.h>

struct bench_converge_options {
	uint64_t memory;      /* bytes */
	uint64_t rate;	      /* pages that the guest writes in a second; 0: see below */
	uint64_t bandwidth;   /* bytes a second, at most */
	uint64_t downtime_ns; /* 0: see below */
	const char *self;     /* the silt binary */
	const char *dir;      /* for reports, on the way */
	const char *json;     /* write the result here, or NULL */
};

/*
 * What the time of syncs does to a migration: one guest is migrated by silt, then with a sync that
 * goes page by page, for the same downtime and for the one that was forecast then.
 *
 * Without a rate, a migration of each kind first finds out what a page takes, sync and all: the
 * guest then writes a little less than what silt can send, and the downtime is a quarter of
 * what the other way should come to.
 *
 * Return: 0; 1 it did not come out so; -errno with silt_errmsg() set: there is no KVM here, ...
 * Blocks: for several migrations.
 */
int bench_converge(const struct bench_converge_options *opt);

#endif
