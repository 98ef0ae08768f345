/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The real silt blk on real sockets: ways to reach it, what the options do, how it ends, and what
 * it survives.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>

#include "bench/session.h"
#include "program.h"

#define IMAGE_SIZE (1 << 20)

struct place {
	char dir[64];
	char image_arg[96], socket_arg[96];
	const char *image, *socket; /* inside the arguments */
};

static int enter(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	int fd;

	assert_non_null(p);
	snprintf(p->dir, sizeof(p->dir), "/tmp/silt-e2e-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->image_arg, sizeof(p->image_arg), "--blk-file=%s/disk", p->dir);
	snprintf(p->socket_arg, sizeof(p->socket_arg), "--socket-path=%s/sock", p->dir);
	p->image = strchr(p->image_arg, '=') + 1;
	p->socket = strchr(p->socket_arg, '=') + 1;
	fd = open(p->image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, IMAGE_SIZE), 0);
	close(fd);
	*state = p;
	return 0;
}

static int leave(void **state)
{
	struct place *p = *state;

	unlink(p->image);
	unlink(p->socket);
	assert_int_equal(rmdir(p->dir), 0);
	free(p);
	return 0;
}

/* ---- Sockets and requests -------------------------------------------------------------------- */

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	assert_true(strlen(path) < sizeof(addr.sun_path));
	memcpy(addr.sun_path, path, strlen(path));
	return addr;
}

static int listen_at(const char *path)
{
	struct sockaddr_un addr = address(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

/* Connect as soon as somebody listens. */
static int connect_to(const char *path)
{
	time_t end = time(NULL) + PROGRAM_TIMEOUT_MS / 1000;
	struct sockaddr_un addr = address(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		if ((errno != ENOENT && errno != ECONNREFUSED) || time(NULL) > end)
			fail_msg("connect to %s: %s", path, strerror(errno));
		sched_yield();
	}
	return fd;
}

static struct silt_frontend *frontend_on(int fd)
{
	struct silt_frontend *f;

	if (silt_frontend_create(fd, PROGRAM_TIMEOUT_MS, &f) < 0)
		fail_msg("%s", silt_errmsg());
	return f;
}

static void open_session(struct session *s, int fd, bool logging)
{
	if (session_start(s, frontend_on(fd), logging) < 0)
		fail_msg("%s", silt_errmsg());
}

/* One request in slot 0. Return: what session_collect() says. */
static int request(struct session *s, uint32_t type, uint64_t sector, uint32_t len)
{
	struct session_request r = {type, sector, len};
	int ret;

	assert_true(session_add(s, 0, &r) >= 0);
	assert_true(session_submit(s) >= 0);
	while ((ret = session_collect(s)) == -EAGAIN)
		if (session_wait(s) < 0)
			fail_msg("%s", silt_errmsg());
	return ret;
}

static void write_pattern(struct session *s, uint64_t sector, uint8_t byte)
{
	memset(session_data(s, 0), byte, 4096);
	assert_int_equal(request(s, VIRTIO_BLK_T_OUT, sector, 4096), 0);
}

static void expect_pattern(struct session *s, uint64_t sector, uint8_t byte)
{
	memset(session_data(s, 0), ~byte, 4096);
	assert_int_equal(request(s, VIRTIO_BLK_T_IN, sector, 4096), 0);
	for (unsigned int i = 0; i < 4096; i++)
		assert_int_equal(session_data(s, 0)[i], byte);
}

/* ---- Ways to reach it ------------------------------------------------------------------------ */

static void two_connections_in_turn(struct place *p, const char *aio)
{
	const char *const args[] = {p->image_arg, p->socket_arg, aio, NULL};
	struct program prog;
	struct session s;
	struct stat st;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	write_pattern(&s, 8, 0x5a);
	assert_int_equal(request(&s, VIRTIO_BLK_T_FLUSH, 0, 0), 0);
	session_close(&s);
	open_session(&s, connect_to(p->socket), true);
	expect_pattern(&s, 8, 0x5a);
	expect_pattern(&s, 16, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
	assert_string_equal(program_complaint(&prog), "");
	assert_int_equal(stat(p->socket, &st), -1);
}

static void test_socket_path(void **state)
{
	two_connections_in_turn(*state, "--aio=auto");
}

static void test_socket_path_sync(void **state)
{
	two_connections_in_turn(*state, "--aio=sync");
}

static void test_listening_fd(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, "--fd=3", NULL};
	struct program prog;
	struct session s;
	int fd = listen_at(p->socket);

	program_start(&prog, fd, args);
	close(fd);
	for (unsigned int i = 0; i < 3; i++) {
		open_session(&s, connect_to(p->socket), false);
		write_pattern(&s, 0, i);
		expect_pattern(&s, 0, i);
		session_close(&s);
	}
	assert_int_equal(program_end(&prog, SIGINT), 0);
	/* The file of a socket that was passed in is not the program's to remove. */
	assert_int_equal(access(p->socket, F_OK), 0);
}

static void test_connected_fd(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, "--fd=3", NULL};
	struct program prog;
	struct session s;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	program_start(&prog, fds[1], args);
	close(fds[1]);
	open_session(&s, fds[0], false);
	write_pattern(&s, 64, 7);
	expect_pattern(&s, 64, 7);
	session_close(&s);
	assert_int_equal(program_wait(&prog), 0);
}

static void test_fd_that_is_no_socket(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, "--fd=3", NULL};
	struct program prog;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	program_start(&prog, fd, args);
	close(fd);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "--fd=3 is no usable socket"));

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	program_start(&prog, fd, args);
	close(fd);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "neither listens nor is connected"));
}

