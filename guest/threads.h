/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GUEST_THREADS_H
#define GUEST_THREADS_H

#include <stddef.h>
#include <stdint.h>

#include "guest/guest.h"

/*
 * The small guest where there is no KVM: threads of this process write memory as vCPUs with the
 * same programs would, through the mappings that the slots name.
 *
 * Each write is marked after its store, in a bitmap of the guest's own, for where the kernel cannot
 * watch memory. Functions as those of guest.h. Thread: any one at a time.
 */
struct threads;

struct threads_options {
	unsigned int count; /* 1 to GUEST_MAX_VCPUS */
	const struct guest_slot *slots;
	unsigned int nslots; /* all the slots that there are; copied */
};

/** threads_create() - threads that are paused and have no program. Return: 0, -EINVAL, -errno. */
int threads_create(const struct threads_options *opt, struct threads **out);
void threads_destroy(struct threads *t);

/** threads_program() - as guest_program() */
int threads_program(struct threads *t, unsigned int number, const struct guest_program *program);

/** threads_resume(), threads_pause() - once paused, all stores are made and marked. */
void threads_resume(struct threads *t);
void threads_pause(struct threads *t);

/** threads_writes() - of one thread, those that hit no slot too. Thread: any. */
uint64_t threads_writes(const struct threads *t, unsigned int number);

/** threads_program_of() - the program as the thread has it */
const struct program *threads_program_of(const struct threads *t, unsigned int number);

/** As guest_state_bytes(), guest_save() and guest_load(). */
size_t threads_state_bytes(const struct threads *t);
int threads_save(struct threads *t, void *state);
int threads_load(struct threads *t, const void *state, size_t bytes);

/**
 * threads_read_marks() - take what was marked; a silt_sync_read_fn
 * @opaque: the struct threads
 *
 * Thread: any, also while the threads write.
 */
int threads_read_marks(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap);

#endif
