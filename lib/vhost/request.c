/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "vhost/request.h"

#define F(name) SILT_VHOST_PROTOCOL_F_##name

#define RULE(request, payload_, fds_, answer_, reply_, needs_) \
	[SILT_VHOST_##request] = {                             \
		.name = #request,                              \
		.payload = SILT_PAYLOAD_##payload_,            \
		.fds = SILT_FDS_##fds_,                        \
		.answer = SILT_ANSWER_##answer_,               \
		.reply = SILT_PAYLOAD_##reply_,                \
		.needs = needs_,                               \
	}

static const struct silt_rule rules[] = {
	RULE(GET_FEATURES, NONE, NONE, OWN, U64, 0),
	RULE(SET_FEATURES, U64, NONE, ACK, NONE, 0),
	RULE(SET_OWNER, NONE, NONE, ACK, NONE, 0),
	RULE(RESET_OWNER, NONE, NONE, ACK, NONE, 0),
	RULE(SET_MEM_TABLE, MEM_TABLE, PER_REGION, ACK, NONE, 0),
	RULE(SET_LOG_BASE, LOG, ONE, LOG, NONE, F(LOG_SHMFD)),
	RULE(SET_LOG_FD, NONE, ONE, ACK, NONE, 0),
	RULE(SET_VRING_NUM, STATE, NONE, ACK, NONE, 0),
	RULE(SET_VRING_ADDR, ADDR, NONE, ACK, NONE, 0),
	RULE(SET_VRING_BASE, STATE, NONE, ACK, NONE, 0),
	RULE(GET_VRING_BASE, STATE, NONE, OWN, STATE, 0),
	RULE(SET_VRING_KICK, VRING_FD, VRING, ACK, NONE, 0),
	RULE(SET_VRING_CALL, VRING_FD, VRING, ACK, NONE, 0),
	RULE(SET_VRING_ERR, VRING_FD, VRING, ACK, NONE, 0),
	RULE(GET_PROTOCOL_FEATURES, NONE, NONE, OWN, U64, 0),
	RULE(SET_PROTOCOL_FEATURES, U64, NONE, ACK, NONE, 0),
	/* The specification asks for MQ to be offered here, not acknowledged. */
	RULE(GET_QUEUE_NUM, NONE, NONE, OWN, U64, 0),
	RULE(SET_VRING_ENABLE, STATE, NONE, ACK, NONE, 0),
	RULE(SET_BACKEND_REQ_FD, NONE, ONE, ACK, NONE, F(BACKEND_REQ)),
	RULE(IOTLB_MSG, IOTLB, NONE, ACK, NONE, 0),
	RULE(GET_CONFIG, CONFIG, NONE, CONFIG, CONFIG, F(CONFIG)),
	RULE(SET_CONFIG, CONFIG, NONE, ACK, NONE, F(CONFIG)),
	RULE(GET_INFLIGHT_FD, INFLIGHT, NONE, OWN, INFLIGHT, F(INFLIGHT_SHMFD)),
	RULE(SET_INFLIGHT_FD, INFLIGHT, ONE, ACK, NONE, F(INFLIGHT_SHMFD)),
	/* Like MQ above. */
	RULE(RESET_DEVICE, NONE, NONE, ACK, NONE, 0),
	RULE(GET_MAX_MEM_SLOTS, NONE, NONE, OWN, U64, F(CONFIGURE_MEM_SLOTS)),
	RULE(ADD_MEM_REG, MEM_REG, ONE, ACK, NONE, F(CONFIGURE_MEM_SLOTS)),
	RULE(REM_MEM_REG, MEM_REG, AT_MOST_ONE, ACK, NONE, F(CONFIGURE_MEM_SLOTS)),
	RULE(SET_STATUS, U64, NONE, ACK, NONE, F(STATUS)),
	RULE(GET_STATUS, NONE, NONE, OWN, U64, F(STATUS)),
};

const struct silt_rule *silt_rule(uint32_t request)
{
	if (request >= sizeof(rules) / sizeof(rules[0]) || !rules[request].name)
		return NULL;
	return &rules[request];
}

const char *silt_vhost_request_name(uint32_t request)
{
	static __thread char unknown[24];
	const struct silt_rule *rule = silt_rule(request);

	if (rule)
		return rule->name;
	snprintf(unknown, sizeof(unknown), "request %u", request);
	return unknown;
}

uint32_t silt_payload_size(enum silt_payload payload)
{
	switch (payload) {
	case SILT_PAYLOAD_U64:
	case SILT_PAYLOAD_VRING_FD:
		return sizeof(uint64_t);
	case SILT_PAYLOAD_STATE:
		return sizeof(struct silt_vhost_vring_state);
	case SILT_PAYLOAD_ADDR:
		return sizeof(struct silt_vhost_vring_addr);
	case SILT_PAYLOAD_MEM_REG:
		return sizeof(struct silt_vhost_mem_reg);
	case SILT_PAYLOAD_LOG:
		return sizeof(struct silt_vhost_log);
	case SILT_PAYLOAD_IOTLB:
		return sizeof(struct silt_vhost_iotlb);
	case SILT_PAYLOAD_INFLIGHT:
		return sizeof(struct silt_vhost_inflight);
	case SILT_PAYLOAD_NONE:
	case SILT_PAYLOAD_MEM_TABLE:
	case SILT_PAYLOAD_CONFIG:
		break;
	}
	return 0;
}

