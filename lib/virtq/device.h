/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_DEVICE_H
#define SILT_VIRTQ_DEVICE_H

#include "virtq/queue.h"

/*
 * What a packed ring does in its own way. device.c has the rest, and the split ring's way, which is
 * the usual one and costs no call.
 */

/* Begin at @base, as SET_VRING_BASE has it. Return: 0, -EINVAL or -EFAULT. */
int silt_packed_start(struct silt_virtq *vq, uint32_t base);

/* Return: the offset of the next descriptor if it is available, -EAGAIN if not, -EFAULT. */
int silt_packed_next(const struct silt_virtq *vq);

/* @slot has the buffer at the next descriptor: may the driver offer it? Return: 0 or -EPROTO. */
int silt_packed_check(const struct silt_virtq *vq, const struct silt_virtq_slot *slot);
void silt_packed_taken(struct silt_virtq *vq, struct silt_virtq_slot *slot);

/* Store the used descriptors of what is staged, the first one last. */
bool silt_packed_store(struct silt_virtq *vq);
void silt_packed_mark(struct silt_virtq *vq);

/* Where the next used descriptor goes once what is staged is published. */
uint16_t silt_packed_used_after(const struct silt_virtq *vq);

/* Does the driver want to be told of what went from the place @old to where the next goes? */
bool silt_packed_call_wanted(const struct silt_virtq *vq, uint16_t old);

/* Say that a kick is wanted; if not, only where a place cannot say it. */
bool silt_packed_ask_kick(struct silt_virtq *vq, bool wanted);

#endif
