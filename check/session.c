/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/session.h"
#include "check/session_packed.h"
#include "check/target_process.h"

#define BIT(n) (UINT64_C(1) << (n))

#define PROTOCOL_FEATURES                                                 \
	(SILT_VHOST_PROTOCOL_F_MQ | SILT_VHOST_PROTOCOL_F_LOG_SHMFD |     \
	 SILT_VHOST_PROTOCOL_F_REPLY_ACK | SILT_VHOST_PROTOCOL_F_CONFIG | \
	 SILT_VHOST_PROTOCOL_F_CONFIGURE_MEM_SLOTS)

/* How soon a backend that closed a connection is tried again. */
#define RETRY_MS 10

/* In the hole between the two regions: inside the log, but not memory. */
#define ELSEWHERE      UINT64_C(0xc00007b4)
#define ELSEWHERE_STEP UINT64_C(0x10000)

int check_session_error(struct check_session *s, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(s->error, sizeof(s->error), format, ap);
	va_end(ap);
	return -EPROTO;
}

void check_session_wrong(struct check_session *s, const char *format, ...)
{
	va_list ap;

	if (s->wrong[0])
		return;
	va_start(ap, format);
	vsnprintf(s->wrong, sizeof(s->wrong), format, ap);
	va_end(ap);
}

static bool begins_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

int check_session_failed(struct check_session *s, int ret, const char *doing)
{
	char death[TARGET_DEATH_LEN];

	if (ret == -ETIMEDOUT)
		check_session_error(s, "the backend did not answer %s within %d ms", doing,
				    s->timeout_ms);
	else if (ret == -EREMOTEIO)
		check_session_error(s, "the backend refused %s", doing);
	else if (ret != -ECONNRESET && ret != -EPIPE && begins_with(silt_errmsg(), doing))
		check_session_error(s, "%s", silt_errmsg());
	else if (ret != -ECONNRESET && ret != -EPIPE)
		check_session_error(s, "%s: %s", doing, silt_errmsg());
	else if (check_target_death(s->target, death))
		check_session_error(s, "at %s the backend %s", doing, death);
	else
		check_session_error(s, "the backend closed the connection at %s", doing);
	return ret;
}

/* ---- Connection ------------------------------------------------------------------------------ */

/* The first words; @doing gets the request that they end with. */
static int greet(struct check_session *s, const char **doing)
{
	int ret;

	*doing = "SET_OWNER";
	ret = check_transport_call(s->transport, set_owner);
	if (ret < 0)
		return ret;
	*doing = "GET_FEATURES";
	return check_transport_call(s->transport, get_features, &s->offered);
}

static int negotiate(struct check_session *s)
{
	int ret;

	if (!s->f || !(s->offered & SILT_VHOST_F_PROTOCOL_FEATURES))
		return 0;
	ret = silt_frontend_get_protocol_features(s->f, &s->offered_protocol);
	if (ret < 0)
		return check_session_failed(s, ret, "GET_PROTOCOL_FEATURES");
	s->protocol = s->offered_protocol & (PROTOCOL_FEATURES | s->more_protocol);
	ret = silt_frontend_set_protocol_features(s->f, s->protocol);
	return ret < 0 ? check_session_failed(s, ret, "SET_PROTOCOL_FEATURES") : 0;
}

/*
 * A backend that serves one connection at a time may close a new one as long as it is busy with the
 * end of the last. One that ended with its connection is started again, once.
 */
static bool worth_another_try(struct check_session *s, int ret, bool *restarted)
{
	if (!check_target_reconnects(s->target))
		return false;
	if (ret != -ECONNRESET && ret != -ECHILD)
		return false;
	if (!*restarted && check_target_over(s->target)) {
		*restarted = true;
		return true;
	}
	return ret == -ECONNRESET && check_target_alive(s->target);
}

static void release(struct check_session *s, bool broken)
{
	check_target_release(s->target, s->transport, broken);
	s->transport = NULL;
	s->f = NULL;
}

