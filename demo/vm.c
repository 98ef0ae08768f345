/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "demo/vm.h"
#include "guest/threads.h"

/* While the guest is throttled, it runs and stands still in turns of this length together. */
#define TURN_NS 20000000

struct vm {
	const struct ram *ram;
	struct guest *guest;	 /* or */
	struct threads *threads; /* the other is NULL */
	enum silt_sync_kvm_mode mode;
	const char *sources;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* on the monotonic clock */
	/* Under the lock: */
	bool running; /* but for the throttle */
	int error;    /* of a pause by the throttle */
	unsigned int percent;
	bool quit;
	bool has_throttle;
	pthread_t throttle;
};

static int open_kvm(struct vm *vm)
{
	struct guest_options opt = {.log = GUEST_LOG_INITIALLY_SET, .vcpus = vm->ram->vcpus};
	int ret = guest_create(&opt, &vm->guest);
	unsigned int i;

	vm->mode = SILT_SYNC_KVM_MANUAL;
	if (ret == -EOPNOTSUPP) {
		opt.log = GUEST_LOG_GET_CLEARS;
		vm->mode = SILT_SYNC_KVM_GET_CLEARS;
		ret = guest_create(&opt, &vm->guest);
	}
	for (i = 0; i < RAM_SLOTS && ret >= 0; i++)
		ret = guest_slot_set(vm->guest, &vm->ram->slots[i].is);
	return ret;
}

static int open_threads(struct vm *vm)
{
	struct guest_slot slots[RAM_SLOTS];
	struct threads_options opt = {.count = vm->ram->vcpus, .slots = slots, .nslots = RAM_SLOTS};
	unsigned int i;

	for (i = 0; i < RAM_SLOTS; i++)
		slots[i] = vm->ram->slots[i].is;
	return threads_create(&opt, &vm->threads);
}

static void init_locks(struct vm *vm)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&vm->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&vm->changed, &attr);
	pthread_condattr_destroy(&attr);
}

int vm_open(const struct ram *ram, bool kvm, struct vm **out)
{
	struct vm *vm = calloc(1, sizeof(*vm));
	int ret;

	if (!vm)
		return silt_err(ENOMEM, "demo: no memory");
	vm->ram = ram;
	vm->sources = "";
	init_locks(vm);
	ret = kvm ? open_kvm(vm) : open_threads(vm);
	if (ret < 0) {
		vm_close(vm);
		return ret;
	}
	*out = vm;
	return 0;
}

void vm_close(struct vm *vm)
{
	if (!vm)
		return;
	pthread_mutex_lock(&vm->lock);
	vm->quit = true;
	pthread_cond_broadcast(&vm->changed);
	pthread_mutex_unlock(&vm->lock);
	if (vm->has_throttle)
		pthread_join(vm->throttle, NULL);
	guest_destroy(vm->guest);
	threads_destroy(vm->threads);
	pthread_cond_destroy(&vm->changed);
	pthread_mutex_destroy(&vm->lock);
	free(vm);
}

bool vm_is_kvm(const struct vm *vm)
{
	return vm->guest;
}

int vm_fd(const struct vm *vm)
{
	return guest_vm_fd(vm->guest);
}

int vm_program(struct vm *vm, unsigned int vcpu, const struct guest_program *program)
{
	return vm->guest ? guest_program(vm->guest, vcpu, program)
			 : threads_program(vm->threads, vcpu, program);
}

/* Under the lock. */
static void let_run(struct vm *vm)
{
	if (vm->guest)
		guest_resume(vm->guest);
	else
		threads_resume(vm->threads);
}

/* Under the lock. */
static int stand_still(struct vm *vm)
{
	if (vm->guest)
		return guest_pause(vm->guest);
	threads_pause(vm->threads);
	return 0;
}

void vm_resume(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	vm->running = true;
	let_run(vm);
	pthread_cond_broadcast(&vm->changed);
	pthread_mutex_unlock(&vm->lock);
}

int vm_pause(struct vm *vm)
{
	int ret;

	pthread_mutex_lock(&vm->lock);
	vm->running = false;
	ret = stand_still(vm);
	if (ret >= 0 && vm->error)
		ret = silt_err(-vm->error, "demo: a throttled vCPU stopped");
	pthread_mutex_unlock(&vm->lock);
	return ret;
}

/* Under the lock: wait so long, or until something changes. */
static void wait_turn(struct vm *vm, uint64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ns;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&vm->changed, &vm->lock, &until);
}

