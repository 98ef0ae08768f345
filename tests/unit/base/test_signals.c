/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose signal is it? Each case runs in a child of its own, which says by its end what happened:
 * DONE it went on, PREVIOUS the handler that was there before ran, or a signal.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/access.h>

#include "support/proc.h"

enum {
	DONE = 40,
	PREVIOUS,
	WRONG
};

static size_t page;
static volatile sig_atomic_t calls;

/* The end of a child that runs @body: its exit status, or 128 plus the signal that killed it. */
static int outcome(void (*body)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		const struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		body();
		_exit(DONE);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void must(bool ok)
{
	if (!ok)
		_exit(WRONG);
}

static uint8_t *no_access(void)
{
	uint8_t *p = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	return p;
}

/* A file that ends before its mapping does. */
static uint8_t *past_the_end(void)
{
	int fd = proc_memfd("short", 0);
	uint8_t *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	must(p != MAP_FAILED);
	return p;
}

static void plain_handler(int sig)
{
	(void)sig;
	_exit(PREVIOUS);
}

static void info_handler(int sig, siginfo_t *info, void *context)
{
	must((sig == SIGSEGV || sig == SIGBUS) && info->si_addr && context);
	_exit(PREVIOUS);
}

static void counting_handler(int sig)
{
	(void)sig;
	calls++;
}

static void handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction action = {.sa_handler = fn, .sa_flags = flags};

	must(!sigaction(sig, &action, NULL));
}

static void install(void)
{
	must(!silt_access_install());
	/* Twice is as good as once. */
	must(!silt_access_install());
}

static void foreign_fault_plain(void)
{
	handle(SIGSEGV, plain_handler, 0);
	install();
	*(volatile uint8_t *)no_access() = 1;
}

static void foreign_fault_info(void)
{
	struct sigaction action = {.sa_sigaction = info_handler, .sa_flags = SA_SIGINFO};

	must(!sigaction(SIGBUS, &action, NULL));
	install();
	*(volatile uint8_t *)past_the_end() = 1;
}

static void foreign_fault_default(void)
{
	install();
	*(volatile uint8_t *)no_access() = 1;
}

static void foreign_bus_default(void)
{
	install();
	*(volatile uint8_t *)past_the_end() = 1;
}

static void foreign_fault_ignored(void)
{
	handle(SIGSEGV, SIG_IGN, 0);
	install();
	*(volatile uint8_t *)no_access() = 1;
}

/* The library's own access, but nobody registered the range. */
static void unregistered_range(void)
{
	handle(SIGSEGV, plain_handler, 0);
	install();
	silt_access_store8(no_access(), 1);
}

/* A registered range, but an ordinary access. */
static void ordinary_access(void)
{
	uint8_t *p = no_access();

	handle(SIGSEGV, plain_handler, 0);
	install();
	must(!silt_access_add_range(p, page));
	must(!silt_access_store8(p, 1));
	*(volatile uint8_t *)p = 1;
}

static void range_taken_back(void)
{
	uint8_t *p = no_access();

	handle(SIGSEGV, plain_handler, 0);
	install();
	must(!silt_access_add_range(p, page));
	must(!silt_access_add_range(p, page));
	silt_access_del_range(p, page);
	must(!silt_access_store8(p, 1));
	silt_access_del_range(p, page);
	silt_access_store8(p, 1);
}

static void sent_to_default(void)
{
	install();
	kill(getpid(), SIGBUS);
}

static void sent_to_ignore(void)
{
	handle(SIGBUS, SIG_IGN, 0);
	install();
	kill(getpid(), SIGBUS);
}

static void sent_to_handler(void)
{
	handle(SIGBUS, counting_handler, 0);
	install();
	kill(getpid(), SIGBUS);
	kill(getpid(), SIGBUS);
	must(calls == 2);
}

static void sent_to_one_shot(void)
{
	handle(SIGBUS, counting_handler, (int)SA_RESETHAND);
	install();
	kill(getpid(), SIGBUS);
	must(calls == 1);
	kill(getpid(), SIGBUS);
}

static sigset_t seen;

static void mask_handler(int sig)
{
	(void)sig;
	pthread_sigmask(SIG_SETMASK, NULL, &seen);
}

static void mask_of(int flags, bool own_signal_blocked)
{
	struct sigaction action = {.sa_handler = mask_handler, .sa_flags = flags};
	sigset_t after;

	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR2);
	must(!sigaction(SIGBUS, &action, NULL));
	install();
	kill(getpid(), SIGBUS);
	must(sigismember(&seen, SIGUSR2) == 1 && sigismember(&seen, SIGUSR1) == 0);
	must(sigismember(&seen, SIGBUS) == own_signal_blocked);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	must(!sigismember(&after, SIGBUS) && !sigismember(&after, SIGUSR2));
}

static void mask_is_kept(void)
{
	mask_of(0, true);
}

static void mask_nodefer(void)
{
	mask_of(SA_NODEFER, false);
}

/* A previous handler may well leave by a jump. */
static sigjmp_buf away;

static void jumping_handler(int sig)
{
	siglongjmp(away, sig);
}

