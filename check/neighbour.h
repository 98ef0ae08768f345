/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_NEIGHBOUR_H
#define CHECK_NEIGHBOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/guest.h"

/*
 * Another device that marks pages in the same log, as several do in a migration. Its pages lie
 * among those that the backend marks, so that their bits share words and bytes of the log: a
 * backend that reads, changes and writes these without an atomic takes marks away that are not its
 * own.
 *
 * It marks in the thread that harvests, between two harvests: each must have what was marked since
 * the one before.
 */

#define NEIGHBOUR_PAGES 32

struct check_neighbour_page {
	uint64_t page;
	bool set; /* and not harvested yet */
	uint64_t marked, lost;
};

struct check_neighbour {
	struct check_neighbour_page page[NEIGHBOUR_PAGES];
	unsigned int npages, next;
	uint8_t *file; /* the log's, up to its end; NULL while there is none */
	size_t file_size;
	uint8_t *log;
};

/* Take the next page of @g, as long as there is one, and not all of its pages are taken. */
void check_neighbour_take(struct check_neighbour *n, struct check_guest *g,
			  enum check_guest_side side);

/* Mark in this log from now on. Return: 0 or -errno. */
int check_neighbour_join(struct check_neighbour *n, int fd, uint64_t size, uint64_t offset);

/* Mark no more. What was not harvested is forgotten. */
void check_neighbour_leave(struct check_neighbour *n);

/* Mark the next page, if it is not marked. */
void check_neighbour_mark(struct check_neighbour *n);

/* A harvest has filled @marked. The neighbour's pages are taken out of it. */
void check_neighbour_harvested(struct check_neighbour *n, uint64_t *marked);

/* The page that lost the most marks, or NULL if none lost one. */
const struct check_neighbour_page *check_neighbour_robbed(const struct check_neighbour *n);

#endif
