/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_H
#define SILT_PRECOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <silt/sync.h>
#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * Pre-copy: move a running guest, know when it will end, lose nothing.
 *
 * The source sends all of RAM while the guest runs, and then, round after round, what was dirtied
 * meanwhile. After each round it estimates the downtime that a switchover would cost now, and says
 * where the rounds lead. Once the estimate is within the goal it pauses the guest, sends the rest
 * and the device state, and hands the guest over:
 *
 *     source                                        destination
 *     HELLO: version, RAM blocks           ------>
 *                                          <------  ACCEPT
 *     PAGES ... ROUND, again and again     ------>  pages are checked, then stored
 *                                          <------  ACK: all up to this ROUND is stored
 *     guest paused, devices drained,
 *     state saved, last sync
 *     PAGES ... ROUND, STATE ... LOAD      ------>  load callback
 *                                          <------  LOADED
 *     START                                ------>  start callback: the guest runs here
 *                                          <------  STARTED
 *
 * Until START was sent whole, whatever goes wrong leaves the guest with the source, running, and
 * ends the destination with an error. From START on only the destination's answer tells who has
 * the guest: STARTED, or REFUSE, which it sends instead where its start callback failed, and then
 * never runs it. Without an answer the source stays paused, and its caller has to find out: see
 * silt_precopy_resolve(). The two never run the guest at once.
 *
 * The wire is ours, or the monitor's own: struct silt_precopy_transport.
 *
 * Functions return 0 or a positive result, or -errno with a message in silt_errmsg(). Options begin
 * with their size, as in sync.h, and so do structures that the library fills in. That of a round,
 * which a callback is shown, is the library's.
 *
 * Callbacks return 0, as which more counts too, or -errno, from the thread that runs the migration;
 * the message then names the callback. Those that are NULL are not called.
 */

/* ---- what both sides share ---- */

/**
 * How bytes come and go: a connected stream socket, or, where @write is not NULL, a pair of
 * functions (TLS, compression, a monitor's own multiplexer).
 *
 * A TCP socket wants TCP_NODELAY: without it, what is to be answered is held back for up to 40 ms,
 * again and again in the downtime. SO_RCVLOWAT is set while much is waited for, and then 1 again.
 *
 * @write takes at least one byte and returns how many, or -errno. If it fails, nothing of what it
 * was given in this call may ever reach the peer: where it cannot know, it claims success and fails
 * later. @read returns how many bytes it put into @buf, at least 1, 0 at the end of the stream, or
 * -errno. Both may block; they return soon with -ECANCELED once the migration was cancelled.
 */
struct silt_channel {
	size_t size; /* sizeof(struct silt_channel) */
	int fd;	     /* stays the caller's; blocking or not */
	int64_t (*write)(void *opaque, const struct iovec *iov, int n);
	int64_t (*read)(void *opaque, void *buf, size_t n);
	void *opaque;
};

/** The most device state that a destination takes, unless it says otherwise. */
#define SILT_PRECOPY_MAX_STATE (UINT64_C(32) << 20)

/** RAM blocks of one migration, and bytes of a name. */
#define SILT_PRECOPY_MAX_BLOCKS 1024
#define SILT_PRECOPY_MAX_NAME	255

/* ---- the source ---- */

struct silt_precopy;

/** One RAM block; both sides give each the same name and size, in any order. */
struct silt_precopy_block {
	const char *name; /* 1 to SILT_PRECOPY_MAX_NAME bytes, in no other block of this guest */
	int id;		  /* what ops are given: the block's id in the sync engine */
	const void *host; /* where it is mapped in this process */
	uint64_t pages;	  /* of 2^page_shift bytes */
};

/**
 * Where dirty pages come from. The default, for @ops NULL, is a consumer of a sync engine: then
 * these are silt_sync_run() and so on. The functions return what those do.
 */
