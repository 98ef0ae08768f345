/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SUPPORT_FAULTS_H
#define TESTS_SUPPORT_FAULTS_H

#include <signal.h>

#include <silt/access.h>

static inline void faults_handler(int sig, siginfo_t *info, void *context)
{
	if (!silt_access_handle(sig, info, context))
		signal(sig, SIG_DFL);
}

/*
 * Recover faults for the rest of one cmocka test. cmocka takes the signals anew for each test, so
 * that a handler installed before it runs, as silt_access_install() would, is lost.
 */
static inline void faults_recover(void)
{
	struct sigaction action = {.sa_sigaction = faults_handler, .sa_flags = SA_SIGINFO};

	silt_access_register();
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
}

#endif
