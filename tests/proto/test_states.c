/* SPDX-License-Identifier: BSD-3-Clause */
/* Random requests in any order, against a model that keeps what was said and asks who may run. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "support/proc.h"
#include "support/rng.h"

#define RUNS	 60
#define REQUESTS 400
#define LOG_SIZE 0x40000

struct model_ring {
	uint32_t num;
	bool addr_set, kick_set;
	uint64_t desc, avail, used;
	int enable;	   /* -1: never said */
	uint16_t base;	   /* where it starts */
	uint16_t answered; /* what GET_VRING_BASE answers */
};

struct model {
	struct model_ring rings[RIG_QUEUES];
	uint64_t features;
	bool mapped[RIG_REGIONS];
	unsigned int resets;
	uint64_t status;
};

struct world {
	struct rig rig;
	struct model m;
	struct rng rng;
	int event_fd, log_fd;
};

/* ---- The model ------------------------------------------------------------------------------- */

static bool is_mapped(const struct world *w, uint64_t user, uint64_t len)
{
	for (unsigned int i = 0; i < RIG_REGIONS; i++) {
		const struct silt_vhost_mem_region *r = &w->rig.regions[i].r;

		if (w->m.mapped[i] && user >= r->user_addr && user + len <= r->user_addr + r->size)
			return true;
	}
	return false;
}

static bool any_memory(const struct model *m)
{
	return m->mapped[0] || m->mapped[1] || m->mapped[2];
}

static bool ring_mapped(const struct world *w, const struct model_ring *r)
{
	return is_mapped(w, r->desc, 16ull * r->num) && is_mapped(w, r->avail, 6 + 2ull * r->num) &&
	       is_mapped(w, r->used, 6 + 8ull * r->num);
}

static bool may_run(const struct world *w, unsigned int q)
{
	const struct model_ring *r = &w->m.rings[q];
	bool enabled =
		r->enable >= 0 ? r->enable : !(w->m.features & SILT_VHOST_F_PROTOCOL_FEATURES);

	return r->num && r->addr_set && r->kick_set && enabled && ring_mapped(w, r);
}

/* A status of 0 does not forget where the rings were, for the frontend that asks afterwards. */
static void model_reset(struct model *m, bool by_status)
{
	m->features = 0;
	m->status = 0;
	m->resets++;
	for (unsigned int q = 0; q < RIG_QUEUES; q++)
		m->rings[q] = (struct model_ring){.enable = -1,
						  .answered = by_status ? m->rings[q].answered : 0};
}

/* ---- Requests, right and wrong, and what the model makes of them -------------------- */

static void do_features(struct world *w)
{
	const uint64_t bits[] = {RIG_FEATURES, SILT_VHOST_F_LOG_ALL, SILT_VHOST_F_PROTOCOL_FEATURES,
				 RIG_F_DEVICE};
	uint64_t features = 0;
	bool ok = !rng_one_in(&w->rng, 8);

	for (unsigned int i = 0; i < 4; i++)
		features |= rng_one_in(&w->rng, 2) ? bits[i] : 0;
	if (!ok)
		features |= 1;
	assert_int_equal(rig_do_u64(&w->rig, SILT_VHOST_SET_FEATURES, features), ok);
	if (ok)
		w->m.features = features;
}

static unsigned int pick_queue(struct world *w)
{
	return rng_one_in(&w->rng, 16) ? RIG_QUEUES + rng_below(&w->rng, 300)
				       : rng_below(&w->rng, RIG_QUEUES);
}

static void do_num(struct world *w)
{
	static const uint32_t nums[] = {1, 16, 16, 256, 1024, 32768, 0, 3, 65536};
	unsigned int q = pick_queue(w), i = rng_below(&w->rng, 9);
	bool ok = q < RIG_QUEUES && i < 6;

	assert_int_equal(rig_do_state(&w->rig, SILT_VHOST_SET_VRING_NUM, q, nums[i]), ok);
	if (ok)
		w->m.rings[q].num = nums[i];
}