static int connect_once(struct check_session *s, const char **doing)
{
	int ret = check_target_connect(s->target, &s->transport);

	if (ret < 0) {
		check_session_error(s, "%s", silt_errmsg());
		return ret;
	}
	s->f = s->transport->frontend;
	check_transport_call(s->transport, trace, s->trace);
	return greet(s, doing);
}

static int connect_backend(struct check_session *s)
{
	int64_t deadline = check_process_now_ms() + s->timeout_ms;
	const char *doing = NULL;
	bool restarted = false;
	int ret;

	for (;;) {
		ret = connect_once(s, &doing);
		if (check_process_now_ms() >= deadline || !worth_another_try(s, ret, &restarted))
			break;
		release(s, false);
		s->error[0] = '\0';
		poll(NULL, 0, RETRY_MS);
	}
	if (ret < 0)
		return s->transport ? check_session_failed(s, ret, doing) : ret;
	return negotiate(s);
}

int check_session_open(struct check_session *s)
{
	unsigned int q;

	s->timeout_ms = s->target->opt->timeout_ms;
	for (q = 0; q < SESSION_QUEUES; q++)
		s->queue[q].kick = s->queue[q].call = s->queue[q].err = s->queue[q].stopped_at = -1;
	return connect_backend(s);
}

int check_session_reconnect(struct check_session *s)
{
	release(s, true);
	s->error[0] = '\0';
	return connect_backend(s);
}

int check_session_lose_connection(struct check_session *s)
{
	release(s, false);
	s->log_all = s->log_ring = false;
	check_session_forget_answers(s);
	s->opened = false;
	return connect_backend(s);
}

static void close_queue(struct check_session_queue *q)
{
	silt_driver_destroy(q->driver);
	if (q->kick >= 0)
		close(q->kick);
	if (q->call >= 0)
		close(q->call);
	if (q->err >= 0)
		close(q->err);
}

int check_session_barrier(struct check_session *s)
{
	uint64_t features;
	int ret = check_transport_call(s->transport, get_features, &features);

	return ret < 0 ? check_session_failed(s, ret, "GET_FEATURES") : 0;
}

