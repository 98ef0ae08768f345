/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_VM_H
#define DEMO_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/sync.h>

#include "demo/ram.h"
#include "guest/guest.h"

/*
 * What runs the guest's programs, of which each dirties pages: vCPUs under KVM, or threads.
 *
 * Return: 0, or -errno with a message. Thread: any, unless said otherwise.
 */
struct vm;

/** vm_open() - the guest, paused and without programs. @kvm: vCPUs. Return: also guest_missing().
 */
int vm_open(const struct ram *ram, bool kvm, struct vm **out);
void vm_close(struct vm *vm);

bool vm_is_kvm(const struct vm *vm);

/** vm_fd() - for KVM's ioctls, if it is KVM */
int vm_fd(const struct vm *vm);

/** vm_program() - of one vCPU, which is paused */
int vm_program(struct vm *vm, unsigned int vcpu, const struct guest_program *program);

/** vm_resume(), vm_pause() - all vCPUs. Once paused, none stores any more. */
void vm_resume(struct vm *vm);
int vm_pause(struct vm *vm);

/** vm_throttle() - have the vCPUs stand still for @percent of the time, 0 to 99 */
int vm_throttle(struct vm *vm, unsigned int percent);

uint64_t vm_writes(const struct vm *vm, unsigned int vcpu);
const struct program *vm_program_of(const struct vm *vm, unsigned int vcpu);

/** As guest_state_bytes(), guest_save(), guest_load(), of a paused guest. */
size_t vm_state_bytes(const struct vm *vm);
int vm_save(struct vm *vm, void *state);
int vm_load(struct vm *vm, const void *state, size_t bytes);

/** vm_log() - have KVM log what vCPUs write, before vm_add_sources(), or no more */
int vm_log(struct vm *vm, bool on);

/**
 * vm_add_sources() - tell the engine where to read what vCPUs dirty
 * @blocks: the engine's ids of the RAM blocks
 *
 * Threads' memory is watched by PAGEMAP_SCAN, or, where the kernel cannot, marked by themselves.
 */
int vm_add_sources(struct vm *vm, struct silt_sync *sync, const int *blocks);

/** vm_sources() - "KVM bitmap" and so on: what vm_add_sources() added */
const char *vm_sources(const struct vm *vm);

#endif
