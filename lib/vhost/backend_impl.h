/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VHOST_BACKEND_IMPL_H
#define SILT_VHOST_BACKEND_IMPL_H

#include <pthread.h>

#include <linux/virtio_config.h>

#include <silt/backend.h>
#include <silt/iotlb.h>
#include <silt/vhost_user.h>

#include "vhost/notify.h"

/*
 * What the frontend has asked for (struct silt_conf) is kept apart from what runs (struct
 * silt_vring). A handler describes the wanted configuration in b->next and calls silt_commit(),
 * which parks or stops the queues that the difference concerns, carries marks over to a new log,
 * and lets them go on. If any of that fails nothing has changed. So the order that law 4 demands
 * stands in one place, and a refused request changes nothing.
 */

/* What one byte of a queue index can name. */
#define SILT_QUEUES_MAX 256

enum silt_vring_enable {
	SILT_VRING_INITIAL, /* enabled exactly if protocol features were not acknowledged */
	SILT_VRING_ON,
	SILT_VRING_OFF,
};

/* One ring as the frontend described it. */
struct silt_vring_conf {
	uint32_t num; /* 0: not set */
	bool addr_set;
	bool log_used; /* SILT_VHOST_VRING_F_LOG */
	bool kick_set; /* with kick_fd -1: poll the ring */
	enum silt_vring_enable enable;
	uint64_t desc; /* user addresses, or I/O virtual ones */
	uint64_t avail;
	uint64_t used;
	uint64_t log_gpa;
	int kick_fd;
	int call_fd;
	int err_fd;
	int64_t set_base; /* the base to go on from, -1: from where it is */
};

struct silt_conf {
	bool acked; /* SET_FEATURES has come */
	uint64_t features;
	struct silt_memory *mem;
	struct silt_log *log; /* the frontend's, or a held one, or NULL */
	bool log_old;	      /* logging was switched off since it came */
	int log_fd;
	struct silt_inflight *inflight; /* where what is in flight is recorded, or NULL */
	struct silt_vring_conf rings[];
};

/* What a commit does with a ring. */
enum silt_vring_step {
	SILT_VRING_KEEP,
	SILT_VRING_PARK,
	SILT_VRING_RESTART, /* stop it if it runs; start it if it is ready then */
};

enum silt_miss_state {
	SILT_MISS_NONE,
	SILT_MISS_NEW,
	SILT_MISS_SENT,
	SILT_MISS_DENIED, /* the frontend knows no such translation */
};

/* The translation that a ring waits for: of its own addresses while it is idle, else of a buffer's.
 */
struct silt_miss {
	enum silt_miss_state state;
	unsigned int access;
	uint64_t iova;
	uint64_t id; /* of the message */
};

/* One ring as it runs. The notifiers are read by the queue's thread, and set while it is parked. */
struct silt_vring {
	struct silt_virtq *vq;
	bool running;
	bool failed;	/* could not be started: leave it until its configuration changes */
	bool owes_call; /* the guest may not know of all that was used: call it once it can be */
	enum silt_vring_step step;
	int64_t base; /* while not running; -1: where a ring begins */
	/* A status of 0 reset the base; GET_VRING_BASE answers where the ring was. */
	bool status_reset;
	uint32_t base_before;
	struct silt_notifier call;
	struct silt_notifier err;
	struct silt_notifier log; /* set while a log is written to */
	/* Behind an IOMMU only. */
	struct silt_backend *backend;
	struct silt_miss miss; /* under iommu.lock: the queue's thread notes it */
	bool found;	       /* what it waited for is known now */
	uint64_t used_gpa;     /* of the used ring as it runs */
};

/* Misses that may be unanswered at a time. More wait until one is answered. */
#define SILT_MISSES_MAX 512

/* What the backend keeps for a device that offers ACCESS_PLATFORM. */
struct silt_backend_iommu {
	struct silt_iotlb *iotlb; /* NULL: the device does not offer it */
	int poll_fd;		  /* an epoll fd: the socket, wake_fd, the back channel */
	int wake_fd;		  /* an eventfd: a queue's thread noted a miss */
	int channel;		  /* the back channel, or -1 */
	bool choked;		  /* there is no room in it: wait until it is writable */
	bool answered;		  /* rx holds an answer */
	struct silt_vhost_rx rx;
	struct silt_vhost_msg msg;
	pthread_mutex_t lock; /* of all rings' misses */
	/* Messages that are to be answered, in their order. */
	struct {
		unsigned int q;
		uint64_t id;
	} sent[SILT_MISSES_MAX];
	uint64_t first_id; /* of the oldest one */
	uint64_t next_id;
	/* The message at hand takes the translations of a range away. */
	bool gone;
	uint64_t gone_iova;
	uint64_t gone_size;
};

struct silt_backend {
	struct silt_backend_ops ops;
	void *dev;
	int fd;
	int error;	   /* the connection is unusable since */
	uint64_t protocol; /* protocol features acknowledged */
	uint8_t status;
	struct silt_conf *now;
	struct silt_conf *next;
	struct silt_vring *rings;
	struct silt_backend_iommu iommu;
	uint64_t refusals;
	char last_refusal[288];
	struct silt_vhost_rx rx;
	struct silt_vhost_msg reply;
};

typedef int silt_request_fn(struct silt_backend *b, struct silt_vhost_msg *msg);

static inline bool silt_vring_enabled(const struct silt_conf *c, unsigned int q)
{
	if (c->rings[q].enable == SILT_VRING_INITIAL)
		return !(c->features & SILT_VHOST_F_PROTOCOL_FEATURES);
	return c->rings[q].enable == SILT_VRING_ON;
}

