/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GUEST_WALK_H
#define GUEST_WALK_H

#include <stdint.h>

#include "guest/program.h"

/*
 * What a vCPU's code does with its program, in C: for threads that stand in for vCPUs, and to find
 * out what memory must hold once a vCPU has written so often.
 */
struct walk {
	uint64_t random;
	uint64_t run_left;
	uint64_t next;	/* page of the run, as an address */
	uint64_t place; /* the next one, if they are taken in order */
	uint64_t number;
};

/* One write: 8 bytes at @gpa become @number. */
struct walk_write {
	uint64_t gpa;
	uint64_t number;
};

/* Before the first write of a vCPU whose last number was @number. */
void walk_begin(struct walk *w, const struct program *p, uint64_t number);

/* The next write of the program, which program_check() has found good. */
struct walk_write walk_next(struct walk *w, const struct program *p);

#endif
