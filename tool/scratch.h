/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TOOL_SCRATCH_H
#define TOOL_SCRATCH_H

/*
 * A directory of the command's own for temporary files, its own and those of the programs it
 * starts: TMPDIR names it from here on. It is made in @where, or in TMPDIR if that is NULL. It is
 * removed by scratch_remove(), and also if a signal ends the command. Then @others, unless it is
 * NULL, is called with SIGSTOP and at last with SIGKILL, to pass them on to what the command
 * started. No thread that uses the environment may run yet.
 *
 * Return: 0, or -errno with a message in silt_errmsg().
 */
int scratch_make(const char *where, void (*others)(int sig));

/* Remove it with all that is in it; TMPDIR is what it was. */
void scratch_remove(void);

#endif
