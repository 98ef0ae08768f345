/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_SENDER_H
#define SILT_PRECOPY_SENDER_H

#include <stdint.h>

#include "precopy/precopy_internal.h"

/*
 * Our wire, from the source's side. Pages are copied into a frame, and what was copied is checked
 * for zeros, summed and written: the guest goes on writing to its own.
 *
 * Functions return 0 or -errno.
 */
struct precopy_sender;

/* NULL: no memory. */
struct precopy_sender *precopy_sender_create(struct silt_precopy *p);
void precopy_sender_destroy(struct precopy_sender *s);

/* HELLO, and its answer; what that took. */
int precopy_sender_hello(struct precopy_sender *s, uint64_t *rtt_ns);

/* Pages of a block, which is known by its index. */
int precopy_sender_pages(struct precopy_sender *s, size_t block, uint64_t first, uint64_t n);

/*
 * Pages that need not arrive. Between two of these, and before a flush, none is given by
 * precopy_sender_pages(), and none of them comes twice.
 */
int precopy_sender_skip(struct precopy_sender *s, size_t block, uint64_t first, uint64_t n);

/* Of @n pages, how many to give at once, so that a bandwidth cap can be held to between them. */
uint64_t precopy_sender_step(const struct precopy_sender *s, uint64_t n);

/* It ends early: pages that it was given, and that have not left, are put back. */
void precopy_sender_put_back(struct precopy_sender *s);

/* All that was given is sent, and the destination has it. *@rtt_ns falls if it said so sooner. */
int precopy_sender_flush(struct precopy_sender *s, const struct silt_precopy_round *round,
			 uint64_t *rtt_ns);

/* The device state, and LOAD behind it; then, that the destination has loaded it. */
int precopy_sender_state(struct precopy_sender *s, const void *state, size_t n);
int precopy_sender_await_loaded(struct precopy_sender *s);

/* START, and its answer. Return: enum silt_precopy_end; -errno the destination never starts. */
int precopy_sender_start(struct precopy_sender *s);

/* Nanoseconds spent writing frames and waiting for answers, and zero pages sent, of 4 KiB. */
uint64_t precopy_sender_write_ns(const struct precopy_sender *s);
uint64_t precopy_sender_zero_pages(const struct precopy_sender *s);

#endif