/* Where requests are not acknowledged one by one, one that is answered stands for those before. */
static int settle(struct check_session *s)
{
	return s->protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK ? 0 : check_session_barrier(s);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static struct silt_vhost_mem_region describe_region(const struct check_guest_region *r)
{
	return (struct silt_vhost_mem_region){
		.gpa = r->gpa,
		.size = r->size,
		.user_addr = (uintptr_t)r->flat,
		.mmap_offset = r->file_offset,
	};
}

static int set_memory(struct check_session *s, unsigned int nregions)
{
	struct silt_vhost_mem_region regions[GUEST_SIDES + 1];
	int fds[GUEST_SIDES + 1], ret;
	unsigned int i;

	for (i = 0; i < nregions; i++) {
		regions[i] = describe_region(&s->guest->region[i]);
		fds[i] = s->guest->region[i].fd;
	}
	if (check_iommu_aliases(&s->iommu)) {
		regions[nregions] = regions[GUEST_LOW];
		regions[nregions].gpa = SESSION_ALIAS;
		fds[nregions++] = fds[GUEST_LOW];
	}
	ret = check_transport_call(s->transport, set_mem_table, regions, fds, nregions);
	return ret < 0 ? check_session_failed(s, ret, "SET_MEM_TABLE") : 0;
}

int check_session_add_high(struct check_session *s)
{
	const struct silt_vhost_mem_region r = describe_region(&s->guest->region[GUEST_HIGH]);
	int ret;

	if (s->protocol & SILT_VHOST_PROTOCOL_F_CONFIGURE_MEM_SLOTS) {
		ret = silt_frontend_add_mem_reg(s->f, &r, s->guest->region[GUEST_HIGH].fd);
		if (ret < 0)
			return check_session_failed(s, ret, "ADD_MEM_REG");
	} else {
		ret = set_memory(s, GUEST_SIDES);
	}
	if (ret == 0)
		ret = check_iommu_added(s, GUEST_HIGH);
	return ret < 0 ? ret : settle(s);
}

int check_session_remove_high(struct check_session *s)
{
	const struct silt_vhost_mem_region r = describe_region(&s->guest->region[GUEST_HIGH]);
	int ret;

	if (s->protocol & SILT_VHOST_PROTOCOL_F_CONFIGURE_MEM_SLOTS) {
		ret = silt_frontend_rem_mem_reg(s->f, &r);
		if (ret < 0)
			return check_session_failed(s, ret, "REM_MEM_REG");
	} else {
		ret = set_memory(s, GUEST_HIGH);
	}
	return ret < 0 ? ret : settle(s);
}

int check_session_set_features(struct check_session *s)
{
	uint64_t features = s->features | (s->log_all ? SILT_VHOST_F_LOG_ALL : 0);
	int ret = check_transport_call(s->transport, set_features, features);

	return ret < 0 ? check_session_failed(s, ret, "SET_FEATURES") : 0;
}

int check_session_set_up(struct check_session *s, bool with_high)
{
	int ret = check_session_set_features(s);

	if (ret == 0)
		ret = set_memory(s, with_high ? GUEST_SIDES : GUEST_HIGH);
	if (ret == 0)
		ret = check_iommu_begin(s);
	if (ret == 0)
		ret = check_iommu_added(s, GUEST_LOW);
	return ret == 0 && with_high ? check_iommu_added(s, GUEST_HIGH) : ret;
}

/* ---- Logging --------------------------------------------------------------------------------- */

int check_session_log_create(struct check_session_log *log, uint64_t pages, uint64_t offset)
{
	int ret;

	log->offset = offset;
	log->size = (pages + 63) / 64 * 8;
	log->map = NULL;
	log->fd = memfd_create("silt-check-log", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (log->fd < 0 || ftruncate(log->fd, log->offset + log->size) ||
	    fcntl(log->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		ret = silt_err_sys(errno, "cannot make a dirty log of %lu bytes", log->size);
		check_session_log_destroy(log);
		return ret;
	}
	ret = silt_log_map(log->fd, log->size, log->offset, &log->map);
	if (ret < 0)
		check_session_log_destroy(log);
	return ret;
}

void check_session_log_destroy(struct check_session_log *log)
{
	silt_log_put(log->map);
	log->map = NULL;
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
}

int check_session_set_log(struct check_session *s, const struct check_session_log *log)
{
	int ret = check_transport_call(s->transport, set_log_base, log->size, log->offset, log->fd);

	return ret < 0 ? check_session_failed(s, ret, "SET_LOG_BASE") : 0;
}

/* As monitors do it: behind an IOMMU, all of a ring's addresses are I/O virtual. */
static uint64_t ring_address(const struct check_session *s, uint64_t gpa)
{
	return check_iommu_on(&s->iommu) ? check_iommu_iova(&s->iommu, gpa)
					 : (uintptr_t)check_guest_mem(s->guest, gpa);
}

static int set_ring_address(struct check_session *s, unsigned int i)
{
	const struct check_session_queue *q = &s->queue[i];
	const struct silt_vhost_vring_addr addr = {
		.index = i,
		.flags = s->log_ring ? SILT_VHOST_VRING_F_LOG : 0,
		.desc_user_addr = ring_address(s, q->desc),
		.avail_user_addr = ring_address(s, q->avail),
		.used_user_addr = ring_address(s, q->used),
		.log_guest_addr = check_iommu_iova(&s->iommu, q->log_gpa),
	};
	int ret = check_transport_call(s->transport, set_vring_addr, &addr);

	return ret < 0 ? check_session_failed(s, ret, "SET_VRING_ADDR") : 0;
}

int check_session_logging(struct check_session *s, bool on, bool ring)
{
	unsigned int i;
	int ret;

	s->log_all = on;
	s->log_ring = on && ring;
	ret = check_session_set_features(s);
	for (i = 0; i < s->nqueues && !ret; i++)
		ret = set_ring_address(s, i);
	return ret < 0 ? ret : settle(s);
}

void check_session_close(struct check_session *s, bool broken)
{
	bool kept;
	unsigned int q;

	/* As after a migration: the next scenario may come on the same connection. */
	if (!broken && s->log_all)
		broken = check_session_logging(s, false, false) < 0;
	kept = s->transport && s->transport == s->target->kept && !broken;
	check_target_release(s->target, s->transport, broken);
	if (kept)
		check_transport_call(s->transport, iotlb_close);
	for (q = 0; q < s->nqueues; q++)
		close_queue(&s->queue[q]);
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static int place_ring(struct check_session *s, struct check_session_queue *q,
		      const struct check_scenario *sc)
{
	bool high =
		sc->value[AXIS_POSITION] == POSITION_HIGH && sc->value[AXIS_SLOTS] == SLOTS_STATIC;
	enum check_guest_side side = high ? GUEST_HIGH : GUEST_LOW;
	uint64_t desc = silt_virtq_desc_size(q->num), avail = silt_virtq_avail_size(q->num);
	uint64_t used = silt_virtq_used_size(q->num);
	uint64_t desc_at = 0, avail_at = 0, used_at = 0;

	switch (sc->value[AXIS_RING]) {
	case RING_COMPACT:
		q->desc = check_guest_alloc(s->guest, side, 0x100, desc + avail + 2 + used);
		q->avail = q->desc + desc;
		q->used = (q->avail + avail + 3) & ~UINT64_C(3);
		return 0;
	case RING_STRADDLE:
		desc_at = GUEST_PAGE - desc / 2;
		avail_at = GUEST_PAGE - 4;
		/* Between the id and the length of the entry in the middle. */
		used_at = GUEST_PAGE - 8 - 8 * (q->num / 2);
		break;
	case RING_INDEX:
		used_at = GUEST_PAGE - 4;
		break;
	case RING_EVENT:
		used_at = (2 * GUEST_PAGE - (used - 2)) % GUEST_PAGE;
		break;
	}
	q->desc = check_guest_alloc(s->guest, side, desc_at % GUEST_PAGE, desc);
	q->avail = check_guest_alloc(s->guest, side, avail_at, avail);
	q->used = check_guest_alloc(s->guest, side, used_at, used);
	return 0;
}

static int note_ring(struct check_session *s, unsigned int queue)
{
	const struct check_session_queue *q = &s->queue[queue];
	const struct check_place places[] = {
		{q->desc, silt_virtq_desc_size(q->num), PLACE_DESC, queue, NULL, 0},
		{q->avail, silt_virtq_avail_size(q->num), PLACE_AVAIL, queue, NULL, 0},
		{q->used, 2, PLACE_USED_FLAGS, queue, NULL, 0},
		{q->used + 2, 2, PLACE_USED_INDEX, queue, NULL, 0},
		{q->used + 4, 8 * (uint64_t)q->num, PLACE_USED_ENTRIES, queue, NULL, 0},
		{q->used + 4 + 8 * (uint64_t)q->num, 2, PLACE_USED_EVENT, queue, NULL, 0},
	};
	unsigned int i;
	int ret = 0;

	for (i = 0; i < sizeof(places) / sizeof(places[0]) && !ret; i++)
		ret = check_places_add(s->places, &places[i]);
	return ret;
}

static int make_driver(struct check_session *s, struct check_session_queue *q)
{
	struct silt_virtq_layout layout = {
		.num = q->num,
		.desc = check_guest_mem(s->guest, q->desc),
		.avail = check_guest_mem(s->guest, q->avail),
		.used = check_guest_mem(s->guest, q->used),
		.features = s->features,
	};

	q->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	q->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	q->err = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->kick < 0 || q->call < 0 || q->err < 0)
		return silt_err_sys(errno, "cannot make an eventfd");
	return silt_driver_create(&layout, q->first, &q->driver);
}

/* Near the end, if it is to be passed early. */
static uint16_t first_index(const struct check_session *s, const struct check_session_queue *q,
			    const struct check_scenario *sc)
{
	bool near_end = sc->value[AXIS_INDEX] == INDEX_WRAP;

	if (s->packed)
		return SILT_VIRTQ_PACKED_START | (near_end && q->num > 3 ? q->num - 3 : 0);
	return near_end ? 65530 : 0;
}

static uint64_t log_address(const struct check_session_queue *q, unsigned int i,
			    const struct check_scenario *sc)
{
	switch (sc->value[AXIS_RING_LOG]) {
	case RING_LOG_ELSEWHERE:
		return ELSEWHERE + i * ELSEWHERE_STEP;
	case RING_LOG_DESCS:
		return q->desc;
	default:
		return q->used;
	}
}

static int make_ring(struct check_session *s, unsigned int i, const struct check_scenario *sc)
{
	struct check_session_queue *q = &s->queue[i];
	int ret;

	q->num = check_scenario_qsize(sc);
	q->fills = check_device_fills(sc->device, i);
	q->first = q->avail_place = q->used_place = first_index(s, q, sc);
	ret = s->packed ? check_packed_place(s, q, sc) : place_ring(s, q, sc);
	q->log_gpa = log_address(q, i, sc);
	if (ret == 0)
		ret = s->packed ? check_packed_note(s, i) : note_ring(s, i);
	if (ret == 0)
		ret = make_driver(s, q);
	return ret;
}

int check_session_make_rings(struct check_session *s, const struct check_scenario *sc)
{
	unsigned int i;
	int ret = 0;

	s->packed = s->features >> VIRTIO_F_RING_PACKED & 1;
	s->nqueues = check_scenario_queues(sc);
	ret = check_iommu_prepare(s, sc);
	for (i = 0; i < s->nqueues && !ret; i++)
		ret = make_ring(s, i, sc);
	if (ret < 0)
		return check_session_error(s, "%s", silt_errmsg());
	if (check_iommu_on(&s->iommu) && !check_guest_close_rings(s->guest))
		return check_session_error(s, "guest memory has no room for the rings");
	check_session_poison_rings(s);
	return 0;
}

/* As monitors do: where the backend said that it stopped; if it could not, at the used index. */
static uint32_t ring_base(const struct check_session *s, struct check_session_queue *q)
{
	int64_t base = q->stopped_at;

	q->stopped_at = -1;
	if (base >= 0)
		return base;
	if (s->packed)
		return q->used_place | (uint32_t)q->used_place << 16;
	return (uint16_t)(q->first + q->collected);
}

static int start_ring(struct check_session *s, unsigned int i)
{
	struct check_session_queue *q = &s->queue[i];
	int ret = check_transport_call(s->transport, set_vring_num, i, q->num);

	if (ret < 0)
		return check_session_failed(s, ret, "SET_VRING_NUM");
	ret = check_transport_call(s->transport, set_vring_base, i, ring_base(s, q));
	if (ret < 0)
		return check_session_failed(s, ret, "SET_VRING_BASE");
	ret = set_ring_address(s, i);
	if (ret < 0)
		return ret;
	ret = check_transport_call(s->transport, set_vring_kick, i, q->kick);
	if (ret < 0)
		return check_session_failed(s, ret, "SET_VRING_KICK");
	ret = check_transport_call(s->transport, set_vring_err, i, q->err);
	if (ret < 0)
		return check_session_failed(s, ret, "SET_VRING_ERR");
	ret = check_transport_call(s->transport, set_vring_call, i, q->call);
	return ret < 0 ? check_session_failed(s, ret, "SET_VRING_CALL") : 0;
}

int check_session_start(struct check_session *s)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < s->nqueues && !ret; i++)
		ret = start_ring(s, i);
	if (ret == 0)
		ret = check_iommu_start(s);
	for (i = 0; i < s->nqueues && !ret; i++) {
		ret = check_transport_call(s->transport, enable_vring, i);
		if (ret < 0)
			return check_session_failed(s, ret, "SET_VRING_ENABLE");
	}
	if (ret == 0)
		ret = settle(s);
	if (ret < 0 || !s->opening || s->opened)
		return ret;
	s->opened = true;
	return s->opening(s);
}
