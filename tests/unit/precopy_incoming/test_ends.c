/* SPDX-License-Identifier: BSD-3-Clause */
/* How receiving ends otherwise: by callbacks, by either side, over a socket, and with bad options.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "support/faults.h"
#include "support/proc.h"
#include "unit/precopy_incoming/rig.h"

static void write_plain(struct rig *rig)
{
	rig_create(rig, 7, 2, 20);
	rig_hello(rig);
	rig_all(rig, RUN_DATA);
	rig_round(rig, false);
	rig_one_run(rig, RUN_ZERO, 1, 3, 4);
	rig_round(rig, true);
	rig_state(rig, 100);
	rig_load(rig);
	rig_start(rig);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static void failing_callbacks(void **state)
{
	static const struct {
		int round, load, start, error;
		const char *says;
	} cases[] = {
		{-ENOSPC, 0, 0, -ENOSPC, "the round callback: "},
		{0, -EIO, 0, -EIO, "the load callback: "},
		{0, 0, -ENOENT, -ENOENT, "the start callback: "},
	};
	struct rig rig;
	unsigned int i;

	(void)state;
	write_plain(&rig);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rig.fail_round = cases[i].round;
		rig.fail_load = cases[i].load;
		rig.fail_start = cases[i].start;
		assert_int_equal(rig_receive(&rig, rig.stream.n), cases[i].error);
		assert_non_null(strstr(silt_errmsg(), cases[i].says));
		rig_check_refusal(&rig, cases[i].error);
		assert_int_equal(rig.started, cases[i].start != 0);
		assert_int_equal(rig.loaded, cases[i].round == 0);
	}
	rig_destroy(&rig);
}

/* More than 0 is no error: a guest that was started must not be given back. */
static void callbacks_above_zero(void **state)
{
	struct rig rig;

	(void)state;
	write_plain(&rig);
	rig.fail_round = rig.fail_load = rig.fail_start = 1;
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	assert_true(rig.started);
	rig_destroy(&rig);
}

static void cancelled_in_round(void **state)
{
	struct rig rig;

	(void)state;
	write_plain(&rig);
	rig.cancel_round = true;
	assert_int_equal(rig_receive(&rig, rig.stream.n), -ECANCELED);
	rig_check_refusal(&rig, -ECANCELED);
	assert_false(rig.loaded);
	rig_destroy(&rig);
}

/* START came: there is no way back. */
static void cancelled_too_late(void **state)
{
	struct rig rig;

	(void)state;
	write_plain(&rig);
	rig.cancel_start = true;
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	rig_check_refusal(&rig, 0);
	assert_true(rig.started);
	rig_destroy(&rig);
}

/* With START it got the guest, even if its answer finds nobody any more; before, it has to fail. */
static void lost_answers(void **state)
{
	static const unsigned int before[] = {ACCEPT, ACK, LOADED};
	struct rig rig;
	unsigned int i;

	(void)state;
	write_plain(&rig);
	for (i = 0; i < 3; i++) {
		rig.lost_answer = before[i];
		assert_int_equal(rig_receive(&rig, rig.stream.n), -EPIPE);
		assert_false(rig.started);
	}
	rig.lost_answer = STARTED;
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	assert_true(rig.started);
	rig_destroy(&rig);
}

static void runs_once(void **state)
{
	struct rig rig;

	(void)state;
	write_plain(&rig);
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	assert_int_equal(silt_incoming_run(rig.in), -EINVAL);
	rig_destroy(&rig);
}

/* ---- the source gives up --------------------------------------------------------------------- */

static void refused_by_source(uint32_t error, const char *why, int ret, const char *says)
{
	struct rig rig;

	rig_create(&rig, 8, 1, 5);
	rig_hello(&rig);
	rig_all(&rig, RUN_DATA);
	rig_round(&rig, true);
	rig_load(&rig);
	put_number(&rig.payload, error, 8);
	put(&rig.payload, why, strlen(why));
	rig_frame(&rig, REFUSE);
	assert_int_equal(rig_receive(&rig, rig.stream.n), ret);
	assert_non_null(strstr(silt_errmsg(), says));
	/* It knows already. */
	rig_check_refusal(&rig, 0);
	assert_true(rig.loaded);
	assert_false(rig.started);
	rig_destroy(&rig);
}

