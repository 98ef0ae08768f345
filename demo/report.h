/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "demo/demo.h"
#include "demo/link.h"

/*
 * What is kept of one migration. Addresses are in columns: stretches of RAM that one owner has, so
 * that a column tells who wrote.
 */
#define REPORT_COLUMNS	160
#define REPORT_MAX_ROWS 2000 /* rounds beyond are counted and shown, not kept */

struct report_column {
	unsigned int block;
	unsigned int owner; /* ram_owner() */
	uint64_t first;	    /* page of the block */
	uint64_t pages;
};

struct report_row {
	struct silt_precopy_round round;
	uint32_t taken[REPORT_COLUMNS]; /* pages, of each column */
};

struct report {
	const struct demo_options *opt;
	const struct machine *machine;
	struct report_column columns[REPORT_COLUMNS];
	unsigned int ncolumns;
	struct report_row *rows;
	size_t nrows;
	struct report_row now; /* the round that is under way */
	uint64_t expected;     /* pages of it */
	uint64_t taken;
	uint64_t shown_ns; /* when the progress was */
	enum demo_outcome outcome;
	char reason[256]; /* why it is not DEMO_EQUAL */
	struct silt_precopy_result result;
	struct ram_hash source_hash;
	struct link_outcome there;
};

void report_open(struct report *r, const struct demo_options *opt, const struct machine *m);
void report_close(struct report *r);

/** report_begin() - one more attempt: what is kept is forgotten */
void report_begin(struct report *r);

/** report_taken() - pages left the bitmaps to be sent */
void report_taken(struct report *r, unsigned int block, uint64_t first, uint64_t n);

/** report_round() - a round has ended */
void report_round(struct report *r, const struct silt_precopy_round *round);

/** report_end() - how it went; @reason is the message, if there was an error */
void report_end(struct report *r, enum demo_outcome outcome, const char *reason);

const char *report_outcome_name(enum demo_outcome outcome);
const char *report_pattern_name(enum demo_pattern pattern);
const char *report_verdict_name(enum silt_precopy_verdict verdict);

/** "disk", "vCPU 0" ...; @buf: 16 bytes */
const char *report_owner_name(unsigned int owner, char *buf);

/** report_hash_text() - 32 hexadecimal digits; @buf: 33 bytes */
const char *report_hash_text(const struct ram_hash *hash, char *buf);

/** On a terminal: what is migrated, rounds, the bar on stderr, the end. */
void report_show_start(const struct report *r);
void report_show_round(const struct report *r, const struct silt_precopy_round *round);
void report_show_progress(struct report *r);
void report_clear_progress(const struct report *r);
void report_show_end(const struct report *r);

/** report_json() - the report for programs. Return: a string to free(), NULL: no memory. */
char *report_json(const struct report *r);

/** report_save() - to the files that the options name. Return: 0 or -errno. */
int report_save(const struct report *r);

/** The page that shows the report for programs. */
extern const struct page demo_page;

#endif