struct silt_precopy_ops {
	size_t size;
	/* Bring what was dirtied into the bitmaps. Return: pages newly dirty. */
	int64_t (*sync)(void *opaque);
	int64_t (*take)(void *opaque, int block, uint64_t from, uint64_t max, uint64_t *first);
	int (*put_back)(void *opaque, int block, uint64_t first, uint64_t n);
	int64_t (*dirty)(void *opaque, int block, uint64_t first, uint64_t n);
	int64_t (*discard)(void *opaque, int block, uint64_t first, uint64_t n);
	int (*stats)(void *opaque, struct silt_sync_stats *stats); /* NULL: reports have none */
	void *opaque;
};

/** Why the rounds go where they go. */
enum silt_precopy_verdict {
	SILT_PRECOPY_UNKNOWN,	  /* no round has shown what the guest dirties */
	SILT_PRECOPY_CONVERGES,	  /* a switchover within the downtime goal comes: see end_ns */
	SILT_PRECOPY_AT_DOWNTIME, /* only for a goal of floor_ns or more */
	SILT_PRECOPY_NEVER,	  /* rounds gain nothing: the floor is what all that the guest
				   * writes takes to send */
};

/** Where the rounds lead, as far as they have shown. Times are from silt_precopy_run() on. */
struct silt_precopy_forecast {
	enum silt_precopy_verdict verdict;
	/* If SILT_PRECOPY_CONVERGES: when the guest runs at the destination, and the downtime. */
	uint64_t end_ns, end_low_ns, end_high_ns;
	uint64_t downtime_ns, downtime_low_ns, downtime_high_ns;
	/* The shortest downtime that rounds lead to. */
	uint64_t floor_ns, floor_low_ns, floor_high_ns;
	double dirty_rate;  /* pages a second that became dirty in the last round */
	double working_set; /* pages that the guest writes again and again; 0: not seen */
	double bandwidth;   /* bytes a second of time spent sending; 0: nothing was */
	/* Were the guest paused now: the downtime. */
	uint64_t now_ns;
};

/**
 * One round: pages are sent, and then a sync tells what became dirty meanwhile. The last one, of
 * the switchover, has the guest paused, and its sync before its pages.
 *
 * total_ns is sync_ns + clear_ns + scan_ns + send_ns and what else there was to do.
 */
struct silt_precopy_round {
	size_t size;
	uint64_t round; /* from 1 on */
	bool last;
	uint64_t began_ns; /* since silt_precopy_run() */
	uint64_t rtt_ns;   /* there and back: the soonest answer so far; 0 with a transport */
	uint64_t total_ns;
	uint64_t clear_ns; /* taking runs, which arms their tracking */
	uint64_t scan_ns;  /* copying, looking for zero pages, checksums */
	uint64_t send_ns;  /* writing, held back by the bandwidth cap, waiting for the ACK */
	uint64_t sync_ns;
	struct silt_sync_stats sync; /* its steps; size 0: the ops have none */
	uint64_t pages;		     /* taken and sent, zero pages among them */
	uint64_t zero_pages;
	uint64_t bytes;	       /* on the wire */
	uint64_t new_pages;    /* that the sync made dirty */
	uint64_t dirty_pages;  /* behind the sync: what the next round sends */
	unsigned int throttle; /* percent, while the pages were sent */
	struct silt_precopy_forecast forecast;
};

/** How it went. */
struct silt_precopy_result {
	size_t size;
	uint64_t rounds; /* the last one included */
	uint64_t total_ns;
	uint64_t pages, zero_pages, bytes;
	uint64_t state_bytes;
	uint64_t expected_downtime_ns; /* when the switchover was decided */
	/* From here on the guest stands still: */
	uint64_t downtime_ns; /* from calling pause to STARTED */
	uint64_t pause_ns;
	uint64_t save_ns; /* drain included */
	uint64_t sync_ns;
	uint64_t send_ns;  /* the last pages, and the device state */
	uint64_t load_ns;  /* from LOAD to LOADED */
	uint64_t start_ns; /* from START to STARTED */
};

/** Device state goes here while save() runs. */
struct silt_precopy_state;

/**
 * silt_precopy_state_write() - some more bytes of device state
 *
 * Return: 0, -ENOMEM, -EFBIG more than the option max_state. Thread: in save(). Blocks: never.
 */
SILT_API int silt_precopy_state_write(struct silt_precopy_state *state, const void *buf, size_t n);

