/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_SESSION_H
#define CHECK_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/frontend.h>
#include <silt/log.h>
#include <silt/virtq.h>

#include "check/axes.h"
#include "check/device.h"
#include "check/guest.h"
#include "check/iommu.h"
#include "check/places.h"
#include "check/target.h"
#include "check/transport.h"

/*
 * One connection to the backend: the frontend that sets it up and the driver that uses its queues.
 *
 * All functions return 0 (or a value where said), or -errno with a sentence in s->error that says
 * what the backend did; then the session is broken, and is only closed.
 */

#define SESSION_QUEUES	  AXES_MAX_QUEUES
#define SESSION_MAX_NUM	  512
#define SESSION_ERROR_LEN 1600

/* Where the low region lies too, if it does: the same user addresses, and the same memory. */
#define SESSION_ALIAS UINT64_C(0x80005000)

/* A dirty log and the file it lies in. */
struct check_session_log {
	int fd;
	uint64_t size;
	uint64_t offset;
	struct silt_log *map;
};

struct check_session_queue {
	uint16_t num;
	uint64_t desc, avail, used; /* guest addresses */
	uint64_t log_gpa;	    /* where its used ring is logged */
	uint16_t first;		    /* index, or place, that it began with */
	int64_t stopped_at;	    /* what GET_VRING_BASE answered, -1 if it did not */
	/* Of a packed ring: the next descriptors to make available, and to be used. */
	uint16_t avail_place, used_place;
	uint16_t added;	    /* buffers that the device was given since */
	uint16_t collected; /* and gave back */
	bool fills;	    /* it gives them back when it has something for them, */
	uint16_t due;	    /* and so many of them, in all, are known to come */
	int kick, call, err;
	struct silt_driver *driver;
	/* The request whose used entry is in each slot, and the last one that was collected. */
	struct check_request *slot[SESSION_MAX_NUM];
	struct check_request *last;
	struct check_request *flying; /* the one that is waited for longest, for messages */
};

struct check_session {
	struct check_target *target;
	struct check_guest *guest;
	struct check_places *places;
	struct check_transport *transport;
	struct silt_frontend *f; /* the transport's, for what vhost-user alone has, or NULL */
	FILE *trace;
	int timeout_ms;
	uint64_t offered; /* features */
	uint64_t offered_protocol;
	uint64_t protocol;	/* features that were acknowledged */
	uint64_t more_protocol; /* to acknowledge besides those that the checker needs */
	uint64_t features;	/* to acknowledge, without VHOST_F_LOG_ALL */
	bool packed;		/* by those */
	unsigned int nqueues;
	struct check_session_queue queue[SESSION_QUEUES];
	struct check_iommu iommu;
	bool log_all;	 /* the backend was told to log buffers */
	bool log_ring;	 /* and used rings */
	bool never_idle; /* the device does not ask for kicks */
	/* Run when the rings of a connection have been started first, or NULL. */
	int (*opening)(struct check_session *s);
	void *opening_arg;
	bool opened;
	unsigned int losses; /* how often answers did not come */
	char error[SESSION_ERROR_LEN];
	char wrong[CHECK_WRONG_LEN]; /* the first wrong answer that did not break the session, or ""
				      */
};

/*
 * Connect, and learn what the backend offers. @s is zero, but for target, guest, places, trace and
 * more_protocol.
 */
int check_session_open(struct check_session *s);

/* Connect again with a backend that is started again: the rings stay as they are. */
int check_session_reconnect(struct check_session *s);

/*
 * Lose the connection and make another one, on which nothing is set up yet. Rings and drivers stay
 * as they are.
 */
int check_session_lose_connection(struct check_session *s);

/* Close the connection and free everything, whatever state it is in. */
void check_session_close(struct check_session *s, bool broken);

/* Place the rings where @scenario wants them, and make the drivers. */
int check_session_make_rings(struct check_session *s, const struct check_scenario *scenario);

/* Acknowledge s->features and tell the backend the memory. */
int check_session_set_up(struct check_session *s, bool with_high);
int check_session_add_high(struct check_session *s);
int check_session_remove_high(struct check_session *s);

/* Start all rings from where they are; s->log_ring says whether their used rings are logged. */
int check_session_start(struct check_session *s);

/*
 * Stop all rings. A backend that has not finished what it took by then leaves a sentence in
 * s->wrong.
 */
int check_session_stop(struct check_session *s);

/*
 * The two halves of check_session_stop(), for a driver that goes on adding buffers in another
 * thread during the first. A base is what GET_VRING_BASE answered, or -errno, and a split ring's
 * used index at that moment.
 */
struct check_session_base {
	int64_t answer;
	uint16_t used;
};

void check_session_get_bases(const struct check_session *s,
			     struct check_session_base bases[SESSION_QUEUES]);
int check_session_stopped(struct check_session *s,
			  const struct check_session_base bases[SESSION_QUEUES]);

/* Acknowledge s->features, and with s->log_all that buffers are to be logged. */
int check_session_set_features(struct check_session *s);

/* Switch logging on or off on running rings, as a monitor does. */
int check_session_logging(struct check_session *s, bool on, bool ring);
int check_session_set_log(struct check_session *s, const struct check_session_log *log);

/* What the device was about to fill buffers with may be lost: it is not waited for. */
void check_session_forget_answers(struct check_session *s);

/* A round trip: everything sent before it has been handled. */
int check_session_barrier(struct check_session *s);

/* Make a request available. Waits for others if the ring is full. */
int check_session_add(struct check_session *s, struct check_request *r);

/*
 * As a hostile guest does: make the descriptors of data buffers point at their decoys, whether or
 * not the device has read them.
 */
void check_session_rewrite(struct check_session *s, const struct check_request *r);

/* Kick all queues, whether or not they asked for it. */
void check_session_kick(struct check_session *s);

/* Wait until the device holds no buffer but those of a queue that it has nothing for. */
int check_session_wait(struct check_session *s);

/* Wait until at most @most buffers of each queue are to come back. */
int check_session_wait_below(struct check_session *s, unsigned int most);

/* Buffers of queue @q that the device holds. */
unsigned int check_session_in_flight(const struct check_session *s, unsigned int q);

/* Buffers of queue @q that the device holds and has nothing for yet. */
unsigned int check_session_spare(const struct check_session *s, unsigned int q);

/* Take what has come back already. */
int check_session_collect(struct check_session *s);

/* Does the device ask for kicks on all queues? */
bool check_session_wants_kicks(const struct check_session *s);

/*
 * Wait until the device asks for kicks, so that it has nothing left to do; but only a short time,
 * and no more in this session once that was in vain.
 */
void check_session_wait_idle(struct check_session *s);

/*
 * Make whatever the device stores into the used rings a change: slots that it cannot be about to
 * fill, the flags, the event field. The before copy follows. Kicks are sent whatever these say.
 */
void check_session_poison_rings(struct check_session *s);

/* A new log of a size for the guest's memory. Return: 0 or -errno (silt_errmsg()). */
int check_session_log_create(struct check_session_log *log, uint64_t pages, uint64_t offset);
void check_session_log_destroy(struct check_session_log *log);

/* Leave in s->error what a failed call on the frontend means. Return: @ret. */
int check_session_failed(struct check_session *s, int ret, const char *doing);
void check_session_wrong(struct check_session *s, const char *format, ...)
	__attribute__((format(printf, 2, 3), cold));
int check_session_error(struct check_session *s, const char *format, ...)
	__attribute__((format(printf, 2, 3), cold));

#endif
