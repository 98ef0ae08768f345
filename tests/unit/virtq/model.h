/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_VIRTQ_MODEL_H
#define TESTS_VIRTQ_MODEL_H

#include "guest.h"

/*
 * What guest memory and the log must hold, byte by byte and page by page: a copy of memory into
 * which every store of either end is repeated by hand, and a set of pages that grows with each byte
 * that the device stores. It knows rings only as bytes at guest addresses.
 */
struct model {
	const struct guest *g;
	const struct guest_ring *ring;
	bool event_idx;
	uint8_t *low, *high;
	uint8_t *marked; /* one byte for each byte of the log */

	bool log_data, log_used;
	uint64_t used_gpa; /* of a packed ring, where its device area is logged */
	uint64_t desc_gpa; /* and its descriptor ring */
};

void model_open(struct model *m, const struct guest *g, const struct guest_ring *ring,
		bool event_idx);
void model_close(struct model *m);

/* Stores by the driver. */
void model_store(struct model *m, uint64_t gpa, const void *buf, uint64_t len);
void model_store16(struct model *m, uint64_t gpa, uint16_t val);

/*
 * Stores by the device: to a buffer, and to byte @off of the used ring, or of a packed ring's
 * device area or descriptor ring.
 */
void model_device_data(struct model *m, uint64_t gpa, uint8_t byte);
void model_device_used(struct model *m, uint64_t off, const void *buf, uint64_t len);
void model_device_desc(struct model *m, uint64_t off, const void *buf, uint64_t len);

/* A page that the device was told of as stored. */
void model_mark_data(struct model *m, uint64_t gpa);

uint8_t model_load8(const struct model *m, uint64_t gpa);
uint16_t model_load16(const struct model *m, uint64_t gpa);

/* Would the index meet @event on its way from @old to @new, one step at a time? */
bool model_event_met(uint16_t event, uint16_t old, uint16_t new);

/* Compare memory; compare the log: exactly, or (marks pending) as a subset. */
void model_check_memory(const struct model *m);
void model_check_log(const struct model *m, const uint8_t *log, bool exact);

#endif