static void test_stale_socket_file(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct program prog;
	struct session s;

	close(listen_at(p->socket));
	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void test_socket_in_use(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct program prog;
	int fd = listen_at(p->socket);

	program_start(&prog, -1, args);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "another program listens at"));
	assert_int_equal(access(p->socket, F_OK), 0);
	close(fd);

	unlink(p->socket);
	fd = open(p->socket, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	program_start(&prog, -1, args);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "is no socket; it is left alone"));
}

/* ---- Options --------------------------------------------------------------------------------- */

static void test_options(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg,      p->socket_arg,	    "--num-queues=3",
				    "--serial=no. 12", "--block-size=4096", NULL};
	struct virtio_blk_config config;
	struct program prog;
	struct session s;
	uint64_t n;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	assert_int_equal(silt_frontend_get_queue_num(s.frontend, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(silt_frontend_get_config(s.frontend, 0, &config, sizeof(config)), 0);
	assert_int_equal(config.capacity, IMAGE_SIZE / 512);
	assert_int_equal(config.blk_size, 4096);
	assert_int_equal(config.num_queues, 3);
	assert_int_equal(config.wce, 1);
	memset(session_data(&s, 0), 'x', 21);
	assert_int_equal(request(&s, VIRTIO_BLK_T_GET_ID, 0, 20), 0);
	assert_memory_equal(session_data(&s, 0), "no. 12\0\0\0\0\0\0\0\0\0\0\0\0\0\0x", 21);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void test_cache_mode(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	const uint32_t at = offsetof(struct virtio_blk_config, wce);
	struct program prog;
	struct session s;
	uint8_t wce = 0;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	assert_int_equal(silt_frontend_set_config(s.frontend, at, &wce, 1, 0), 0);
	wce = 1;
	assert_int_equal(silt_frontend_get_config(s.frontend, at, &wce, 1), 0);
	assert_int_equal(wce, 0);
	write_pattern(&s, 0, 3);
	expect_pattern(&s, 0, 3);
	wce = 2;
	assert_int_equal(silt_frontend_set_config(s.frontend, at, &wce, 1, 0), -EREMOTEIO);
	assert_int_equal(silt_frontend_set_config(s.frontend, 0, &wce, 1, 0), -EREMOTEIO);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void test_read_only(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, "--read-only", NULL};
	struct program prog;
	struct session s;
	uint64_t features;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	assert_int_equal(silt_frontend_get_features(s.frontend, &features), 0);
	assert_true(features >> VIRTIO_BLK_F_RO & 1);
	assert_false(features >> VIRTIO_BLK_F_DISCARD & 1);
	expect_pattern(&s, 0, 0);
	assert_int_equal(request(&s, VIRTIO_BLK_T_OUT, 0, 4096), -EIO);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void expect_usage_error(const char *const args[], const char *what)
{
	struct program prog;

	program_start(&prog, -1, args);
	assert_int_equal(program_wait(&prog), 2);
	if (!strstr(prog.text, what))
		fail_msg("'%s' is not in: %s", what, prog.text);
}

static void test_usage_errors(void **state)
{
	static const struct {
		const char *args[4];
		const char *what;
	} cases[] = {
		{{NULL}, "--blk-file=FILE is missing"},
		{{"--blk-file=x"}, "--socket-path=PATH or --fd=N is missing"},
		{{"--blk-file=x", "--socket-path=y", "--fd=3"}, "exclude each other"},
		{{"--num-queues=0"}, "--num-queues=0: not a number from 1 to 64"},
		{{"--num-queues=65"}, "--num-queues=65"},
		{{"--num-queues=-1"}, "--num-queues=-1"},
		{{"--block-size=1024"}, "512 and 4096 are possible"},
		{{"--aio=native"}, "io_uring, sync and auto are possible"},
		{{"--serial=123456789012345678901"}, "21 bytes, at most 20"},
		{{"--read-only=yes"}, "takes no value"},
		{{"--fd"}, "--fd needs a value"},
		{{"--fd=1x"}, "--fd=1x"},
		{{"--bogus"}, "unknown or ambiguous option --bogus"},
		{{"disk.img"}, "did you mean --blk-file=disk.img?"},
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_usage_error(cases[i].args, cases[i].what);
}

static void test_information(void **state)
{
	static const struct {
		const char *args[2];
		const char *what;
	} cases[] = {
		{{"--help"}, "Examples:"},
		{{"--version"}, "silt " SILT_VERSION "\n"},
		{{"--print-capabilities"}, "\"type\": \"block\""},
		{{"--print-capabilities"}, "\"read-only\""},
		{{"--print-capabilities"}, "\"blk-file\""},
	};
	struct program prog;

	(void)state;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		program_start(&prog, -1, cases[i].args);
		assert_int_equal(program_wait(&prog), 0);
		assert_non_null(strstr(prog.text, cases[i].what));
	}
}

static void test_no_io_uring(void **state)
{
	struct place *p = *state;
	const char *const automatic[] = {p->image_arg, p->socket_arg, NULL};
	const char *const insisting[] = {p->image_arg, p->socket_arg, "--aio=io_uring", NULL};
	struct program prog;
	struct session s;

	program_start_filtered(&prog, automatic);
	open_session(&s, connect_to(p->socket), false);
	write_pattern(&s, 0, 9);
	expect_pattern(&s, 0, 9);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
	assert_non_null(strstr(prog.text, "io_uring is switched off here"));
	assert_non_null(strstr(prog.text, "going on with plain system calls"));

	program_start_filtered(&prog, insisting);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "io_uring is switched off here"));
}

static void test_bad_images(void **state)
{
	struct place *p = *state;
	const char *const missing[] = {"--blk-file=/nonexistent/disk", p->socket_arg, NULL};
	const char *const directory[] = {"--blk-file=/tmp", p->socket_arg, "--read-only", NULL};
	const char *const empty[] = {"--blk-file=/dev/null", p->socket_arg, NULL};
	const char *const fifo[] = {p->image_arg, p->socket_arg, "--read-only", NULL};
	struct program prog;

	program_start(&prog, -1, missing);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "/nonexistent/disk cannot be opened"));
	program_start(&prog, -1, directory);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "neither a file nor a block device"));
	program_start(&prog, -1, empty);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "neither a file nor a block device"));
	unlink(p->image);
	assert_int_equal(mkfifo(p->image, 0600), 0);
	program_start(&prog, -1, fifo);
	assert_int_equal(program_wait(&prog), 1);
	assert_non_null(strstr(prog.text, "neither a file nor a block device"));
}

