/* SPDX-License-Identifier: BSD-3-Clause */
/* Whatever the order of the messages: every page that the device wrote is in a log. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "shadow.h"
#include "support/proc.h"
#include "support/rng.h"

#define ELSEWHERE 0x1c0000f80 /* a log address in no region; straddles pages as the ring does */

/* ---- Steps ----------------------------------------------------------------------------------- */

static void set_logging(struct rig *rig, bool on)
{
	assert_true(rig_do_u64(rig, SILT_VHOST_SET_FEATURES,
			       RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES |
				       (on ? SILT_VHOST_F_LOG_ALL : 0)));
}

static void set_ring_logging(struct rig *rig, unsigned int q, const struct shadow_ring *ring)
{
	struct silt_vhost_vring_addr addr;

	rig_ring_addr(rig, q, &addr);
	addr.flags = ring->logged ? SILT_VHOST_VRING_F_LOG : 0;
	addr.log_guest_addr = ring->log_gpa;
	assert_true(rig_do(rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
}

static bool use_log(struct rig *rig, const struct shadow_log *log)
{
	return rig_set_log(rig, log->fd, log->size, log->offset);
}

static void start(struct rig *rig)
{
	rig_init(rig);
	rig_negotiate(rig, RIG_FEATURES);
	assert_true(rig_set_memory(rig, 2));
	rig_ring(rig, 0, NULL);
	rig_ring(rig, 1, NULL);
}

/* A write by the device at a random place of a region that is mapped. */
static void random_write(struct rig *rig, struct rng *rng, unsigned int q, unsigned int nregions)
{
	static uint8_t byte;
	const struct silt_vhost_mem_region *r = &rig->regions[rng_below(rng, nregions)].r;
	uint64_t floor = r->gpa ? 0 : SHADOW_DATA;
	uint32_t len = 1 + rng_below(rng, 2 * SILT_LOG_PAGE_SIZE);
	uint64_t at = floor + rng_below(rng, r->size - floor - len + 1);

	byte = byte % 255 + 1;
	rig_request(rig, q, r->gpa + at, len, byte);
	rig_run(rig, q);
}

static void traffic(struct rig *rig, struct rng *rng, unsigned int nregions)
{
	for (unsigned int i = 0; i < 5; i++) {
		random_write(rig, rng, 0, nregions);
		random_write(rig, rng, 1, nregions);
	}
	rig_collect(rig, 0);
	rig_collect(rig, 1);
}

/* ---- The matrix ------------------------------------------------------------------------------ */

enum arrival {
	LOG_FIRST,    /* log, features, ring flags */
	LOG_LAST,     /* the device starts during a migration: the log comes after traffic */
	LOG_REPLACED, /* between requests, and with one under way */
	LOG_ARRIVALS,
};

struct combo {
	bool data;
	struct shadow_ring rings[RIG_QUEUES];
	enum arrival arrival;
	uint64_t offset;
};

/* DMA has stored data when the log is replaced; it is marked in the new one, not in the old. */
static void replace_under_way(struct rig *rig, struct rng *rng, const struct shadow_log *old,
			      const struct shadow_log *new)
{
	uint8_t *before = malloc(old->size);

	rig->hold = RIG_HOLD_DMA;
	random_write(rig, rng, 0, 2);
	rig->hold = RIG_HOLD_NONE;
	traffic(rig, rng, 2);
	assert_true(use_log(rig, new));
	memcpy(before, old->file + old->offset, old->size);
	rig_finish(rig, 0);
	traffic(rig, rng, 2);
	assert_memory_equal(before, old->file + old->offset, old->size);
	free(before);
}

static void run_combo(const struct combo *c, uint64_t seed)
{
	struct rng rng = rng_make(seed);
	struct shadow_log logs[2];
	struct shadow s;
	struct rig rig;

	start(&rig);
	for (unsigned int i = 0; i < 2; i++)
		shadow_log_make(&logs[i], SHADOW_LOG_SIZE, c->offset);
	traffic(&rig, &rng, 2);
	if (c->arrival != LOG_LAST)
		assert_true(use_log(&rig, &logs[0]));
	shadow_take(&s, &rig);
	set_logging(&rig, c->data);
	set_ring_logging(&rig, 0, &c->rings[0]);
	set_ring_logging(&rig, 1, &c->rings[1]);
	traffic(&rig, &rng, 2);
	if (c->arrival == LOG_LAST)
		assert_true(use_log(&rig, &logs[0]));
	if (c->arrival == LOG_REPLACED)
		replace_under_way(&rig, &rng, &logs[0], &logs[1]);
	traffic(&rig, &rng, 2);
	rig_base(&rig, 0);
	rig_base(&rig, 1);
	shadow_check(&s, &rig, logs, 2, c->data, c->rings);
	assert_int_equal(silt_backend_log_trouble(rig.b), 0);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&logs[0]);
	shadow_log_free(&logs[1]);
}

static void test_matrix(void **state)
{
	static const uint64_t offsets[] = {0, 4096, 4099};
	struct combo c = {0};
	uint64_t seed = 0;

	(void)state;
	for (c.arrival = 0; c.arrival < LOG_ARRIVALS; c.arrival++) {
		for (unsigned int bits = 0; bits < 16; bits++) {
			c.data = bits & 1;
			c.rings[0].logged = bits & 2;
			c.rings[0].log_gpa = bits & 4 ? ELSEWHERE : rig_used_gpa(0);
			c.rings[1].logged = bits & 8;
			c.rings[1].log_gpa = rig_used_gpa(1);
			c.offset = offsets[seed % 3];
			run_combo(&c, seed++);
		}
	}
}

/* ---- Flushed before answered ----------------------------------------------------------------- */

static void stop_by_base(struct rig *rig)
{
	rig_base(rig, 0);
}

static void stop_by_disable(struct rig *rig)
{
	assert_true(rig_do_state(rig, SILT_VHOST_SET_VRING_ENABLE, 0, 0));
}

static void stop_by_reset(struct rig *rig)
{
	assert_true(rig_do(rig, SILT_VHOST_RESET_DEVICE, NULL, 0, NULL, 0));
}

static void stop_by_status(struct rig *rig)
{
	assert_true(rig_do_u64(rig, SILT_VHOST_SET_STATUS, 0));
}

static void stop_by_owner(struct rig *rig)
{
	assert_true(rig_do(rig, SILT_VHOST_RESET_OWNER, NULL, 0, NULL, 0));
}

static void stop_by_memory(struct rig *rig)
{
	assert_true(rig_set_memory(rig, 0));
}

static void stop_by_destroy(struct rig *rig)
{
	int sockets = dup(rig->fd);

	silt_backend_destroy(rig->b);
	rig->b = NULL;
	close(sockets);
}

static void test_flushed_before_answered(void **state)
{
	void (*const stops[])(struct rig *) = {stop_by_base,   stop_by_disable, stop_by_reset,
					       stop_by_status, stop_by_owner,	stop_by_memory,
					       stop_by_destroy};
	const struct shadow_ring rings[RIG_QUEUES] = {{true, rig_used_gpa(0)}};

	(void)state;
	for (unsigned int i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
		struct rng rng = rng_make(i);
		struct shadow_log log;
		struct shadow s;
		struct rig rig;

		start(&rig);
		shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
		assert_true(use_log(&rig, &log));
		set_logging(&rig, true);
		set_ring_logging(&rig, 0, &rings[0]);
		shadow_take(&s, &rig);
		rig.hold = RIG_HOLD_DMA;
		random_write(&rig, &rng, 0, 2);
		stops[i](&rig);
		assert_false(rig.queues[0].running);
		assert_null(rig.queues[0].held);
		assert_int_equal(rig_collect(&rig, 0), 1);
		shadow_check(&s, &rig, &log, 1, true, rings);
		shadow_free(&s);
		rig_fini(&rig);
		shadow_log_free(&log);
	}
}

/* ---- Migrations, one after the other --------------------------------------------------------- */

static void test_on_off_on(void **state)
{
	const struct shadow_ring off[RIG_QUEUES] = {{0}};
	const struct shadow_ring on[RIG_QUEUES] = {{true, rig_used_gpa(0)}, {true, ELSEWHERE}};
	struct rng rng = rng_make(7);
	struct shadow_log log;
	struct shadow s;
	struct rig rig;

	(void)state;
	start(&rig);
	for (unsigned int round = 0; round < 6; round++) {
		bool enabled = round % 2;

		shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
		assert_true(use_log(&rig, &log));
		set_logging(&rig, enabled);
		set_ring_logging(&rig, 0, enabled ? &on[0] : &off[0]);
		set_ring_logging(&rig, 1, enabled ? &on[1] : &off[1]);
		shadow_take(&s, &rig);
		traffic(&rig, &rng, 2);
		shadow_check(&s, &rig, &log, 1, enabled, enabled ? on : off);
		shadow_free(&s);
		shadow_log_free(&log);
	}
	rig_fini(&rig);
}

/* ---- Changes while a ring is logged ---------------------------------------------------------- */

static void start_logging(struct rig *rig, const struct shadow_log *log)
{
	start(rig);
	assert_true(use_log(rig, log));
	set_logging(rig, true);
}

/* What the device writes to memory that was plugged in a moment ago is logged at once. */
static void test_region_comes(void **state)
{
	const struct shadow_ring rings[RIG_QUEUES] = {{0}};
	struct shadow_log log;
	struct shadow s;
	struct rig rig;

	(void)state;
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	start_logging(&rig, &log);
	shadow_take(&s, &rig);
	assert_true(rig_add_region(&rig, 2));
	rig_request(&rig, 0, rig.regions[2].r.gpa, 100, 9);
	rig_run(&rig, 0);
	assert_int_equal(rig_collect(&rig, 0), 1);
	assert_int_equal(*rig_hva(&rig, rig.regions[2].r.gpa), 9);
	shadow_check(&s, &rig, &log, 1, true, rings);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&log);
}