static void handler_jumps_away(void)
{
	volatile int n = 0;

	handle(SIGSEGV, jumping_handler, 0);
	install();
	while (n < 3) {
		if (sigsetjmp(away, 1)) {
			n++;
			continue;
		}
		*(volatile uint8_t *)no_access() = 1;
	}
}

static void owner(int sig, siginfo_t *info, void *context)
{
	if (!silt_access_handle(sig, info, context))
		_exit(PREVIOUS);
	calls++;
}

static void own_the_signals(void)
{
	struct sigaction action = {.sa_sigaction = owner, .sa_flags = SA_SIGINFO};
	uint8_t *p = no_access();

	must(!sigaction(SIGSEGV, &action, NULL));
	must(!silt_access_register());
	must(!silt_access_add_range(p, page));
	must(!silt_access_store8(p, 1) && calls == 1);
	*(volatile uint8_t *)p = 1;
}

static void errno_survives(void)
{
	uint8_t *p = no_access();

	install();
	must(!silt_access_add_range(p, page));
	errno = 1234;
	must(!silt_access_store8(p, 1));
	must(errno == 1234);
}

/* A fault as the kernel would tell of it, at the first entry of this program's table. */
static ucontext_t context_at(uintptr_t pc)
{
	ucontext_t uc;

	getcontext(&uc);
#ifdef __x86_64__
	uc.uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
#else
	uc.uc_mcontext.pc = pc;
#endif
	return uc;
}

static bool accepts(int sig, int code, uintptr_t pc, void *addr)
{
	siginfo_t info = {.si_signo = sig, .si_code = code};
	ucontext_t uc = context_at(pc);

	info.si_addr = addr;
	return silt_access_handle(sig, &info, &uc);
}

static void what_is_accepted(void **state)
{
	const struct silt_access_entry *e = __start_silt_access_table;
	uintptr_t pc = (uintptr_t)&e->insn + (intptr_t)e->insn;
	uint8_t *p = no_access();

	(void)state;
	assert_int_equal(silt_access_register(), 0);
	assert_int_equal(silt_access_add_range(p, 100), 0);
	assert_true(accepts(SIGBUS, BUS_ADRERR, pc, p));
	assert_true(accepts(SIGBUS, BUS_MCEERR_AR, pc, p));
	assert_true(accepts(SIGSEGV, SEGV_MAPERR, pc, p + 99));
	assert_false(accepts(SIGSEGV, SEGV_MAPERR, pc, p + 100));
	assert_false(accepts(SIGSEGV, SEGV_MAPERR, pc, p - 1));
	assert_false(accepts(SIGSEGV, SEGV_MAPERR, pc + 1, p));
	assert_false(accepts(SIGSEGV, SEGV_MAPERR, 0, p));
	assert_false(accepts(SIGSEGV, SI_USER, pc, p));
	assert_false(accepts(SIGSEGV, SI_QUEUE, pc, p));
	assert_false(accepts(SIGBUS, BUS_MCEERR_AO, pc, p));
	assert_false(accepts(SIGILL, ILL_ILLOPC, pc, p));
	silt_access_del_range(p, 100);
	assert_false(accepts(SIGBUS, BUS_ADRERR, pc, p));
	munmap(p, page);
}

static void too_many_tables(void **state)
{
	static struct silt_access_entry tables[80];
	int i, ret = 0;

	(void)state;
	for (i = 0; i < 79 && !ret; i++) {
		ret = silt_access_add_table(&tables[i], &tables[i + 1]);
		if (!ret)
			assert_int_equal(silt_access_add_table(&tables[i], &tables[i + 1]), 0);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_true(i <= 65);
	assert_int_equal(silt_access_add_table(NULL, NULL), 0);
}

static void who_gets_it(void **state)
{
	(void)state;
	assert_int_equal(outcome(foreign_fault_plain), PREVIOUS);
	assert_int_equal(outcome(foreign_fault_info), PREVIOUS);
	assert_int_equal(outcome(foreign_fault_default), 128 + SIGSEGV);
	assert_int_equal(outcome(foreign_bus_default), 128 + SIGBUS);
	assert_int_equal(outcome(foreign_fault_ignored), 128 + SIGSEGV);
	assert_int_equal(outcome(unregistered_range), PREVIOUS);
	assert_int_equal(outcome(ordinary_access), PREVIOUS);
	assert_int_equal(outcome(range_taken_back), PREVIOUS);
}

static void sent_signals(void **state)
{
	(void)state;
	assert_int_equal(outcome(sent_to_default), 128 + SIGBUS);
	assert_int_equal(outcome(sent_to_ignore), DONE);
	assert_int_equal(outcome(sent_to_handler), DONE);
	assert_int_equal(outcome(sent_to_one_shot), 128 + SIGBUS);
}

static void manners(void **state)
{
	(void)state;
	assert_int_equal(outcome(mask_is_kept), DONE);
	assert_int_equal(outcome(mask_nodefer), DONE);
	assert_int_equal(outcome(handler_jumps_away), DONE);
	assert_int_equal(outcome(own_the_signals), PREVIOUS);
	assert_int_equal(outcome(errno_survives), DONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_gets_it),	   cmocka_unit_test(sent_signals),
		cmocka_unit_test(manners),	   cmocka_unit_test(what_is_accepted),
		cmocka_unit_test(too_many_tables),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
