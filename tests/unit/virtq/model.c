/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"

static uint8_t *at(const struct model *m, uint64_t gpa)
{
	return gpa >= GUEST_HIGH ? m->high + (gpa - GUEST_HIGH) : m->low + (gpa - GUEST_LOW);
}

void model_open(struct model *m, const struct guest *g, const struct guest_ring *ring,
		bool event_idx)
{
	*m = (struct model){
		.g = g,
		.ring = ring,
		.event_idx = event_idx,
		.low = malloc(GUEST_LOW_SIZE),
		.high = malloc(GUEST_HIGH_SIZE),
		.marked = calloc(1, GUEST_LOG_SIZE),
	};
	assert_non_null(m->low);
	assert_non_null(m->high);
	assert_non_null(m->marked);
	memcpy(m->low, g->low, GUEST_LOW_SIZE);
	memcpy(m->high, g->high, GUEST_HIGH_SIZE);
}

void model_close(struct model *m)
{
	free(m->low);
	free(m->high);
	free(m->marked);
}

void model_store(struct model *m, uint64_t gpa, const void *buf, uint64_t len)
{
	memcpy(at(m, gpa), buf, len);
}

void model_store16(struct model *m, uint64_t gpa, uint16_t val)
{
	model_store(m, gpa, &val, sizeof(val));
}

static void mark(struct model *m, uint64_t gpa)
{
	m->marked[gpa / 4096 / 8] |= 1 << (gpa / 4096 % 8);
}

void model_mark_data(struct model *m, uint64_t gpa)
{
	if (m->log_data)
		mark(m, gpa);
}

void model_device_data(struct model *m, uint64_t gpa, uint8_t byte)
{
	*at(m, gpa) = byte;
	model_mark_data(m, gpa);
}

void model_device_used(struct model *m, uint64_t off, const void *buf, uint64_t len)
{
	uint64_t i;

	model_store(m, m->ring->used + off, buf, len);
	for (i = 0; m->log_used && i < len; i++)
		mark(m, m->used_gpa + off + i);
}

void model_device_desc(struct model *m, uint64_t off, const void *buf, uint64_t len)
{
	uint64_t i;

	model_store(m, m->ring->desc + off, buf, len);
	for (i = 0; m->log_used && i < len; i++)
		mark(m, m->desc_gpa + off + i);
}

uint8_t model_load8(const struct model *m, uint64_t gpa)
{
	return *at(m, gpa);
}

uint16_t model_load16(const struct model *m, uint64_t gpa)
{
	return model_load8(m, gpa) | model_load8(m, gpa + 1) << 8;
}

bool model_event_met(uint16_t event, uint16_t old, uint16_t new)
{
	while (old != new)
		if (old++ == event)
			return true;
	return false;
}

static void check_bytes(const uint8_t *have, const uint8_t *want, uint64_t gpa, uint64_t len)
{
	uint64_t i;

	if (!memcmp(have, want, len))
		return;
	for (i = 0; have[i] == want[i]; i++)
		;
	fail_msg("byte at %#llx is %#x, not %#x", (unsigned long long)(gpa + i), have[i], want[i]);
}

void model_check_memory(const struct model *m)
{
	check_bytes(m->g->low, m->low, GUEST_LOW, GUEST_LOW_SIZE);
	check_bytes(m->g->high, m->high, GUEST_HIGH, GUEST_HIGH_SIZE);
}

void model_check_log(const struct model *m, const uint8_t *log, bool exact)
{
	uint64_t i;

	if (exact && !memcmp(log, m->marked, GUEST_LOG_SIZE))
		return;
	for (i = 0; i < GUEST_LOG_SIZE; i++) {
		uint8_t extra = log[i] & ~m->marked[i], missed = m->marked[i] & ~log[i];

		if (extra || (exact && missed))
			fail_msg("pages %#llx to %#llx: extra %#x, missed %#x",
				 (unsigned long long)i * 8, (unsigned long long)i * 8 + 7, extra,
				 missed);
	}
}
