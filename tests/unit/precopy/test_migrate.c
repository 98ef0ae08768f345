/* SPDX-License-Identifier: BSD-3-Clause */
/* Migrations of a model of a guest: what arrives, and who has the guest, whatever goes wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "guest.h"
#include "support/faults.h"

/* Fewer where everything is slow: SILT_TEST_SLOW is set for emulators. */
static uint64_t seeds(uint64_t n)
{
	return getenv("SILT_TEST_SLOW") ? 1 + n / 10 : n;
}

static int migrate(struct guest *g)
{
	struct silt_precopy_options opt;

	guest_options(g, &opt);
	guest_precopy(g, &opt);
	return silt_precopy_run(g->precopy);
}

/* What holds when the destination has the guest. */
static void assert_moved(struct guest *g)
{
	assert_true(g->peer.running);
	assert_false(g->running);
	assert_false(g->tracked);
	assert_true(guest_same(g));
}

/* And what holds when the source has it as if nothing had been. */
static void assert_kept(struct guest *g)
{
	assert_false(g->peer.running);
	assert_true(g->running);
	assert_false(g->tracked);
	assert_int_equal(g->throttle, 0);
	assert_int_equal(g->pauses, g->resumes);
	assert_int_equal(guest_lost(g), 0);
}

/* Another migration, to another destination. */
static void assert_moves_now(struct guest *g)
{
	guest_fresh_peer(g);
	assert_int_equal(migrate(g), SILT_PRECOPY_MOVED);
	assert_moved(g);
}

static void test_moves(void **unused)
{
	struct silt_precopy_result result = {.size = sizeof(result)};
	struct guest g;
	uint64_t seed;

	(void)unused;
	for (seed = 0; seed < seeds(150); seed++) {
		guest_init(&g, seed);
		assert_int_equal(migrate(&g), SILT_PRECOPY_MOVED);
		assert_moved(&g);
		assert_int_equal(silt_precopy_result(g.precopy, &result), 0);
		assert_int_equal(result.rounds, g.rounds);
		assert_int_equal(result.pages << (g.shift - 12), g.peer.pages);
		assert_int_equal(result.state_bytes, g.state_bytes);
		guest_fini(&g);
	}
}

/* Everything that comes once in a migration of this seed. */
struct length {
	uint64_t bytes, calls, answers;
};

static struct length measure(uint64_t seed)
{
	struct length all;
	struct guest g;

	guest_init(&g, seed);
	assert_int_equal(migrate(&g), SILT_PRECOPY_MOVED);
	all = (struct length){g.peer.total, g.calls, g.peer.answers};
	guest_fini(&g);
	return all;
}

/*
 * The rule: either the source has the guest, or the destination, or START went out and no answer
 * came. Return: what the engine said.
 */
static int mishap(uint64_t seed, enum mishap what, uint64_t when)
{
	struct guest g;
	int ret;

	guest_init(&g, seed);
	g.mishap = what;
	g.when = when;
	ret = migrate(&g);
	if (ret < 0) {
		assert_true(silt_errmsg()[0]);
		/* What the destination says goes into logs: it said "a\nb". */
		assert_true(what != REFUSE || strstr(silt_errmsg(), "refused: a?b"));
		assert_kept(&g);
		assert_int_equal(silt_precopy_resolve(g.precopy, true), -EINVAL);
		assert_moves_now(&g);
	} else if (ret == SILT_PRECOPY_UNSURE) {
		assert_true(what == CUT_ANSWERS || what == CUT);
		assert_false(g.running);
		assert_moved(&g);
		/* As if it was found out that the destination never came up. */
		g.peer.running = false;
		assert_int_equal(silt_precopy_resolve(g.precopy, true), 0);
		assert_true(g.running);
		assert_moves_now(&g);
	} else {
		assert_moved(&g);
	}
	guest_fini(&g);
	return ret;
}

static void test_cut_anywhere(void **unused)
{
	struct rng rng = rng_make(21);
	uint64_t seed, i, failed = 0;

	(void)unused;
	for (seed = 0; seed < seeds(6); seed++) {
		struct length all = measure(seed);

		for (i = 0; i < 20; i++)
			failed += mishap(seed, CUT, 1 + rng_below(&rng, all.bytes - 1)) < 0;
		/* START is the last frame: with all of its bytes the guest has gone. */
		for (i = 1; i <= sizeof(struct wire_header); i++)
			assert_int_equal(mishap(seed, CUT, all.bytes - i), -ECONNRESET);
		assert_int_equal(mishap(seed, CUT, all.bytes + 1), SILT_PRECOPY_MOVED);
	}
	assert_true(failed > 10 * seeds(6));
}

static void test_cut_answers(void **unused)
{
	uint64_t seed, i;

	(void)unused;
	for (seed = 0; seed < seeds(10); seed++) {
		struct length all = measure(seed);

		for (i = 1; i < all.answers; i++)
			assert_int_equal(mishap(seed, CUT_ANSWERS, i), -ECONNRESET);
		assert_int_equal(mishap(seed, CUT_ANSWERS, i), SILT_PRECOPY_UNSURE);
	}
}

static void test_refused_anywhere(void **unused)
{
	uint64_t seed, i;

	(void)unused;
	for (seed = 0; seed < seeds(10); seed++) {
		struct length all = measure(seed);

		for (i = 1; i <= all.answers; i++)
			assert_int_equal(mishap(seed, REFUSE, i), -EREMOTEIO);
	}
}

