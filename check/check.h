/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The checker: proves that a vhost-user backend logs every guest page it writes.
 *
 * check_run() drives one backend through generated scenarios and hands each one's result to a
 * reporter. What is printed, and how, is the reporter's business (report_*.c); what is run and what
 * a miss means is the engine's.
 */

/* What a missed page held; also the names in --ignore, baselines and JSON. */
enum check_class {
	CHECK_DATA,	   /* buffers */
	CHECK_COMPLETION,  /* used entries, used index, status bytes */
	CHECK_BOOKKEEPING, /* event field and flags of the used ring */
	CHECK_CLASSES,
};

enum check_result {
	CHECK_PASS,
	CHECK_FAIL,  /* a page was missed */
	CHECK_SKIP,  /* does not apply to this backend, or is not allowed on it */
	CHECK_ERROR, /* the backend hung, died, refused or answered wrongly */
};

/* What a backend did about a hostile frontend or guest, from good to bad. */
enum check_verdict {
	CHECK_NO_VERDICT, /* not a hostile case */
	CHECK_CORRECT,
	CHECK_IGNORED,
	CHECK_REFUSED,
	CHECK_HUNG, /* it fails from here on */
	CHECK_CRASHED,
	CHECK_WROTE_OUTSIDE,
};

/* One page that the backend modified and did not log, or not in time. */
struct check_page {
	uint64_t gpa;
	enum check_class class;
	const char *what;	 /* "read data, bytes 0-4095 of 8192" */
	const char *request;	 /* "#3 read sector 8, 8192 bytes" */
	const char *consequence; /* what follows for a migrated guest, one sentence */
};

/* What became of a page that the backend changed or marked. */
enum check_page_state {
	CHECK_LOGGED,	    /* changed and marked */
	CHECK_MISSED,	    /* changed and not marked */
	CHECK_STALE,	    /* a shadow copy of it was old in the end */
	CHECK_IGNORED_MISS, /* missed or stale, of a class that is ignored */
	CHECK_AMBIGUOUS,    /* of a packed ring, missed with one log address and not the other */
	CHECK_EXTRA,	    /* marked and not changed */
	CHECK_PAGE_STATES,
};

/* Neighbouring pages of which the same is to be said. */
struct check_stretch {
	uint64_t gpa;
	uint64_t pages;
	enum check_page_state state;
	const char *what; /* what lies there: "read data of #3 read sector 8, 8192 bytes" */
};

struct check_axis {
	const char *name;
	const char *value;
};

/* One scenario's outcome; strings live until the reporter returns. */
struct check_outcome {
	const char *name;
	const char *mode; /* "snapshot", "shadow", "restart" or "hostile" */
	const struct check_axis *axes;
	unsigned int naxes;
	enum check_result result;
	enum check_verdict verdict;
	bool known; /* it failed, and only with misses that the baseline lists */
	/* Why skipped or in error; the first miss in words when failed; what a hostile case saw. */
	const char *reason;
	uint64_t changed, logged, missed, extra; /* pages */
	uint64_t stale;			/* pages of a shadow copy that were old in the end */
	uint64_t late;			/* marks that came into a log that was replaced before */
	uint64_t ignored;		/* pages of ignored classes, not part of missed and stale */
	uint64_t ambiguous;		/* pages of packed rings, not part of them either */
	const struct check_page *pages; /* the missed and the stale ones */
	unsigned int npages;
	/* Of a scenario that missed pages: all that were changed or marked, by address. */
	const struct check_stretch *strip;
	unsigned int nstrip;
	const char *repro; /* the command that shows it again */
	double seconds;
};

/* A stretch of time in which requests were counted. */
struct check_cost_slice {
	double at; /* when it began, seconds since the first did */
	double seconds;
	uint64_t requests; /* that came back */
	bool logging;
};

