/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/err.h"
#include "fake_engine.h"

struct fake_engine fake;

int check_run(const struct check_options *opt, const struct check_reporter *reporter,
	      struct check_totals *totals)
{
	static const struct check_backend_info info = {
		.target = "a backend of the test's",
		.device = "block",
		.features = UINT64_C(1) << 63 | 1,
		.protocol_features = 0x203,
		.queues = 2,
		.capacity = 64 << 20,
	};

	fake.runs++;
	fake.asked = *opt;
	if (fake.error)
		return silt_err(-fake.error, "no backend at %s", opt->path);
	reporter->start(reporter->arg, opt, &info, fake.count);
	for (unsigned int i = 0; i < fake.count; i++) {
		reporter->running(reporter->arg, fake.outcomes[i].name, i, fake.count);
		reporter->outcome(reporter->arg, &fake.outcomes[i]);
	}
	totals->seconds = 1.5;
	return 0;
}

bool check_device_known(const char *name)
{
	return !strcmp(name, "block") || !strcmp(name, "net") || !strcmp(name, "fs") ||
	       !strcmp(name, "vsock");
}

int check_list(const struct check_options *opt, FILE *out)
{
	fprintf(out, "list of %s\n", opt->only ? opt->only : "all");
	return 0;
}

void check_signal_backend(int sig)
{
	(void)sig;
}
