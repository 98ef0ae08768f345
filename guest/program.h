/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GUEST_PROGRAM_H
#define GUEST_PROGRAM_H

/* What a vCPU and its thread share, for C and for the vCPU's own code. */

/* Bells: offsets in a page where no slot is. */
#define PROGRAM_BELL_STOPPED 0x00 /* it was told to stop */
#define PROGRAM_BELL_ENDED   0x08 /* it has written all that it should */
#define PROGRAM_BELL_IDLE    0x10 /* a burst ends */

#define PROGRAM_PAGE 4096

/* Offsets in struct program. */
#define PROGRAM_STOP	   0x00
#define PROGRAM_FRESH	   0x04
#define PROGRAM_COUNTER	   0x08
#define PROGRAM_SEED	   0x10
#define PROGRAM_WRITES	   0x18
#define PROGRAM_BURST	   0x20
#define PROGRAM_RUN	   0x28
#define PROGRAM_STRIDE	   0x30
#define PROGRAM_PLACES	   0x38
#define PROGRAM_SEQUENTIAL 0x40
#define PROGRAM_RANGES	   0x80
#define PROGRAM_RANGE_SIZE 0x10

#ifndef __ASSEMBLER__

#include <stddef.h>
#include <stdint.h>

#include "guest/guest.h"

struct program_range {
	uint64_t gpa;
	uint64_t places; /* where a run may begin */
};

/* At most a page. */
struct program {
	uint32_t stop;	  /* the host's: leave off at the next write */
	uint32_t fresh;	  /* the program is new: start it; the vCPU clears this */
	uint64_t counter; /* the number last written */
	uint64_t seed;	  /* not 0 */
	uint64_t writes;
	uint64_t burst;
	uint64_t run;
	uint64_t stride; /* bytes */
	uint64_t places; /* in all ranges */
	uint64_t sequential;
	uint64_t unused[7];
	struct program_range ranges[GUEST_MAX_RANGES];
};

#define PROGRAM_ASSERT_AT(field, offset) \
	_Static_assert(offsetof(struct program, field) == (offset), "as the vCPU's code has it")
PROGRAM_ASSERT_AT(stop, PROGRAM_STOP);
PROGRAM_ASSERT_AT(fresh, PROGRAM_FRESH);
PROGRAM_ASSERT_AT(counter, PROGRAM_COUNTER);
PROGRAM_ASSERT_AT(seed, PROGRAM_SEED);
PROGRAM_ASSERT_AT(writes, PROGRAM_WRITES);
PROGRAM_ASSERT_AT(burst, PROGRAM_BURST);
PROGRAM_ASSERT_AT(run, PROGRAM_RUN);
PROGRAM_ASSERT_AT(stride, PROGRAM_STRIDE);
PROGRAM_ASSERT_AT(places, PROGRAM_PLACES);
PROGRAM_ASSERT_AT(sequential, PROGRAM_SEQUENTIAL);
PROGRAM_ASSERT_AT(ranges, PROGRAM_RANGES);
_Static_assert(sizeof(struct program_range) == PROGRAM_RANGE_SIZE, "as the vCPU's code has it");
_Static_assert(PROGRAM_PAGE == GUEST_PAGE, "as the vCPU's code has it");
_Static_assert(sizeof(struct program) <= GUEST_PAGE, "one page for each vCPU");

/* The number that a vCPU writes is one more each time; no two vCPUs ever write the same. */
static inline uint64_t program_first_number(unsigned int vcpu)
{
	return (uint64_t)vcpu << 56;
}

/* Check @p, and write it as vCPUs want it; the counter stays. Return: as guest_program(). */
int program_make(struct program *to, const struct guest_program *p);

/*
 * Is one that came from elsewhere such as program_write() makes? Its counter and its flags may be
 * any. Return: 0; -EINVAL, -ERANGE.
 */
int program_check(const struct program *p);

/* The bells' page: the last of the guest's own range, which its slot leaves out. */
#define PROGRAM_BELLS (GUEST_SELF_GPA + GUEST_SELF_BYTES - GUEST_PAGE)

/* The vCPU's code: it runs at any address, with those of its struct program and of the bells. */
extern const uint8_t guest_code_start[], guest_code_end[];

#endif

#endif
