/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <malloc.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/err.h"
#include "blk/sandbox.h"

/*
 * A peer or a guest that found a way to run code in this process has the image, the sockets and
 * what it passes in itself. It opens no file, makes no socket, starts no program and no thread,
 * traces no process. Nor does it make an io_uring, whose operations no filter sees: the rings that
 * are there take only those that disks need, and no other can be entered.
 */

#define NCALLS(calls) (sizeof(calls) / sizeof((calls)[0]))

static const int calls[] = {
	/* memory, but see below */
	SCMP_SYS(brk),
	SCMP_SYS(madvise),
	SCMP_SYS(mremap),
	SCMP_SYS(munmap),
	SCMP_SYS(getrandom),
	/* threads */
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(futex),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(sched_yield),
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
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),
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
	SCMP_SYS(pwritev),
	SCMP_SYS(pwritev2),
};

/* Calls that do what is needed or what is not, as an argument says. */
static const struct limited {
	int call;
	struct scmp_arg_cmp arg;
} limited[] = {
	/* No code but what was there from the beginning. */
	{SCMP_SYS(mmap), {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}},
	{SCMP_SYS(mprotect), {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}},
	/* fstat() of newer C libraries. */
	{SCMP_SYS(newfstatat), {3, SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_GETFL, 0}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_SETFL, 0}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_GET_SEALS, 0}},
	{SCMP_SYS(fcntl), {1, SCMP_CMP_EQ, F_ADD_SEALS, 0}},
	{SCMP_SYS(ioctl), {1, SCMP_CMP_EQ, BLKDISCARD, 0}},
	{SCMP_SYS(ioctl), {1, SCMP_CMP_EQ, BLKZEROOUT, 0}},
};

/*
 * A thread's own rings have numbers in a table, which is closed. What a monitor passes has a file
 * descriptor, and kernels before 6.7 let it pass a ring.
 */
static int allow_rings(scmp_filter_ctx filter, bool ring_fds)
{
	int ret = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(io_uring_enter), !ring_fds,
				   SCMP_A3(SCMP_CMP_MASKED_EQ, IORING_ENTER_REGISTERED_RING,
					   IORING_ENTER_REGISTERED_RING));

	/* A ring that is closed is first taken from its thread's table, which matters no more. */
	return ret ? ret
		   : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(io_uring_register),
				      0);
}

static int add_rules(scmp_filter_ctx filter, enum blk_aio aio, bool ring_fds)
{
	int ret = aio == BLK_AIO_SYNC ? 0 : allow_rings(filter, ring_fds);

	for (unsigned int i = 0; i < NCALLS(calls) && !ret; i++)
		ret = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
	for (unsigned int i = 0; i < NCALLS(limited) && !ret; i++)
		ret = seccomp_rule_add(filter, SCMP_ACT_ALLOW, limited[i].call, 1, limited[i].arg);
	/* raise() and abort(): this process may die as it likes, and kills no other. */
	return ret ? ret
		   : seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				      SCMP_A0(SCMP_CMP_EQ, getpid()));
}

static int load(scmp_filter_ctx filter, enum blk_aio aio, bool ring_fds)
{
	/* A binary tree: the calls of the data path are not to wait for a walk through all rules.
	 */
	int ret = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);

	if (!ret)
		ret = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	/* Calls by the numbers of another ABI would else end the thread only, and hang the disk. */
	if (!ret)
		ret = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (!ret)
		ret = add_rules(filter, aio, ring_fds);
	return ret ? ret : seccomp_load(filter);
}

/*
 * The C library reads a file before it gives memory of a thread's own arena back to the system. The
 * common arena has no such whim.
 */
void blk_sandbox_prepare(void)
{
	mallopt(M_ARENA_MAX, 1);
}

int blk_sandbox_enter(enum blk_aio aio, bool ring_fds)
{
	scmp_filter_ctx filter;
	int ret;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return silt_err_sys(errno, "new privileges cannot be given up");
	filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	/* It gives no reason, but asks the kernel for the action, which came with 4.14. */
	ret = filter ? load(filter, aio, ring_fds) : -ENOSYS;
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