/* A used ring's log address that changes, and nothing else. */
static void test_ring_logged_elsewhere(void **state)
{
	const struct shadow_ring before = {true, rig_used_gpa(0)};
	const struct shadow_ring rings[RIG_QUEUES] = {{true, ELSEWHERE}};
	struct rng rng = rng_make(15);
	struct shadow_log log;
	struct shadow s;
	struct rig rig;

	(void)state;
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	start_logging(&rig, &log);
	set_ring_logging(&rig, 0, &before);
	set_ring_logging(&rig, 0, &rings[0]);
	shadow_take(&s, &rig);
	traffic(&rig, &rng, 2);
	shadow_check(&s, &rig, &log, 1, true, rings);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&log);
}

/* ---- Without a log --------------------------------------------------------------------------- */

static void test_kept_marks_grow_with_memory(void **state)
{
	const struct shadow_ring rings[RIG_QUEUES] = {{true, 0x1f0000000}};
	struct rng rng = rng_make(8);
	struct shadow_log log;
	struct shadow s;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 8);
	shadow_take(&s, &rig);
	set_logging(&rig, true);
	traffic(&rig, &rng, 2);
	assert_true(rig_add_region(&rig, 2));
	traffic(&rig, &rng, 3);
	set_ring_logging(&rig, 0, &rings[0]);
	traffic(&rig, &rng, 3);
	assert_true(use_log(&rig, &log));
	shadow_check(&s, &rig, &log, 1, true, rings);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&log);
}

