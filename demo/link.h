/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_LINK_H
#define DEMO_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "demo/machine.h"

/*
 * What the two processes say to each other besides the migration itself, on the same connection:
 *
 *     source                              destination
 *     hello: this is the guest   ------>  makes an empty one
 *                                <------  answer
 *     ... the migration: silt/precopy.h ...
 *                                <------  outcome: its memory, as it arrived and later
 *     verdict                    ------>
 *
 * and on another one, where that was lost before the source knew who has the guest:
 *
 *     hello: who has it?         ------>
 *                                <------  answer, and, if it has the guest, the outcome
 *     verdict                    ------>
 *
 * Return: 0, or -errno with a message. Nothing that comes is trusted.
 */

#define LINK_VERSION 1

enum link_purpose {
	LINK_MIGRATE = 1,
	LINK_ASK,
};

struct link_hello {
	char magic[8];
	uint32_t version;
	uint32_t purpose;
	uint64_t guest; /* a number that no other guest has */
	uint64_t memory;
	uint64_t seed;
	uint64_t disk_rate;
	uint32_t vcpus;
	uint32_t kvm;
	uint32_t after_ms;
	uint32_t unused;
};

struct link_answer {
	uint32_t error; /* an errno, or 0 */
	uint32_t has_guest;
	char text[248];
};

struct link_outcome {
	uint32_t error;
	uint32_t unused;
	struct ram_hash hash; /* of memory as it arrived */
	uint64_t hash_ns;     /* what that took, inside the downtime */
	int64_t wrong;	      /* pages that are not what the guest counted, at arrival, */
	int64_t wrong_later;  /* and after it ran on */
	struct machine_counts counts, counts_later;
	char text[248];
};

struct link_verdict {
	uint32_t equal;
	uint32_t unused;
	struct ram_hash hash;
};

/** link_check() - is it "HOST:PORT", "[HOST]:PORT" or ":PORT"? Return: also -EINVAL. */
int link_check(const char *where);

/** link_listen() - at "HOST:PORT" or ":PORT", also with port 0. Return: the socket. */
int link_listen(const char *where);

/** link_port() - that a listening socket has */
int link_port(int fd);

/**
 * link_connect() - to "HOST:PORT"
 * @timeout_ms: for each of its addresses, at least 1
 *
 * Return: the socket; -ECONNREFUSED nobody listens there; -ETIMEDOUT.
 */
int link_connect(const char *where, int timeout_ms);

/** link_accept() - wait for the next one. @timeout_ms: -1 for ever. Return: also -ETIMEDOUT. */
int link_accept(int fd, int timeout_ms);

/** link_write(), link_read() - all of it. Return: also -ECONNRESET, -ETIMEDOUT. */
int link_write(int fd, const void *buf, size_t n);
int link_read(int fd, void *buf, size_t n, int timeout_ms);

/** link_clean() - text of the other side's, in @n bytes: it ends, and harms no terminal */
void link_clean(char *text, size_t n);

/** link_greet() - send the hello, and read the answer, of which error is returned */
int link_greet(int fd, struct link_hello *hello, struct link_answer *answer, int timeout_ms);

/** link_read_hello() - what a source begins with, within bounds */
int link_read_hello(int fd, struct link_hello *hello, int timeout_ms);

#endif