static void do_addr(struct world *w)
{
	unsigned int q = pick_queue(w), region = rng_below(&w->rng, RIG_REGIONS);
	struct silt_vhost_vring_addr a = {.index = q, .flags = rng_below(&w->rng, 2)};
	uint64_t at = w->rig.regions[region].r.user_addr + 0x4000 * rng_below(&w->rng, 5);
	struct model_ring r;
	bool ok = q < RIG_QUEUES;

	a.desc_user_addr = at;
	a.avail_user_addr = at + 0x1000;
	a.used_user_addr = at + 0x2000;
	a.log_guest_addr = rng_below(&w->rng, UINT64_C(1) << 32);
	if (rng_one_in(&w->rng, 8)) {
		a.used_user_addr += 2;
		ok = false;
	}
	if (ok) {
		r = w->m.rings[q];
		r.addr_set = true;
		r.desc = a.desc_user_addr;
		r.avail = a.avail_user_addr;
		r.used = a.used_user_addr;
		ok = !any_memory(&w->m) || !r.num || ring_mapped(w, &r);
	}
	assert_int_equal(rig_do(&w->rig, SILT_VHOST_SET_VRING_ADDR, &a, sizeof(a), NULL, 0), ok);
	if (ok)
		w->m.rings[q] = r;
}

static void do_set_base(struct world *w)
{
	unsigned int q = pick_queue(w);
	uint32_t base = rng_below(&w->rng, 70000);
	bool ok = q < RIG_QUEUES && base <= UINT16_MAX;

	assert_int_equal(rig_do_state(&w->rig, SILT_VHOST_SET_VRING_BASE, q, base), ok);
	if (ok)
		w->m.rings[q].base = w->m.rings[q].answered = base;
}

static void do_get_base(struct world *w)
{
	unsigned int q = rng_below(&w->rng, RIG_QUEUES);

	assert_int_equal(rig_base(&w->rig, q), w->m.rings[q].answered);
	w->m.rings[q].kick_set = false;
}

static void do_kick(struct world *w)
{
	unsigned int q = rng_below(&w->rng, RIG_QUEUES + 1);
	int fd = rng_one_in(&w->rng, 2) ? w->event_fd : -1;
	bool ok = q < RIG_QUEUES;

	assert_int_equal(rig_do_fd(&w->rig, SILT_VHOST_SET_VRING_KICK, q, fd), ok);
	if (ok)
		w->m.rings[q].kick_set = true;
}

static void do_call_or_err(struct world *w)
{
	uint32_t request =
		rng_one_in(&w->rng, 2) ? SILT_VHOST_SET_VRING_CALL : SILT_VHOST_SET_VRING_ERR;
	unsigned int q = rng_below(&w->rng, RIG_QUEUES + 1);
	int fd = rng_one_in(&w->rng, 2) ? w->event_fd : -1;

	assert_int_equal(rig_do_fd(&w->rig, request, q, fd), q < RIG_QUEUES);
}

static void do_enable(struct world *w)
{
	unsigned int q = pick_queue(w);
	uint32_t on = rng_below(&w->rng, 5);
	bool ok = q < RIG_QUEUES && on < 4;

	on = on < 4 ? on > 0 : 2;
	assert_int_equal(rig_do_state(&w->rig, SILT_VHOST_SET_VRING_ENABLE, q, on), ok);
	if (ok)
		w->m.rings[q].enable = on;
}

static void do_mem_table(struct world *w)
{
	unsigned int n = rng_below(&w->rng, RIG_REGIONS + 1);

	assert_true(rig_set_memory(&w->rig, n));
	for (unsigned int i = 0; i < RIG_REGIONS; i++)
		w->m.mapped[i] = i < n;
}

static void do_add(struct world *w)
{
	unsigned int i = rng_below(&w->rng, RIG_REGIONS);

	assert_int_equal(rig_add_region(&w->rig, i), !w->m.mapped[i]);
	w->m.mapped[i] = true;
}

static void do_remove(struct world *w)
{
	unsigned int i = rng_below(&w->rng, RIG_REGIONS);
	struct silt_vhost_mem_reg reg = {.region = w->rig.regions[i].r};

	assert_int_equal(rig_do(&w->rig, SILT_VHOST_REM_MEM_REG, &reg, sizeof(reg), NULL, 0),
			 w->m.mapped[i]);
	w->m.mapped[i] = false;
}

static void do_log(struct world *w)
{
	uint64_t offset = rng_below(&w->rng, 4096);
	bool ok = !rng_one_in(&w->rng, 3);

	assert_int_equal(rig_set_log(&w->rig, w->log_fd, LOG_SIZE, ok ? offset : 2 * LOG_SIZE), ok);
	if (rng_one_in(&w->rng, 4))
		assert_true(rig_do(&w->rig, SILT_VHOST_SET_LOG_FD, NULL, 0, &w->event_fd, 1));
}