static void test_cancelled_anywhere(void **unused)
{
	uint64_t seed, i, cancelled = 0, step;
	int ret;

	(void)unused;
	for (seed = 0; seed < seeds(6); seed++) {
		struct length all = measure(seed);

		step = 1 + all.calls / 40;
		for (i = 1; i <= all.calls; i += step) {
			ret = mishap(seed, CANCEL, i);
			assert_true(ret == -ECANCELED || ret == SILT_PRECOPY_MOVED);
			cancelled += ret < 0;
		}
	}
	assert_true(cancelled > 10 * seeds(6));
}

/* Close to the end, call by call: from START on there is no way back. */
static void test_cancelled_late(void **unused)
{
	uint64_t seed, i;
	int ret, before;

	(void)unused;
	for (seed = 0; seed < seeds(6); seed++) {
		struct length all = measure(seed);

		before = -ECANCELED;
		for (i = all.calls - 30; i <= all.calls; i++) {
			ret = mishap(seed, CANCEL, i);
			assert_true(ret == -ECANCELED || ret == SILT_PRECOPY_MOVED);
			assert_false(before == SILT_PRECOPY_MOVED && ret < 0);
			before = ret;
		}
		assert_int_equal(before, SILT_PRECOPY_MOVED);
	}
}

static void test_failed_anywhere(void **unused)
{
	uint64_t seed, i, failed = 0, step;

	(void)unused;
	for (seed = 0; seed < seeds(6); seed++) {
		struct length all = measure(seed);

		step = 1 + all.calls / 60;
		for (i = 1; i <= all.calls; i += step)
			failed += mishap(seed, FAIL_CALL, i) < 0;
	}
	assert_true(failed > seeds(6));
}

static void test_discard_bounds(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){100, 300}, 2);
	guest_options(&g, &opt);
	guest_precopy(&g, &opt);
	assert_int_equal(silt_precopy_discard(g.precopy, 11, 0, 1), -EINVAL);
	assert_int_equal(silt_precopy_discard(g.precopy, 3, 99, 2), -EINVAL);
	assert_int_equal(silt_precopy_discard(g.precopy, 3, UINT64_MAX, 2), -EINVAL);
	assert_int_equal(silt_precopy_discard(g.precopy, 3, 5, 0), 0);
	assert_int_equal(silt_precopy_run(g.precopy), SILT_PRECOPY_MOVED);
	assert_int_equal(g.peer.pages, 400);
	assert_moved(&g);
	guest_fini(&g);
}

/* Pages that are discarded in the first round are not sent, and the destination does not wait. */
static int64_t sync_and_discard(void *opaque)
{
	struct guest *g = opaque;

	if (g->peer.pages)
		return 0;
	assert_int_equal(silt_precopy_discard(g->precopy, 3, 10, 50), 50);
	assert_int_equal(silt_precopy_discard(g->precopy, 3, 40, 35), 15);
	assert_int_equal(silt_precopy_discard(g->precopy, 3, 75, 5), 5);
	assert_int_equal(silt_precopy_discard(g->precopy, 3, 12, 3), 0);
	memset(g->blocks[0].memory + 10 * 4096, 0, 70 * 4096);
	return 0;
}

static void test_discarded_is_not_sent(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){100}, 1);
	g.ops.sync = sync_and_discard;
	guest_options(&g, &opt);
	guest_precopy(&g, &opt);
	assert_int_equal(silt_precopy_run(g.precopy), SILT_PRECOPY_MOVED);
	assert_int_equal(g.peer.pages, 30);
	assert_int_equal(g.peer.skips, 1);
	assert_true(g.peer.running);
	guest_fini(&g);
}

/* A block whose file was truncated under it ends the migration, not the monitor. */
static void test_memory_gone(void **unused)
{
	struct silt_precopy_options opt;
	struct silt_precopy_block block;
	struct guest g;
	uint8_t *own;
	int fd = memfd_create("ram", MFD_CLOEXEC);

	(void)unused;
	faults_recover();
	assert_true(fd >= 0 && !ftruncate(fd, 50 * 4096));
	guest_init_plain(&g, (uint64_t[]){100}, 1);
	own = g.blocks[0].memory;
	g.blocks[0].memory = mmap(NULL, 100 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(g.blocks[0].memory != MAP_FAILED);
	guest_options(&g, &opt);
	block = opt.blocks[0];
	opt.blocks = &block;
	guest_precopy(&g, &opt);
	assert_int_equal(silt_precopy_run(g.precopy), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "block0: page 50"));
	assert_true(g.running);
	assert_int_equal(g.ops.dirty(&g, block.id, 50, 50), 50);
	silt_precopy_destroy(g.precopy);
	g.precopy = NULL;
	munmap(g.blocks[0].memory, 100 * 4096);
	g.blocks[0].memory = own;
	close(fd);
	guest_fini(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_cut_answers),
		cmocka_unit_test(test_refused_anywhere),
		cmocka_unit_test(test_cancelled_anywhere),
		cmocka_unit_test(test_cancelled_late),
		cmocka_unit_test(test_failed_anywhere),
		cmocka_unit_test(test_discard_bounds),
		cmocka_unit_test(test_discarded_is_not_sent),
		cmocka_unit_test(test_memory_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
