/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_HOSTILE_H
#define CHECK_HOSTILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "check/applies.h"
#include "check/scenario.h"

/*
 * The worst that a frontend or a guest can send, one case at a time:
 *
 *     hostile.c          runs the cases, proves after each that the backend still serves, judges
 *     hostile_case.c     all cases, generated from the axes of their groups
 *     hostile_world.c    guest memory and dirty log with canaries around them
 *     hostile_rig.c      the connection and the ring of one case, and what can be seen of both
 *     hostile_*.c        the groups of cases
 */

#define HOSTILE_AXES	 3
#define HOSTILE_NAME_LEN 96

struct check_hostile;

struct check_hostile_axis {
	const char *name;
	const char *const *values;
	unsigned int n;
};

#define HOSTILE_AXIS(axis_name, axis_values)                    \
	{                                                       \
		.name = axis_name, .values = axis_values,       \
		.n = sizeof(axis_values) / sizeof(*axis_values) \
	}

/* Cases of one kind: one for each combination of the axes' values that is valid. */
struct check_hostile_group {
	const char *name;
	const char *about;			      /* "a guest that ..." */
	struct check_hostile_axis axis[HOSTILE_AXES]; /* those that it has come first */
	bool (*valid)(const uint8_t *value);	      /* NULL: all are */
	bool needs_log;				      /* nothing bad would happen without one */
	bool takes_memory;			      /* guest memory cannot be sealed */
	/* Do the worst, on a connection on which features of the protocol were negotiated. */
	void (*run)(struct check_hostile *h);
};

extern const struct check_hostile_group check_hostile_log_base, check_hostile_log_place,
	check_hostile_log_gone, check_hostile_log_flood;
extern const struct check_hostile_group check_hostile_memory_table, check_hostile_memory_gone,
	check_hostile_memory_removed;
extern const struct check_hostile_group check_hostile_ring_address, check_hostile_ring_number,
	check_hostile_ring_index;
extern const struct check_hostile_group check_hostile_chain, check_hostile_table,
	check_hostile_avail, check_hostile_rewrite;
extern const struct check_hostile_group check_hostile_message, check_hostile_config,
	check_hostile_fds, check_hostile_fd_flood;
extern const struct check_hostile_group check_hostile_inflight, check_hostile_iotlb,
	check_hostile_cut, check_hostile_silence, check_hostile_closed;

struct check_hostile_case {
	const struct check_hostile_group *group;
	uint8_t value[HOSTILE_AXES];
	bool quick; /* the first with some value of an axis */
	char name[HOSTILE_NAME_LEN];
};

struct check_hostile_list {
	struct check_hostile_case *v;
	unsigned int n;
};

/* All cases. Return: 0 or -ENOMEM. Owns: free with check_hostile_list_free(). */
int check_hostile_generate(struct check_hostile_list *list);

/* Those that @opt asks for. */
int check_hostile_select(const struct check_options *opt, struct check_hostile_list *list);
void check_hostile_list_free(struct check_hostile_list *list);

/* Print the groups with their axes, and the names of the cases that @opt selects. */
int check_hostile_print(const struct check_options *opt, FILE *out);

/*
 * Run the cases of @list and report each. What the backend does is an outcome.
 * Return: 0, or -errno: something of our own failed.
 */
int check_hostile_run(const struct check_scenario_env *env, struct check_applies *applies,
		      const struct check_hostile_list *list, const struct check_reporter *reporter,
		      struct check_totals *totals);

#endif
