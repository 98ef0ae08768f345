/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_HARVESTER_H
#define CHECK_HARVESTER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "check/guest.h"

#define HARVESTER_ERROR_LEN 512

/*
 * The monitor's part in shadow mode: a thread that harvests the log and copies the pages that are
 * marked in it, again and again, while the device works. The copy is the guest's after copy. No
 * page is copied before one full fence behind the last exchange of its pass.
 */
struct check_harvester {
	struct check_guest *guest;
	uint64_t npages; /* that logs cover */
	uint64_t *marked;
	uint64_t *ever; /* pages that were marked in any pass */
	/*
	 * OR into @marked what was marked since the last call, with a full fence behind the last
	 * exchange. Return: 0, or -errno with a message by silt_err().
	 */
	int (*collect)(void *arg, uint64_t *marked);
	/* Called now and then between two collects, by whom these are called; or NULL. */
	void (*between)(void *arg);
	void *arg;
	pthread_t thread;
	bool running;
	bool whole; /* the thread begins with all of memory */
	bool stop;
	int error; /* of the thread, or 0; and its message */
	char message[HARVESTER_ERROR_LEN];
};

/* @h has guest, npages, collect and arg. Return: 0 or -ENOMEM. */
int check_harvester_create(struct check_harvester *h);
void check_harvester_destroy(struct check_harvester *h);

/*
 * Start the thread, which copies all of memory first: logging has come on. Return: 0 or -errno.
 */
int check_harvester_start(struct check_harvester *h);

/* Start it again after a stop, with nothing lost meanwhile. Return: 0 or -errno. */
int check_harvester_resume(struct check_harvester *h);

/* End the thread, if it runs. Return: 0, or -errno if one of its passes failed (silt_errmsg()). */
int check_harvester_stop(struct check_harvester *h);

/* One pass, while the thread is not running. Return: 0 or -errno. */
int check_harvester_pass(struct check_harvester *h);

#endif
