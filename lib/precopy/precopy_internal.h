/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_INTERNAL_H
#define SILT_PRECOPY_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "base/err.h"
#include "precopy/channel.h"
#include "precopy/estimate.h"

struct precopy_sender;

/* Time, which tests have their own way. */
struct precopy_clock {
	uint64_t (*now)(void *opaque);
	/* Wait for @ns, or until it is cancelled. */
	void (*wait)(void *opaque, struct precopy_channel *channel, uint64_t ns);
	void *opaque;
};

struct silt_precopy_state {
	uint8_t *data;
	size_t used, room;
	uint64_t max;
	struct silt_failure failure; /* that a callback may hand on */
};

/* Pages that the destination is to be told of: they need not arrive. */
struct precopy_skip {
	size_t block; /* index */
	uint64_t first, n;
};

struct precopy_skips {
	pthread_mutex_t lock;
	struct precopy_skip *list;
	size_t used, room;
};

/* Rounds that are kept; older ones make place. */
#define PRECOPY_HISTORY 32

struct silt_precopy {
	struct silt_precopy_options opt; /* with the defaults filled in */
	struct silt_precopy_block *blocks;
	struct silt_precopy_ops ops;
	struct silt_precopy_transport transport; /* the caller's, if sender is NULL */
	struct precopy_sender *sender;
	struct precopy_channel channel; /* without a peer where the transport is the caller's */
	struct precopy_clock clock;
	struct precopy_basis basis;
	struct precopy_skips skips;
	struct silt_precopy_state state;
	size_t watched; /* blocks whose memory may fault */

	/* Of the running migration. */
	uint64_t began;
	uint64_t rtt_ns;
	uint64_t cap_next; /* when the bandwidth cap lets the next byte go */
	unsigned int throttle;
	unsigned int bad; /* rounds in a row */
	bool ran, tracked, paused, unsure;
	struct silt_precopy_round history[PRECOPY_HISTORY];
	size_t nhistory;
	struct silt_precopy_round now; /* the round that is under way */
	struct silt_precopy_result result;
	struct silt_failure failure; /* that ended it */
};

/* Nanoseconds since some moment. */
uint64_t precopy_now(const struct silt_precopy *p);

/* An error of a callback that returned @ret. */
int precopy_callback_failed(int64_t ret, const char *which);

/* An error of an op, which has left a message if it is a sync engine's. */
int precopy_op_failed(const struct silt_precopy *p, int64_t ret, const char *which);

/* The consumer of a sync engine as ops. */
void precopy_ops_of_sync(struct silt_precopy_ops *ops, struct silt_precopy *p);

/* All that is dirty is sent, a flush behind it; the time goes into the round that is under way. */
int precopy_send_dirty(struct silt_precopy *p);

/* All pages that are dirty. Return: how many, or -errno. */
int64_t precopy_count_dirty(struct silt_precopy *p);

/* Begin, and end, the round that is under way; its end takes it into the history. */
void precopy_round_begin(struct silt_precopy *p, bool last);
void precopy_round_end(struct silt_precopy *p);

/* The sync of the round that is under way. */
int precopy_round_sync(struct silt_precopy *p);

/* Tell the monitor of a round. Return: 0, or what it returned. */
int precopy_report(struct silt_precopy *p, const struct silt_precopy_round *round);

/*
 * Pause the guest, send the rest, hand it over. Return: enum silt_precopy_end; -errno, and then the
 * guest may be paused still.
 */
int precopy_switch_over(struct silt_precopy *p);

/* Pages that were taken and not sent; errors cannot be helped. */
void precopy_put_back(struct silt_precopy *p, size_t block, uint64_t first, uint64_t n);

#endif