/* Marks that a queue has pending when the log comes were made for the kept ones. */
static void test_pending_marks_are_kept(void **state)
{
	const struct shadow_ring rings[RIG_QUEUES] = {{0}};
	struct rng rng = rng_make(12);
	struct shadow_log log;
	struct shadow s;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	shadow_take(&s, &rig);
	set_logging(&rig, true);
	rig.hold = RIG_HOLD_MARKED;
	random_write(&rig, &rng, 0, 2);
	assert_true(use_log(&rig, &log));
	rig_finish(&rig, 0);
	shadow_check(&s, &rig, &log, 1, true, rings);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&log);
}

/* Logging that went off before the log came leaves nothing behind: what is kept later is merged. */
static void test_kept_marks_after_off_and_on(void **state)
{
	const struct shadow_ring rings[RIG_QUEUES] = {{0}};
	struct rng rng = rng_make(14);
	struct shadow_log log;
	struct shadow s;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	set_logging(&rig, true);
	traffic(&rig, &rng, 2);
	set_logging(&rig, false);
	shadow_take(&s, &rig);
	set_logging(&rig, true);
	traffic(&rig, &rng, 2);
	assert_true(use_log(&rig, &log));
	shadow_check(&s, &rig, &log, 1, true, rings);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&log);
}

