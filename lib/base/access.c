/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <silt/access.h>

#include "base/access_range.h"
#include "base/err.h"

#define TABLES 64

struct table {
	const struct silt_access_entry *start, *stop;
};

/* Entries below ntables never change, so that a signal handler reads them without a lock. */
static struct table tables[TABLES];
static unsigned int ntables;

/* What SIGBUS and SIGSEGV did before silt took them. */
struct previous {
	int sig;
	struct sigaction action;
	bool spent; /* a SA_RESETHAND handler runs once */
};

static struct previous previous[] = {{.sig = SIGBUS}, {.sig = SIGSEGV}};
static bool installed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int silt_access_add_table(const struct silt_access_entry *start,
			  const struct silt_access_entry *stop)
{
	unsigned int i;
	int ret = 0;

	if (start == stop)
		return 0;
	pthread_mutex_lock(&lock);
	for (i = 0; i < ntables && tables[i].start != start; i++)
		;
	if (i == TABLES) {
		ret = silt_err(ENOSPC, "more than %d modules with fault-safe accesses", TABLES);
	} else if (i == ntables) {
		tables[i] = (struct table){start, stop};
		__atomic_store_n(&ntables, i + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

static uintptr_t table_fixup(const struct silt_access_entry *e,
			     const struct silt_access_entry *stop, uintptr_t pc)
{
	for (; e < stop; e++) {
		if ((uintptr_t)&e->insn + (intptr_t)e->insn == pc)
			return (uintptr_t)&e->fixup + (intptr_t)e->fixup;
	}
	return 0;
}

/* Where the access at @pc goes on if it faults; 0 if there is none. */
static uintptr_t find_fixup(uintptr_t pc)
{
	unsigned int i, n = __atomic_load_n(&ntables, __ATOMIC_ACQUIRE);
	/* The library's own accesses, whether or not it is linked into a registered module. */
	uintptr_t fixup = table_fixup(__start_silt_access_table, __stop_silt_access_table, pc);

	for (i = 0; i < n && !fixup; i++)
		fixup = table_fixup(tables[i].start, tables[i].stop, pc);
	return fixup;
}

#ifdef __x86_64__
static uintptr_t context_pc(const ucontext_t *uc)
{
	return (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
}

static void context_set_pc(ucontext_t *uc, uintptr_t pc)
{
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
}
#else
static uintptr_t context_pc(const ucontext_t *uc)
{
	return uc->uc_mcontext.pc;
}

static void context_set_pc(ucontext_t *uc, uintptr_t pc)
{
	uc->uc_mcontext.pc = pc;
}
#endif

/*
 * Did the instruction at the interrupted PC itself raise this? Not if a program sent it, nor if the
 * kernel tells of a memory error that nobody has run into yet.
 */
static bool is_fault(int sig, const siginfo_t *info)
{
	return info->si_code > 0 && !(sig == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

bool silt_access_handle(int sig, const void *info, void *context)
{
	const siginfo_t *fault = info;
	uintptr_t fixup;

	if ((sig != SIGBUS && sig != SIGSEGV) || !is_fault(sig, fault))
		return false;
	fixup = find_fixup(context_pc(context));
	if (!fixup || !silt_access_in_range((uintptr_t)fault->si_addr))
		return false;
	context_set_pc(context, fixup);
	return true;
}

/* Die of @sig as if silt had never been there. */
static void default_action(int sig, const siginfo_t *info)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	sigaction(sig, &dfl, NULL);
	/* A fault is raised again when the handler returns; a signal that was sent is not. */
	if (!is_fault(sig, info))
		raise(sig);
}

/* Block what the kernel would have blocked for the previous handler; returning undoes it. */
static void adopt_mask(int sig, const struct sigaction *action, const ucontext_t *uc)
{
	sigset_t mask;

	sigorset(&mask, &uc->uc_sigmask, &action->sa_mask);
	if (!(action->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void pass_on(struct previous *p, siginfo_t *info, void *context)
{
	const struct sigaction *action = &p->action;

	/* The kernel does not let a fault be ignored, since it would be raised for ever. */
	if (action->sa_handler == SIG_IGN && !is_fault(p->sig, info))
		return;
	if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN ||
	    ((action->sa_flags & SA_RESETHAND) &&
	     __atomic_exchange_n(&p->spent, true, __ATOMIC_RELAXED))) {
		default_action(p->sig, info);
		return;
	}
	adopt_mask(p->sig, action, context);
	if (action->sa_flags & SA_SIGINFO)
		action->sa_sigaction(p->sig, info, context);
	else
		action->sa_handler(p->sig);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	if (!silt_access_handle(sig, info, context))
		pass_on(&previous[sig == SIGSEGV], info, context);
	errno = saved;
}

static int take_signal(struct previous *p)
{
	/*
	 * On the alternate stack, for the sake of previous handlers that report a stack overflow. A
	 * fault inside this handler must kill, not come back to it: so no SA_NODEFER.
	 */
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigemptyset(&action.sa_mask);
	/* Asked first and on its own: a signal may arrive before a second sigaction() returns. */
	if (sigaction(p->sig, NULL, &p->action) < 0 || sigaction(p->sig, &action, NULL) < 0)
		return silt_err_sys(errno, "cannot take over signal %d", p->sig);
	return 0;
}

int silt_access_take_signals(void)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!installed) {
		ret = take_signal(&previous[0]);
		if (!ret) {
			ret = take_signal(&previous[1]);
			if (ret < 0)
				sigaction(previous[0].sig, &previous[0].action, NULL);
		}
		installed = !ret;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}
