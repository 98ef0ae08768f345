/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_MEMORY_H
#define SILT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * The guest memory map: which guest-physical ranges are mapped where in this process.
 *
 * A map is an immutable value with a reference count. Adding or removing a region makes a new map
 * that shares the other regions' mappings with the old one; a region is unmapped when the last map
 * that holds it is put. So regions come and go while queues run: a reader keeps the map that it
 * holds for as long as it likes, and takes the new one at a moment that suits it.
 */
struct silt_memory;

/** One region. @hva is set by silt. */
struct silt_memory_region {
	uint64_t gpa;	      /* first guest-physical address */
	uint64_t size;	      /* bytes; any value, not only whole pages */
	uint64_t user_addr;   /* first address in the frontend's own address space */
	uint64_t mmap_offset; /* where the region starts in the file, bytes; any value */
	void *hva;	      /* where gpa is mapped in this process */
};

/** Regions that one map can hold. */
#define SILT_MEMORY_MAX_REGIONS 512

/**
 * silt_memory_create() - an empty map
 * @out: the map, one reference for the caller
 *
 * Return: 0 or -ENOMEM.
 * Thread: any. Owns: the caller owns one reference. Blocks: never.
 */
SILT_API int silt_memory_create(struct silt_memory **out);

/**
 * silt_memory_add() - a new map: @old and one region more, mapped from a file
 * @old: the map to start from; unchanged, the caller keeps its reference
 * @r:   gpa, size, user_addr, mmap_offset; hva is ignored
 * @fd:  the file that backs the region; stays the caller's, may be closed afterwards
 * @out: the new map, one reference for the caller
 *
 * The mapping is shared, readable and writable. The file must already reach to the region's end.
 * User addresses may overlap: memory of the frontend may lie at several guest addresses.
 *
 * Return: 0, or: -EINVAL size 0, or an address or offset that wraps, or the region ends beyond the
 * file's end; -EEXIST overlap with another region by guest address; -E2BIG too many
 * regions; -ENODEV not a regular file; -EACCES not open for reading and writing; -EPERM sealed
 * against writing; -ENOMEM; -errno of fstat() or mmap().
 *
 * Thread: any. Owns: as said above. Blocks: in mmap().
 */
SILT_API int silt_memory_add(const struct silt_memory *old, const struct silt_memory_region *r,
			     int fd, struct silt_memory **out);

/**
 * silt_memory_remove() - a new map: @old without one region
 * @old:       the map to start from; unchanged, the caller keeps its reference
 * @gpa:       the region's first guest-physical address
 * @user_addr: its first user address
 * @size:      its size; all three must match
 * @out:       the new map, one reference for the caller
 *
 * Return: 0, -ENOENT if there is no such region, -ENOMEM.
 * Thread: any. Owns: as said above. Blocks: never.
 */
SILT_API int silt_memory_remove(const struct silt_memory *old, uint64_t gpa, uint64_t user_addr,
				uint64_t size, struct silt_memory **out);

/** Take one more reference. Return: @m. Thread: any. Owns: give it back. Blocks: never. */
SILT_API struct silt_memory *silt_memory_get(struct silt_memory *m);

/** Give a reference back; the last one unmaps. @m may be NULL. Thread: any. Blocks: in munmap(). */
SILT_API void silt_memory_put(struct silt_memory *m);

/**
 * silt_memory_translate() - where a guest-physical address is mapped
 * @m:   the map
 * @gpa: guest-physical address
 * @len: in: bytes wanted, at least 1; out: bytes contiguous from there, at most the bytes wanted
 *
 * Return: the host address, or NULL if @gpa is in no region (then *@len is 0).
 * Thread: any. Owns: valid while the caller's reference to @m lasts. Blocks: never.
 */
SILT_API void *silt_memory_translate(const struct silt_memory *m, uint64_t gpa, uint64_t *len);

/**
 * silt_memory_user_to_hva() - where a frontend's user address range is mapped
 * @m:    the map
 * @addr: user address
 * @len:  bytes; the whole range must lie in one region
 *
 * Where regions overlap by user address, the one with the lowest guest address answers.
 *
 * Return: the host address, or NULL. Thread, Owns, Blocks: as silt_memory_translate().
 */
SILT_API void *silt_memory_user_to_hva(const struct silt_memory *m, uint64_t addr, uint64_t len);

/*
 * The functions below read a map, which never changes. Thread: any. Owns: nothing; what they return
 * is valid while the caller's reference to @m lasts. Blocks: never.
 */

/** silt_memory_end() - one past the last guest-physical byte of the last region; 0 if empty. */
SILT_API uint64_t silt_memory_end(const struct silt_memory *m);

/** silt_memory_count() - number of regions. */
SILT_API unsigned int silt_memory_count(const struct silt_memory *m);

/** silt_memory_region() - region @i in the order of guest addresses, @i < silt_memory_count(). */
SILT_API const struct silt_memory_region *silt_memory_region(const struct silt_memory *m,
							     unsigned int i);

SILT_END_DECLS

#endif