/** What the monitor does when asked; all are given its own pointer. */
struct silt_precopy_monitor {
	size_t size;
	/*
	 * Logging on in all sources, acknowledged by them, before the first sync; off after the
	 * last take, whatever happened in between, also where on failed. Off cannot fail.
	 */
	int (*track)(void *opaque, bool on);
	/* All vCPUs out of the guest. It stands still when this returns. */
	int (*pause)(void *opaque);
	/* Back to where it was before pause; also where pause failed, or save was called. */
	void (*resume)(void *opaque);
	/* Devices finish what they have begun, stop, and give their state. */
	int (*save)(void *opaque, struct silt_precopy_state *state);
	/* Slow vCPUs down to (100 - @percent) % of their time; 0: full speed again. */
	int (*throttle)(void *opaque, unsigned int percent);
	/* After each round, the last one included. Return -ECANCELED to give up. */
	int (*report)(void *opaque, const struct silt_precopy_round *round);
	void *opaque;
};

/** For monitors whose wire is their own. Without a switchover on the wire, theirs decides. */
struct silt_precopy_transport {
	size_t size;
	/*
	 * Send @n pages, with contents read now or never read again. @zero: they are all zero.
	 * Return: bytes on the wire; -errno, and none of them counts as sent.
	 */
	int64_t (*send)(void *opaque, const struct silt_precopy_block *block, uint64_t first,
			uint64_t n, bool zero);
	/* Pages that need not be sent: see silt_precopy_discard(). */
	int (*skip)(void *opaque, const struct silt_precopy_block *block, uint64_t first,
		    uint64_t n);
	/* A round's pages were sent. Returns once the peer has them, that time is of sending. */
	int (*flush)(void *opaque, uint64_t round);
	/*
	 * All pages and the saved @state are sent: hand the guest over. Return 0 the destination
	 * has it; 1 nobody knows; -errno it has not, and never will.
	 */
	int (*hand_over)(void *opaque, const void *state, size_t n);
	/* The migration failed: @why. The destination must not start the guest. */
	void (*abort)(void *opaque, const char *why);
	void *opaque;
};

/** What to do when the goals cannot be met. */
enum silt_precopy_action {
	SILT_PRECOPY_GO_ON,	    /* until they can be met, or it is cancelled */
	SILT_PRECOPY_THROTTLE,	    /* the guest is slowed down, step by step */
	SILT_PRECOPY_STOP_AND_COPY, /* switch over nevertheless */
	SILT_PRECOPY_FAIL,	    /* give up: -ETIME */
};

struct silt_precopy_goals {
	uint64_t downtime_ns; /* the longest downtime; 0: 300 ms */
	uint64_t deadline_ns; /* the longest migration; 0: none. Looked at behind each round; one
			       * that has passed ends any but the last, with SILT_PRECOPY_FAIL */
	uint64_t bandwidth;   /* bytes a second, the most to be sent; 0: no cap */
	/*
	 * For a deadline that will pass, or passed, or a forecast of SILT_PRECOPY_AT_DOWNTIME or
	 * SILT_PRECOPY_NEVER in patience rounds.
	 */
	enum silt_precopy_action action;
	unsigned int patience;	   /* rounds; 0: 3 */
	unsigned int max_throttle; /* percent, to 99; 0: 99 */
};

struct silt_precopy_options {
	size_t size;
	uint32_t page_shift;			 /* of a page of the bitmaps, 12 to 21; 0: 12 */
	const struct silt_precopy_block *blocks; /* copied, their names too */
	size_t nblocks;
	struct silt_sync *sync; /* if ops is NULL */
	int consumer;		/* of it */
	const struct silt_precopy_ops *ops;
	struct silt_precopy_monitor monitor;
	struct silt_precopy_goals goals;
	struct silt_channel channel;			/* if transport is NULL */
	const struct silt_precopy_transport *transport; /* or NULL */
	/*
	 * The destination has all pages that are not dirty: do not begin by making all dirty. Only
	 * with a transport: at the other end of a channel there is nothing yet.
	 */
	bool dirty_only;
	uint64_t max_state;   /* bytes; 0: SILT_PRECOPY_MAX_STATE */
	uint64_t timeout_ns;  /* the peer makes no progress for so long; 0: 30 s. Not for
			       * functions of a channel or transport, which have their own */
	uint64_t stop_ns;     /* guess, until one was seen: pausing, saving, loading, starting; 0:
			       * 10 ms */
	uint64_t state_bytes; /* guess: the device state's size; 0: 64 KiB */
};