/* A log that cannot take what was kept is refused, and nothing is lost. */
static void test_kept_marks_need_room(void **state)
{
	const struct shadow_ring rings[RIG_QUEUES] = {{0}};
	struct shadow_log small, log;
	struct shadow s;
	unsigned int maps;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&small, 64, 0);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	shadow_take(&s, &rig);
	set_logging(&rig, true);
	rig_request(&rig, 0, UINT64_C(1) << 32, 100, 9);
	rig_run(&rig, 0);
	maps = proc_count_maps("silt-test-log");
	assert_false(use_log(&rig, &small));
	assert_int_equal(proc_count_maps("silt-test-log"), maps);
	rig_request(&rig, 0, SHADOW_DATA, 100, 9);
	rig_run(&rig, 0);
	assert_true(use_log(&rig, &log));
	shadow_check(&s, &rig, &log, 1, true, rings);
	assert_int_equal(silt_backend_log_trouble(rig.b), 0);
	shadow_free(&s);
	rig_fini(&rig);
	shadow_log_free(&log);
	shadow_log_free(&small);
}

/* A guest address that no log could reach without a bound on memory: said, not tried. */
static void test_kept_marks_are_bounded(void **state)
{
	struct silt_vhost_mem_reg reg;
	unsigned int maps;
	struct rig rig;

	(void)state;
	start(&rig);
	reg = (struct silt_vhost_mem_reg){.region = rig.regions[2].r};
	reg.region.gpa = UINT64_C(1) << 60;
	assert_true(rig_do(&rig, SILT_VHOST_ADD_MEM_REG, &reg, sizeof(reg), &rig.regions[2].fd, 1));
	assert_false(
		rig_do_u64(&rig, SILT_VHOST_SET_FEATURES,
			   RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES | SILT_VHOST_F_LOG_ALL));
	assert_true(rig.queues[0].running && !rig.queues[0].parked);
	assert_true(rig_do(&rig, SILT_VHOST_REM_MEM_REG, &reg, sizeof(reg), NULL, 0));
	set_logging(&rig, true);
	maps = proc_count_maps("silt-guest");
	assert_false(
		rig_do(&rig, SILT_VHOST_ADD_MEM_REG, &reg, sizeof(reg), &rig.regions[2].fd, 1));
	assert_int_equal(proc_count_maps("silt-guest"), maps);
	rig_fini(&rig);
}

/* ---- Trouble --------------------------------------------------------------------------------- */

static void expect_all_marked(const struct rig *rig, const struct shadow_log *log,
			      unsigned int nregions)
{
	for (unsigned int i = 0; i < nregions; i++) {
		const struct silt_vhost_mem_region *r = &rig->regions[i].r;

		for (uint64_t at = 0; at < r->size; at += SILT_LOG_PAGE_SIZE)
			assert_true(shadow_log_test(log, (r->gpa + at) / SILT_LOG_PAGE_SIZE));
	}
}

