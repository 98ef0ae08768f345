/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_FAULT_H
#define SILT_VIRTQ_FAULT_H

#include "base/mutant.h"
#include "virtq/queue.h"

/*
 * What a device that is broken on purpose marks in place of a range: the hooks are empty in every
 * build but a mutants' one (see base/mutant.h). A length of 0 marks nothing.
 */
#ifdef SILT_MUTANTS
void silt_fault_data(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
		     unsigned int seg, uint64_t *gpa, uint64_t *len);
void silt_fault_used(const struct silt_virtq *vq, uint64_t *off, uint64_t *len);
void silt_fault_descs(const struct silt_virtq *vq, uint64_t *off, uint64_t *len);

/* Time in which somebody may look at what is not complete. */
void silt_fault_linger(void);

/* The flags of a used descriptor, before its ID and length. */
void silt_fault_flags_first(const struct silt_virtq *vq, uint16_t place, uint16_t flags);

/* Deaths: while nothing of a batch is stored, and when all of it is and nothing is marked. */
void silt_fault_before_publish(const struct silt_virtq *vq);
void silt_fault_after_publish(const struct silt_virtq *vq);
#else
static inline void silt_fault_data(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
				   unsigned int seg, uint64_t *gpa, uint64_t *len)
{
	(void)vq, (void)elem, (void)seg, (void)gpa, (void)len;
}

static inline void silt_fault_used(const struct silt_virtq *vq, uint64_t *off, uint64_t *len)
{
	(void)vq, (void)off, (void)len;
}

static inline void silt_fault_descs(const struct silt_virtq *vq, uint64_t *off, uint64_t *len)
{
	(void)vq, (void)off, (void)len;
}

static inline void silt_fault_linger(void)
{
}

static inline void silt_fault_flags_first(const struct silt_virtq *vq, uint16_t place,
					  uint16_t flags)
{
	(void)vq, (void)place, (void)flags;
}

static inline void silt_fault_before_publish(const struct silt_virtq *vq)
{
	(void)vq;
}

static inline void silt_fault_after_publish(const struct silt_virtq *vq)
{
	(void)vq;
}
#endif

#endif