static void source_gives_up(void **state)
{
	char longest[501];

	(void)state;
	memset(longest, 'w', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	refused_by_source(ECANCELED, "had enough", -ECANCELED, "gave up: had enough");
	refused_by_source(EIO, "disk\n\033on fire", -EREMOTEIO, "gave up: disk??on fire");
	refused_by_source(EIO, longest, -EREMOTEIO, "wwww");
	refused_by_source(EIO, "", -EREMOTEIO, "gave up");
}

/* ---- a socket -------------------------------------------------------------------------------- */

static int receive_from(struct rig *rig, int fd, uint64_t timeout_ns)
{
	struct rig_block *b = &rig->blocks[0];
	struct silt_incoming_block block = {b->name, b->host, b->pages * PAGE, b->zeroed};
	struct silt_incoming_options opt = {
		.size = sizeof(opt),
		.blocks = &block,
		.nblocks = 1,
		.channel = {.size = sizeof(opt.channel), .fd = fd},
		.monitor = {.size = sizeof(opt.monitor)},
		.timeout_ns = timeout_ns,
	};

	assert_int_equal(silt_incoming_create(&opt, &rig->in), 0);
	return silt_incoming_run(rig->in);
}

static void write_one_block(struct rig *rig, bool start)
{
	rig_create(rig, 9, 1, 30);
	rig_hello(rig);
	rig_all(rig, RUN_DATA);
	rig_round(rig, true);
	rig_load(rig);
	if (start)
		rig_start(rig);
}

/* The stream, 120 KiB, is in the socket before anyone reads it. */
static void fill_socket(const struct rig *rig, int fd)
{
	int room = 1 << 20;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	assert_int_equal(write(fd, rig->stream.data, rig->stream.n), rig->stream.n);
}

static void over_a_socket(void **state)
{
	struct rig rig;
	int fds[2];

	(void)state;
	write_one_block(&rig, true);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	fill_socket(&rig, fds[0]);
	assert_int_equal(receive_from(&rig, fds[1], 0), 0);
	rig_check_memory(&rig);
	close(fds[0]);
	close(fds[1]);
	rig_destroy(&rig);
}

static void source_dies_before_start(void **state)
{
	struct rig rig;
	int fds[2];

	(void)state;
	write_one_block(&rig, false);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	fill_socket(&rig, fds[0]);
	shutdown(fds[0], SHUT_WR);
	assert_int_equal(receive_from(&rig, fds[1], 0), -ECONNRESET);
	close(fds[0]);
	close(fds[1]);
	rig_destroy(&rig);
}

static void source_stands_still(void **state)
{
	struct rig rig;
	int fds[2];

	(void)state;
	write_one_block(&rig, false);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	fill_socket(&rig, fds[0]);
	assert_int_equal(receive_from(&rig, fds[1], 1000000), -ETIMEDOUT);
	close(fds[0]);
	close(fds[1]);
	rig_destroy(&rig);
}

/* ---- memory that is not there ---------------------------------------------------------------- */

static void receive_into_bad_memory(struct rig *rig)
{
	int fds[2];

	faults_recover();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	fill_socket(rig, fds[0]);
	assert_int_equal(receive_from(rig, fds[1], 0), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "RAM block 'ram0'"));
	close(fds[0]);
	close(fds[1]);
	rig_destroy(rig);
}

/* The file ends within the block, which is only found when a page is stored there. */
static void truncated_memory(void **state)
{
	struct rig rig;

	(void)state;
	if (SILT_ACCESS_TSAN)
		skip();
	write_one_block(&rig, true);
	assert_int_equal(ftruncate(rig.blocks[0].fd, 16 * PAGE), 0);
	receive_into_bad_memory(&rig);
}

/* As a ROM may be mapped. */
static void read_only_memory(void **state)
{
	struct rig rig;

	(void)state;
	if (SILT_ACCESS_TSAN)
		skip();
	write_one_block(&rig, true);
	assert_int_equal(mprotect(rig.blocks[0].host, 30 * PAGE, PROT_READ), 0);
	receive_into_bad_memory(&rig);
}

/* ---- options --------------------------------------------------------------------------------- */

static char page[2 * PAGE] __attribute__((aligned(PAGE)));

typedef void wrong_fn(struct silt_incoming_options *opt, struct silt_incoming_block *blocks);

static void no_blocks(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)blocks;
	opt->nblocks = 0;
}

