/* SPDX-License-Identifier: BSD-3-Clause */
/* vCPUs and their threads. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "guest/guest_internal.h"

static bool is_stopping(struct guest *g)
{
	return g->stopping || g->quit;
}

/* The end of a burst. Whoever tells vCPUs to stop does not wait for it. */
static void be_idle(struct vcpu *v)
{
	struct guest *g = v->guest;
	struct timespec until = pace_next(&v->pace);
	int ret = 0;

	pthread_mutex_lock(&g->lock);
	while (!is_stopping(g) && !ret)
		ret = pthread_cond_timedwait(&g->changed, &g->lock, &until);
	pthread_mutex_unlock(&g->lock);
}

/* A store where no memory is, or none that may be written. Return: 0 it goes on; 1 it stopped. */
static int handle_store(struct vcpu *v)
{
	switch (v->run->mmio.phys_addr) {
	case PROGRAM_BELLS + PROGRAM_BELL_STOPPED:
	case PROGRAM_BELLS + PROGRAM_BELL_ENDED:
		return 1;
	case PROGRAM_BELLS + PROGRAM_BELL_IDLE:
		be_idle(v);
		return 0;
	}
	__atomic_fetch_add(&v->guest->dropped, 1, __ATOMIC_RELAXED);
	return 0;
}

static int handle_full_ring(struct vcpu *v)
{
	struct guest *g = v->guest;
	int64_t ret;

	__atomic_fetch_add(&g->ring_exits, 1, __ATOMIC_RELAXED);
	if (!g->opt.ring_full)
		return silt_err(EPROTO, "guest: vCPU %u: a full ring that was not asked for",
				v->number);
	ret = g->opt.ring_full(g->opt.opaque);
	return ret < 0 ? (int)ret : 0;
}

static int handle_exit(struct vcpu *v)
{
	switch (v->run->exit_reason) {
	case KVM_EXIT_MMIO:
		return handle_store(v);
	case KVM_EXIT_DIRTY_RING_FULL:
		return handle_full_ring(v);
	}
	return silt_err(EPROTO, "guest: vCPU %u: exit reason %u", v->number, v->run->exit_reason);
}

static int run_until_stopped(struct vcpu *v)
{
	int ret = 0;

	while (!ret) {
		if (!ioctl(v->fd, KVM_RUN, 0))
			ret = handle_exit(v);
		else if (errno != EINTR && errno != EAGAIN)
			ret = silt_err_sys(errno, "guest: vCPU %u: KVM_RUN", v->number);
	}
	return ret;
}

static void *vcpu_thread(void *arg)
{
	struct vcpu *v = arg;
	struct guest *g = v->guest;
	int ret;

	pthread_mutex_lock(&g->lock);
	while (!g->quit) {
		if (!v->running) {
			pthread_cond_wait(&g->changed, &g->lock);
			continue;
		}
		pthread_mutex_unlock(&g->lock);
		pace_begin(&v->pace);
		ret = run_until_stopped(v);
		pthread_mutex_lock(&g->lock);
		if (ret < 0) {
			v->error = ret;
			snprintf(v->message, sizeof(v->message), "%s", silt_errmsg());
		}
		v->running = false;
		pthread_cond_broadcast(&g->changed);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

/* Signals are for the program's other threads. */
static int start_thread(struct vcpu *v)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&v->thread, NULL, vcpu_thread, v);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret)
		return silt_err_sys(ret, "guest: a thread for vCPU %u", v->number);
	v->has_thread = true;
	return 0;
}

int vcpu_create(struct guest *g, unsigned int number)
{
	struct vcpu *v = &g->vcpus[number];
	int ret;

	v->guest = g;
	v->number = number;
	v->program = arch_program(g, number);
	v->program->counter = program_first_number(number);
	v->fd = ioctl(g->vm_fd, KVM_CREATE_VCPU, number);
	if (v->fd < 0)
		return silt_err_sys(errno, "guest: KVM_CREATE_VCPU %u", number);
	v->run = mmap(NULL, g->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	if (v->run == MAP_FAILED) {
		v->run = NULL;
		return silt_err_sys(errno, "guest: what vCPU %u shares with KVM", number);
	}
	ret = arch_vcpu_setup(v);
	return ret < 0 ? ret : start_thread(v);
}

void vcpu_destroy(struct vcpu *v)
{
	if (v->has_thread)
		pthread_join(v->thread, NULL);
	if (v->run)
		munmap(v->run, v->guest->run_bytes);
	if (v->fd >= 0)
		close(v->fd);
}

/* Under the lock. */
static void tell_vcpus_to_stop(struct guest *g)
{
	unsigned int i;

	g->stopping = true;
	for (i = 0; i < g->opt.vcpus; i++)
		if (g->vcpus[i].program)
			__atomic_store_n(&g->vcpus[i].program->stop, 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&g->changed);
}

void vcpus_quit(struct guest *g)
{
	pthread_mutex_lock(&g->lock);
	g->quit = true;
	tell_vcpus_to_stop(g);
	pthread_mutex_unlock(&g->lock);
}

bool vcpu_is_running(struct vcpu *v)
{
	bool running;

	pthread_mutex_lock(&v->guest->lock);
	running = v->running;
	pthread_mutex_unlock(&v->guest->lock);
	return running;
}

void guest_resume(struct guest *g)
{
	struct vcpu *v;
	unsigned int i;

	pthread_mutex_lock(&g->lock);
	g->stopping = false;
	for (i = 0; i < g->opt.vcpus; i++) {
		v = &g->vcpus[i];
		__atomic_store_n(&v->program->stop, 0, __ATOMIC_RELAXED);
		v->running = v->running || (v->has_program && !v->error);
	}
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

/* Under the lock: until no vCPU runs, then the first error of any. */
static int await_all(struct guest *g)
{
	unsigned int i;

	for (i = 0; i < g->opt.vcpus; i++)
		while (g->vcpus[i].running)
			pthread_cond_wait(&g->changed, &g->lock);
	for (i = 0; i < g->opt.vcpus; i++)
		if (g->vcpus[i].error)
			return silt_err(-g->vcpus[i].error, "%s", g->vcpus[i].message);
	return 0;
}

int guest_pause(struct guest *g)
{
	int ret;

	pthread_mutex_lock(&g->lock);
	tell_vcpus_to_stop(g);
	ret = await_all(g);
	pthread_mutex_unlock(&g->lock);
	return ret;
}

int guest_wait(struct guest *g)
{
	int ret;

	pthread_mutex_lock(&g->lock);
	ret = await_all(g);
	pthread_mutex_unlock(&g->lock);
	return ret;
}
