/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GUEST_GUEST_INTERNAL_H
#define GUEST_GUEST_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <linux/kvm.h>

#include "guest/guest.h"
#include "guest/pace.h"
#include "guest/program.h"

struct vcpu {
	struct guest *guest;
	unsigned int number;
	int fd;
	struct kvm_run *run;
	struct program *program; /* in guest memory */
	bool has_program;
	struct pace pace;
	pthread_t thread;
	bool has_thread;
	/* The rest under the guest's lock. */
	bool running; /* its thread is in KVM_RUN, or on the way there */
	int error;
	char message[256];
};

struct guest {
	struct guest_options opt;
	int kvm_fd;
	int vm_fd;
	size_t run_bytes; /* of struct kvm_run and what follows it */
	uint8_t *self;	  /* GUEST_SELF_BYTES of memory */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* on the monotonic clock */
	bool stopping;		/* vCPUs were told to stop */
	bool quit;
	uint64_t dropped;    /* atomic */
	uint64_t ring_exits; /* atomic */
	struct vcpu vcpus[GUEST_MAX_VCPUS];
};

/* A vCPU with its thread, paused. On error what was made is left to vcpu_destroy(). */
int vcpu_create(struct guest *g, unsigned int number);
void vcpu_destroy(struct vcpu *v);

/* Let all threads come to their ends. */
void vcpus_quit(struct guest *g);

bool vcpu_is_running(struct vcpu *v);

/* What guest_save() keeps of one, besides its program. */
int arch_vcpu_save(struct vcpu *v, void *registers);
int arch_vcpu_load(struct vcpu *v, const void *registers);
#define ARCH_REGISTERS 256 /* bytes, at most */

/* What depends on the processor: where things lie in the guest's own memory ... */
struct program *arch_program(const struct guest *g, unsigned int vcpu);
/* ... what is the same for all vCPUs, */
int arch_fill_memory(struct guest *g);
/* ... and the registers of one, as it begins. */
int arch_vcpu_setup(struct vcpu *v);

#endif