/* What logging costs the backend, and a migration. */
struct check_cost {
	const char *failed;	  /* why it could not be measured; NULL if it was */
	const char *requests;	  /* which ones, in words */
	double off, on;		  /* requests a second without and with logging, medians */
	double bytes;		  /* that the device writes for each, but for its status */
	uint64_t changed, marked; /* pages, in one slice with logging */
	const struct check_cost_slice *slices;
	unsigned int nslices;
};

/* How the backend is reached. */
enum check_target_kind {
	CHECK_TARGET_SELF,    /* silt blk, started by us */
	CHECK_TARGET_CONNECT, /* it listens at path */
	CHECK_TARGET_FD,      /* it is at the other end of fd */
	CHECK_TARGET_LISTEN,  /* it connects to path, where we listen */
	CHECK_TARGET_COMMAND, /* argv, started by us */
	CHECK_TARGET_KERNEL,  /* the vhost device at path */
};

/* What is usual. */
#define CHECK_TIME_MS	 200
#define CHECK_TIMEOUT_MS 5000

struct check_options {
	enum check_target_kind target;
	const char *path;
	int fd;
	char **argv;	    /* CHECK_TARGET_COMMAND: NULL-terminated, with {socket} and {image} */
	const char *self;   /* CHECK_TARGET_SELF: the silt binary */
	const char *device; /* one that check_device_known() knows, or NULL for block */
	unsigned int max_queues; /* or pairs of them; 0: as many as the backend has */
	bool allow_writes; /* requests that change the disk, on a backend that we did not start */
	bool hostile;	   /* the worst that can be sent, in place of the ordinary scenarios */
	bool quick;
	bool cost;	  /* measure what logging costs, also if not all scenarios are run */
	const char *only; /* glob on scenario names, or NULL */
	uint64_t seed;
	int timeout_ms;	      /* for each request and each answer */
	unsigned int time_ms; /* how long requests run in a scenario of shadow mode */
	const char *trace;    /* decoded messages go to this file, or NULL */
	bool keep;	      /* keep log and memory of failed scenarios */
	bool ignore[CHECK_CLASSES];
	const char *baseline;	    /* file of known misses, or NULL */
	const char *write_baseline; /* write one, or NULL */
};

/* What is known about the backend once it has answered. */
struct check_backend_info {
	const char *target; /* how it was reached, for people */
	const char *device; /* "block" */
	uint64_t features;
	uint64_t protocol_features;
	uint64_t queues;
	uint64_t capacity; /* bytes */
	bool read_only;
};

/* A reporter: all callbacks may be NULL. */
struct check_reporter {
	void *arg;
	void (*start)(void *arg, const struct check_options *opt,
		      const struct check_backend_info *info, unsigned int nscenarios);
	void (*running)(void *arg, const char *name, unsigned int i, unsigned int n);
	void (*outcome)(void *arg, const struct check_outcome *o);
	void (*cost)(void *arg, const struct check_cost *cost); /* once at most, at the end */
};

struct check_totals {
	unsigned int count[CHECK_ERROR + 1];
	unsigned int known;
	uint64_t missed_pages; /* and stale ones */
	double seconds;
};

/*
 * Run all scenarios that @opt asks for.
 *
 * Return: 0 with @totals filled, or -errno if the backend could not be reached or the environment
 * does not allow it (silt_errmsg() says what). What the backend does wrong is an outcome, never an
 * error of this function.
 *
 * Blocks: until all is done; no single wait is longer than opt->timeout_ms.
 */
int check_run(const struct check_options *opt, const struct check_reporter *reporter,
	      struct check_totals *totals);

/*
 * For a thread that ends the program in the middle of a run: send @sig to all that the run started.
 * SIGKILL also removes the socket that it listens at.
 */
void check_signal_backend(int sig);

/* Can devices of this kind be checked? */
bool check_device_known(const char *name);

/* Print axes, their values and the scenarios' names that @opt selects. */
int check_list(const struct check_options *opt, FILE *out);

const char *check_class_name(enum check_class class);
const char *check_page_state_name(enum check_page_state state);
const char *check_result_name(enum check_result result);
const char *check_verdict_name(enum check_verdict verdict);

#endif
