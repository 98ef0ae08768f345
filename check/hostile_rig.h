/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_HOSTILE_RIG_H
#define CHECK_HOSTILE_RIG_H

#include <linux/virtio_ring.h>

#include "check/hostile.h"
#include "check/hostile_world.h"

#define HOSTILE_REASON_LEN  SESSION_ERROR_LEN
#define HOSTILE_FAILURE_LEN (SESSION_ERROR_LEN + 64)

/* Requests that are under way in a busy case. */
#define HOSTILE_LOAD	 8
#define HOSTILE_LOAD_LEN 16384

/* Descriptors of the ring from here on are for what is malformed; those before, for the load. */
#define HOSTILE_DESC  32
#define HOSTILE_DESCS 32

/* How long a backend may do nothing about a buffer until that counts as its answer. */
#define HOSTILE_QUIET_MS 200

enum check_hostile_state {
	HOSTILE_NEW,	 /* protocol features were negotiated */
	HOSTILE_READY,	 /* features, memory */
	HOSTILE_RUNNING, /* rings were started */
	HOSTILE_BUSY,	 /* and requests are in flight */
};

/* One case while it runs. */
struct check_hostile {
	const struct check_scenario_env *env;
	const struct check_hostile_case *c;
	struct check_hostile_world world;
	struct check_places places;
	struct check_session session;
	struct check_random random;
	int spare; /* an eventfd, for messages that carry one */
	bool can_log;
	bool connected;
	bool running;
	bool closed; /* the backend closed the connection, or is gone */
	bool torn;   /* the backend has a part of a message only */
	bool held;   /* the backend is to be ended while the connection is open */

	/* In the high region, so that they can be taken away without the rings. */
	uint64_t header, data, status;
	uint64_t table;	  /* room for an indirect table, in the low region */
	uint16_t offered; /* buffers, on queue 0 */

	enum check_verdict verdict;
	char reason[HOSTILE_REASON_LEN];
	char failure[HOSTILE_FAILURE_LEN]; /* why the case could not be made, or "" */
	bool begun;			   /* a first connection was made and used */
};

/* The value of the case on one of its group's axes. */
static inline unsigned int check_hostile_value(const struct check_hostile *h, unsigned int axis)
{
	return h->c->value[axis];
}

/* Note what was seen. The worst counts; the first of equals. */
void check_hostile_saw(struct check_hostile *h, enum check_verdict verdict, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Something of our own failed (silt_errmsg()). */
void check_hostile_failed(struct check_hostile *h);

/* A session that is not open yet. */
void check_hostile_prepare_session(struct check_hostile *h);

/* Set the connection up as well-behaved frontends do. Return: false if that failed. */
bool check_hostile_reach(struct check_hostile *h, enum check_hostile_state state, bool logging);

/* Where a ring lies; its used ring is logged if anything can be. */
struct silt_vhost_vring_addr check_hostile_ring_addr(const struct check_hostile *h, unsigned int i);

/* Tell the backend of the world's log, and switch logging on. Return: false if it refused. */
bool check_hostile_log_on(struct check_hostile *h);

/* What a call on the frontend means for a case. Return: true if it succeeded. */
bool check_hostile_result(struct check_hostile *h, int ret, const char *doing);

/* Close the connection, whatever is under way. */
void check_hostile_disconnect(struct check_hostile *h);

/* A fresh connection instead of the one there was. Return: false if there is none to be had. */
bool check_hostile_reconnect(struct check_hostile *h);

/* ---- Messages -------------------------------------------------------------------------------- */

/* Send bytes as they are. Return: false if the backend does not take them. */
bool check_hostile_send(struct check_hostile *h, const void *buf, size_t len, const int *fds,
			unsigned int nfds);

/* A message as it is on the wire, where no byte lies between header and payload. */
struct check_hostile_wire {
	uint8_t bytes[sizeof(struct silt_vhost_header) + SILT_VHOST_PAYLOAD_MAX];
	size_t len;
};

void check_hostile_flatten(const struct silt_vhost_msg *msg, struct check_hostile_wire *wire);

/*
 * Send one message with any number of fds, and note what the backend answers. Its header must be
 * true, so that the backend stays in step.
 */
void check_hostile_ask(struct check_hostile *h, const struct silt_vhost_msg *msg, const int *fds,
		       unsigned int nfds);

/* The second half of it: @msg was sent. */
void check_hostile_hear(struct check_hostile *h, const struct silt_vhost_msg *msg);

/* Wait shortly for the connection to be closed, or an answer, when no answer need come. */
void check_hostile_listen(struct check_hostile *h);

/*
 * A message that keeps all rules, with its fds, which stay the case's. It wants to be acknowledged
 * where that was negotiated.
 */
void check_hostile_message_make(struct check_hostile *h, uint32_t request,
				struct silt_vhost_msg *msg);

/* The same for one region of the guest's memory. */
struct silt_vhost_mem_region check_hostile_region(const struct check_hostile *h,
						  enum check_guest_side side);

/* ---- The ring -------------------------------------------------------------------------------- */

struct vring_desc *check_hostile_desc(const struct check_hostile *h, unsigned int i);

/* Make @n good reads available, from descriptor 0 on, and kick. */
void check_hostile_load(struct check_hostile *h, unsigned int n);

/* Put a head into the available ring; the index is stored apart, for those that lie about it. */
void check_hostile_offer(struct check_hostile *h, uint16_t head);
void check_hostile_store_index(struct check_hostile *h, uint16_t index);
void check_hostile_kick(struct check_hostile *h);

/* Wait for what was offered, note what came of it, and return it. */
enum check_verdict check_hostile_watch(struct check_hostile *h);

#endif