/* ---- What it survives ------------------------------------------------------------------------ */

static void test_signal_under_load(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct session_request r = {VIRTIO_BLK_T_IN, 0, SESSION_DATA};
	struct program prog;
	struct session s;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), true);
	for (unsigned int i = 0; i < SESSION_DEPTH; i++)
		assert_true(session_add(&s, i, &r) >= 0);
	assert_true(session_submit(&s) >= 0);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
	session_close(&s);
	assert_int_equal(access(p->socket, F_OK), -1);
}

static void test_hangup(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct program prog;
	struct session s;

	/* The tests themselves may have been started by nohup. */
	signal(SIGHUP, SIG_DFL);
	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	assert_int_equal(program_end(&prog, SIGHUP), 0);
	session_close(&s);
	assert_int_equal(access(p->socket, F_OK), -1);

	/* As under nohup. */
	signal(SIGHUP, SIG_IGN);
	program_start(&prog, -1, args);
	signal(SIGHUP, SIG_DFL);
	close(connect_to(p->socket));
	assert_int_equal(kill(prog.pid, SIGHUP), 0);
	open_session(&s, connect_to(p->socket), false);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void test_truncated_log(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct program prog;
	struct session s;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), true);
	expect_pattern(&s, 0, 0);
	program_output(&prog);
	assert_string_equal(program_complaint(&prog), "");
	assert_int_equal(ftruncate(s.log_fd, 0), 0);
	for (unsigned int i = 0; i < 20; i++)
		expect_pattern(&s, 8 * i, 0);
	program_expect(&prog, "the dirty log is incomplete (its file was truncated)");
	session_close(&s);
	open_session(&s, connect_to(p->socket), true);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void wait_for_fd(int fd)
{
	struct pollfd pfd = {fd, POLLIN, 0};

	assert_int_equal(poll(&pfd, 1, PROGRAM_TIMEOUT_MS), 1);
}

