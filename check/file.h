/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include <stdio.h>

/*
 * A file that appears whole or not at all: written beside its name, then renamed to it. A name that
 * is no regular file (a terminal, a pipe) is written directly.
 */
struct check_file {
	FILE *out;
	char *path;
	char *temp; /* NULL if written directly */
};

/* Can check_file_open() work? To find out before a long run. Return: 0 or -errno. */
int check_file_probe(const char *path);

/* Return: 0 or -errno; then write to file->out. */
int check_file_open(const char *path, struct check_file *file);

/* Flush, and give the file its name. Return: 0, or -errno with the old file as it was. */
int check_file_commit(struct check_file *file);

/* Leave the old file as it was. */
void check_file_abandon(struct check_file *file);

#endif
