/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_IOTLB_H
#define SILT_IOTLB_H

#include <stddef.h>
#include <stdint.h>

#include <silt/memory.h>
#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * The IOTLB of a device: which I/O virtual addresses (IOVAs) lie where in the frontend's address
 * space, and what the device may do there. Where user addresses lie in this process says the guest
 * memory map.
 *
 * It is a cache: it may forget any entry, and does so with the oldest one when it is full. What is
 * not in it is asked for. Entries that continue each other are joined to one.
 *
 * Source: vhost-user specification, section IOMMU support.
 *
 * Where a function below does not say otherwise: Thread: any; readers do not exclude each other.
 * Owns: nothing. Blocks: for as long as another thread changes entries.
 */
struct silt_iotlb;

/** Entries that it holds at most; more than a buffer can have segments. */
#define SILT_IOTLB_MAX 8192

/** What a device may do, or wants to do; as in IOTLB messages. */
#define SILT_IOTLB_READ	 0x1u
#define SILT_IOTLB_WRITE 0x2u

/**
 * silt_iotlb_create() - an empty IOTLB
 * @out: one reference for the caller
 *
 * Return: 0 or -ENOMEM. Owns: the caller owns one reference. Blocks: never.
 */
SILT_API int silt_iotlb_create(struct silt_iotlb **out);

/** Take one more reference. Return: @t. Owns: give it back. Blocks: never. */
SILT_API struct silt_iotlb *silt_iotlb_get(struct silt_iotlb *t);

/** Give a reference back; the last one frees. @t may be NULL. Blocks: never. */
SILT_API void silt_iotlb_put(struct silt_iotlb *t);

/**
 * silt_iotlb_update() - enter a translation
 * @t:      the IOTLB
 * @iova:   first I/O virtual address
 * @size:   bytes, not 0; the range may end at 2^64
 * @uaddr:  where it lies in the frontend's address space
 * @access: SILT_IOTLB_READ, SILT_IOTLB_WRITE or both
 *
 * What was entered before for any of these addresses is replaced.
 *
 * Return: 0; 1 if an address was entered before with another translation, or with access that it
 * has no longer: whoever looked it up may still be using it; -EINVAL @size is 0, a range wraps, or
 * @access is none of the above.
 */
SILT_API int silt_iotlb_update(struct silt_iotlb *t, uint64_t iova, uint64_t size, uint64_t uaddr,
			       unsigned int access);

/**
 * silt_iotlb_invalidate() - forget the translations of a range
 * @t:    the IOTLB
 * @iova: first I/O virtual address
 * @size: bytes; both 0 mean all addresses, as there is no number for 2^64 bytes
 *
 * Entries that are partly in the range lose that part only. Whoever looked an address up may still
 * be using it: the caller waits for them.
 *
 * Return: 0; -EINVAL the range wraps, or @size alone is 0.
 */
SILT_API int silt_iotlb_invalidate(struct silt_iotlb *t, uint64_t iova, uint64_t size);

/**
 * silt_iotlb_translate() - where an I/O virtual address lies
 * @t:      the IOTLB
 * @mem:    guest memory
 * @iova:   the address
 * @len:    in: bytes wanted, at least 1; out: bytes contiguous from there in this process and in
 *          guest memory, at most the bytes wanted
 * @access: what for: SILT_IOTLB_READ, SILT_IOTLB_WRITE or both
 * @gpa:    set to the guest-physical address; the lowest one, if the same memory lies at several
 *
 * Return: the host address, valid while the caller's reference to @mem lasts; NULL if nothing that
 * allows @access is entered for @iova, or it lies in no region (then *@len is 0).
 */
SILT_API void *silt_iotlb_translate(struct silt_iotlb *t, const struct silt_memory *mem,
				    uint64_t iova, uint64_t *len, unsigned int access,
				    uint64_t *gpa);

/** silt_iotlb_count() - entries in it. */
SILT_API unsigned int silt_iotlb_count(struct silt_iotlb *t);

SILT_END_DECLS

#endif
