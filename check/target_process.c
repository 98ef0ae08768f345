/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "check/target_process.h"

/* A backend that was told to end has so long to do it; one that closed its connection may live on.
 */
#define END_MS	   2000
#define DEATH_MS   500
#define TAIL_LINES 5

/* The group that runs, or 0: also for a thread that ends the program. */
static pid_t running;

/* The program ends: what that does to the backend is nothing to be told. */
static bool ending;

/* Our children's numbers before the first backend was started: they are none of its. */
static char *elders;

int64_t check_process_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* @arg with each {socket} and {image} replaced. Return: the copy, or NULL. */
static char *substitute(const struct check_target *t, const char *arg)
{
	char *out = NULL;
	size_t len, skip;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		return NULL;
	for (; *arg; arg += skip) {
		skip = 1;
		if (!strncmp(arg, "{socket}", 8)) {
			fputs(t->socket_path, f);
			skip = 8;
		} else if (!strncmp(arg, "{image}", 7)) {
			fputs(t->image_path, f);
			skip = 7;
		} else {
			fputc(*arg, f);
		}
	}
	return fclose(f) ? NULL : out;
}

static void free_argv(char **argv)
{
	char **arg;

	for (arg = argv; arg && *arg; arg++)
		free(*arg);
	free(argv);
}

static char **build_argv(const struct check_target *t)
{
	char *self[] = {(char *)t->opt->self,
			(char *)"blk",
			(char *)"--socket-path={socket}",
			(char *)"--blk-file={image}",
			(char *)"--num-queues=4",
			(char *)"--in-order",
			NULL};
	char **from = t->opt->target == CHECK_TARGET_SELF ? self : t->opt->argv;
	char **argv;
	size_t n, i;

	for (n = 0; from[n]; n++)
		;
	argv = calloc(n + 1, sizeof(*argv));
	for (i = 0; argv && i < n; i++) {
		argv[i] = substitute(t, from[i]);
		if (!argv[i]) {
			free_argv(argv);
			return NULL;
		}
	}
	return argv;
}

/* In the child. A failed exec is reported through @report as its errno. */
static void __attribute__((noreturn)) run_child(char **argv, pid_t parent, int output, int report)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), err;
	sigset_t none;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(null, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	execvp(argv[0], argv);
	err = errno;
	if (write(report, &err, sizeof(err)) != sizeof(err))
		_exit(126);
	_exit(127);
}

/* Return: 0 once the child runs its program, or the errno of a failed exec. */
static int exec_result(int report)
{
	int err;

	return read(report, &err, sizeof(err)) == sizeof(err) ? err : 0;
}

static int spawn(struct check_target *t, char **argv, int output)
{
	pid_t parent = getpid();
	int report[2], err;

	if (pipe2(report, O_CLOEXEC))
		return errno;
	t->pid = fork();
	if (!t->pid)
		run_child(argv, parent, output, report[1]);
	err = errno;
	close(report[1]);
	if (t->pid > 0) {
		/* On both sides, so that the group exists whoever comes first. */
		setpgid(t->pid, t->pid);
		__atomic_store_n(&running, t->pid, __ATOMIC_RELEASE);
		t->pidfd = syscall(SYS_pidfd_open, t->pid, 0);
		err = exec_result(report[0]);
	} else {
		t->pid = 0;
	}
	close(report[0]);
	return err;
}

/* Return: 0 or an errno. */
static int spawn_heard(struct check_target *t, char **argv)
{
	int output, err;

	check_output_destroy(t->output);
	t->output = NULL;
	err = -check_output_create(&t->output, &output);
	if (err)
		return err;
	err = spawn(t, argv, output);
	close(output);
	return err;
}

/* ---- What left the group ----------------------------------------------------------------------
 */

/* Our children's numbers, with a blank behind each. Return: NULL if the kernel does not tell. */
static char *list_children(void)
{
	char path[64], *list = NULL;
	size_t size = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "re");
	if (!f)
		return NULL;
	if (getline(&list, &size, f) < 0 && list)
		*list = '\0';
	fclose(f);
	return list;
}

static bool is_listed(const char *list, pid_t pid)
{
	char *end;
	long one;

	while ((one = strtol(list, &end, 10)) && one != pid)
		list = end;
	return one;
}

