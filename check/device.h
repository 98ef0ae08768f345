/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_DEVICE_H
#define CHECK_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/axes.h"
#include "check/guest.h"
#include "check/places.h"
#include "check/random.h"
#include "check/request.h"

/*
 * What the checker has to know of a kind of device. Everything else, which is rings, memory, logs,
 * the order of messages and the comparison, is the same for all of them. docs/check-device.md tells
 * how one is added.
 */

#define CHECK_WRONG_LEN 256

struct check_applies;
struct check_hit;
struct check_scenario_env;
struct check_session;

/* Builds the requests of one scenario. */
struct check_builder {
	const struct check_scenario *scenario;
	void *state; /* the device's own */
	struct check_guest *guest;
	struct check_places *places;
	struct check_random random;
	unsigned int next_id;
	unsigned int max_segs; /* of the data of a request */
	bool large;	       /* requests that take a while */
	bool low_only;	       /* the high region is not there yet */
};

/* Scenarios that no run may be without. */
struct check_worth {
	const struct check_choice (*v)[CHECK_CHOICES];
	unsigned int n;
};

enum check_role {
	ROLE_REQUESTS, /* each buffer comes back */
	ROLE_FILLED,   /* a buffer comes back when the device has something for it */
};

struct check_device {
	const char *name;  /* in --device and in reports: "block" */
	uint64_t features; /* of this kind of device, that the checker always knows how to use */

	/* Those that only some scenarios have, or NULL. */
	uint64_t (*more_features)(const struct check_scenario *s);

	/* Its queues come in sets of so many, each with a role. The axis "queues" counts sets. */
	const enum check_role *roles;
	unsigned int nroles;

	/* Bit i: value i of an axis means something to the device; 0: all do. */
	uint16_t axis_values[AXES];
	const char *const *sizes; /* names of the axis "size", or NULL for the usual ones */

	/* The values of the axis "request". */
	const char *const *requests;
	unsigned int nrequests;
	unsigned int nharmless; /* the first so many change nothing that the backend keeps */
	uint16_t family_requests[FAMILIES]; /* bit i: request i is in the family; 0: it has none */
	struct check_worth worth[FAMILIES]; /* besides those that are for every device */

	/* Bytes of what it knows of a backend, and of its requests. Both are zero at first. */
	size_t state_size;
	size_t request_size;

	/*
	 * Learn what is needed of a backend that is connected, where a->features and a->queues are
	 * what it offers. One that the checker cannot work on leaves a sentence in a->unfit.
	 * Return: 0, or -errno with a sentence in s->error.
	 */
	int (*probe)(const struct check_scenario_env *env, struct check_session *s,
		     struct check_applies *a);

	/* Free what @state holds. */
	void (*close)(void *state);

	/* For the report. */
	void (*describe)(const void *state, struct check_backend_info *info);

	/* Why the scenario cannot be run on this backend, or NULL. */
	const char *(*lacks)(const struct check_applies *a, const struct check_scenario *s);

	/* Does the request go together with the values of the other axes? */
	bool (*valid)(const struct check_scenario *s);

	/*
	 * Descriptors of the ring that one request takes at most, with all others of its queue that
	 * belong together with it.
	 */
	unsigned int (*descs)(const struct check_scenario *s);

	/*
	 * How many requests @queue is to have, of those that belong together in the queues of a
	 * set. Asked in the order of queues. NULL: one.
	 */
	unsigned int (*share)(struct check_builder *b, unsigned int queue);

	/* A scenario begins, with these features. */
	void (*begin)(struct check_builder *b, uint64_t features);

	/*
	 * Requests that a connection begins with, one after the other: build the one of @step,
	 * after a look at the answer to the one @before, which is NULL at first. NULL: there are
	 * none. Return: 1 if @r is to be sent, 0 if that was all, -errno.
	 */
	int (*open)(struct check_builder *b, unsigned int step, const struct check_request *before,
		    struct check_request *r);

	/*
	 * Build the scenario's next request for @queue: choose what it asks for, place and poison
	 * its buffers. Return: 0, -ENOSPC if guest memory is full, -ENOMEM, -errno.
	 */
	int (*build)(struct check_builder *b, unsigned int queue, struct check_request *r);

	/*
	 * The same for one that will be renewed. @i counts those of its queue; @size is a value of
	 * the axis "size".
	 */
	int (*build_lasting)(struct check_builder *b, unsigned int queue, unsigned int i,
			     unsigned int size, struct check_request *r);

	/*
	 * It came back: ask for something else with the same buffers, which stay as the device left
	 * them. What the device reads may be written, with check_guest_store().
	 */
	void (*renew)(struct check_builder *b, struct check_request *r);

	/* Is the answer to a finished request right? If not, @why says what is wrong. */
	bool (*verify)(const void *state, const struct check_guest *guest,
		       const struct check_request *r, char why[CHECK_WRONG_LEN]);

	/* What a part of the request is called: "read data". Never for parts of rings. */
	const char *(*part_name)(const struct check_request *r, enum check_place_kind kind);

	/* What follows if @hit is missed, or NULL if it is what always follows. */
	const char *(*consequence)(const struct check_hit *hit);

	/* Make the device a little slower for a while, where that can be done. May be NULL. */
	void (*slow_down)(const void *state);
};

extern const struct check_device check_device_block, check_device_net, check_device_vsock,
	check_device_fs;

/* Do buffers of the queue come back only when the device has something for them? */
bool check_device_fills(const struct check_device *device, unsigned int queue);

/* How many requests the queue is to have in this round. */
unsigned int check_device_share(struct check_builder *b, unsigned int queue);

/* Return: NULL if there is none of this name. */
const struct check_device *check_device_find(const char *name);

/* Is the used length of a finished request one that its buffers have room for? */
bool check_device_verify_used_len(const struct check_request *r, char why[CHECK_WRONG_LEN]);

/* Leave in @why what is wrong with the answer. Return: false. */
bool check_device_wrong(char why[CHECK_WRONG_LEN], const struct check_request *r,
			const char *format, ...) __attribute__((format(printf, 3, 4), cold));

#endif
