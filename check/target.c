/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "check/random.h"
#include "check/target.h"
#include "check/target_process.h"

/* A socket that is ours to remove, also for a thread that ends the program; or NULL. */
static const char *listening_at;

static bool starts_backend(const struct check_options *opt)
{
	return opt->target == CHECK_TARGET_SELF || opt->target == CHECK_TARGET_COMMAND;
}

static bool wants_image(const struct check_options *opt)
{
	char **arg;

	if (opt->target == CHECK_TARGET_SELF)
		return true;
	for (arg = opt->argv; opt->target == CHECK_TARGET_COMMAND && *arg; arg++)
		if (strstr(*arg, "{image}"))
			return true;
	return false;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static int make_dir(struct check_target *t)
{
	const char *tmp = getenv("TMPDIR");
	int n = snprintf(t->dir, sizeof(t->dir), "%s/silt-check-XXXXXX", tmp ? tmp : "/tmp");

	if (n >= (int)sizeof(t->dir)) {
		t->dir[0] = '\0';
		return silt_err(ENAMETOOLONG,
				"a socket in %s would have too long a path: set TMPDIR to a "
				"shorter one",
				tmp);
	}
	if (!mkdtemp(t->dir)) {
		n = silt_err_sys(errno, "cannot make a directory in %s", tmp ? tmp : "/tmp");
		t->dir[0] = '\0';
		return n;
	}
	snprintf(t->socket_path, sizeof(t->socket_path), "%s/socket", t->dir);
	snprintf(t->image_path, sizeof(t->image_path), "%s/image", t->dir);
	t->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (t->watch < 0 || inotify_add_watch(t->watch, t->dir, IN_CREATE | IN_MOVED_TO) < 0)
		return silt_err_sys(errno, "cannot watch %s", t->dir);
	return 0;
}

static int make_image(struct check_target *t)
{
	struct check_random random = check_random_named(t->opt->seed, "image");
	uint8_t buf[65536];
	uint64_t at;
	int err;

	t->image = open(t->image_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (t->image < 0)
		return silt_err_sys(errno, "cannot make %s", t->image_path);
	err = posix_fallocate(t->image, 0, TARGET_IMAGE_SIZE);
	if (err)
		return silt_err_sys(err, "no room for a disk of %lu MiB in %s (see TMPDIR)",
				    TARGET_IMAGE_SIZE >> 20, t->dir);
	for (at = 0; at < TARGET_IMAGE_SIZE; at += sizeof(buf)) {
		check_random_fill(&random, buf, sizeof(buf));
		if (pwrite(t->image, buf, sizeof(buf), at) != (ssize_t)sizeof(buf))
			return silt_err_sys(errno, "cannot write %s", t->image_path);
	}
	return 0;
}

static int make_address(struct sockaddr_un *addr, const char *path)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(addr->sun_path))
		return silt_err(ENAMETOOLONG, "socket path %s has more than %zu bytes", path,
				sizeof(addr->sun_path) - 1);
	memcpy(addr->sun_path, path, strlen(path));
	return 0;
}

static int use_path(struct check_target *t, struct sockaddr_un *addr)
{
	int ret = make_address(addr, t->opt->path);

	if (ret == 0)
		memcpy(t->socket_path, addr->sun_path, sizeof(addr->sun_path));
	return ret;
}

/* A socket file that nobody listens at is left over, and is replaced. */
static void remove_stale(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return;
	if (!lstat(addr->sun_path, &st) && S_ISSOCK(st.st_mode) &&
	    connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) && errno == ECONNREFUSED)
		unlink(addr->sun_path);
	close(fd);
}

static int make_listener(struct check_target *t)
{
	struct sockaddr_un addr;
	int fd, ret = use_path(t, &addr);

	if (ret < 0)
		return ret;
	remove_stale(&addr);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		ret = silt_err_sys(errno, "cannot listen at %s", t->opt->path);
		close_fd(fd);
		return ret;
	}
	/* From here on the file is ours to remove. What was there before is not. */
	t->listening = fd;
	__atomic_store_n(&listening_at, t->opt->path, __ATOMIC_RELEASE);
	return listen(fd, 1) ? silt_err_sys(errno, "cannot listen at %s", t->opt->path) : 0;
}

