/* SPDX-License-Identifier: BSD-3-Clause */
#include "demo/tracking.h"

static int add_blocks(struct tracking *t)
{
	const struct ram *r = &t->machine->ram;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < RAM_BLOCKS && ret >= 0; i++) {
		ret = silt_sync_block_add(t->sync, r->blocks[i].name, r->blocks[i].bytes,
					  r->blocks[i].memory);
		t->blocks[i] = ret;
	}
	return ret;
}

int tracking_open(struct tracking *t, struct machine *m, demo_read_kvm_fn *read_kvm)
{
	int ret;

	*t = (struct tracking){.machine = m, .read_kvm = vm_is_kvm(m->vm) ? read_kvm : NULL};
	ret = silt_sync_create(NULL, &t->sync);
	if (ret < 0)
		return ret;
	ret = add_blocks(t);
	if (ret >= 0)
		ret = t->consumer = silt_sync_consumer_add(t->sync, true);
	if (ret < 0)
		tracking_close(t);
	return ret < 0 ? ret : 0;
}

void tracking_close(struct tracking *t)
{
	silt_sync_destroy(t->sync);
	t->sync = NULL;
}

/* KVM has the slots already, and logs them. */
static int add_slots(struct tracking *t)
{
	const struct ram *r = &t->machine->ram;
	bool logged = vm_is_kvm(t->machine->vm) && !t->read_kvm;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < RAM_SLOTS && ret >= 0; i++) {
		const struct ram_slot *s = &r->slots[i];
		struct silt_sync_slot slot = {
			.size = sizeof(slot),
			.number = s->is.number,
			.flags = logged ? SILT_SYNC_SLOT_LOGGED : 0,
			.block = t->blocks[s->block],
			.gpa = s->is.gpa,
			.bytes = s->is.bytes,
			.offset = s->offset,
		};

		ret = silt_sync_slot_add(t->sync, &slot);
	}
	return ret;
}

static int switch_on(struct tracking *t)
{
	int ret = vm_log(t->machine->vm, true);

	if (ret >= 0)
		ret = add_slots(t);
	if (ret >= 0 && !t->read_kvm)
		ret = vm_add_sources(t->machine->vm, t->sync, t->blocks);
	if (ret >= 0)
		ret = disk_log_on(t->machine->disk, t->sync, t->blocks[RAM_MAIN]);
	return ret < 0 ? ret : 0;
}

static int switch_off(struct tracking *t)
{
	int disk = disk_log_off(t->machine->disk), vm = vm_log(t->machine->vm, false);

	return disk < 0 ? disk : vm;
}

int tracking_switch(struct tracking *t, bool on)
{
	int ret = on ? switch_on(t) : switch_off(t);

	if (on && ret < 0)
		switch_off(t);
	return ret;
}

int64_t tracking_sync(struct tracking *t)
{
	int64_t read = t->read_kvm ? t->read_kvm(t) : 0;
	int64_t ret = read < 0 ? read : silt_sync_run(t->sync, t->consumer);

	return ret < 0 ? ret : ret + read;
}
