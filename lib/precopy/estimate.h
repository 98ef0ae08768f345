/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_ESTIMATE_H
#define SILT_PRECOPY_ESTIMATE_H

#include <stdbool.h>
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

/* Kinds of pages, by how often they are written; and rounds that an estimate looks back on. */
#define PRECOPY_KINDS  16
#define PRECOPY_WINDOW 16

/* What the guest writes, at its full speed. */
struct precopy_writes {
	double rate[PRECOPY_KINDS];  /* writes a ns to one page of the kind */
	double pages[PRECOPY_KINDS]; /* of the kind */
	double dirty[PRECOPY_KINDS]; /* the share of them that is, behind the last round */
	bool armed_late; /* pages that are sent: their writes are noticed only from then on */
	bool swept;	 /* the pages of a kind are written in turn, not at random */
	double spread;	 /* of what rounds found about what this says: a factor is e to the +-spread
			  */
};

/* From @n rounds, the last one last; at least one. */
void precopy_costs(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		   size_t n, struct precopy_costs *costs);
void precopy_writes_fit(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
			size_t n, struct precopy_writes *writes);

/*
 * A round of @ns in which all that is dirty is sent, and the guest runs at @speed (0 to 1) of its
 * own. Return: pages dirty behind it.
 */
double precopy_writes_step(struct precopy_writes *writes, double ns, double speed);

/* Pages that the guest would write to in @ns. */
double precopy_writes_set(const struct precopy_writes *writes, double ns);

/* The downtime if @pages have to be sent. */
double precopy_downtime(const struct precopy_costs *costs, double pages);

/* All of it: @n may be 0. */
void precopy_forecast(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		      size_t n, struct silt_precopy_forecast *forecast);

#endif
