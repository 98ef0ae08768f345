/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_CHANNEL_H
#define SILT_PRECOPY_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "precopy/wire.h"

/*
 * Frames over a channel that any thread may cancel. Once something failed the channel is of no use;
 * only a REFUSE may still be tried.
 */
struct precopy_channel {
	struct silt_channel is;
	uint64_t timeout_ns; /* without progress; 0: none. Of a socket only */
	int wake;	     /* an eventfd that is readable once it is cancelled */
	int cancelled;	     /* atomic */
	uint64_t sent;	     /* frames */
	uint64_t received;
	uint64_t bytes_sent;
	uint32_t ahead; /* bytes that are likely to follow what is read next without a pause */
	bool broken;	/* no frame could follow what was written */
};

/* @is: NULL for one that has no peer, and can only be cancelled. Return: 0; -EINVAL, -errno. */
int precopy_channel_open(struct precopy_channel *c, const struct silt_channel *is,
			 uint64_t timeout_ns);
void precopy_channel_close(struct precopy_channel *c);

/* Any thread, signal handlers too. From then on all calls but those that insist fail. */
void precopy_channel_cancel(struct precopy_channel *c);
bool precopy_channel_cancelled(const struct precopy_channel *c);

enum precopy_insist {
	PRECOPY_MAY_CANCEL,
	PRECOPY_INSIST, /* goes on though it was cancelled */
};

/*
 * Write all of one sealed frame: @header and @payload, whose length the header has.
 *
 * Return: 0; -ECANCELED, -ETIMEDOUT, -ECONNRESET the peer is gone, -errno. Then *@taken says how
 * many bytes of it may reach the peer: it never has the whole frame if they are not all.
 */
int precopy_channel_write(struct precopy_channel *c, const struct wire_header *header,
			  const void *payload, enum precopy_insist insist, uint64_t *taken);

/* Seal and write a frame. */
int precopy_channel_send(struct precopy_channel *c, enum wire_type type, const void *payload,
			 uint32_t length, enum precopy_insist insist);

/* A REFUSE with the negative errno @error and @why; nothing is done about it if that fails. */
void precopy_channel_refuse(struct precopy_channel *c, int error, const char *why);

/*
 * Read the next frame's header, checked, and then its payload, checked too, into @payload, which
 * has room for precopy_wire_max() of its type.
 *
 * Return: 0; -ECANCELED, -ETIMEDOUT, -ECONNRESET the stream ended, -EPROTO, -EBADMSG, -errno.
 */
int precopy_channel_read_header(struct precopy_channel *c, struct wire_header *header,
				enum precopy_insist insist);
int precopy_channel_read_payload(struct precopy_channel *c, const struct wire_header *header,
				 void *payload, enum precopy_insist insist);

#endif