static int take_fd(struct check_target *t)
{
	int accepting = 0;
	socklen_t len = sizeof(accepting);

	if (getsockopt(t->opt->fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &len))
		return silt_err_sys(errno, "fd %d is no socket", t->opt->fd);
	if (accepting) {
		t->listening = fcntl(t->opt->fd, F_DUPFD_CLOEXEC, 3);
		return t->listening < 0 ? silt_err_sys(errno, "cannot use fd %d", t->opt->fd) : 0;
	}
	return check_transport_user(fcntl(t->opt->fd, F_DUPFD_CLOEXEC, 3), t->opt->timeout_ms,
				    &t->kept);
}

int check_target_open(struct check_target *t, const struct check_options *opt)
{
	struct sockaddr_un addr;
	int ret;

	*t = (struct check_target){
		.opt = opt, .image = -1, .listening = -1, .watch = -1, .pidfd = -1};
	switch (opt->target) {
	case CHECK_TARGET_CONNECT:
		return use_path(t, &addr);
	case CHECK_TARGET_LISTEN:
		return make_listener(t);
	case CHECK_TARGET_FD:
		return take_fd(t);
	case CHECK_TARGET_KERNEL:
		return 0;
	default:
		ret = make_dir(t);
		return ret < 0 || !wants_image(opt) ? ret : make_image(t);
	}
}

static void remove_listener(void)
{
	const char *path = __atomic_exchange_n(&listening_at, NULL, __ATOMIC_ACQ_REL);

	if (path)
		unlink(path);
}

void check_signal_backend(int sig)
{
	check_process_signal(sig);
	if (sig == SIGKILL)
		remove_listener();
}

void check_target_close(struct check_target *t)
{
	check_transport_destroy(t->kept);
	check_process_end(t);
	remove_listener();
	if (t->dir[0]) {
		unlink(t->socket_path);
		unlink(t->image_path);
		rmdir(t->dir);
	}
	close_fd(t->image);
	close_fd(t->listening);
	close_fd(t->watch);
	check_output_destroy(t->output);
}

/* One try. Return: 0, -EAGAIN if nobody listens there yet, -errno. */
static int try_connect(struct check_target *t, int *out)
{
	const struct timeval most = {t->opt->timeout_ms / 1000, t->opt->timeout_ms % 1000 * 1000};
	struct sockaddr_un addr;
	int err, ret = make_address(&addr, t->socket_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* Where others wait to be accepted already, as many as the backend allows, so do we. */
	if (ret < 0 || fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most))) {
		close_fd(fd);
		return ret < 0 ? ret : silt_err_sys(errno, "cannot make a socket");
	}
	if (!connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		*out = fd;
		return 0;
	}
	err = errno;
	close(fd);
	if (err == ENOENT || err == ECONNREFUSED)
		return -EAGAIN;
	if (err == EAGAIN)
		return silt_err(ETIMEDOUT, "the backend at %s took no connection within %d ms",
				t->socket_path, t->opt->timeout_ms);
	return silt_err_sys(err, "cannot connect to %s", t->socket_path);
}

static void drain_watch(const struct check_target *t)
{
	char buf[4096];

	while (read(t->watch, buf, sizeof(buf)) > 0)
		;
}

/* Wait until a backend that we started listens, or ends. */
static int connect_started(struct check_target *t, int *fd)
{
	struct pollfd wait[2] = {{.fd = t->watch, .events = POLLIN},
				 {.fd = t->pidfd, .events = POLLIN}};
	int64_t left, deadline = check_process_now_ms() + t->opt->timeout_ms;
	char death[TARGET_DEATH_LEN];
	int ret;

	for (;;) {
		drain_watch(t);
		ret = try_connect(t, fd);
		if (ret != -EAGAIN)
			return ret;
		if (wait[1].revents && check_target_death(t, death))
			return silt_err(ECHILD, "the backend %s", death);
		left = deadline - check_process_now_ms();
		if (left <= 0)
			return silt_err(ETIMEDOUT, "the backend does not listen at %s within %d ms",
					t->socket_path, t->opt->timeout_ms);
		/* Between its bind() and its listen() nothing can be watched: look again soon. */
		poll(wait, 2, left < 10 ? left : 10);
	}
}

