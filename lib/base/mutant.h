/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_MUTANT_H
#define SILT_BASE_MUTANT_H

#include <stdbool.h>

/*
 * SILT_FAULT(kind) is true in a test build (-Dmutants=true) that runs with SILT_FAULT=kind, or
 * several kinds with commas between, in its environment, and the constant false in every other
 * build. It marks the places where the code is broken on purpose, to prove that the checks see it.
 */
#ifdef SILT_MUTANTS
bool silt_mutant(const char *kind);

/* Each place asks once: some faults show only if there is no time between two instructions. */
static inline bool silt_mutant_at(signed char *known, const char *kind)
{
	signed char is = __atomic_load_n(known, __ATOMIC_RELAXED);

	if (!is) {
		is = silt_mutant(kind) ? 1 : -1;
		__atomic_store_n(known, is, __ATOMIC_RELAXED);
	}
	return is > 0;
}

#define SILT_FAULT(kind)                                         \
	__builtin_expect(({                                      \
				 static signed char known_;      \
				 silt_mutant_at(&known_, #kind); \
			 }),                                     \
			 false)
#else
#define SILT_FAULT(kind) false
#endif

#endif
