/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_MAPPING_H
#define SILT_BASE_MAPPING_H

#include <stddef.h>
#include <stdint.h>

/* A stretch of a peer's file, mapped shared and writable, whose faults are recovered. */
struct silt_mapping {
	void *start; /* where the stretch's first byte is */
	void *addr;  /* the mapping around it: whole pages */
	size_t len;
};

/*
 * Map bytes [@offset, @offset + @size) of @fd; neither need be aligned. @what names it in messages.
 *
 * Return: 0, or, with nothing mapped: -EINVAL @size 0, or the end wraps or lies beyond the file's;
 * -ENODEV not a regular file; -EACCES not open for reading and writing; -EPERM sealed against
 * writing; -ENOMEM; -errno of fstat() or mmap().
 */
int silt_mapping_create(struct silt_mapping *m, int fd, uint64_t offset, uint64_t size,
			const char *what);
void silt_mapping_destroy(struct silt_mapping *m);

#endif