static int connect_listening(struct check_target *t, int *fd)
{
	int ret = try_connect(t, fd);

	if (ret == -EAGAIN)
		return silt_err(ENOENT, "no backend listens at %s", t->socket_path);
	return ret;
}

static int accept_backend(struct check_target *t, int *fd)
{
	struct pollfd wait = {.fd = t->listening, .events = POLLIN};
	int64_t left, deadline = check_process_now_ms() + t->opt->timeout_ms;

	do
		left = deadline - check_process_now_ms();
	while (poll(&wait, 1, left > 0 ? left : 0) < 0 && errno == EINTR);
	if (!wait.revents)
		return silt_err(ETIMEDOUT,
				"no backend connected to us within %d ms; it has to connect anew "
				"for each scenario",
				t->opt->timeout_ms);
	*fd = accept4(t->listening, NULL, NULL, SOCK_CLOEXEC);
	return *fd < 0 ? silt_err_sys(errno, "cannot accept the backend's connection") : 0;
}

/* Many backends end with their connection, and are started again; but not by a signal. */
static int died_meanwhile(struct check_target *t)
{
	char death[TARGET_DEATH_LEN];

	if (!t->pid)
		return 0;
	check_process_reap(t);
	if (t->pid || !WIFSIGNALED(t->status) || !check_target_death(t, death))
		return 0;
	return silt_err(ECHILD, "once the connection before was closed, the backend %s", death);
}

bool check_target_over(struct check_target *t)
{
	check_process_reap(t);
	return t->served && t->ended && !WIFSIGNALED(t->status);
}

static int connect_socket(struct check_target *t, int *fd)
{
	int ret = 0;

	if (t->listening >= 0)
		return accept_backend(t, fd);
	if (!starts_backend(t->opt))
		return connect_listening(t, fd);
	ret = died_meanwhile(t);
	if (!ret && !t->pid)
		ret = check_process_start(t);
	return ret < 0 ? ret : connect_started(t, fd);
}

static int connect_kernel(struct check_target *t, struct check_transport **out)
{
	int ret = check_transport_kernel(t->opt->path, out);

	t->gone = ret < 0;
	return ret;
}

int check_target_connect(struct check_target *t, struct check_transport **out)
{
	int fd, ret;

	if (t->gone)
		return silt_err(ENOTCONN, "the backend is gone");
	if (t->kept) {
		*out = t->kept;
		return 0;
	}
	if (t->opt->target == CHECK_TARGET_KERNEL)
		return connect_kernel(t, out);
	if (!check_target_reconnects(t))
		return silt_err(ENOTCONN, "the connection of fd %d was lost", t->opt->fd);
	ret = connect_socket(t, &fd);
	if (ret == 0)
		ret = check_transport_user(fd, t->opt->timeout_ms, out);
	if (ret < 0 && starts_backend(t->opt))
		check_process_end(t);
	else if (ret < 0)
		t->gone = true;
	return ret;
}

void check_target_release(struct check_target *t, struct check_transport *transport, bool broken)
{
	if (transport && transport == t->kept && !broken)
		return;
	if (transport == t->kept)
		t->kept = NULL;
	t->served = transport;
	check_transport_destroy(transport);
	if (broken)
		check_process_end(t);
}

bool check_target_started(const struct check_target *t)
{
	return starts_backend(t->opt);
}

bool check_target_reconnects(const struct check_target *t)
{
	return t->opt->target != CHECK_TARGET_FD || t->listening >= 0;
}

bool check_target_alive(struct check_target *t)
{
	if (!starts_backend(t->opt))
		return true;
	check_process_reap(t);
	return t->pid;
}

bool check_target_has_image(const struct check_target *t)
{
	return t->image >= 0;
}

int check_target_pidfd(const struct check_target *t)
{
	return t->pidfd;
}

