/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sync reads a slot in the middle of a take: behind the slot's clear, before the take is through
 * with the chunk in another slot. What it read is cleared by the next take, or pages are sent that
 * KVM goes on to report, and that it does not watch.
 */
#include <silt/sync.h>

#include "conc/log/common.h"
#include "model/sync/fake_kvm.h"

#define PAGES UINT64_C(64)
#define PAGE  UINT64_C(4096)
/* Pages that are written, and when. */
#define BEFORE	     3 /* through both slots, before the take */
#define IN_READ	     5 /* through the slot that is read first, before its read */
#define BEHIND_CLEAR 7 /* through the one that is cleared first, behind that */

struct meeting {
	struct fake_kvm kvm;
	struct silt_sync *sync;
	int block;
	bool armed; /* the next clears are those of the take that is met */
	bool met;
	unsigned int clears;
	pthread_t thread;
};

static void *run_sync(void *arg)
{
	struct meeting *m = arg;

	must(silt_sync_run(m->sync, 0) >= 0);
	return NULL;
}

static void wait_until_dirty(struct meeting *m, uint64_t page)
{
	while (silt_sync_dirty(m->sync, 0, m->block, page, 1) != 1)
		sched_yield();
}

/* The slot that is cleared first is the one that is read last: only then can they meet. */
static void behind_first_clear(struct meeting *m, uint32_t slot)
{
	m->met = slot == 1;
	if (!m->met)
		return;
	fake_kvm_write(&m->kvm, 0, 0, IN_READ);
	fake_kvm_write(&m->kvm, 0, slot, BEHIND_CLEAR);
	must(!pthread_create(&m->thread, NULL, run_sync, m));
	wait_until_dirty(m, IN_READ);
}

static int answer(void *opaque, int fd, unsigned long request, void *arg)
{
	struct meeting *m = opaque;
	bool clear = m->armed && request == KVM_CLEAR_DIRTY_LOG;
	int ret;

	if (clear && m->clears == 1 && m->met)
		wait_until_dirty(m, BEHIND_CLEAR);
	ret = fake_kvm_ioctl(&m->kvm, fd, request, arg);
	if (clear && m->clears++ == 0)
		behind_first_clear(m, ((struct kvm_clear_dirty_log *)arg)->slot);
	return ret;
}

static void add_slot(struct meeting *m, uint32_t number, int id)
{
	struct silt_sync_slot slot = {
		.size = sizeof(slot),
		.number = number,
		.flags = SILT_SYNC_SLOT_LOGGED,
		.block = m->block,
		.gpa = number * PAGES * PAGE,
		.bytes = PAGES * PAGE,
	};

	fake_kvm_slot_add(&m->kvm, number, PAGES, true, false);
	must(silt_sync_slot_add(m->sync, &slot) == id);
}

/* Slots are read by their ids, and cleared in an order that may follow from when they came. */
static void add_slots(struct meeting *m, bool second_first)
{
	if (!second_first) {
		add_slot(m, 0, 0);
		add_slot(m, 1, 1);
		return;
	}
	add_slot(m, 2, 0);
	add_slot(m, 1, 1);
	fake_kvm_slot_remove(&m->kvm, 2);
	must(!silt_sync_slot_remove(m->sync, 0));
	add_slot(m, 0, 0);
}

static void build(struct meeting *m, bool second_first)
{
	struct fake_kvm_options options = {.kind = FAKE_KVM_MANUAL, .page_shift = 12};
	struct silt_sync_kvm kvm = {.size = sizeof(kvm),
				    .vm_fd = FAKE_KVM_VM_FD,
				    .page_shift = 12,
				    .ioctl = answer,
				    .opaque = m};

	*m = (struct meeting){0};
	fake_kvm_init(&m->kvm, &options);
	m->kvm.attached = true;
	must(!silt_sync_create(NULL, &m->sync));
	m->block = silt_sync_block_add(m->sync, "ram", PAGES * PAGE, NULL);
	must(silt_sync_add_kvm(m->sync, &kvm) >= 0);
	add_slots(m, second_first);
	must(!silt_sync_consumer_add(m->sync, false));
}

static void take_all(struct meeting *m)
{
	uint64_t first = 0;
	int64_t n;

	while ((n = silt_sync_take(m->sync, 0, m->block, first, PAGES, &first)) > 0)
		first += (uint64_t)n;
	must(!n);
}

/* Return: whether they met. */
static bool meet(bool second_first)
{
	static struct meeting m;
	uint64_t first;

	build(&m, second_first);
	fake_kvm_write(&m.kvm, 0, 0, BEFORE);
	fake_kvm_write(&m.kvm, 0, 1, BEFORE);
	must(silt_sync_run(m.sync, 0) == 1);
	m.armed = true;
	must(silt_sync_take(m.sync, 0, m.block, 0, 1, &first) == 1);
	must(m.clears == 2);
	m.armed = false;
	if (m.met) {
		pthread_join(m.thread, NULL);
		take_all(&m);
		must(fake_kvm_slot_find(&m.kvm, 1)->reported[BEHIND_CLEAR] == FAKE_KVM_UNREAD);
	}
	must(!m.kvm.breach[0]);
	silt_sync_destroy(m.sync);
	fake_kvm_free(&m.kvm);
	return m.met;
}

int main(void)
{
	bool one = meet(false), other = meet(true);

	must(one || other);
	return 0;
}
