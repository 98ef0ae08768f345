/* SPDX-License-Identifier: BSD-3-Clause */
/* What the backend tells the device, what it keeps, and how it ends. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "support/proc.h"
#include "vhost/notify.h"

#define DATA 0xc0000

static void start(struct rig *rig)
{
	rig_init(rig);
	rig_negotiate(rig, RIG_FEATURES);
	assert_true(rig_set_memory(rig, 2));
}

/* ---- Creation -------------------------------------------------------------------------------- */

static void expect_create_fails(const struct silt_backend_ops *ops)
{
	unsigned int fds = proc_count_fds();
	struct silt_backend *b;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_int_equal(silt_backend_create(ops, NULL, fd, &b), -EINVAL);
	assert_int_equal(proc_count_fds(), fds);
}

static void test_create(void **state)
{
	struct silt_backend_ops ops;
	struct rig rig;

	(void)state;
	rig_init(&rig);
	ops = rig.ops;
	ops.size = 8;
	expect_create_fails(&ops);
	ops = rig.ops;
	ops.nqueues = 0;
	expect_create_fails(&ops);
	ops.nqueues = 257;
	expect_create_fails(&ops);
	ops = rig.ops;
	ops.queue_pause = NULL;
	expect_create_fails(&ops);
	rig_fini(&rig);
}

/* An options struct of an older program ends before the optional callbacks. */
static void test_older_ops(void **state)
{
	int sockets[2];
	struct rig rig;

	(void)state;
	rig_init(&rig);
	silt_backend_destroy(rig.b);
	close(rig.fd);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	rig.fd = sockets[0];
	rig.ops.size = offsetof(struct silt_backend_ops, get_config);
	assert_int_equal(silt_backend_create(&rig.ops, &rig, sockets[1], &rig.b), 0);
	assert_int_equal(silt_backend_fd(rig.b), sockets[1]);
	assert_int_equal(rig_ask(&rig, SILT_VHOST_GET_PROTOCOL_FEATURES, 0, NULL, 0, NULL, 0),
			 RIG_ANSWER);
	assert_false(rig.rx.msg.payload.u64 & SILT_VHOST_PROTOCOL_F_CONFIG);
	rig_fini(&rig);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static uint64_t ask_u64(struct rig *rig, uint32_t request)
{
	assert_int_equal(rig_ask(rig, request, 0, NULL, 0, NULL, 0), RIG_ANSWER);
	assert_int_equal(rig->rx.msg.hdr.size, sizeof(uint64_t));
	return rig->rx.msg.payload.u64;
}

static void test_gets(void **state)
{
	struct silt_vhost_config config = {.offset = 5, .size = 7};
	struct rig rig;

	(void)state;
	start(&rig);
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_FEATURES),
			 RIG_FEATURES | SILT_VHOST_F_LOG_ALL | SILT_VHOST_F_PROTOCOL_FEATURES);
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_PROTOCOL_FEATURES), 0x1b20b);
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_QUEUE_NUM), RIG_QUEUES);
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_MAX_MEM_SLOTS), SILT_MEMORY_MAX_REGIONS);
	assert_int_equal(rig.device_features, RIG_FEATURES);
	assert_int_equal(
		rig_ask(&rig, SILT_VHOST_GET_CONFIG, SILT_VHOST_NEED_REPLY, &config, 19, NULL, 0),
		RIG_ANSWER);
	assert_int_equal(rig.rx.msg.hdr.size, 19);
	assert_memory_equal(rig.rx.msg.payload.config.region, rig.config + 5, 7);
	rig_fini(&rig);
}

static void test_status(void **state)
{
	struct rig rig;

	(void)state;
	start(&rig);
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_STATUS), 0);
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_STATUS, 0xf));
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_STATUS), 0xf);
	assert_int_equal(rig.resets, 0);
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_STATUS, 0));
	assert_int_equal(ask_u64(&rig, SILT_VHOST_GET_STATUS), 0);
	assert_int_equal(rig.resets, 1);
	rig_fini(&rig);
}

/* As QEMU 7.2 stops a device: it asks for the base after it has set the status to 0. */
static void test_base_after_status(void **state)
{
	struct rig rig;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		rig_request(&rig, 0, rig.regions[0].r.gpa + 0x8000, 64, i);
		rig_run(&rig, 0);
	}
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_STATUS, 0));
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_STATUS, 0));
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_ENABLE, 0, 0));
	assert_int_equal(rig_base(&rig, 0), 3);
	assert_int_equal(rig_base(&rig, 0), 3);
	assert_true(rig_do(&rig, SILT_VHOST_RESET_DEVICE, NULL, 0, NULL, 0));
	assert_int_equal(rig_base(&rig, 0), 0);
	rig_fini(&rig);
}