void check_target_describe(const struct check_target *t, char *buf, size_t len)
{
	const struct check_options *opt = t->opt;
	size_t used = 0;
	char **arg;

	switch (opt->target) {
	case CHECK_TARGET_SELF:
		snprintf(buf, len, "silt blk");
		break;
	case CHECK_TARGET_CONNECT:
	case CHECK_TARGET_LISTEN:
	case CHECK_TARGET_KERNEL:
		snprintf(buf, len, "%s", opt->path);
		break;
	case CHECK_TARGET_FD:
		snprintf(buf, len, "fd %d", opt->fd);
		break;
	case CHECK_TARGET_COMMAND:
		buf[0] = '\0';
		for (arg = opt->argv; *arg && used < len; arg++)
			used += snprintf(buf + used, len - used, "%s%s", used ? " " : "", *arg);
	}
}

/* Append one word as a shell would have to be given it. */
static size_t append_word(char *buf, size_t len, size_t used, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "-_./=,:+@%";
	bool quote = !*word || word[strspn(word, plain)];
	const char *p;

	if (used < len)
		used += snprintf(buf + used, len - used, quote ? " '" : " ");
	for (p = word; *p && used < len; p++)
		used += snprintf(buf + used, len - used, *p == '\'' ? "'\\''" : "%c", *p);
	if (quote && used < len)
		used += snprintf(buf + used, len - used, "'");
	return used;
}

static size_t append_target(const struct check_options *opt, char *buf, size_t len, size_t used)
{
	char word[256];

	switch (opt->target) {
	case CHECK_TARGET_SELF:
		return append_word(buf, len, used, "--self-test");
	case CHECK_TARGET_FD:
		snprintf(word, sizeof(word), "--fd=%d", opt->fd);
		return append_word(buf, len, used, word);
	case CHECK_TARGET_CONNECT:
		snprintf(word, sizeof(word), "--socket-path=%s", opt->path);
		return append_word(buf, len, used, word);
	case CHECK_TARGET_LISTEN:
		snprintf(word, sizeof(word), "--listen=%s", opt->path);
		return append_word(buf, len, used, word);
	case CHECK_TARGET_KERNEL:
		snprintf(word, sizeof(word), "--vhost=%s", opt->path);
		return append_word(buf, len, used, word);
	default:
		return used;
	}
}

static size_t append_device(const struct check_options *opt, char *buf, size_t len, size_t used)
{
	char word[64];

	if (opt->device) {
		snprintf(word, sizeof(word), "--device=%s", opt->device);
		used = append_word(buf, len, used, word);
	}
	if (opt->max_queues) {
		snprintf(word, sizeof(word), "--max-queues=%u", opt->max_queues);
		used = append_word(buf, len, used, word);
	}
	return used;
}

void check_target_repro(const struct check_target *t, const char *name, char *buf, size_t len)
{
	const struct check_options *opt = t->opt;
	size_t used = snprintf(buf, len, "silt check");
	char word[64], **arg;

	used = append_target(opt, buf, len, used);
	used = append_device(opt, buf, len, used);
	if (opt->hostile)
		used = append_word(buf, len, used, "--hostile");
	if (opt->allow_writes)
		used = append_word(buf, len, used, "--allow-writes");
	used = append_word(buf, len, used, "--only");
	used = append_word(buf, len, used, name);
	snprintf(word, sizeof(word), "%lu", opt->seed);
	used = append_word(buf, len, used, "--seed");
	used = append_word(buf, len, used, word);
	if (opt->time_ms != CHECK_TIME_MS) {
		snprintf(word, sizeof(word), "--time=%ums", opt->time_ms);
		used = append_word(buf, len, used, word);
	}
	if (opt->timeout_ms != CHECK_TIMEOUT_MS) {
		snprintf(word, sizeof(word), "--timeout=%dms", opt->timeout_ms);
		used = append_word(buf, len, used, word);
	}
	if (opt->target != CHECK_TARGET_COMMAND)
		return;
	used = append_word(buf, len, used, "--");
	for (arg = opt->argv; *arg; arg++)
		used = append_word(buf, len, used, *arg);
}
