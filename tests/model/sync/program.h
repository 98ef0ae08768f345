/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_MODEL_SYNC_PROGRAM_H
#define TESTS_MODEL_SYNC_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A program of random operations, made of one seed. */
#define PROGRAM_OPERATIONS 400

struct program {
	uint64_t seed; /* of the machine that it runs on */
	unsigned int n;
	struct {
		uint8_t kind;
		uint64_t seed;
	} op[PROGRAM_OPERATIONS];
};

/* @spoiled: somewhere the engine is spoiled on purpose. */
void program_make(struct program *p, uint64_t seed, bool spoiled);

struct outcome {
	bool spoiled;	 /* op_break found something to spoil */
	char wrong[300]; /* the first difference; empty: all was as it has to be */
};

/* Run it on a new engine and its model; operations are described to @trace, which may be NULL. */
void program_run(const struct program *p, FILE *trace, struct outcome *out);

#endif
