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
#define SILT_FAULT(kind) __builtin_expect(silt_mutant(#kind), false)
#else
#define SILT_FAULT(kind) false
#endif

#endif
