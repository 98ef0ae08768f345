/* SPDX-License-Identifier: BSD-3-Clause */
/* The smallest user of the library, in what C and C++ have in common: it logs one write. */
#include <silt/silt.h>
#include <stdio.h>

int main(void)
{
	struct silt_log_writer writer;
	struct silt_log *log;
	uint64_t pages = 0;

	if (silt_access_install() < 0 || silt_log_hold(64, &log) < 0) {
		fprintf(stderr, "%s\n", silt_errmsg());
		return 1;
	}
	silt_log_writer_init(&writer);
	silt_log_writer_set(&writer, log);
	silt_log_write(&writer, 0x3000, 8192);
	silt_log_flush(&writer);
	if (silt_log_harvest(log, &pages) != 2 || pages != (UINT64_C(3) << 3))
		return 1;
	silt_log_writer_set(&writer, NULL);
	silt_log_put(log);
	puts(silt_version());
	return 0;
}
