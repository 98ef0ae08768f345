/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_TARGET_H
#define CHECK_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "check/check.h"
#include "check/output.h"
#include "check/transport.h"

#define TARGET_IMAGE_SIZE (UINT64_C(16) << 20)
#define TARGET_DEATH_LEN  1200

/* The backend under check, and how it is reached. */
struct check_target {
	const struct check_options *opt;
	char socket_path[108]; /* where we connect, or listen */
	char image_path[108];
	char dir[108 - sizeof("socket")]; /* of both; "" if there is none */
	int image;			  /* the disk image, or -1 */
	int listening;			  /* where backends connect to us, or -1 */
	int watch;			  /* inotify on the directory, or -1 */
	struct check_output *output;	  /* what the backend printed, or NULL */
	pid_t pid;			  /* of a backend that we started, 0 if none runs */
	int pidfd;
	int status; /* as waitpid() gave it, once it ended */
	bool ended;
	bool served;		      /* it had a connection before */
	struct check_transport *kept; /* the only connection there is */
	bool gone;		      /* it cannot be reached again */
};

/*
 * Make ready: the directory, the image with random contents, the listening socket. Nothing is
 * started yet. Return: 0 or -errno. Owns: close with check_target_close(), also after a failure.
 */
int check_target_open(struct check_target *t, const struct check_options *opt);

/* End what was started, whatever state it is in, and remove what was made. */
void check_target_close(struct check_target *t);

/*
 * A connection to the backend, which is started if it has to be.
 * Return: 0 or -errno. Blocks: up to the timeout.
 */
int check_target_connect(struct check_target *t, struct check_transport **out);

/* The scenario ended. After an error the next one gets a fresh backend where that is possible. */
void check_target_release(struct check_target *t, struct check_transport *transport, bool broken);

/* Can it be connected to once more? */
bool check_target_reconnects(const struct check_target *t);

/* False if we started it and it has ended. */
bool check_target_alive(struct check_target *t);

/* Did we start it? Does its disk hold nothing but our image? */
bool check_target_started(const struct check_target *t);
bool check_target_has_image(const struct check_target *t);

/* Readable when the backend ended; -1 if we did not start it. */
int check_target_pidfd(const struct check_target *t);

/*
 * If a backend that we started has ended, or ends now that it closed its connection, how: "died of
 * signal 11 (Segmentation fault); its last lines: ...". Return: whether it has.
 */
bool check_target_death(struct check_target *t, char text[TARGET_DEATH_LEN]);

/*
 * After a failed connection: has the backend only ended, without a signal, because the connection
 * before was closed? It may listen until then, and the next connection gets no answer.
 */
bool check_target_over(struct check_target *t);

/* How it is reached, for people. */
void check_target_describe(const struct check_target *t, char *buf, size_t len);

/* The command line that runs one scenario again. */
void check_target_repro(const struct check_target *t, const char *name, char *buf, size_t len);

#endif