static void too_many_blocks(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)blocks;
	opt->nblocks = SILT_PRECOPY_MAX_BLOCKS + 1;
}

static void no_name(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[0].name = NULL;
}

static void empty_name(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[0].name = "";
}

static void long_name(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	static char name[257];

	(void)opt;
	memset(name, 'r', sizeof(name) - 1);
	blocks[0].name = name;
}

static void same_name(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[1].name = blocks[0].name;
}

static void no_bytes(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[1].bytes = 0;
}

static void half_page(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[1].bytes += PAGE / 2;
}

static void nowhere(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[1].host = NULL;
}

static void misaligned(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[1].host = page + 8;
}

static void beyond_memory(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)opt;
	blocks[1].bytes = UINT64_MAX - PAGE + 1;
}

static void monitor_size(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)blocks;
	opt->monitor.size--;
}

static void channel_size(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)blocks;
	opt->channel.size = 0;
}

static void options_size(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)blocks;
	opt->size = 0;
}

static void no_socket(struct silt_incoming_options *opt, struct silt_incoming_block *blocks)
{
	(void)blocks;
	opt->channel.fd = -1;
}

static int create_wrongly(wrong_fn *wrong)
{
	struct silt_incoming_block blocks[] = {{"a", page, PAGE, true},
					       {"b", page + PAGE, PAGE, true}};
	int fds[2], ret;
	struct silt_incoming_options opt = {
		.size = sizeof(opt),
		.blocks = blocks,
		.nblocks = 2,
		.channel.size = sizeof(opt.channel),
		.monitor.size = sizeof(opt.monitor),
	};
	struct silt_incoming *in;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	opt.channel.fd = fds[0];
	if (wrong)
		wrong(&opt, blocks);
	ret = silt_incoming_create(&opt, &in);
	if (!ret)
		silt_incoming_destroy(in);
	close(fds[0]);
	close(fds[1]);
	return ret;
}

static void misuse(void **state)
{
	static wrong_fn *const wrong[] = {
		no_blocks,    too_many_blocks, no_name,	     empty_name, long_name,
		no_bytes,     half_page,       nowhere,	     misaligned, beyond_memory,
		monitor_size, channel_size,    options_size,
	};
	struct silt_incoming *in;
	unsigned int fds = proc_count_fds(), i;

	(void)state;
	assert_int_equal(create_wrongly(NULL), 0);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(create_wrongly(wrong[i]), -EINVAL);
	assert_int_equal(create_wrongly(same_name), -EEXIST);
	assert_int_equal(create_wrongly(no_socket), -EBADF);
	assert_int_equal(silt_incoming_create(NULL, &in), -EINVAL);
	silt_incoming_destroy(NULL);
	assert_int_equal(proc_count_fds(), fds);
}

/* Statistics of a caller that knows fewer of them, or more. */
static void sizes_of_stats(void **state)
{
	struct {
		struct silt_incoming_stats stats;
		uint64_t later;
	} newer = {.stats.size = sizeof(newer), .later = 1};
	struct silt_incoming_stats older = {.size = offsetof(struct silt_incoming_stats, pages),
					    .pages = 99};
	struct rig rig;

	(void)state;
	write_plain(&rig);
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	assert_int_equal(silt_incoming_stats(rig.in, &newer.stats), 0);
	assert_int_equal(newer.stats.pages, rig.pages);
	assert_int_equal(newer.later, 0);
	assert_int_equal(silt_incoming_stats(rig.in, &older), 0);
	assert_int_equal(older.bytes, rig.stream.n);
	assert_int_equal(older.pages, 99);
	older.size = 0;
	assert_int_equal(silt_incoming_stats(rig.in, &older), -EINVAL);
	rig_destroy(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failing_callbacks),
		cmocka_unit_test(callbacks_above_zero),
		cmocka_unit_test(cancelled_in_round),
		cmocka_unit_test(cancelled_too_late),
		cmocka_unit_test(lost_answers),
		cmocka_unit_test(runs_once),
		cmocka_unit_test(source_gives_up),
		cmocka_unit_test(over_a_socket),
		cmocka_unit_test(source_dies_before_start),
		cmocka_unit_test(source_stands_still),
		cmocka_unit_test(truncated_memory),
		cmocka_unit_test(read_only_memory),
		cmocka_unit_test(misuse),
		cmocka_unit_test(sizes_of_stats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
