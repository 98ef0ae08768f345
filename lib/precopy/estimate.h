/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_ESTIMATE_H
#define SILT_PRECOPY_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

#include <silt/precopy.h>

/*
 * Where rounds lead, worked out from what they recorded: no clock, no I/O, so that records of a
 * migration can be looked at again. Times are in nanoseconds.
 */

/* What holds for all rounds. */
struct precopy_basis {
	uint64_t pages;	     /* of the guest */
	uint64_t page_bytes; /* on the wire, if it is not zero */
	uint64_t bandwidth;  /* bytes a second, the cap; 0: none */
	uint64_t goal_ns;    /* the longest downtime */
	uint64_t stop_ns;    /* pausing, saving, loading, starting */
	uint64_t state_bytes;
};

/* What pages cost, by the last rounds. */
struct precopy_costs {
	double page_ns;	  /* clear, scan and send one dirty page */
	double fixed_ns;  /* of a round: its sync and its round trip */
	double stop_ns;	  /* of a switchover without pages */
	double bandwidth; /* bytes a ns of time spent sending; 0: not seen */
};

/*
 * What the guest writes: @hot pages so often that any round finds them dirty, and @set others, each
 * @rate times a ns when it runs at full speed.
 */
struct precopy_writes {
	double hot;
	double set;
	double rate;
	double spread; /* of what rounds found about what this says: a factor is e to the +-spread
			*/
};

/* How many rounds the estimate looks back on. */
#define PRECOPY_WINDOW 8

/* From @n rounds, the last one last; at least one. */
void precopy_costs(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		   size_t n, struct precopy_costs *costs);
void precopy_writes_fit(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
			size_t n, struct precopy_writes *writes);

/*
 * Pages dirty at the end of @ns in which the guest ran at @speed (0 to 1) of its own and @sent of
 * the pages that it writes were taken one after the other, all of them first counted as clean.
 */
double precopy_writes_dirty(const struct precopy_writes *writes, double sent, double ns,
			    double speed);

/* The downtime if @pages have to be sent. */
double precopy_downtime(const struct precopy_costs *costs, double pages);

/* All of it: @n may be 0. */
void precopy_forecast(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		      size_t n, struct silt_precopy_forecast *forecast);

#endif
