/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_HOOK_H
#define DEMO_HOOK_H

/*
 * Deaths on purpose, in test builds only: SILT_DEMO_KILL=POINT in the environment ends the process
 * by SIGKILL when it comes to that point first, SILT_DEMO_CUT=POINT shuts its connection, and
 * SILT_DEMO_CANCEL=POINT sends it SIGINT. @fd: the connection.
 */
#ifdef SILT_MUTANTS
void demo_point(const char *point, int fd);
/* No more of them, in this process and in those that it starts. */
void demo_no_more_points(void);
#else
#define demo_point(point, fd) ((void)(fd))
#define demo_no_more_points() ((void)0)
#endif

#endif
