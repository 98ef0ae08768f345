/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_DEMO_H
#define DEMO_DEMO_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "demo/machine.h"

/*
 * silt demo: a small guest is migrated from one process to another, and both compare what they
 * have.
 *
 *     ram.c       guest memory, who owns which of it, its hash
 *     vm.c        what runs in it: vCPUs or threads
 *     disk.c      the guest's driver; disk_device.c: silt blk and the connection to it
 *     machine.c   all of these together; verify.c: is memory what the guest counted?
 *     tracking.c  the sync engine over it
 *     link.c      what the two processes say to each other besides the migration; callers.c: who
 *                 has connected, and said nothing yet
 *     source.c, destination.c
 *     report.c    what is kept of a migration; report_*.c: for terminals, as JSON and HTML
 */

struct tracking;

/*
 * Bring what KVM logged into the engine's blocks, in place of the engine's own source. Return:
 * pages newly dirty, or -errno.
 */
typedef int64_t demo_read_kvm_fn(struct tracking *t);

#define DEMO_MAX_VCPUS	  8
#define DEMO_MAX_RATE	  10000000
#define DEMO_MAX_ATTEMPTS 1000
#define DEMO_MAX_MS	  86400000

struct demo_options {
	struct machine_config machine; /* its kvm: unless there is none */
	bool no_kvm;
	enum demo_pattern pattern;
	uint64_t rate;	       /* pages a second, all vCPUs together, at least 1 */
	uint32_t before_ms;    /* how long the guest runs before it is migrated */
	uint32_t after_ms;     /* and at the destination before it is checked */
	unsigned int attempts; /* a migration that fails is tried again, so many in all */
	struct silt_precopy_goals goals;
	uint64_t timeout_ms; /* the peer stands still for so long, or does not ask */
	const char *to;	     /* HOST:PORT; NULL: start the destination */
	const char *listen;  /* [HOST]:PORT, or NULL */
	int fd;		     /* a listening socket in its place, or -1 */
	const char *json, *html;
	bool quiet;		    /* only what is wrong */
	bool progress;		    /* on stderr */
	demo_read_kvm_fn *read_kvm; /* for benchmarks of other ways; NULL: the engine's */
};

/* How it ended. */
enum demo_outcome {
	DEMO_EQUAL,	/* the guest runs there, and its memory is what it was here */
	DEMO_DIFFERENT, /* it runs there, and its memory is not */
	DEMO_FAILED,	/* it goes on here */
	DEMO_CANCELLED, /* so too, as was wished */
	DEMO_UNSURE,	/* it stands still here: perhaps it runs there */
};

/*
 * The guest's first home. Its memory is migrated, or the attempts are used up.
 *
 * Return: enum demo_outcome; -errno with a message: the demo could not be set up.
 * Thread: the main one, which takes SIGINT and SIGTERM for wishes to cancel. Blocks: all the time.
 */
int demo_source(const struct demo_options *opt);

/*
 * The guest's second home: of one guest.
 *
 * Return: as demo_source(): DEMO_FAILED is that it never ran here.
 */
int demo_destination(const struct demo_options *opt);

#endif
