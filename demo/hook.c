/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "demo/hook.h"

/* Each once. */
static bool is_at(const char *variable, const char *point)
{
	const char *wish = getenv(variable);

	if (!wish || strcmp(wish, point) != 0)
		return false;
	unsetenv(variable);
	return true;
}

void demo_point(const char *point, int fd)
{
	if (is_at("SILT_DEMO_KILL", point))
		raise(SIGKILL);
	if (is_at("SILT_DEMO_CUT", point))
		shutdown(fd, SHUT_RDWR);
	if (is_at("SILT_DEMO_CANCEL", point))
		raise(SIGINT);
}

void demo_no_more_points(void)
{
	unsetenv("SILT_DEMO_KILL");
	unsetenv("SILT_DEMO_CUT");
	unsetenv("SILT_DEMO_CANCEL");
}