/* Memory goes away under ring and buffers: the queue breaks and says so, the program goes on. */
static void test_truncated_memory(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct session_request r = {VIRTIO_BLK_T_IN, 0, 4096};
	int err_fd = eventfd(0, EFD_CLOEXEC);
	struct program prog;
	struct session s;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	assert_int_equal(silt_frontend_set_vring_err(s.frontend, 0, err_fd), 0);
	expect_pattern(&s, 0, 0);
	assert_true(session_add(&s, 0, &r) >= 0);
	assert_true(silt_driver_publish(s.driver) >= 0);
	assert_int_equal(ftruncate(s.mem_fd, 0), 0);
	eventfd_write(s.kick_fd, 1);
	wait_for_fd(err_fd);
	program_expect(&prog, "queue 0 stopped: ");
	close(err_fd);
	session_close(&s);
	open_session(&s, connect_to(p->socket), true);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

/* Only a data buffer goes away: that request fails, the queue goes on. */
static void test_truncated_buffer(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct session_request r = {VIRTIO_BLK_T_IN, 0, 4096};
	struct program prog;
	struct session s;
	int ret;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), true);
	assert_int_equal(ftruncate(s.mem_fd, session_data(&s, 1) - s.base), 0);
	assert_true(session_add(&s, 1, &r) >= 0);
	assert_true(session_submit(&s) >= 0);
	while ((ret = session_collect(&s)) == -EAGAIN)
		assert_int_equal(session_wait(&s), 0);
	assert_int_equal(ret, -EIO);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

/* Without a byte for the status there is nothing to answer with: the queue breaks. */
static void test_no_status(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	const struct silt_driver_seg seg = {UINT64_C(0x40000000), 16, false};
	int err_fd = eventfd(0, EFD_CLOEXEC);
	struct program prog;
	struct session s;

	program_start(&prog, -1, args);
	open_session(&s, connect_to(p->socket), false);
	assert_int_equal(silt_frontend_set_vring_err(s.frontend, 0, err_fd), 0);
	assert_true(silt_driver_add(s.driver, &seg, 1, NULL, 0, NULL) >= 0);
	assert_true(session_submit(&s) >= 0);
	wait_for_fd(err_fd);
	program_expect(&prog, "has no byte for its status");
	close(err_fd);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

static void test_garbage(void **state)
{
	struct place *p = *state;
	const char *const args[] = {p->image_arg, p->socket_arg, NULL};
	struct program prog;
	struct session s;
	char garbage[256];
	int fd;

	memset(garbage, 0xa5, sizeof(garbage));
	program_start(&prog, -1, args);
	fd = connect_to(p->socket);
	assert_int_equal(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), sizeof(garbage));
	wait_for_fd(fd);
	assert_true(recv(fd, garbage, 1, 0) <= 0);
	close(fd);
	program_expect(&prog, "connection closed: ");
	open_session(&s, connect_to(p->socket), false);
	expect_pattern(&s, 0, 0);
	session_close(&s);
	assert_int_equal(program_end(&prog, SIGTERM), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_socket_path),
		TEST(test_socket_path_sync),
		TEST(test_listening_fd),
		TEST(test_connected_fd),
		TEST(test_fd_that_is_no_socket),
		TEST(test_stale_socket_file),
		TEST(test_socket_in_use),
		TEST(test_options),
		TEST(test_cache_mode),
		TEST(test_read_only),
		TEST(test_usage_errors),
		TEST(test_information),
		TEST(test_no_io_uring),
		TEST(test_bad_images),
		TEST(test_signal_under_load),
		TEST(test_hangup),
		TEST(test_truncated_log),
		TEST(test_truncated_memory),
		TEST(test_truncated_buffer),
		TEST(test_no_status),
		TEST(test_garbage),
	};

	if (argc != 2)
		return 2;
	program_silt = argv[1];
	/* This end, too, touches memory that the tests truncate. */
	if (silt_access_install() < 0)
		return 1;
	return cmocka_run_group_tests_name("silt blk", tests, NULL, NULL);
}