/* Several messages in one write are all handled, in order. */
static void test_pipelined(void **state)
{
	struct silt_vhost_msg msg = {.hdr = {SILT_VHOST_GET_STATUS, SILT_VHOST_VERSION, 0}};
	struct rig rig;
	uint8_t bytes[10 * 12];
	unsigned int answers = 0;

	(void)state;
	start(&rig);
	for (unsigned int i = 0; i < 10; i++)
		memcpy(bytes + i * 12, &msg.hdr, 12);
	assert_int_equal(send(rig.fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(silt_backend_process(rig.b), 0);
	silt_vhost_rx_reset(&rig.rx);
	while (silt_vhost_recv(rig.fd, &rig.rx) > 0) {
		silt_vhost_rx_reset(&rig.rx);
		answers++;
	}
	assert_int_equal(answers, 10);
	rig_fini(&rig);
}

static void test_peer_closes(void **state)
{
	struct rig rig;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	shutdown(rig.fd, SHUT_WR);
	assert_int_equal(silt_backend_process(rig.b), -ECONNRESET);
	assert_int_equal(silt_backend_process(rig.b), -ECONNRESET);
	rig_fini(&rig);
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static void test_base_goes_on(void **state)
{
	struct rig rig;
	int fd = eventfd(0, 0);

	(void)state;
	start(&rig);
	assert_int_equal(rig_base(&rig, 2), 0);
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_BASE, 2, 65535));
	assert_int_equal(rig_base(&rig, 2), 65535);
	rig_ring(&rig, 0, NULL);
	for (unsigned int i = 1; i <= 5; i++) {
		rig_request(&rig, 0, DATA, 64, i);
		rig_run(&rig, 0);
		assert_int_equal(rig_collect(&rig, 0), 1);
		assert_int_equal(*rig_hva(&rig, DATA), i);
		assert_int_equal(rig_base(&rig, 0), i);
		assert_false(rig.queues[0].running);
		assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 0, fd));
		assert_true(rig.queues[0].running);
	}
	close(fd);
	rig_fini(&rig);
}

/* A request that drains a ring, or only parks it, with a buffer in flight. */
static void test_changes_on_the_fly(void **state)
{
	struct silt_vhost_vring_addr addr;
	struct rig rig;
	int fd = eventfd(0, 0);

	(void)state;
	start(&rig);
	rig_ring_addr(&rig, 0, &addr);
	rig_ring(&rig, 0, NULL);
	rig.hold = RIG_HOLD_DMA;
	rig_request(&rig, 0, DATA, 64, 1);
	rig_run(&rig, 0);
	assert_non_null(rig.queues[0].held);
	addr.flags = SILT_VHOST_VRING_F_LOG;
	assert_true(rig_do(&rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_CALL, 0, fd));
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_ERR, 0, fd));
	assert_true(rig_add_region(&rig, 2));
	assert_non_null(rig.queues[0].held);
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 0, fd));
	assert_null(rig.queues[0].held);
	assert_true(rig.queues[0].running);
	assert_int_equal(rig_collect(&rig, 0), 1);
	rig_request(&rig, 0, DATA, 64, 2);
	rig_run(&rig, 0);
	/* The same regions, but other mappings: nothing may write to the old ones any more. */
	assert_true(rig_set_memory(&rig, 3));
	assert_null(rig.queues[0].held);
	assert_true(rig.queues[0].running);
	assert_int_equal(rig_collect(&rig, 0), 1);
	close(fd);
	rig_fini(&rig);
}

static void test_memory_goes_and_comes(void **state)
{
	struct silt_vhost_mem_reg reg;
	struct rig rig;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	reg = (struct silt_vhost_mem_reg){.region = rig.regions[1].r};
	assert_true(rig_do(&rig, SILT_VHOST_REM_MEM_REG, &reg, sizeof(reg), &rig.fd, 1));
	assert_true(rig.queues[0].running);
	reg.region = rig.regions[0].r;
	assert_true(rig_do(&rig, SILT_VHOST_REM_MEM_REG, &reg, sizeof(reg), NULL, 0));
	assert_false(rig.queues[0].running);
	assert_true(rig_add_region(&rig, 1));
	assert_false(rig.queues[0].running);
	assert_true(rig_add_region(&rig, 0));
	assert_true(rig.queues[0].running);
	rig_request(&rig, 0, UINT64_C(1) << 32, 64, 5);
	rig_run(&rig, 0);
	assert_int_equal(*rig_hva(&rig, UINT64_C(1) << 32), 5);
	rig_fini(&rig);
}

