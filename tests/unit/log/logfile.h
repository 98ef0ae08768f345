/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_LOG_LOGFILE_H
#define TESTS_LOG_LOGFILE_H

#include <stdint.h>

#include <silt/log.h>

#define LOGFILE_NAME "silt-test-log"

/* A log inside a file whose other bytes hold a pattern that nobody may touch. */
struct logfile {
	int fd;
	uint64_t file_size;
	uint64_t offset;
	uint64_t size;
	uint8_t *view; /* the whole file, through a mapping of the test's own */
	struct silt_log *log;
};

struct logfile logfile_make(uint64_t before, uint64_t size, uint64_t after);
void logfile_free(struct logfile *f);

/* Fails the test if a byte outside the log has changed. */
void logfile_check_canary(const struct logfile *f);

static inline bool logfile_test(const struct logfile *f, uint64_t page)
{
	return f->view[f->offset + page / 8] >> page % 8 & 1;
}

#endif
