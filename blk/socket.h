/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_SOCKET_H
#define BLK_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>

/* The socket that is served. */
struct blk_socket {
	int fd;
	bool listening;
	const char *path; /* its file, which goes at the end; NULL if it is not ours */
	dev_t dev;	  /* which file that is: another may have taken its place */
	ino_t ino;
};

/*
 * Listen at @path, which must stay valid. A socket file on which nobody listens is replaced;
 * anything else in the way is an error.
 *
 * Return: 0, -EADDRINUSE somebody listens there, -EEXIST another kind of file, -errno.
 */
int blk_socket_listen(struct blk_socket *s, const char *path);

/*
 * Take a socket that was passed in, listening or connected. It is closed on success only.
 *
 * Return: 0, -EBADF, -ENOTSOCK, -EINVAL it is no Unix stream socket, or neither listens nor is
 * connected.
 */
int blk_socket_adopt(struct blk_socket *s, int fd);

/* The fd becomes the caller's. */
int blk_socket_take(struct blk_socket *s);

/* Remove its file, unless another has taken its place. */
void blk_socket_remove(const struct blk_socket *s);

void blk_socket_close(struct blk_socket *s);

#endif
