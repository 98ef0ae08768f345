/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "check/hostile_rig.h"

/* ---- Messages that break a rule ----------------------------------------------------------------
 */

#define REQUESTS(X)                                                  \
	X(0, "0")                                                    \
	X(SILT_VHOST_GET_FEATURES, "get-features")                   \
	X(SILT_VHOST_SET_FEATURES, "set-features")                   \
	X(SILT_VHOST_SET_OWNER, "set-owner")                         \
	X(SILT_VHOST_RESET_OWNER, "reset-owner")                     \
	X(SILT_VHOST_SET_MEM_TABLE, "set-mem-table")                 \
	X(SILT_VHOST_SET_LOG_BASE, "set-log-base")                   \
	X(SILT_VHOST_SET_LOG_FD, "set-log-fd")                       \
	X(SILT_VHOST_SET_VRING_NUM, "set-vring-num")                 \
	X(SILT_VHOST_SET_VRING_ADDR, "set-vring-addr")               \
	X(SILT_VHOST_SET_VRING_BASE, "set-vring-base")               \
	X(SILT_VHOST_GET_VRING_BASE, "get-vring-base")               \
	X(SILT_VHOST_SET_VRING_KICK, "set-vring-kick")               \
	X(SILT_VHOST_SET_VRING_CALL, "set-vring-call")               \
	X(SILT_VHOST_SET_VRING_ERR, "set-vring-err")                 \
	X(SILT_VHOST_GET_PROTOCOL_FEATURES, "get-protocol-features") \
	X(SILT_VHOST_SET_PROTOCOL_FEATURES, "set-protocol-features") \
	X(SILT_VHOST_GET_QUEUE_NUM, "get-queue-num")                 \
	X(SILT_VHOST_SET_VRING_ENABLE, "set-vring-enable")           \
	X(SILT_VHOST_SET_BACKEND_REQ_FD, "set-backend-req-fd")       \
	X(SILT_VHOST_IOTLB_MSG, "iotlb-msg")                         \
	X(SILT_VHOST_GET_CONFIG, "get-config")                       \
	X(SILT_VHOST_SET_CONFIG, "set-config")                       \
	X(SILT_VHOST_GET_INFLIGHT_FD, "get-inflight-fd")             \
	X(SILT_VHOST_SET_INFLIGHT_FD, "set-inflight-fd")             \
	X(SILT_VHOST_RESET_DEVICE, "reset-device")                   \
	X(SILT_VHOST_GET_MAX_MEM_SLOTS, "get-max-mem-slots")         \
	X(SILT_VHOST_ADD_MEM_REG, "add-mem-reg")                     \
	X(SILT_VHOST_REM_MEM_REG, "rem-mem-reg")                     \
	X(SILT_VHOST_SET_STATUS, "set-status")                       \
	X(SILT_VHOST_GET_STATUS, "get-status")                       \
	X(99, "99")                                                  \
	X(UINT32_MAX, "max")

#define NUMBER(number, name) number,
#define NAME(number, name)   name,

static const uint32_t requests[] = {REQUESTS(NUMBER)};
static const char *const request_values[] = {REQUESTS(NAME)};

enum {
	HOW_EMPTY,
	HOW_SHORT,
	HOW_LONG,
	HOW_MOST,
	HOW_HUGE,
	HOW_VERSION,
	HOW_REPLY,
	HOW_NO_FD,
	HOW_TWICE,
};

static const char *const how_values[] = {"empty",   "short", "long",  "most", "huge",
					 "version", "reply", "no-fd", "twice"};
static const char *const when_values[] = {"new", "running"};

/* A queue that runs matters to messages that keep the rules. */
static bool message_valid(const uint8_t *value)
{
	return value[2] == 0 || value[1] == HOW_TWICE;
}

/* It says that there is more to come than any message has. */
static void ask_huge(struct check_hostile *h, struct silt_vhost_msg *msg)
{
	struct check_hostile_wire wire;

	check_hostile_flatten(msg, &wire);
	msg->hdr.size = UINT32_MAX;
	memcpy(wire.bytes, &msg->hdr, sizeof(msg->hdr));
	h->torn = true;
	if (check_hostile_send(h, wire.bytes, wire.len, msg->fds, msg->nfds))
		check_hostile_listen(h);
}

static void spoil_message(struct silt_vhost_msg *msg, unsigned int how)
{
	switch (how) {
	case HOW_EMPTY:
		msg->hdr.size = 0;
		break;
	case HOW_SHORT:
		msg->hdr.size -= msg->hdr.size ? 1 : 0;
		break;
	case HOW_LONG:
		msg->hdr.size += sizeof(uint64_t);
		break;
	case HOW_MOST:
		msg->hdr.size = SILT_VHOST_PAYLOAD_MAX;
		break;
	case HOW_VERSION:
		msg->hdr.flags = 2;
		break;
	case HOW_REPLY:
		msg->hdr.flags |= SILT_VHOST_REPLY;
		break;
	case HOW_NO_FD:
		msg->nfds = 0;
		break;
	}
}

