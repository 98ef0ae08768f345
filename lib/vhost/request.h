/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VHOST_REQUEST_H
#define SILT_VHOST_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/vhost_user.h>

enum silt_payload {
	SILT_PAYLOAD_NONE,
	SILT_PAYLOAD_U64,
	SILT_PAYLOAD_STATE,
	SILT_PAYLOAD_ADDR,
	SILT_PAYLOAD_VRING_FD, /* u64: queue index and SILT_VHOST_VRING_NO_FD */
	SILT_PAYLOAD_MEM_TABLE,
	SILT_PAYLOAD_MEM_REG,
	SILT_PAYLOAD_LOG,
	SILT_PAYLOAD_CONFIG,
	SILT_PAYLOAD_IOTLB, /* this and the next also without the padding at their end */
	SILT_PAYLOAD_INFLIGHT,
};

enum silt_fd_rule {
	SILT_FDS_NONE,
	SILT_FDS_ONE,
	SILT_FDS_AT_MOST_ONE,
	SILT_FDS_PER_REGION,
	SILT_FDS_VRING, /* one, or none where the payload says so */
};

/* How a request is answered, and how the backend can say no. */
enum silt_answer {
	SILT_ANSWER_ACK,    /* only if asked for: a u64, other than 0 for no */
	SILT_ANSWER_OWN,    /* always, with what was asked; there is no way to say no */
	SILT_ANSWER_CONFIG, /* always; an empty payload says no */
	SILT_ANSWER_LOG,    /* always: empty, or like SILT_ANSWER_ACK if asked for */
};

/* What the specification says about one request. */
struct silt_rule {
	const char *name;
	enum silt_payload payload;
	enum silt_fd_rule fds;
	enum silt_answer answer;
	enum silt_payload reply; /* payload of an answer of its own */
	uint64_t needs;		 /* protocol feature that must have been negotiated */
};

#define SILT_CONFIG_HEADER    offsetof(struct silt_vhost_config, region)
#define SILT_MEM_TABLE_HEADER offsetof(struct silt_vhost_mem_table, regions)
#define SILT_IOTLB_BARE	      offsetof(struct silt_vhost_iotlb, padding)
#define SILT_INFLIGHT_BARE    offsetof(struct silt_vhost_inflight, padding)

/* The rule for a request, or NULL for one that silt does not know. */
const struct silt_rule *silt_rule(uint32_t request);

/* Bytes of a payload of fixed size; 0 for NONE, and for those whose size varies. */
uint32_t silt_payload_size(enum silt_payload payload);

/* Has a payload of that kind so many bytes? For those whose size does not vary. */
bool silt_payload_fits(enum silt_payload payload, uint32_t size);

/*
 * Does a complete request keep the rules on its payload, its fds and what was negotiated?
 * @protocol: protocol features acknowledged so far
 * Return: 0; -EPROTO or -EOPNOTSUPP with a message that names the request and the rule.
 */
int silt_rule_check(const struct silt_vhost_msg *msg, uint64_t protocol);

#endif
