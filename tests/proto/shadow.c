/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "shadow.h"
#include "support/proc.h"

#define TAIL 4096

void shadow_log_make(struct shadow_log *log, uint64_t size, uint64_t offset)
{
	*log = (struct shadow_log){.size = size, .offset = offset};
	log->fd = proc_memfd("silt-test-log", offset + size + TAIL);
	log->file =
		mmap(NULL, offset + size + TAIL, PROT_READ | PROT_WRITE, MAP_SHARED, log->fd, 0);
	assert_ptr_not_equal(log->file, MAP_FAILED);
}

void shadow_log_free(struct shadow_log *log)
{
	munmap(log->file, log->offset + log->size + TAIL);
	close(log->fd);
}

bool shadow_log_test(const struct shadow_log *log, uint64_t page)
{
	return page / 8 < log->size && log->file[log->offset + page / 8] >> page % 8 & 1;
}

void shadow_take(struct shadow *s, const struct rig *rig)
{
	for (unsigned int i = 0; i < RIG_REGIONS; i++) {
		s->copy[i] = malloc(rig->regions[i].r.size);
		assert_non_null(s->copy[i]);
		memcpy(s->copy[i], rig->regions[i].hva, rig->regions[i].r.size);
	}
}

void shadow_free(struct shadow *s)
{
	for (unsigned int i = 0; i < RIG_REGIONS; i++)
		free(s->copy[i]);
}

static bool changed(const struct shadow *s, const struct rig *rig, uint64_t gpa, uint64_t len)
{
	for (unsigned int i = 0; i < RIG_REGIONS; i++) {
		uint64_t at = gpa - rig->regions[i].r.gpa;

		if (gpa >= rig->regions[i].r.gpa && at < rig->regions[i].r.size)
			return memcmp(s->copy[i] + at, rig->regions[i].hva + at, len) != 0;
	}
	return false;
}

static bool is_data(const struct rig *rig, uint64_t gpa)
{
	for (unsigned int i = 0; i < RIG_REGIONS; i++) {
		if (silt_range_within(gpa, 1, rig->regions[i].r.gpa, rig->regions[i].r.size))
			return gpa >= SHADOW_DATA;
	}
	return false;
}

static bool marked(const struct shadow_log *logs, unsigned int nlogs, uint64_t page)
{
	for (unsigned int i = 0; i < nlogs; i++) {
		if (shadow_log_test(&logs[i], page))
			return true;
	}
	return false;
}

enum want {
	NO,
	MAYBE,
	YES
};

/* What one used ring wants of a page of the log. */
static enum want ring_wants(const struct shadow *s, const struct rig *rig, unsigned int q,
			    uint64_t log_gpa, uint64_t page)
{
	enum want want = NO;

	if (page < log_gpa / SILT_LOG_PAGE_SIZE || page > log_gpa / SILT_LOG_PAGE_SIZE + 1)
		return NO;
	for (uint64_t off = 0; off < silt_virtq_used_size(RIG_NUM); off++) {
		if ((log_gpa + off) / SILT_LOG_PAGE_SIZE != page)
			continue;
		if (changed(s, rig, rig_used_gpa(q) + off, 1))
			return YES;
		want = MAYBE; /* the same bytes may have been stored again */
	}
	return want;
}

static enum want wanted(const struct shadow *s, const struct rig *rig, bool data,
			const struct shadow_ring *rings, uint64_t page)
{
	uint64_t gpa = page * SILT_LOG_PAGE_SIZE;
	enum want want = NO, ring;

	if (data && is_data(rig, gpa) && changed(s, rig, gpa, SILT_LOG_PAGE_SIZE))
		return YES;
	for (unsigned int q = 0; q < RIG_QUEUES; q++) {
		ring = rings[q].logged ? ring_wants(s, rig, q, rings[q].log_gpa, page) : NO;
		want = ring > want ? ring : want;
	}
	return want;
}

static void check_around(const struct shadow_log *log)
{
	for (uint64_t i = 0; i < log->offset; i++)
		assert_int_equal(log->file[i], 0);
	for (uint64_t i = log->offset + log->size; i < log->offset + log->size + TAIL; i++)
		assert_int_equal(log->file[i], 0);
}

void shadow_check(const struct shadow *s, const struct rig *rig, const struct shadow_log *logs,
		  unsigned int nlogs, bool data, const struct shadow_ring *rings)
{
	for (uint64_t page = 0; page < SHADOW_PAGES; page++) {
		enum want want = wanted(s, rig, data, rings, page);
		bool is = marked(logs, nlogs, page);

		if ((want == YES && !is) || (want == NO && is))
			fail_msg("page 0x%llx is %smarked", (unsigned long long)page,
				 is ? "" : "not ");
	}
	for (unsigned int i = 0; i < nlogs; i++)
		check_around(&logs[i]);
}
