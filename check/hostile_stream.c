/* SPDX-License-Identifier: BSD-3-Clause */
#include <sys/socket.h>

#include "check/hostile_rig.h"

/* Connections that do not go on as they should. */

#define HEADER sizeof(struct silt_vhost_header)

/* ---- Messages in pieces ------------------------------------------------------------------------
 */

static const uint32_t requests[] = {SILT_VHOST_GET_FEATURES, SILT_VHOST_SET_FEATURES,
				    SILT_VHOST_SET_MEM_TABLE, SILT_VHOST_SET_LOG_BASE,
				    SILT_VHOST_SET_VRING_KICK};
static const char *const request_values[] = {"get-features", "set-features", "set-mem-table",
					     "set-log-base", "set-vring-kick"};

enum {
	AT_FIRST,
	AT_HEADER_LESS_ONE,
	AT_HEADER,
	AT_PAYLOAD_FIRST,
	AT_PAYLOAD_LESS_ONE,
};

static const char *const at_values[] = {"first", "header-less-one", "header", "payload-first",
					"payload-less-one"};

enum {
	THEN_CLOSE,
	THEN_SILENCE,
	THEN_BYTES,
};

static const char *const then_values[] = {"close", "silence", "bytes"};

/* A message without a payload is cut in its header only, and one piece of each byte is enough. */
static bool cut_valid(const uint8_t *value)
{
	if (value[2] == THEN_BYTES)
		return value[1] == AT_FIRST;
	return requests[value[0]] != SILT_VHOST_GET_FEATURES || value[1] < AT_HEADER;
}

static size_t cut_at(const struct check_hostile_wire *wire, unsigned int at)
{
	switch (at) {
	case AT_FIRST:
		return 1;
	case AT_HEADER_LESS_ONE:
		return HEADER - 1;
	case AT_HEADER:
		return HEADER;
	case AT_PAYLOAD_FIRST:
		return HEADER + 1;
	default:
		return wire->len - 1;
	}
}

static void send_bytes(struct check_hostile *h, const struct check_hostile_wire *wire, size_t from)
{
	size_t i;

	for (i = from; i < wire->len; i++)
		if (!check_hostile_send(h, wire->bytes + i, 1, NULL, 0))
			return;
}

static void cut_run(struct check_hostile *h)
{
	struct check_hostile_wire wire;
	struct silt_vhost_msg msg;
	size_t at;

	check_hostile_message_make(h, requests[check_hostile_value(h, 0)], &msg);
	check_hostile_flatten(&msg, &wire);
	at = cut_at(&wire, check_hostile_value(h, 1));
	if (!check_hostile_send(h, wire.bytes, at, msg.fds, msg.nfds))
		return;
	switch (check_hostile_value(h, 2)) {
	case THEN_BYTES:
		send_bytes(h, &wire, at);
		check_hostile_hear(h, &msg);
		break;
	case THEN_SILENCE:
		h->torn = h->held = true;
		check_hostile_saw(h, CHECK_CORRECT, "the backend waited, and ended when told to");
		break;
	default:
		h->torn = true;
		check_hostile_disconnect(h);
		check_hostile_saw(h, CHECK_CORRECT, "the backend went on with the next connection");
	}
}

const struct check_hostile_group check_hostile_cut = {
	.name = "cut",
	.about = "a frontend that sends a part of a message",
	.axis = {HOSTILE_AXIS("request", request_values), HOSTILE_AXIS("at", at_values),
		 HOSTILE_AXIS("then", then_values)},
	.valid = cut_valid,
	.run = cut_run,
};

/* ---- Silence -----------------------------------------------------------------------------------
 */

enum {
	SILENT_CONNECTED,
	SILENT_BUSY,
	SILENT_UNREAD,
};

static const char *const silence_values[] = {"connected", "busy", "unread-answers"};

