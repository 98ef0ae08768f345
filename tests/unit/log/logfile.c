/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "logfile.h"
#include "support/proc.h"

/* No byte of it is all ones or all zeroes: a stray OR and a stray exchange both show. */
static uint8_t canary(uint64_t i)
{
	return (uint8_t)(0x21 + i % 5 * 2);
}

struct logfile logfile_make(uint64_t before, uint64_t size, uint64_t after)
{
	struct logfile f = {.offset = before, .size = size, .file_size = before + size + after};
	uint64_t i;

	f.fd = proc_memfd(LOGFILE_NAME, f.file_size);
	f.view = mmap(NULL, f.file_size, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	assert_ptr_not_equal(f.view, MAP_FAILED);
	for (i = 0; i < f.file_size; i++)
		f.view[i] = i >= before && i < before + size ? 0 : canary(i);
	assert_int_equal(silt_log_map(f.fd, size, before, &f.log), 0);
	assert_int_equal(silt_log_pages(f.log), size * 8);
	return f;
}

void logfile_free(struct logfile *f)
{
	silt_log_put(f->log);
	munmap(f->view, f->file_size);
	close(f->fd);
}

void logfile_check_canary(const struct logfile *f)
{
	uint64_t i;

	for (i = 0; i < f->file_size; i++) {
		if (i == f->offset)
			i += f->size;
		if (i < f->file_size && f->view[i] != canary(i))
			fail_msg("byte %lu of the file changed, the log is %lu bytes at %lu", i,
				 f->size, f->offset);
	}
}
