/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "capabilities.h"

#define OPTION	 "--print-capabilities"
#define TEXT_MAX 65536

static void __attribute__((noreturn)) run_child(const char *program, int output)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	execlp(program, program, OPTION, (char *)NULL);
	_exit(127);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* All that comes until the end. Return: its length, -ETIMEDOUT, -errno. */
static ssize_t read_all(int fd, int timeout_ms, char text[TEXT_MAX])
{
	int64_t left, deadline = now_ms() + timeout_ms;
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	size_t used = 0;
	ssize_t n;

	do {
		left = deadline - now_ms();
		if (left <= 0 || poll(&wait, 1, left) == 0)
			return -ETIMEDOUT;
		n = read(fd, text + used, TEXT_MAX - 1 - used);
		if (n < 0 && errno != EINTR)
			return -errno;
		used += n > 0 ? n : 0;
	} while (n != 0 && used < TEXT_MAX - 1);
	text[used] = '\0';
	return used;
}

static int find_type(const char *text, char *type, size_t len)
{
	struct json_object *all = json_tokener_parse(text), *value;
	int ret = -EPROTO;

	if (json_object_object_get_ex(all, "type", &value) &&
	    json_object_is_type(value, json_type_string)) {
		snprintf(type, len, "%s", json_object_get_string(value));
		ret = 0;
	}
	json_object_put(all);
	return ret;
}

int capabilities_type(const char *program, int timeout_ms, char *type, size_t len)
{
	char text[TEXT_MAX];
	int ends[2];
	ssize_t n;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return silt_err_sys(errno, "cannot make a pipe");
	pid = fork();
	if (pid == 0)
		run_child(program, ends[1]);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return silt_err_sys(errno, "cannot run %s", program);
	}
	n = read_all(ends[0], timeout_ms, text);
	close(ends[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (n == -ETIMEDOUT)
		return silt_err(ETIMEDOUT, "%s " OPTION " does not end within %d ms", program,
				timeout_ms);
	if (n < 0)
		return silt_err_sys(-n, "cannot read what %s " OPTION " says", program);
	if (find_type(text, type, len) < 0)
		return silt_err(EPROTO, "%s " OPTION " does not say what device it is", program);
	return 0;
}