static void test_truncated_log(void **state)
{
	const struct shadow_ring ring = {true, ELSEWHERE};
	struct rng rng = rng_make(9);
	struct shadow_log broken, log;
	struct rig rig;

	(void)state;
	/* Here, not in main(): cmocka takes the signals at the start of each test. */
	assert_int_equal(silt_access_install(), 0);
	start(&rig);
	shadow_log_make(&broken, SHADOW_LOG_SIZE, 0);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	assert_true(use_log(&rig, &broken));
	set_logging(&rig, true);
	set_ring_logging(&rig, 0, &ring);
	assert_int_equal(ftruncate(broken.fd, 0), 0);
	traffic(&rig, &rng, 2);
	assert_int_equal(silt_backend_log_trouble(rig.b), SILT_LOG_FAULTED);
	assert_true(use_log(&rig, &log));
	assert_int_equal(silt_backend_log_trouble(rig.b), 0);
	expect_all_marked(&rig, &log, 2);
	assert_true(shadow_log_test(&log, ELSEWHERE / SILT_LOG_PAGE_SIZE));
	rig_fini(&rig);
	shadow_log_free(&broken);
	shadow_log_free(&log);
}

/* A log that ends below the memory: legal, but what lies beyond is missed, and made good. */
static void test_short_log(void **state)
{
	struct shadow_log brief, log;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&brief, 64, 0);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 1);
	set_logging(&rig, true);
	assert_true(use_log(&rig, &brief));
	rig_request(&rig, 0, SHADOW_DATA, 100, 9);
	rig_run(&rig, 0);
	assert_int_equal(silt_backend_log_trouble(rig.b), 0);
	rig_request(&rig, 0, UINT64_C(1) << 32, 100, 9);
	rig_run(&rig, 0);
	assert_int_equal(silt_backend_log_trouble(rig.b), SILT_LOG_OUTSIDE);
	assert_true(use_log(&rig, &log));
	expect_all_marked(&rig, &log, 2);
	rig_fini(&rig);
	shadow_log_free(&brief);
	shadow_log_free(&log);
}

/* ---- Logging comes before the log, and there is one of an earlier migration -------------------
 */

static void test_old_log(void **state)
{
	const struct shadow_ring on = {true, ELSEWHERE};
	struct rng rng = rng_make(13);
	struct shadow_log first, brief, second;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&first, SHADOW_LOG_SIZE, 0);
	shadow_log_make(&brief, 64, 0);
	shadow_log_make(&second, SHADOW_LOG_SIZE, 0);
	assert_true(use_log(&rig, &first));
	set_logging(&rig, true);
	traffic(&rig, &rng, 2);
	set_logging(&rig, false);
	set_logging(&rig, true);
	set_ring_logging(&rig, 0, &on);
	traffic(&rig, &rng, 2);
	assert_false(use_log(&rig, &brief));
	assert_true(use_log(&rig, &second));
	assert_int_equal(silt_backend_log_trouble(rig.b), 0);
	expect_all_marked(&rig, &second, 2);
	assert_true(shadow_log_test(&second, ELSEWHERE / SILT_LOG_PAGE_SIZE));
	rig_fini(&rig);
	shadow_log_free(&first);
	shadow_log_free(&brief);
	shadow_log_free(&second);
}

/* ---- Leaks ----------------------------------------------------------------------------------- */