/* The order of a frontend that gives rings before memory. */
static void test_rings_before_memory(void **state)
{
	struct rig rig;
	struct silt_vhost_vring_addr addr;

	(void)state;
	rig_init(&rig);
	rig_negotiate(&rig, RIG_FEATURES);
	rig_ring_addr(&rig, 1, &addr);
	assert_true(rig_do(&rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, RIG_NUM));
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 1, -1));
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_ENABLE, 1, 1));
	assert_false(rig.queues[1].running);
	assert_true(rig_set_memory(&rig, 1));
	assert_true(rig.queues[1].running);
	assert_int_equal(rig.queues[1].kick_fd, -1);
	rig_fini(&rig);
}

static void test_without_protocol_features(void **state)
{
	const uint64_t features = RIG_FEATURES;
	struct silt_vhost_vring_state num = {0, RIG_NUM};
	struct silt_vhost_vring_addr addr;
	const uint64_t kick = SILT_VHOST_VRING_NO_FD;
	struct rig rig;

	(void)state;
	rig_init(&rig);
	rig_negotiate(&rig, 0);
	assert_true(rig_set_memory(&rig, 2));
	rig_ring_addr(&rig, 0, &addr);
	rig_ask(&rig, SILT_VHOST_SET_FEATURES, 0, &features, sizeof(features), NULL, 0);
	rig_ask(&rig, SILT_VHOST_SET_VRING_NUM, 0, &num, sizeof(num), NULL, 0);
	rig_ask(&rig, SILT_VHOST_SET_VRING_ADDR, 0, &addr, sizeof(addr), NULL, 0);
	assert_false(rig.queues[0].running);
	rig_ask(&rig, SILT_VHOST_SET_VRING_KICK, 0, &kick, sizeof(kick), NULL, 0);
	assert_true(rig.queues[0].running);
	/* RESET_OWNER must not leave a ring that this frontend cannot enable. */
	rig_ask(&rig, SILT_VHOST_RESET_OWNER, 0, NULL, 0, NULL, 0);
	assert_false(rig.queues[0].running);
	rig_ask(&rig, SILT_VHOST_SET_VRING_KICK, 0, &kick, sizeof(kick), NULL, 0);
	assert_true(rig.queues[0].running);
	rig_fini(&rig);
}

/* ---- The device says no ---------------------------------------------------------------------- */

static void test_start_fails(void **state)
{
	struct rig rig;
	uint64_t before;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	rig_ring(&rig, 1, NULL);
	rig_request(&rig, 0, DATA, 64, 1);
	rig_run(&rig, 0);
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_ENABLE, 1, 0));
	rig.fail_start = 2;
	before = rig_fingerprint(&rig);
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_ENABLE, 1, 1));
	assert_int_equal(rig_fingerprint(&rig), before);
	rig.fail_start = 0;
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_ENABLE, 1, 1));
	assert_true(rig.queues[1].running);
	rig.fail_start = 1;
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_BASE, 0, 99));
	assert_int_equal(rig_base(&rig, 0), 1);
	rig_fini(&rig);
}

/* One of two rings cannot go on after a change: both go on as before. */
static void test_roll_back(void **state)
{
	struct rig rig;
	int fd = eventfd(0, EFD_NONBLOCK);
	unsigned int maps;
	uint64_t n;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	rig_ring(&rig, 1, NULL);
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_ERR, 1, fd));
	rig.fail_start = 2;
	assert_false(rig_do_u64(&rig, SILT_VHOST_SET_FEATURES,
				(RIG_FEATURES & ~RIG_F_DEVICE) | SILT_VHOST_F_PROTOCOL_FEATURES));
	assert_int_equal(rig.device_features, RIG_FEATURES);
	assert_true(rig.queues[0].running && !rig.queues[0].parked);
	/* Ring 1 cannot go on either way, and the frontend is told. */
	assert_false(rig.queues[1].running);
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	maps = proc_count_maps("silt-guest");
	assert_false(rig_set_memory(&rig, 2));
	assert_int_equal(proc_count_maps("silt-guest"), maps);
	rig.fail_start = 0;
	assert_true(rig_set_memory(&rig, 2));
	assert_true(rig.queues[1].running);
	rig_request(&rig, 1, DATA, 64, 7);
	rig_run(&rig, 1);
	assert_int_equal(rig_collect(&rig, 1), 1);
	close(fd);
	rig_fini(&rig);
}