bool silt_payload_fits(enum silt_payload payload, uint32_t size)
{
	return size == silt_payload_size(payload) ||
	       (payload == SILT_PAYLOAD_IOTLB && size == SILT_IOTLB_BARE) ||
	       (payload == SILT_PAYLOAD_INFLIGHT && size == SILT_INFLIGHT_BARE);
}

/* A table may stop after its last region, or be sent whole. */
static int check_mem_table(const struct silt_vhost_msg *msg)
{
	const struct silt_vhost_mem_table *table = &msg->payload.mem_table;
	uint32_t size = msg->hdr.size;

	if (size < SILT_MEM_TABLE_HEADER)
		return silt_err(EPROTO, "SET_MEM_TABLE: payload of %u bytes, at least %zu needed",
				size, SILT_MEM_TABLE_HEADER);
	if (table->nregions > SILT_VHOST_MEM_TABLE_REGIONS)
		return silt_err(EPROTO, "SET_MEM_TABLE: %u regions, at most %u possible",
				table->nregions, SILT_VHOST_MEM_TABLE_REGIONS);
	if (size != sizeof(*table) &&
	    size != SILT_MEM_TABLE_HEADER + table->nregions * sizeof(table->regions[0]))
		return silt_err(EPROTO,
				"SET_MEM_TABLE: payload of %u bytes does not fit %u regions", size,
				table->nregions);
	return 0;
}

static int check_config(const struct silt_vhost_msg *msg, const char *name)
{
	const struct silt_vhost_config *config = &msg->payload.config;
	uint32_t size = msg->hdr.size;

	if (size < SILT_CONFIG_HEADER)
		return silt_err(EPROTO, "%s: payload of %u bytes, at least %zu needed", name, size,
				SILT_CONFIG_HEADER);
	if (config->size < 1 || config->size > SILT_VHOST_CONFIG_MAX)
		return silt_err(EPROTO, "%s: %u bytes of configuration, must be 1 to %u", name,
				config->size, SILT_VHOST_CONFIG_MAX);
	if (size != SILT_CONFIG_HEADER + config->size)
		return silt_err(EPROTO, "%s: payload of %u bytes does not fit %u of configuration",
				name, size, config->size);
	if (config->offset > UINT32_MAX - config->size)
		return silt_err(EPROTO, "%s: offset %u and size %u wrap", name, config->offset,
				config->size);
	return 0;
}

static int check_payload(const struct silt_vhost_msg *msg, const struct silt_rule *rule)
{
	if (rule->payload == SILT_PAYLOAD_MEM_TABLE)
		return check_mem_table(msg);
	if (rule->payload == SILT_PAYLOAD_CONFIG)
		return check_config(msg, rule->name);
	if (!silt_payload_fits(rule->payload, msg->hdr.size))
		return silt_err(EPROTO, "%s: payload of %u bytes, must be %u", rule->name,
				msg->hdr.size, silt_payload_size(rule->payload));
	return 0;
}

static int check_fds(const struct silt_vhost_msg *msg, const struct silt_rule *rule)
{
	unsigned int want = 0;

	switch (rule->fds) {
	case SILT_FDS_NONE:
		break;
	case SILT_FDS_ONE:
		want = 1;
		break;
	case SILT_FDS_AT_MOST_ONE:
		want = msg->nfds > 0;
		break;
	case SILT_FDS_PER_REGION:
		want = msg->payload.mem_table.nregions;
		break;
	case SILT_FDS_VRING:
		want = !(msg->payload.u64 & SILT_VHOST_VRING_NO_FD);
		break;
	}
	if (msg->nfds != want)
		return silt_err(EPROTO, "%s: %u fds came along, must be %u", rule->name, msg->nfds,
				want);
	return 0;
}

int silt_rule_check(const struct silt_vhost_msg *msg, uint64_t protocol)
{
	const struct silt_rule *rule = silt_rule(msg->hdr.request);
	int ret;

	if (!rule)
		return silt_err(EOPNOTSUPP, "request %u is not supported", msg->hdr.request);
	if (msg->hdr.flags & SILT_VHOST_REPLY)
		return silt_err(EPROTO, "%s: a request has the flag of a reply", rule->name);
	if (rule->needs & ~protocol)
		return silt_err(EOPNOTSUPP, "%s: protocol feature %d was not acknowledged",
				rule->name, __builtin_ctzll(rule->needs));
	ret = check_payload(msg, rule);
	return ret < 0 ? ret : check_fds(msg, rule);
}