/**
 * silt_precopy_create() - prepare a migration
 * @opt: options; what it points to must stay, but for what is copied, until destroy
 * @out: free with silt_precopy_destroy()
 *
 * Return: 0; -EINVAL an option is out of bounds, -EEXIST two blocks of one name, -ENOMEM, -errno.
 * Thread: any. Blocks: never.
 */
SILT_API int silt_precopy_create(const struct silt_precopy_options *opt, struct silt_precopy **out);

/** silt_precopy_destroy() - @p may be NULL. Thread: any, when none uses it. */
SILT_API void silt_precopy_destroy(struct silt_precopy *p);

/* What silt_precopy_run() returns when it has not failed. The guest stays paused here. */
enum silt_precopy_end {
	SILT_PRECOPY_MOVED = 0,	 /* the destination has the guest: this side never runs it again */
	SILT_PRECOPY_UNSURE = 1, /* START was sent, and no answer came: silt_precopy_resolve() */
};

/**
 * silt_precopy_run() - migrate
 *
 * If it fails, with whatever -errno, the guest runs here as if nothing had been: it was resumed if
 * it was paused, its throttle is off, logging is off, and pages that were taken and not sent were
 * put back. The channel is of no use any more. It can be run once.
 *
 * Return: enum silt_precopy_end; -ECANCELED cancelled, by either side; -ETIME the goals could not
 * be met; -EREMOTEIO the destination refused, silt_errmsg() has its reason; -ECONNRESET it closed;
 * -ETIMEDOUT it stands still; -EPROTO it broke the protocol; what an op or a callback returned;
 * -EFAULT a block's memory is not there any more.
 *
 * Thread: one, once. Blocks: until the migration has ended.
 */
SILT_API int silt_precopy_run(struct silt_precopy *p);

/**
 * silt_precopy_cancel() - have silt_precopy_run() give up
 *
 * Without effect once START was sent, or when it has ended. Thread: any, also in callbacks and
 * signal handlers. Blocks: never.
 */
SILT_API void silt_precopy_cancel(struct silt_precopy *p);

/**
 * silt_precopy_resolve() - end the doubt after SILT_PRECOPY_UNSURE
 * @here: true only if it is certain that the destination does not run the guest and never will, as
 *        its silt_incoming_run() failed, or its host is known to be off: the guest is resumed here
 *
 * Return: 0; -EINVAL there is no doubt. Thread: as silt_precopy_run(), after it. Blocks: in resume.
 */
SILT_API int silt_precopy_resolve(struct silt_precopy *p, bool here);

/**
 * silt_precopy_discard() - pages whose contents nobody needs (balloon, free-page hints)
 *
 * They are not sent until they are dirty again; the destination is told, and leaves them as they
 * are. See silt_sync_discard() for what has to be synced before, and that nobody may mark them
 * meanwhile.
 *
 * Return: pages that were dirty; -EINVAL; what the op returned. Thread: any, while it runs, not in
 * ops. Blocks: as silt_sync_discard().
 */
SILT_API int64_t silt_precopy_discard(struct silt_precopy *p, int block, uint64_t first,
				      uint64_t n);

/**
 * silt_precopy_result() - how it went, @result->size being the caller's
 *
 * Return: 0; -EINVAL. Thread: as silt_precopy_run(), after it. Blocks: never.
 */
SILT_API int silt_precopy_result(const struct silt_precopy *p, struct silt_precopy_result *result);

/* ---- the destination ---- */

struct silt_incoming;

struct silt_incoming_block {
	const char *name;
	void *host;	/* writable, page-aligned */
	uint64_t bytes; /* multiple of 4096 */
	bool zeroed;	/* fresh memory that reads as zero: zero pages need not be written to it */
};