/* Return: 0 if there is none. */
static pid_t find_stray(void)
{
	char *list = list_children(), *at = list;
	pid_t pid = 0;

	while (at && (pid = strtol(at, &at, 10)) && is_listed(elders, pid))
		;
	free(list);
	return pid;
}

/* A daemon's children are not in the backend's group, but become ours when their parents end. */
static void adopt_orphans(void)
{
	if (!elders && !prctl(PR_SET_CHILD_SUBREAPER, 1))
		elders = list_children();
}

static void end_strays(void)
{
	int64_t deadline = check_process_now_ms() + END_MS;
	pid_t pid;

	while (elders && (pid = find_stray()) && check_process_now_ms() < deadline) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* ---- Start and end ----------------------------------------------------------------------------
 */

int check_process_start(struct check_target *t)
{
	char **argv = build_argv(t);
	int err;

	if (!argv)
		return silt_err_sys(ENOMEM, "cannot start the backend");
	adopt_orphans();
	unlink(t->socket_path);
	t->ended = t->served = false;
	err = spawn_heard(t, argv);
	if (err) {
		check_process_end(t);
		err = silt_err_sys(err, "cannot start %s", argv[0]);
	}
	free_argv(argv);
	return err;
}

static void forget(struct check_target *t)
{
	__atomic_store_n(&running, 0, __ATOMIC_RELEASE);
	/* Whatever it started, and left behind, ends too. */
	kill(-t->pid, SIGKILL);
	end_strays();
	if (t->pidfd >= 0)
		close(t->pidfd);
	t->pidfd = -1;
	t->pid = 0;
	t->ended = true;
}

void check_process_reap(struct check_target *t)
{
	while (__atomic_load_n(&ending, __ATOMIC_ACQUIRE))
		pause();
	if (t->pid && waitpid(t->pid, &t->status, WNOHANG) == t->pid)
		forget(t);
}

static void wait_end(struct check_target *t, int timeout_ms)
{
	struct pollfd wait = {.fd = t->pidfd, .events = POLLIN};

	if (t->pid && t->pidfd >= 0)
		poll(&wait, 1, timeout_ms);
	check_process_reap(t);
}

void check_process_signal(int sig)
{
	pid_t group = __atomic_load_n(&running, __ATOMIC_ACQUIRE);

	if (!group)
		return;
	__atomic_store_n(&ending, sig == SIGKILL, __ATOMIC_RELEASE);
	kill(-group, sig);
	if (sig == SIGKILL)
		end_strays();
}

bool check_process_terminate(struct check_target *t, int timeout_ms)
{
	check_process_reap(t);
	if (t->pid) {
		kill(-t->pid, SIGTERM);
		wait_end(t, timeout_ms);
	}
	return !t->pid;
}

void check_process_kill(struct check_target *t)
{
	check_process_reap(t);
	if (!t->pid)
		return;
	kill(-t->pid, SIGKILL);
	waitpid(t->pid, &t->status, 0);
	forget(t);
}

void check_process_end(struct check_target *t)
{
	if (!check_process_terminate(t, END_MS))
		check_process_kill(t);
}

/* The last lines of what the backend printed. */
static void append_output(const struct check_target *t, char *text, size_t len)
{
	char tail[CHECK_OUTPUT_TAIL + 1];
	size_t n = check_output_tail(t->output, tail);
	unsigned int lines = 0;
	char *start;

	while (n > 0 && (tail[n - 1] == '\n' || !tail[n - 1]))
		n--;
	if (!n)
		return;
	tail[n] = '\0';
	for (start = tail + n; start > tail && lines < TAIL_LINES; start--)
		lines += start[-1] == '\n';
	if (lines == TAIL_LINES)
		start++;
	snprintf(text, len, "; its last lines:\n%s", start);
}

bool check_target_death(struct check_target *t, char text[TARGET_DEATH_LEN])
{
	int used;

	if (t->pid)
		wait_end(t, DEATH_MS);
	if (!t->ended)
		return false;
	if (WIFSIGNALED(t->status))
		used = snprintf(text, TARGET_DEATH_LEN, "died of signal %d (%s)",
				WTERMSIG(t->status), strsignal(WTERMSIG(t->status)));
	else
		used = snprintf(text, TARGET_DEATH_LEN, "ended with exit status %d",
				WEXITSTATUS(t->status));
	append_output(t, text + used, TARGET_DEATH_LEN - used);
	return true;
}
