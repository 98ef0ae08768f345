/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapping a log: every mistake is an error that leaves nothing behind. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>
#include <silt/log.h>

#include "logfile.h"
#include "support/proc.h"

#define SIZE 10000

static int try_map(int fd, uint64_t size, uint64_t offset)
{
	unsigned int maps = proc_count_maps(LOGFILE_NAME), fds = proc_count_fds();
	struct silt_log *log = NULL;
	int ret = silt_log_map(fd, size, offset, &log);

	if (ret < 0) {
		assert_null(log);
		assert_non_null(strstr(silt_errmsg(), "dirty log"));
	}
	silt_log_put(log);
	assert_int_equal(proc_count_maps(LOGFILE_NAME), maps);
	assert_int_equal(proc_count_fds(), fds);
	return ret;
}

static void sizes_and_offsets(void **state)
{
	static const uint64_t big[] = {UINT64_MAX,	   UINT64_MAX - SIZE, UINT64_MAX / 2,
				       UINT64_MAX / 2 + 1, INT64_MAX,	      INT64_MAX - 1};
	int fd = proc_memfd(LOGFILE_NAME, SIZE);
	unsigned int i;

	(void)state;
	assert_int_equal(try_map(fd, SIZE, 0), 0);
	assert_int_equal(try_map(fd, 1, SIZE - 1), 0);
	assert_int_equal(try_map(fd, SIZE - 4097, 4097), 0);
	assert_int_equal(try_map(fd, 0, 0), -EINVAL);
	assert_int_equal(try_map(fd, 0, SIZE), -EINVAL);
	assert_int_equal(try_map(fd, 1, SIZE), -EINVAL);
	assert_int_equal(try_map(fd, SIZE + 1, 0), -EINVAL);
	assert_int_equal(try_map(fd, SIZE, 1), -EINVAL);
	for (i = 0; i < sizeof(big) / sizeof(big[0]); i++) {
		assert_int_equal(try_map(fd, big[i], 0), -EINVAL);
		assert_int_equal(try_map(fd, 1, big[i]), -EINVAL);
		assert_int_equal(try_map(fd, big[i], big[i]), -EINVAL);
		assert_int_equal(try_map(fd, SIZE, big[i]), -EINVAL);
		assert_int_equal(try_map(fd, big[i], SIZE - 1), -EINVAL);
	}
	close(fd);
}

/* A file may be larger than any address space. */
static void larger_than_memory(void **state)
{
	int fd = proc_memfd(LOGFILE_NAME, 0);

	(void)state;
	if (!ftruncate(fd, INT64_MAX)) {
		assert_true(try_map(fd, INT64_MAX, 0) < 0);
		assert_int_equal(try_map(fd, 4096, INT64_MAX - 8192), 0);
	}
	close(fd);
}

static void wrong_files(void **state)
{
	int fd = proc_memfd(LOGFILE_NAME, SIZE), pipes[2], rdonly, wronly;
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rdonly = open(path, O_RDONLY);
	wronly = open(path, O_WRONLY);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(try_map(rdonly, SIZE, 0), -EACCES);
	assert_int_equal(try_map(wronly, SIZE, 0), -EACCES);
	assert_int_equal(try_map(pipes[1], SIZE, 0), -ENODEV);
	assert_int_equal(try_map(-1, SIZE, 0), -EBADF);
	assert_int_equal(try_map(1 << 20, SIZE, 0), -EBADF);
	close(pipes[0]);
	close(pipes[1]);
	close(rdonly);
	close(wronly);
	close(fd);
}

static void sealed(void **state)
{
	static const struct {
		int seals, want;
	} cases[] = {
		{F_SEAL_SHRINK, 0},
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0},
		{F_SEAL_WRITE, -EPERM},
		{0x0010 /* F_SEAL_FUTURE_WRITE */, -EPERM},
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = proc_memfd(LOGFILE_NAME, SIZE);

		if (!fcntl(fd, F_ADD_SEALS, cases[i].seals))
			assert_int_equal(try_map(fd, SIZE, 0), cases[i].want);
		close(fd);
	}
}

static void references(void **state)
{
	int fd = proc_memfd(LOGFILE_NAME, SIZE);
	struct silt_log_writer w;
	struct silt_log *log;

	(void)state;
	assert_int_equal(silt_log_map(fd, SIZE, 0, &log), 0);
	close(fd);
	assert_false(silt_log_held(log));
	assert_ptr_equal(silt_log_get(log), log);
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, log);
	silt_log_put(log);
	silt_log_put(log);
	assert_int_equal(proc_count_maps(LOGFILE_NAME), 1);
	/* The same log again, and none. */
	silt_log_writer_set(&w, log);
	assert_int_equal(proc_count_maps(LOGFILE_NAME), 1);
	silt_log_writer_set(&w, NULL);
	assert_int_equal(proc_count_maps(LOGFILE_NAME), 0);
	silt_log_put(NULL);
}

static void held_sizes(void **state)
{
	struct silt_log *log = NULL;

	(void)state;
	assert_int_equal(silt_log_hold(0, &log), -EINVAL);
	assert_int_equal(silt_log_hold((UINT64_C(1) << 46) + 1, &log), -EINVAL);
	assert_int_equal(silt_log_hold(UINT64_MAX, &log), -EINVAL);
	assert_null(log);
	assert_int_equal(silt_log_hold(1, &log), 0);
	assert_int_equal(silt_log_pages(log), 1);
	assert_true(silt_log_held(log));
	silt_log_put(log);
}

static void trouble_stays(void **state)
{
	struct silt_log *log;

	(void)state;
	assert_int_equal(silt_log_hold(100, &log), 0);
	assert_int_equal(silt_log_trouble(log), 0);
	silt_log_set_trouble(log, SILT_LOG_OUTSIDE);
	silt_log_set_trouble(log, SILT_LOG_FAULTED);
	silt_log_set_trouble(log, 0);
	assert_int_equal(silt_log_trouble(log), SILT_LOG_OUTSIDE | SILT_LOG_FAULTED);
	silt_log_put(log);
}

/* As a frontend that sends one log after another, good ones and bad ones (1,000 of them). */
static void many_in_a_row(void **state)
{
	unsigned int maps, fds, i;
	struct silt_log_writer w;

	(void)state;
	silt_log_writer_init(&w);
	maps = proc_count_maps(LOGFILE_NAME);
	fds = proc_count_fds();
	for (i = 0; i < 1000; i++) {
		int fd = proc_memfd(LOGFILE_NAME, 4096 + i);
		struct silt_log *log = NULL;
		int ret = silt_log_map(fd, 4096, i % 3 ? i : i + 1, &log);

		close(fd);
		assert_int_equal(ret, i % 3 ? 0 : -EINVAL);
		if (!ret) {
			silt_log_writer_set(&w, log);
			silt_log_put(log);
		}
		silt_log_write(&w, i * 4096, 8192);
	}
	silt_log_writer_set(&w, NULL);
	assert_int_equal(proc_count_maps(LOGFILE_NAME), maps);
	assert_int_equal(proc_count_fds(), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_offsets), cmocka_unit_test(larger_than_memory),
		cmocka_unit_test(wrong_files),	     cmocka_unit_test(sealed),
		cmocka_unit_test(references),	     cmocka_unit_test(held_sizes),
		cmocka_unit_test(trouble_stays),     cmocka_unit_test(many_in_a_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