/* A ring ran unlogged until the change was taken back: whoever reads the log is told. */
static void test_roll_back_unlogged(void **state)
{
	const uint64_t size = 0x40000, features = SILT_VHOST_F_PROTOCOL_FEATURES;
	struct rig rig;
	int fd = proc_memfd("silt-test-log", size);

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	rig_ring(&rig, 1, NULL);
	assert_true(rig_set_log(&rig, fd, size, 0));
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_FEATURES,
			       RIG_FEATURES | features | SILT_VHOST_F_LOG_ALL));
	rig.fail_start = 2;
	assert_false(rig_do_u64(&rig, SILT_VHOST_SET_FEATURES,
				(RIG_FEATURES & ~RIG_F_DEVICE) | features));
	assert_true(rig.queues[0].running);
	assert_int_equal(silt_backend_log_trouble(rig.b), SILT_LOG_OUTSIDE);
	close(fd);
	rig_fini(&rig);
}

/* What the device logs from its next start on is for the log that comes then. */
static void test_reset_drops_log(void **state)
{
	int fd = proc_memfd("silt-test-log", 4096);
	struct rig rig;

	(void)state;
	start(&rig);
	assert_true(rig_set_log(&rig, fd, 4096, 0));
	assert_int_equal(proc_count_maps("silt-test-log"), 1);
	assert_true(rig_do(&rig, SILT_VHOST_RESET_DEVICE, NULL, 0, NULL, 0));
	assert_int_equal(proc_count_maps("silt-test-log"), 0);
	assert_true(rig_set_log(&rig, fd, 4096, 0));
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_STATUS, 0));
	assert_int_equal(proc_count_maps("silt-test-log"), 0);
	close(fd);
	rig_fini(&rig);
}

/* ---- Event fds ------------------------------------------------------------------------------- */

/* The error fd of a ring that runs. */
static void test_new_error_fd(void **state)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct rig rig;
	uint64_t n;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_ERR, 0, fd));
	silt_backend_queue_error(rig.b, 0);
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	close(fd);
	rig_fini(&rig);
}

static void test_reset_keeps_call(void **state)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct rig rig;
	uint64_t n;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_ERR, 0, fd));
	assert_true(rig_do(&rig, SILT_VHOST_RESET_DEVICE, NULL, 0, NULL, 0));
	assert_int_equal(rig.resets, 1);
	assert_int_equal(rig.device_features, 0);
	assert_int_equal(rig_base(&rig, 0), 0);
	rig_negotiate(&rig, RIG_FEATURES);
	rig_ring(&rig, 0, NULL);
	silt_backend_queue_error(rig.b, 0);
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	close(fd);
	rig_fini(&rig);
}

static void signal_fd(int fd)
{
	struct silt_notifier n;

	silt_notifier_set(&n, fd);
	silt_notifier_signal(&n);
}

/* Whatever the peer sent: the signal arrives or is dropped; it neither blocks nor kills. */
static void test_hostile_event_fds(void **state)
{
	int pipes[2], sockets[2], fd, flags;
	uint64_t value = UINT64_MAX - 1;

	(void)state;
	signal(SIGPIPE, SIG_DFL);
	signal_fd(-1);
	signal_fd(12345);

	fd = eventfd(0, 0);
	flags = fcntl(fd, F_GETFL);
	signal_fd(fd);
	assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, 1);
	value = UINT64_MAX - 1;
	assert_int_equal(write(fd, &value, sizeof(value)), sizeof(value));
	signal_fd(fd);
	assert_int_equal(fcntl(fd, F_GETFL), flags);
	close(fd);

	assert_int_equal(pipe(pipes), 0);
	signal_fd(pipes[1]);
	assert_int_equal(read(pipes[0], &value, sizeof(value)), sizeof(value));
	close(pipes[0]);
	signal_fd(pipes[1]);
	close(pipes[1]);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	signal_fd(sockets[0]);
	close(sockets[1]);
	signal_fd(sockets[0]);
	close(sockets[0]);

	fd = open("/dev/null", O_RDONLY);
	signal_fd(fd);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create),
		cmocka_unit_test(test_older_ops),
		cmocka_unit_test(test_gets),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_base_after_status),
		cmocka_unit_test(test_pipelined),
		cmocka_unit_test(test_peer_closes),
		cmocka_unit_test(test_base_goes_on),
		cmocka_unit_test(test_changes_on_the_fly),
		cmocka_unit_test(test_memory_goes_and_comes),
		cmocka_unit_test(test_rings_before_memory),
		cmocka_unit_test(test_without_protocol_features),
		cmocka_unit_test(test_start_fails),
		cmocka_unit_test(test_roll_back),
		cmocka_unit_test(test_roll_back_unlogged),
		cmocka_unit_test(test_reset_drops_log),
		cmocka_unit_test(test_new_error_fd),
		cmocka_unit_test(test_reset_keeps_call),
		cmocka_unit_test(test_hostile_event_fds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