static void test_a_thousand_logs(void **state)
{
	struct rng rng = rng_make(10);
	struct shadow_log log;
	unsigned int fds, maps;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	set_logging(&rig, true);
	assert_true(use_log(&rig, &log));
	fds = proc_count_fds();
	maps = proc_count_maps("silt-test-log");
	for (unsigned int i = 0; i < 1000; i++) {
		struct silt_vhost_log wanted = {log.size, 0};
		int none[2] = {log.fd, log.fd};
		unsigned int kind = rng_below(&rng, 5);
		bool ok;

		if (kind == 1)
			wanted.mmap_size += 8192;
		if (kind == 2)
			wanted.mmap_offset = UINT64_MAX;
		ok = rig_do(&rig, SILT_VHOST_SET_LOG_BASE, &wanted, sizeof(wanted), none,
			    kind == 3	? 0
			    : kind == 4 ? 2
					: 1);
		assert_int_equal(ok, kind == 0);
		if (!(i % 100))
			traffic(&rig, &rng, 2);
	}
	assert_int_equal(proc_count_fds(), fds);
	assert_int_equal(proc_count_maps("silt-test-log"), maps);
	rig_fini(&rig);
	assert_int_equal(proc_count_maps("silt-test-log"), maps - 1);
	shadow_log_free(&log);
}

/* A ring that is stopped, and one that could not be started, hold on to no log. */
static void test_no_log_while_stopped(void **state)
{
	struct shadow_log first, second;
	unsigned int maps;
	struct rig rig;

	(void)state;
	shadow_log_make(&first, SHADOW_LOG_SIZE, 0);
	shadow_log_make(&second, SHADOW_LOG_SIZE, 0);
	start_logging(&rig, &first);
	maps = proc_count_maps("silt-test-log");
	rig_base(&rig, 0);
	rig.fail_start = 2;
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_BASE, 1, 99));
	assert_false(rig.queues[0].running || rig.queues[1].running);
	assert_true(use_log(&rig, &second));
	assert_int_equal(proc_count_maps("silt-test-log"), maps);
	rig_fini(&rig);
	shadow_log_free(&first);
	shadow_log_free(&second);
}

/* ---- The log's event fd ---------------------------------------------------------------------- */

static uint64_t events(int fd)
{
	uint64_t n = 0;

	return read(fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static void test_log_fd(void **state)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct rng rng = rng_make(11);
	struct shadow_log log;
	struct rig rig;

	(void)state;
	start(&rig);
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	assert_true(rig_do(&rig, SILT_VHOST_SET_LOG_FD, NULL, 0, &fd, 1));
	assert_true(use_log(&rig, &log));
	traffic(&rig, &rng, 2);
	assert_int_equal(events(fd), 0);
	set_logging(&rig, true);
	traffic(&rig, &rng, 2);
	assert_true(events(fd) > 0);
	set_logging(&rig, false);
	traffic(&rig, &rng, 2);
	assert_int_equal(events(fd), 0);
	rig_fini(&rig);
	shadow_log_free(&log);
	close(fd);
}

static void test_new_log_fd(void **state)
{
	int old = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int new = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct rng rng = rng_make(16);
	struct shadow_log log;
	struct rig rig;

	(void)state;
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	start_logging(&rig, &log);
	assert_true(rig_do(&rig, SILT_VHOST_SET_LOG_FD, NULL, 0, &old, 1));
	assert_true(rig_do(&rig, SILT_VHOST_SET_LOG_FD, NULL, 0, &new, 1));
	traffic(&rig, &rng, 2);
	assert_int_equal(events(old), 0);
	assert_true(events(new) > 0);
	rig_fini(&rig);
	shadow_log_free(&log);
	close(old);
	close(new);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_flushed_before_answered),
		cmocka_unit_test(test_on_off_on),
		cmocka_unit_test(test_region_comes),
		cmocka_unit_test(test_ring_logged_elsewhere),
		cmocka_unit_test(test_kept_marks_grow_with_memory),
		cmocka_unit_test(test_pending_marks_are_kept),
		cmocka_unit_test(test_kept_marks_after_off_and_on),
		cmocka_unit_test(test_kept_marks_need_room),
		cmocka_unit_test(test_kept_marks_are_bounded),
		cmocka_unit_test(test_truncated_log),
		cmocka_unit_test(test_short_log),
		cmocka_unit_test(test_old_log),
		cmocka_unit_test(test_a_thousand_logs),
		cmocka_unit_test(test_no_log_while_stopped),
		cmocka_unit_test(test_log_fd),
		cmocka_unit_test(test_new_log_fd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