static void *throttle_thread(void *arg)
{
	struct vm *vm = arg;
	int ret;

	pthread_mutex_lock(&vm->lock);
	while (!vm->quit) {
		if (!vm->running || !vm->percent) {
			pthread_cond_wait(&vm->changed, &vm->lock);
			continue;
		}
		ret = stand_still(vm);
		vm->error = vm->error ? vm->error : ret;
		wait_turn(vm, (uint64_t)TURN_NS * vm->percent / 100);
		if (!vm->running || vm->quit)
			continue;
		let_run(vm);
		wait_turn(vm, (uint64_t)TURN_NS * (100 - vm->percent) / 100);
	}
	pthread_mutex_unlock(&vm->lock);
	return NULL;
}

int vm_throttle(struct vm *vm, unsigned int percent)
{
	int ret = 0;

	pthread_mutex_lock(&vm->lock);
	if (percent && !vm->has_throttle) {
		ret = pthread_create(&vm->throttle, NULL, throttle_thread, vm);
		vm->has_throttle = !ret;
	}
	if (!ret) {
		vm->percent = percent;
		pthread_cond_broadcast(&vm->changed);
	}
	pthread_mutex_unlock(&vm->lock);
	return ret ? silt_err_sys(ret, "demo: a thread that throttles") : 0;
}

uint64_t vm_writes(const struct vm *vm, unsigned int vcpu)
{
	return vm->guest ? guest_vcpu_writes(vm->guest, vcpu) : threads_writes(vm->threads, vcpu);
}

const struct program *vm_program_of(const struct vm *vm, unsigned int vcpu)
{
	return vm->guest ? guest_vcpu_program(vm->guest, vcpu)
			 : threads_program_of(vm->threads, vcpu);
}

size_t vm_state_bytes(const struct vm *vm)
{
	return vm->guest ? guest_state_bytes(vm->guest) : threads_state_bytes(vm->threads);
}

int vm_save(struct vm *vm, void *state)
{
	return vm->guest ? guest_save(vm->guest, state) : threads_save(vm->threads, state);
}

int vm_load(struct vm *vm, const void *state, size_t bytes)
{
	return vm->guest ? guest_load(vm->guest, state, bytes)
			 : threads_load(vm->threads, state, bytes);
}

int vm_log(struct vm *vm, bool on)
{
	struct guest_slot slot;
	unsigned int i;
	int ret = 0;

	for (i = 0; vm->guest && i < RAM_SLOTS && ret >= 0; i++) {
		slot = vm->ram->slots[i].is;
		slot.logged = on;
		ret = guest_slot_set(vm->guest, &slot);
	}
	return ret;
}

static int add_kvm(struct vm *vm, struct silt_sync *sync)
{
	struct silt_sync_kvm kvm = {
		.size = sizeof(kvm), .vm_fd = guest_vm_fd(vm->guest), .mode = vm->mode};

	vm->sources = vm->mode == SILT_SYNC_KVM_MANUAL ? "KVM bitmap" : "KVM bitmap, get clears";
	return silt_sync_add_kvm(sync, &kvm);
}

static int add_pagemap(struct silt_sync *sync, const int *blocks)
{
	int ids[RAM_BLOCKS], ret = 0;
	unsigned int i;

	for (i = 0; i < RAM_BLOCKS; i++) {
		struct silt_sync_pagemap pagemap = {.size = sizeof(pagemap), .block = blocks[i]};

		ret = silt_sync_add_pagemap(sync, &pagemap);
		if (ret < 0)
			break;
		ids[i] = ret;
	}
	while (ret < 0 && i-- > 0)
		silt_sync_source_remove(sync, ids[i]);
	return ret;
}

static int add_marks(struct vm *vm, struct silt_sync *sync)
{
	struct silt_sync_own own = {.size = sizeof(own),
				    .name = "threads' marks",
				    .read = threads_read_marks,
				    .opaque = vm->threads};

	vm->sources = "threads' marks";
	return silt_sync_add_own(sync, &own);
}

int vm_add_sources(struct vm *vm, struct silt_sync *sync, const int *blocks)
{
	int ret;

	if (vm->guest)
		return add_kvm(vm, sync);
	vm->sources = "PAGEMAP_SCAN";
	ret = add_pagemap(sync, blocks);
	return ret == -EOPNOTSUPP ? add_marks(vm, sync) : ret;
}

const char *vm_sources(const struct vm *vm)
{
	return vm->sources;
}