/* Ask until nothing more can be sent, and read no answer. */
static void ask_and_leave(struct check_hostile *h)
{
	const struct silt_vhost_header get = {SILT_VHOST_GET_FEATURES, SILT_VHOST_VERSION, 0};
	int fd = silt_frontend_fd(h->session.f);

	while (send(fd, &get, sizeof(get), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(get))
		;
}

static void silence_run(struct check_hostile *h)
{
	unsigned int what = check_hostile_value(h, 0);

	if (what == SILENT_BUSY && !check_hostile_reach(h, HOSTILE_BUSY, true))
		return;
	if (what == SILENT_UNREAD)
		ask_and_leave(h);
	h->held = true;
	check_hostile_saw(h, CHECK_CORRECT, "the backend waited, and ended when told to");
}

const struct check_hostile_group check_hostile_silence = {
	.name = "silence",
	.about = "a frontend that says nothing more",
	.axis = {HOSTILE_AXIS("when", silence_values)},
	.run = silence_run,
};

/* ---- The connection is closed ------------------------------------------------------------------
 */

enum {
	CLOSED_CONNECTED,
	CLOSED_READY,
	CLOSED_RUNNING,
	CLOSED_BUSY,
	CLOSED_LOG_ASKED,
	CLOSED_FEATURES_ASKED,
	CLOSED_STOP_ASKED,
	CLOSED_MEMORY_ASKED,
	CLOSED_RESET_ASKED,
};

static const char *const closed_values[] = {"connected",  "ready",	  "running",
					    "busy",	  "log-asked",	  "features-asked",
					    "stop-asked", "memory-asked", "reset-asked"};
static const char *const often_values[] = {"once", "often"};

#define OFTEN 20

/* Send one request and do not wait for what comes of it. */
static void ask_last(struct check_hostile *h, unsigned int when)
{
	static const uint32_t last[] = {
		[CLOSED_LOG_ASKED] = SILT_VHOST_SET_LOG_BASE,
		[CLOSED_FEATURES_ASKED] = SILT_VHOST_SET_FEATURES,
		[CLOSED_STOP_ASKED] = SILT_VHOST_GET_VRING_BASE,
		[CLOSED_MEMORY_ASKED] = SILT_VHOST_SET_MEM_TABLE,
		[CLOSED_RESET_ASKED] = SILT_VHOST_RESET_OWNER,
	};
	struct check_hostile_wire wire;
	struct silt_vhost_msg msg;

	check_hostile_message_make(h, last[when], &msg);
	if (when == CLOSED_FEATURES_ASKED)
		msg.payload.u64 = h->session.features | (h->can_log ? SILT_VHOST_F_LOG_ALL : 0);
	check_hostile_flatten(&msg, &wire);
	check_hostile_send(h, wire.bytes, wire.len, msg.fds, msg.nfds);
}

static bool close_once(struct check_hostile *h)
{
	unsigned int when = check_hostile_value(h, 0);
	enum check_hostile_state state =
		when < CLOSED_LOG_ASKED ? (enum check_hostile_state)when : HOSTILE_BUSY;

	if (!check_hostile_reach(h, state, when == CLOSED_STOP_ASKED))
		return false;
	if (when >= CLOSED_LOG_ASKED)
		ask_last(h, when);
	check_hostile_disconnect(h);
	return true;
}

static void disconnect_run(struct check_hostile *h)
{
	unsigned int i, n = check_hostile_value(h, 1) ? OFTEN : 1;

	for (i = 0; i < n; i++)
		if ((i && !check_hostile_reconnect(h)) || !close_once(h))
			return;
	check_hostile_saw(h, CHECK_CORRECT, "the backend went on with the next connection");
}

const struct check_hostile_group check_hostile_closed = {
	.name = "disconnect",
	.about = "a frontend that closes the connection",
	.axis = {HOSTILE_AXIS("when", closed_values), HOSTILE_AXIS("times", often_values)},
	.run = disconnect_run,
};
