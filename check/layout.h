/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_LAYOUT_H
#define CHECK_LAYOUT_H

#include "check/device.h"

/*
 * Take memory for a request whose parts have their lengths and directions, where the scenario wants
 * it; note what lies where, and describe it in segments, in the shape that the scenario wants.
 * Return: 0, -ENOSPC if guest memory is full, -ENOMEM.
 */
int check_layout(struct check_builder *b, struct check_request *r);

/*
 * Descriptors that a request takes at most in the scenario's shape and position, if it has data and
 * @others parts besides, of header and status.
 */
unsigned int check_layout_descs(const struct check_scenario *s, unsigned int others);

/* Copy a buffer to the data of a request, or its data to a buffer; r->len bytes. */
void check_layout_store(const struct check_guest *g, const struct check_request *r,
			const void *buf);
void check_layout_load(const struct check_guest *g, const struct check_request *r, void *buf);

#endif