/* Are addresses I/O virtual ones? */
static inline bool silt_conf_iommu(const struct silt_conf *c)
{
	return c->features & SILT_VHOST_F_ACCESS_PLATFORM;
}

static inline bool silt_conf_packed(const struct silt_conf *c)
{
	return c->features >> VIRTIO_F_RING_PACKED & 1;
}

static inline bool silt_conf_logs_data(const struct silt_conf *c)
{
	return c->features & SILT_VHOST_F_LOG_ALL;
}

/* ---- backend.c */

/* Answer the request at hand with @size bytes of b->reply's payload, or with a number. */
int silt_answer(struct silt_backend *b, uint32_t size);
int silt_answer_u64(struct silt_backend *b, uint64_t value);

/* ---- backend_commit.c */

/* b->next as a copy of b->now. Pointers in it that the handler replaces are its own new ones. */
struct silt_conf *silt_conf_begin(struct silt_backend *b);

/*
 * Make b->next the configuration. Return: 0, b->now took over what the handler put into b->next;
 * or -errno: nothing changed, b->next's new memory map and log are put, new fds are the caller's.
 */
int silt_commit(struct silt_backend *b);

/* silt_commit() for a handler that put @msg's fds into b->next: they are b->now's if it worked. */
int silt_commit_fds(struct silt_backend *b, struct silt_vhost_msg *msg);

void silt_vring_conf_init(struct silt_vring_conf *r);
void silt_stop_all(struct silt_backend *b);

/* Where a ring lies, if it is wholly mapped and aligned. */
bool silt_vring_resolve(const struct silt_conf *c, unsigned int q,
			struct silt_virtq_layout *layout);

/* The base of a ring that does not run. */
uint32_t silt_vring_base(const struct silt_vring *ring, bool packed);

/* ---- backend_log.c */

/* Give b->next a held log if it needs one, or take it away. Fails if a log does not reach. */
int silt_log_plan(struct silt_backend *b);

/* All queues of b->now that used its log are parked or stopped: hand what it holds to b->next's. */
int silt_log_carry(struct silt_backend *b);

silt_request_fn silt_set_log_base;
silt_request_fn silt_set_log_fd;

/* ---- backend_inflight.c */

/* @in may be NULL. No queue may be running on it. */
void silt_inflight_destroy(struct silt_inflight *in);

/*
 * Let the queue @q that was started just now record what is in flight, if the frontend wants it.
 * Return: 0, 1 if the guest must be called, -errno.
 */
int silt_inflight_attach(const struct silt_backend *b, unsigned int q);

silt_request_fn silt_get_inflight_fd;
silt_request_fn silt_set_inflight_fd;

/* ---- backend_iommu.c */

/* For a device that offers ACCESS_PLATFORM. Return: 0 or -errno. */
int silt_iommu_create(struct silt_backend *b);
void silt_iommu_destroy(struct silt_backend *b);

/* A ring's own addresses. Return: 1; 0 some are not known, which was noted as a miss; -errno. */
int silt_iommu_resolve(struct silt_backend *b, unsigned int q, struct silt_virtq_layout *layout);

/* Does the message at hand concern a ring so that it has to be drained, or parked? */
bool silt_iommu_needs_restart(const struct silt_backend *b, unsigned int q);
bool silt_iommu_needs_park(const struct silt_backend *b, unsigned int q);

/* Is a parked ring working on a buffer whose translation goes? */
bool silt_iommu_in_use(const struct silt_backend *b, unsigned int q);

/* ACCESS_PLATFORM came or went. */
void silt_iommu_clear(struct silt_backend *b);

silt_request_fn silt_iotlb_msg;

/* ---- backend_channel.c */

/* Note that @q waits for a translation. Any thread. */
void silt_miss_note(struct silt_backend *b, unsigned int q, uint64_t iova, unsigned int access);
void silt_miss_forget(struct silt_backend *b, unsigned int q);

/* Commit, if b->iommu.gone or a ring waits for what is known now. Return: 0 or -errno. */
int silt_miss_commit(struct silt_backend *b);

/* Take an answer from the back channel, if one has come. Return: 0 or -errno. */
int silt_channel_receive(struct silt_backend *b);

/* Act on it, and send what misses are new. @drained: nothing is left in the socket. */
int silt_channel_work(struct silt_backend *b, bool drained);

void silt_channel_close(struct silt_backend *b);

silt_request_fn silt_set_backend_req_fd;

/* ---- backend_memory.c */

/* Is all of a range of user addresses mapped? */
bool silt_memory_covers(const struct silt_memory *mem, uint64_t addr, uint64_t size);

/* Is every region of @old still mapped at the same place in @mem? */
bool silt_memory_kept(const struct silt_memory *old, const struct silt_memory *mem);

silt_request_fn silt_set_mem_table;
silt_request_fn silt_get_max_mem_slots;
silt_request_fn silt_add_mem_reg;
silt_request_fn silt_rem_mem_reg;

/* ---- backend_vring.c */

silt_request_fn silt_set_vring_num;
silt_request_fn silt_set_vring_addr;
silt_request_fn silt_set_vring_base;
silt_request_fn silt_get_vring_base;
silt_request_fn silt_set_vring_kick;
silt_request_fn silt_set_vring_call;
silt_request_fn silt_set_vring_err;
silt_request_fn silt_set_vring_enable;
silt_request_fn silt_reset_owner;

#endif