static void do_status(struct world *w)
{
	uint64_t status = 1 + rng_below(&w->rng, 300);

	assert_int_equal(rig_do_u64(&w->rig, SILT_VHOST_SET_STATUS, status), status < 256);
	if (status < 256)
		w->m.status = status;
}

static void do_reset(struct world *w)
{
	bool by_status = rng_one_in(&w->rng, 2);

	if (by_status)
		assert_true(rig_do_u64(&w->rig, SILT_VHOST_SET_STATUS, 0));
	else
		assert_true(rig_do(&w->rig, SILT_VHOST_RESET_DEVICE, NULL, 0, NULL, 0));
	model_reset(&w->m, by_status);
}

static void do_reset_owner(struct world *w)
{
	assert_true(rig_do(&w->rig, SILT_VHOST_RESET_OWNER, NULL, 0, NULL, 0));
	for (unsigned int q = 0; q < RIG_QUEUES; q++) {
		if (w->m.features & SILT_VHOST_F_PROTOCOL_FEATURES)
			w->m.rings[q].enable = 0;
		else
			w->m.rings[q].kick_set = false;
	}
}

static void do_something(struct world *w)
{
	switch (rng_below(&w->rng, 40)) {
	case 0 ... 3:
		do_features(w);
		break;
	case 4 ... 7:
		do_num(w);
		break;
	case 8 ... 13:
		do_addr(w);
		break;
	case 14 ... 15:
		do_set_base(w);
		break;
	case 16 ... 17:
		do_get_base(w);
		break;
	case 18 ... 21:
		do_kick(w);
		break;
	case 22 ... 23:
		do_call_or_err(w);
		break;
	case 24 ... 28:
		do_enable(w);
		break;
	case 29 ... 30:
		do_mem_table(w);
		break;
	case 31 ... 32:
		do_add(w);
		break;
	case 33:
		do_remove(w);
		break;
	case 34 ... 36:
		do_log(w);
		break;
	case 37:
		do_status(w);
		break;
	case 38:
		if (rng_one_in(&w->rng, 4))
			do_reset_owner(w);
		break;
	case 39:
		if (rng_one_in(&w->rng, 4))
			do_reset(w);
		break;
	}
}

static void compare(struct world *w)
{
	for (unsigned int q = 0; q < RIG_QUEUES; q++) {
		assert_int_equal(w->rig.queues[q].running, may_run(w, q));
		if (may_run(w, q))
			w->m.rings[q].answered = w->m.rings[q].base;
		assert_false(w->rig.queues[q].running && w->rig.queues[q].parked);
	}
	assert_int_equal(w->rig.device_features,
			 w->m.features & ~(SILT_VHOST_F_LOG_ALL | SILT_VHOST_F_PROTOCOL_FEATURES));
	assert_int_equal(w->rig.resets, w->m.resets);
	assert_int_equal(rig_ask(&w->rig, SILT_VHOST_GET_STATUS, 0, NULL, 0, NULL, 0), RIG_ANSWER);
	assert_int_equal(w->rig.rx.msg.payload.u64, w->m.status);
}

static unsigned int run(uint64_t seed)
{
	struct world w = {.rng = rng_make(seed)};
	unsigned int fds = proc_count_fds(), maps = proc_count_maps("silt-"), started = 0;

	w.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w.log_fd = proc_memfd("silt-test-log", LOG_SIZE + 4096);
	rig_init(&w.rig);
	model_reset(&w.m, false);
	w.m.resets = 0;
	rig_negotiate(&w.rig, RIG_FEATURES);
	w.m.features = RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES;
	for (unsigned int i = 0; i < REQUESTS; i++) {
		do_something(&w);
		compare(&w);
		for (unsigned int q = 0; q < RIG_QUEUES; q++)
			started += w.rig.queues[q].running;
	}
	rig_fini(&w.rig);
	close(w.event_fd);
	close(w.log_fd);
	assert_int_equal(proc_count_fds(), fds);
	assert_int_equal(proc_count_maps("silt-"), maps);
	return started;
}

static void test_random_requests(void **state)
{
	unsigned int started = 0;

	(void)state;
	for (uint64_t seed = 0; seed < RUNS; seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		started += run(seed);
	}
	/* The sequences do bring rings to life: else nothing was tested. */
	assert_true(started > RUNS * REQUESTS / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
