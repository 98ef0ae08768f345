/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "stores.h"

#define MAX_RANGES 4

static struct {
	struct {
		uint8_t *addr;
		size_t len;
	} ranges[MAX_RANGES];
	unsigned int nranges;
	void (*before)(void *arg);
	void *arg;
	bool on;
} watch;

void stores_watch(void *addr, size_t len)
{
	if (watch.nranges == MAX_RANGES)
		abort();
	watch.ranges[watch.nranges].addr = addr;
	watch.ranges[watch.nranges++].len = len;
}

#if STORES_SEEN

#define TRAP_FLAG 0x100

static void protect(int prot)
{
	for (unsigned int i = 0; i < watch.nranges; i++)
		if (mprotect(watch.ranges[i].addr, watch.ranges[i].len, prot) < 0)
			abort();
}

static bool watched(const void *addr)
{
	for (unsigned int i = 0; i < watch.nranges; i++)
		if ((uintptr_t)addr - (uintptr_t)watch.ranges[i].addr < watch.ranges[i].len)
			return true;
	return false;
}

static void on_store(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	if (!watch.on || !watched(info->si_addr)) {
		signal(sig, SIG_DFL);
		return;
	}
	watch.before(watch.arg);
	protect(PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_stored(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)sig;
	(void)info;
	uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	protect(PROT_READ);
}

void stores_begin(void (*before)(void *arg), void *arg)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO};

	watch.before = before;
	watch.arg = arg;
	watch.on = true;
	action.sa_sigaction = on_store;
	sigaction(SIGSEGV, &action, NULL);
	action.sa_sigaction = on_stored;
	sigaction(SIGTRAP, &action, NULL);
	protect(PROT_READ);
}

void stores_end(void)
{
	watch.on = false;
	protect(PROT_READ | PROT_WRITE);
}

#else

void stores_begin(void (*before)(void *arg), void *arg)
{
	(void)before;
	(void)arg;
}

void stores_end(void)
{
}

#endif
