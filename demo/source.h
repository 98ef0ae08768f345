/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_SOURCE_H
#define DEMO_SOURCE_H

#include <stdbool.h>

#include <silt/precopy.h>

#include "base/err.h"
#include "demo/link.h"
#include "demo/machine.h"
#include "demo/report.h"
#include "demo/tracking.h"

/* The source of one guest, and of its attempts to leave. */
struct source {
	const struct demo_options *opt;
	struct machine machine;
	struct report report;
	struct link_hello hello;
	char where[300];   /* the destination: HOST:PORT */
	pid_t destination; /* 0: not started by this process */
	int fd;		   /* the connection */
	struct tracking tracking;
	struct silt_precopy *precopy;
	int resume_error; /* of a resume callback, which cannot fail */
	struct silt_failure
		failure; /* the first one of a callback, which the engine names by errno */
};

/*
 * One migration, over the connection.
 *
 * Return: enum silt_precopy_end; -errno with a message, and the guest goes on here.
 */
int source_migrate(struct source *s);

/*
 * Who has the guest? Asked where the answer to START was lost.
 *
 * Return: 0 the destination has it, and the connection is the new one; 1 it has it not, and never
 * will; -errno nobody knows.
 */
int source_ask(struct source *s);

#endif
