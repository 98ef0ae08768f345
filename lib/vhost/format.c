/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "vhost/request.h"

/* A line that is being written; what does not fit is cut off. */
struct line {
	char *buf;
	size_t len;
	size_t used;
};

static void __attribute__((format(printf, 2, 3))) put(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (l->used >= l->len)
		return;
	va_start(ap, fmt);
	n = vsnprintf(l->buf + l->used, l->len - l->used, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->used += n;
}

static void put_region(struct line *l, const struct silt_vhost_mem_region *r)
{
	put(l, " gpa 0x%" PRIx64 " size 0x%" PRIx64 " user 0x%" PRIx64 " offset 0x%" PRIx64, r->gpa,
	    r->size, r->user_addr, r->mmap_offset);
}

static void put_mem_table(struct line *l, const struct silt_vhost_mem_table *table)
{
	put(l, " %u regions:", table->nregions);
	for (uint32_t i = 0; i < table->nregions; i++) {
		put(l, i ? "," : "");
		put_region(l, &table->regions[i]);
	}
}

static void put_config(struct line *l, const struct silt_vhost_config *config)
{
	put(l, " offset %u size %u flags %u:", config->offset, config->size, config->flags);
	for (uint32_t i = 0; i < config->size; i++)
		put(l, "%s%02x", i % 8 ? "" : " ", config->region[i]);
}

static void put_iotlb(struct line *l, const struct silt_vhost_iotlb *iotlb)
{
	static const char *const names[] = {"type 0", "miss", "update", "invalidate",
					    "access fail"};

	if (iotlb->type <= SILT_VHOST_IOTLB_ACCESS_FAIL)
		put(l, " %s", names[iotlb->type]);
	else
		put(l, " type %u", iotlb->type);
	put(l, " iova 0x%" PRIx64 " size 0x%" PRIx64 " user 0x%" PRIx64 " perm %u", iotlb->iova,
	    iotlb->size, iotlb->user_addr, iotlb->perm);
}

static void put_payload(struct line *l, const struct silt_vhost_msg *msg, enum silt_payload payload)
{
	const struct silt_vhost_vring_addr *addr = &msg->payload.addr;

	switch (payload) {
	case SILT_PAYLOAD_NONE:
		break;
	case SILT_PAYLOAD_U64:
		put(l, " 0x%" PRIx64, msg->payload.u64);
		break;
	case SILT_PAYLOAD_VRING_FD:
		put(l, " index %u%s",
		    (unsigned int)(msg->payload.u64 & SILT_VHOST_VRING_INDEX_MASK),
		    msg->payload.u64 & SILT_VHOST_VRING_NO_FD ? " no fd" : "");
		break;
	case SILT_PAYLOAD_STATE:
		put(l, " index %u num %u", msg->payload.state.index, msg->payload.state.num);
		break;
	case SILT_PAYLOAD_ADDR:
		put(l,
		    " index %u flags 0x%x desc 0x%" PRIx64 " avail 0x%" PRIx64 " used 0x%" PRIx64
		    " log 0x%" PRIx64,
		    addr->index, addr->flags, addr->desc_user_addr, addr->avail_user_addr,
		    addr->used_user_addr, addr->log_guest_addr);
		break;
	case SILT_PAYLOAD_MEM_TABLE:
		put_mem_table(l, &msg->payload.mem_table);
		break;
	case SILT_PAYLOAD_MEM_REG:
		put_region(l, &msg->payload.mem_reg.region);
		break;
	case SILT_PAYLOAD_LOG:
		put(l, " size 0x%" PRIx64 " offset 0x%" PRIx64, msg->payload.log.mmap_size,
		    msg->payload.log.mmap_offset);
		break;
	case SILT_PAYLOAD_CONFIG:
		put_config(l, &msg->payload.config);
		break;
	case SILT_PAYLOAD_IOTLB:
		put_iotlb(l, &msg->payload.iotlb);
		break;
	case SILT_PAYLOAD_INFLIGHT:
		put(l, " size 0x%" PRIx64 " offset 0x%" PRIx64 " queues %u queue size %u",
		    msg->payload.inflight.mmap_size, msg->payload.inflight.mmap_offset,
		    msg->payload.inflight.num_queues, msg->payload.inflight.queue_size);
		break;
	}
}

/* Is the payload as long as what is to be printed of it? */
static bool whole(const struct silt_vhost_msg *msg, enum silt_payload payload)
{
	uint32_t size = msg->hdr.size;

	if (payload == SILT_PAYLOAD_MEM_TABLE)
		return size >= SILT_MEM_TABLE_HEADER &&
		       msg->payload.mem_table.nregions <= SILT_VHOST_MEM_TABLE_REGIONS &&
		       size >= SILT_MEM_TABLE_HEADER + msg->payload.mem_table.nregions *
							       sizeof(struct silt_vhost_mem_region);
	if (payload == SILT_PAYLOAD_CONFIG)
		return size >= SILT_CONFIG_HEADER &&
		       msg->payload.config.size <= SILT_VHOST_CONFIG_MAX &&
		       size == SILT_CONFIG_HEADER + msg->payload.config.size;
	return silt_payload_fits(payload, size);
}

static enum silt_payload payload_of(const struct silt_vhost_msg *msg, bool reply)
{
	const struct silt_rule *rule = silt_rule(msg->hdr.request);

	if (!reply)
		return rule ? rule->payload : SILT_PAYLOAD_NONE;
	if (rule && (rule->answer == SILT_ANSWER_OWN || rule->answer == SILT_ANSWER_CONFIG))
		return rule->reply;
	return msg->hdr.size ? SILT_PAYLOAD_U64 : SILT_PAYLOAD_NONE;
}

char *silt_vhost_msg_format(const struct silt_vhost_msg *msg, bool reply, char *buf, size_t len)
{
	struct line l = {.buf = buf, .len = len};
	enum silt_payload payload = payload_of(msg, reply);

	put(&l, "%s %s", reply ? "<-" : "->", silt_vhost_request_name(msg->hdr.request));
	if (whole(msg, payload))
		put_payload(&l, msg, payload);
	else
		put(&l, " payload of %u bytes", msg->hdr.size);
	if (msg->nfds)
		put(&l, " fds %u", msg->nfds);
	if (msg->hdr.flags & SILT_VHOST_NEED_REPLY)
		put(&l, " need_reply");
	return buf;
}
