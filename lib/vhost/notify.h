/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VHOST_NOTIFY_H
#define SILT_VHOST_NOTIFY_H

#include <sys/types.h>

/* An event fd that the peer handed to us: an eventfd, or whatever it likes to send. */
struct silt_notifier {
	int fd; /* -1: none */
	mode_t type;
};

void silt_notifier_set(struct silt_notifier *n, int fd);

/* Signal an event. Never blocks for want of a reader, never raises SIGPIPE. */
void silt_notifier_signal(const struct silt_notifier *n);

#endif
