/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_SESSION_PACKED_H
#define CHECK_SESSION_PACKED_H

#include "check/session.h"

/*
 * What a session does in another way where rings are packed: the device and the driver write the
 * same descriptors, and instead of indexes there are places, an offset and in bit 15 a wrap
 * counter.
 */

/* The place @n descriptors further on. */
uint16_t check_packed_advance(const struct check_session_queue *q, uint16_t place, unsigned int n);

/* Descriptors of the ring that a request takes. */
unsigned int check_packed_descs(const struct check_request *r);

static inline unsigned int check_packed_offset(uint16_t place)
{
	return place & (SILT_VIRTQ_PACKED_START - 1);
}

/* Where the parts of the ring are to lie in their pages. */
int check_packed_place(struct check_session *s, struct check_session_queue *q,
		       const struct check_scenario *sc);
int check_packed_note(struct check_session *s, unsigned int queue);

/*
 * @r was added and is not published yet: what the driver wrote of its descriptors, and the flags
 * that it is about to write, are its own. The device may overwrite the rest from then on.
 */
void check_packed_own_request(struct check_session *s, struct check_request *r);

/* Make the descriptors' addresses the driver's own again, after they were rewritten. */
void check_packed_own_addresses(struct check_session *s, const struct check_request *r);

bool check_packed_wants_kicks(const struct check_session *s, const struct check_session_queue *q);
void check_packed_poison(struct check_session *s, const struct check_session_queue *q);

/* What the base of queue @i says, before and after all that was used is collected. */
void check_packed_judge_base(struct check_session *s, unsigned int i);
void check_packed_judge_used(struct check_session *s, unsigned int i);

#endif