static void message_run(struct check_hostile *h)
{
	unsigned int how = check_hostile_value(h, 1);
	struct silt_vhost_msg msg;

	if (!check_hostile_reach(h, check_hostile_value(h, 2) ? HOSTILE_BUSY : HOSTILE_NEW, true))
		return;
	check_hostile_message_make(h, requests[check_hostile_value(h, 0)], &msg);
	if (how == HOW_HUGE) {
		ask_huge(h, &msg);
		return;
	}
	spoil_message(&msg, how);
	check_hostile_ask(h, &msg, msg.fds, msg.nfds);
	if (how == HOW_TWICE && !h->closed)
		check_hostile_ask(h, &msg, msg.fds, msg.nfds);
	/* It may have stopped the queue, or brought it onto other memory. */
	if (h->running)
		check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_message = {
	.name = "message",
	.about = "a frontend whose messages break a rule",
	.axis = {HOSTILE_AXIS("request", request_values), HOSTILE_AXIS("how", how_values),
		 HOSTILE_AXIS("when", when_values)},
	.valid = message_valid,
	.run = message_run,
};

/* ---- Configuration -----------------------------------------------------------------------------
 */

enum {
	CONFIG_SIZE_0,
	CONFIG_SIZE_257,
	CONFIG_SIZE_MAX,
	CONFIG_OFFSET_MAX,
	CONFIG_OFFSET_WRAPS,
	CONFIG_SIZE_GREATER,
	CONFIG_SIZE_LESS,
};

static const char *const config_request_values[] = {"get", "set"};
static const char *const config_values[] = {"size-0",	  "size-257",	  "size-max",
					    "offset-max", "offset-wraps", "size-greater",
					    "size-less"};

static void config_run(struct check_hostile *h)
{
	struct silt_vhost_msg msg;
	struct silt_vhost_config *config = &msg.payload.config;

	check_hostile_message_make(
		h, check_hostile_value(h, 0) ? SILT_VHOST_SET_CONFIG : SILT_VHOST_GET_CONFIG, &msg);
	switch (check_hostile_value(h, 1)) {
	case CONFIG_SIZE_0:
		config->size = 0;
		msg.hdr.size = offsetof(struct silt_vhost_config, region);
		break;
	case CONFIG_SIZE_257:
		config->size = SILT_VHOST_CONFIG_MAX + 1;
		msg.hdr.size = offsetof(struct silt_vhost_config, region) + config->size;
		break;
	case CONFIG_SIZE_MAX:
		config->size = UINT32_MAX;
		break;
	case CONFIG_OFFSET_MAX:
		config->offset = UINT32_MAX;
		break;
	case CONFIG_OFFSET_WRAPS:
		config->offset = -config->size / 2;
		break;
	case CONFIG_SIZE_GREATER:
		config->size *= 4;
		break;
	case CONFIG_SIZE_LESS:
		config->size /= 2;
		break;
	}
	check_hostile_ask(h, &msg, NULL, 0);
}

const struct check_hostile_group check_hostile_config = {
	.name = "config",
	.about = "a frontend that asks for configuration that is not there",
	.axis = {HOSTILE_AXIS("request", config_request_values),
		 HOSTILE_AXIS("what", config_values)},
	.run = config_run,
};

/* ---- File descriptors --------------------------------------------------------------------------
 */

#define FLOOD 400

static const uint32_t fd_requests[] = {SILT_VHOST_GET_FEATURES,	  SILT_VHOST_SET_FEATURES,
				       SILT_VHOST_SET_VRING_NUM,  SILT_VHOST_SET_VRING_KICK,
				       SILT_VHOST_SET_MEM_TABLE,  SILT_VHOST_SET_LOG_BASE,
				       SILT_VHOST_SET_VRING_CALL, 99};
static const char *const fd_request_values[] = {
	"get-features",	 "set-features", "set-vring-num",  "set-vring-kick",
	"set-mem-table", "set-log-base", "set-vring-call", "99"};
static const char *const count_values[] = {"1", "3", "8", "9", "64", "253"};
static const unsigned int counts[] = {1, 3, 8, 9, 64, 253};

static void ask_with_fds(struct check_hostile *h, uint32_t request, unsigned int n)
{
	struct silt_vhost_msg msg;
	int fds[253];
	unsigned int i;

	check_hostile_message_make(h, request, &msg);
	for (i = 0; i < n; i++)
		fds[i] = i < msg.nfds ? msg.fds[i] : h->spare;
	check_hostile_ask(h, &msg, fds, n);
}

static void fds_run(struct check_hostile *h)
{
	ask_with_fds(h, fd_requests[check_hostile_value(h, 0)], counts[check_hostile_value(h, 1)]);
}

const struct check_hostile_group check_hostile_fds = {
	.name = "fds",
	.about = "a frontend that passes more fds than a message may have",
	.axis = {HOSTILE_AXIS("request", fd_request_values), HOSTILE_AXIS("count", count_values)},
	.run = fds_run,
};

/* More than a process may have open: those that are not closed are missed in the end. */
static void fd_flood_run(struct check_hostile *h)
{
	unsigned int i;

	for (i = 0; i < FLOOD; i++) {
		if (h->closed && !check_hostile_reconnect(h))
			return;
		ask_with_fds(h, fd_requests[check_hostile_value(h, 0)], 8);
	}
}

const struct check_hostile_group check_hostile_fd_flood = {
	.name = "fd-flood",
	.about = "a frontend that passes more fds than a process may have",
	.axis = {HOSTILE_AXIS("request", fd_request_values)},
	.run = fd_flood_run,
};