/** What the destination's monitor does when asked. */
struct silt_incoming_monitor {
	size_t size;
	/* After each round; the last one has the guest paused at the source. */
	int (*round)(void *opaque, uint64_t round, uint64_t pages);
	/* All of RAM is here, and this is the device state: take it. It may still fail. */
	int (*load)(void *opaque, const void *state, size_t n);
	/* The guest is this side's: run it. If it fails, the source gets it back. */
	int (*start)(void *opaque);
	void *opaque;
};

struct silt_incoming_options {
	size_t size;
	const struct silt_incoming_block *blocks; /* copied, their names too */
	size_t nblocks;
	struct silt_channel channel;
	struct silt_incoming_monitor monitor;
	uint64_t max_state;  /* bytes of device state; 0: SILT_PRECOPY_MAX_STATE */
	uint64_t timeout_ns; /* the source sends nothing for so long; 0: no limit. Rounds come
			      * though nothing is dirty, but a source may be long in its syncs and
			      * its callbacks, and with a cap of less than 10 pages a second */
};

struct silt_incoming_stats {
	size_t size;
	uint64_t rounds;
	uint64_t frames;
	uint64_t bytes;
	uint64_t pages;	     /* arrivals, zero pages among them */
	uint64_t zero_pages; /* that arrived */
	uint64_t skipped;    /* pages that the source said need not arrive */
	uint64_t state_bytes;
	bool started; /* START came, and start() succeeded */
};

/**
 * silt_incoming_create() - prepare to receive
 *
 * Return: 0; -EINVAL an option is out of bounds, -EEXIST two blocks of one name, -ENOMEM, -errno.
 * Owns: free with silt_incoming_destroy(). Thread: any. Blocks: never.
 */
SILT_API int silt_incoming_create(const struct silt_incoming_options *opt,
				  struct silt_incoming **out);
SILT_API void silt_incoming_destroy(struct silt_incoming *in);

/**
 * silt_incoming_run() - receive a guest
 *
 * Bad input is refused, and the source told why. Nothing outside the blocks is ever written, and a
 * page is written only once the frame that it came in was found whole, at once; one that is zero
 * already is not written at all. Faults in the blocks' memory, as of a file that is truncated, are
 * errors where access.h recovers them. Memory is needed for two bits a page, the device state, and
 * less than 1 MiB.
 *
 * Return: 0 the guest is this side's, and was started if there is a start callback, else the caller
 * starts it. On any error this side never runs it: -ECANCELED cancelled, by either side;
 * -EREMOTEIO the source gave up, silt_errmsg() has its reason; -EPROTO the stream breaks the
 * protocol; -EBADMSG a checksum is wrong; -ECONNRESET it ended early; -ETIMEDOUT; -EFBIG too much
 * device state; -ENOENT, -ERANGE the blocks are not the source's; -EFAULT a block's memory is not
 * there any more; -ENOMEM; what a callback returned.
 *
 * Thread: one, once. Blocks: until the migration has ended.
 */
SILT_API int silt_incoming_run(struct silt_incoming *in);

/** silt_incoming_cancel() - as silt_precopy_cancel(); without effect once START came. */
SILT_API void silt_incoming_cancel(struct silt_incoming *in);

/**
 * silt_incoming_received() - which pages of a block have come, or need not
 * @block: index in the options
 * @bits:  set to how many there are, one for each 4 KiB
 *
 * Return: a bitmap as in bitmap.h, valid until destroy; NULL there is no such block. Thread: as
 * silt_incoming_run(), after it or in its callbacks.
 */
SILT_API const uint64_t *silt_incoming_received(const struct silt_incoming *in, size_t block,
						uint64_t *bits);

/**
 * silt_incoming_stats() - how far it came, @stats->size being the caller's
 *
 * Return: 0; -EINVAL. Thread: as silt_incoming_received(). Blocks: never.
 */
SILT_API int silt_incoming_stats(const struct silt_incoming *in, struct silt_incoming_stats *stats);

SILT_END_DECLS

#endif
