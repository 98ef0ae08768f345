/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/err.h"
#include "blk/sandbox.h"

/*
 * A peer or a guest that found a way to run code in this process has the image, the sockets and
 * what it passes in itself. It opens no file, makes no socket, runs no program, traces no process.
 *
 * The kernel does not look at what is submitted to an io_uring here, and some operations of a ring
 * open files: --aio=sync is the tighter choice, for whoever can do without.
 */

#define NCALLS(calls) (sizeof(calls) / sizeof((calls)[0]))

static const int calls[] = {
	/* memory, but see below */
	SCMP_SYS(brk),
	SCMP_SYS(madvise),
	SCMP_SYS(mremap),
	SCMP_SYS(munmap),
	/* threads */
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(futex),
	SCMP_SYS(getpid),
	SCMP_SYS(getrandom),
	SCMP_SYS(gettid),
	SCMP_SYS(rseq),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(sched_yield),
	SCMP_SYS(set_robust_list),
	/* signals */
	SCMP_SYS(restart_syscall),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigpending),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigtimedwait),
	/* time, where the vDSO has none */
	SCMP_SYS(clock_gettime),
	/* sockets and eventfds, those that are there and those that are passed in */
	SCMP_SYS(accept4),
	SCMP_SYS(close),
	SCMP_SYS(eventfd2),
	SCMP_SYS(fstat),
	SCMP_SYS(fstatfs),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(read),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg),
	SCMP_SYS(sendto),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	/* memory that the frontend is to keep */
	SCMP_SYS(ftruncate),
	SCMP_SYS(memfd_create),
	/* the image */
	SCMP_SYS(fallocate),
	SCMP_SYS(fdatasync),
	SCMP_SYS(preadv),
	SCMP_SYS(preadv2),
	SCMP_SYS(pwritev),
	SCMP_SYS(pwritev2),
};

static const int uring_calls[] = {
	SCMP_SYS(io_uring_enter),
	SCMP_SYS(io_uring_register),
	SCMP_SYS(io_uring_setup),
};

/* Calls that do what is needed or what is not, as an argument says. */
static const struct limited {
	int call;
	struct scmp_arg_cmp arg;
} limited[] = {
	/* No code but what was there from the beginning. */
	{SCMP_SYS(mmap), {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}},
	{SCMP_SYS(mprotect), {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}},
	/* Threads, not processes. */
	{SCMP_SYS(clone), {0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD}},
	{SCMP_SYS(prctl), {0, SCMP_CMP_EQ, PR_SET_NAME, 0}},
	/* fstat() of newer C libraries. */
	{SCMP_SYS(newfstatat), {3, SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_GETFL, 0}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_SETFL, 0}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_GET_SEALS, 0}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_ADD_SEALS, 0}},
	{SCMP_SYS(ioctl), {1, SCMP_CMP_EQ, BLKDISCARD, 0}},
	{SCMP_SYS(ioctl), {1, SCMP_CMP_EQ, BLKZEROOUT, 0}},
};

static int allow(scmp_filter_ctx filter, const int *list, unsigned int n)
{
	int ret = 0;

	for (unsigned int i = 0; i < n && !ret; i++)
		ret = seccomp_rule_add(filter, SCMP_ACT_ALLOW, list[i], 0);
	return ret;
}

static int add_rules(scmp_filter_ctx filter, enum blk_aio aio)
{
	int ret = allow(filter, calls, NCALLS(calls));

	if (!ret && aio != BLK_AIO_SYNC)
		ret = allow(filter, uring_calls, NCALLS(uring_calls));
	/* raise() and abort(): this process may die as it likes, and kills no other. */
	if (!ret)
		ret = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				       SCMP_A0(SCMP_CMP_EQ, getpid()));
	for (unsigned int i = 0; i < NCALLS(limited) && !ret; i++)
		ret = seccomp_rule_add(filter, SCMP_ACT_ALLOW, limited[i].call, 1, limited[i].arg);
	/* Its flags are in memory, where a filter does not see them; C libraries go on with clone.
	 */
	return ret ? ret : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static int load(scmp_filter_ctx filter, enum blk_aio aio)
{
	/* A binary tree: the calls of the data path are not to wait for a walk through all rules.
	 */
	int ret = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);

	if (!ret)
		ret = add_rules(filter, aio);
	return ret ? ret : seccomp_load(filter);
}

int blk_sandbox_enter(enum blk_aio aio)
{
	scmp_filter_ctx filter;
	int ret;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return silt_err_sys(errno, "new privileges cannot be given up");
	filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	ret = filter ? load(filter, aio) : -ENOMEM;
	seccomp_release(filter);
	if (ret < 0)
		return silt_err_sys(-ret, "no sandbox: the system call filter cannot be set up "
					  "(--sandbox=off does without)");
	return 0;
}

bool blk_sandbox_possible(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return false;
#else
	return true;
#endif
#else
	return true;
#endif
}
