/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_REMOVER_H
#define BLK_REMOVER_H

#include "blk/socket.h"

/*
 * Removes the socket's file at the end, for a process that may not do so any more.
 *
 * A system call filter does not see which path is unlinked: to allow it would be to let a process
 * that was taken over remove whatever its user can. So a second process, which is started before
 * the sandbox is entered, waits for one byte on a pipe, removes that one file, and ends. It never
 * sees anything that comes from a peer. If this process dies it ends, too, and leaves the file,
 * which may be a successor's by then.
 */
struct blk_remover {
	int fd; /* -1: none */
};

/* Return: 0, or -errno. Nothing is started for a socket without a file. */
int blk_remover_start(struct blk_remover *r, const struct blk_socket *s);

/* Have the file removed. Blocks until that is done. */
void blk_remover_finish(struct blk_remover *r);

#endif
