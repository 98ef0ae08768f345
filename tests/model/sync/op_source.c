/* SPDX-License-Identifier: BSD-3-Clause */
/* Sources come, go and fail. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

static const int errors[] = {EIO, EFAULT, ENOMEM};

static int add_vcpu(struct world *w, const struct source *src, unsigned int vcpu)
{
	return silt_sync_ring_add_vcpu(w->sync, src->id, w->kvm.vcpus[vcpu].fd);
}

static int add_ring(struct world *w, struct source *src)
{
	struct silt_sync_ring opt = {
		.size = sizeof(opt),
		.name = src->name,
		.vm_fd = FAKE_KVM_VM_FD,
		.ring_bytes = w->kvm.ring_entries * (uint32_t)sizeof(struct kvm_dirty_gfn),
		.page_shift = w->kvm.page_shift,
		.with_bitmap = w->kvm.kind == FAKE_KVM_RING_BITMAP,
		.ioctl = fake_kvm_ioctl,
		.opaque = &w->kvm,
	};
	unsigned int i;

	src->id = silt_sync_add_ring(w->sync, &opt);
	for (i = 0; src->id >= 0 && i < w->kvm.nvcpus; i++)
		expect(w, add_vcpu(w, src, i), 0, "silt_sync_ring_add_vcpu()");
	return src->id;
}

static int add_kvm(struct world *w, struct source *src)
{
	struct silt_sync_kvm opt = {
		.size = sizeof(opt),
		.name = src->name,
		.vm_fd = FAKE_KVM_VM_FD,
		.mode = w->kvm.kind == FAKE_KVM_GET_CLEARS ? SILT_SYNC_KVM_GET_CLEARS
							   : SILT_SYNC_KVM_MANUAL,
		.page_shift = w->kvm.page_shift,
		.ioctl = fake_kvm_ioctl,
		.opaque = &w->kvm,
	};

	src->kind = SOURCE_KVM;
	w->kvm.attached = true;
	if (fake_kvm_has_rings(&w->kvm))
		src->id = add_ring(w, src);
	else
		src->id = silt_sync_add_kvm(w->sync, &opt);
	w->kvm_source = src->id >= 0 ? (int)(src - w->sources) : NONE;
	return src->id;
}

static int add_log(struct world *w, struct source *src)
{
	const struct silt_sync_log opt = {
		.size = sizeof(opt),
		.name = src->name,
		.address_space = src->space,
		.replace = device_replace,
		.opaque = src,
	};
	int error;

	src->kind = SOURCE_LOG;
	if (!pick(w, 6)) {
		error = errors[pick(w, 3)];
		src->log.refuse = error;
		expect(w, silt_sync_add_log(w->sync, &opt), -error, "silt_sync_add_log()");
	}
	return silt_sync_add_log(w->sync, &opt);
}

static int add_own(struct world *w, struct source *src)
{
	struct silt_sync_own opt = {
		.size = sizeof(opt),
		.name = src->name,
		.address_space = src->space,
		.read = own_read,
		.opaque = src,
	};

	src->kind = SOURCE_OWN;
	src->shift = (unsigned int)(pick(w, 3) ? 12 + pick(w, 6) : 12 + pick(w, 19));
	opt.page_shift = src->shift == 12 && pick(w, 2) ? 0 : src->shift;
	return silt_sync_add_own(w->sync, &opt);
}

static const char *const kinds[] = {
	[SOURCE_KVM] = "kvm",
	[SOURCE_LOG] = "log",
	[SOURCE_OWN] = "own",
};

static void forget(struct source *src)
{
	struct world *w = src->world;

	if (src->log.map) {
		munmap(src->log.map, src->log.offset + src->log.bytes);
		close(src->log.fd);
	}
	memset(src, 0, sizeof(*src));
	src->world = w;
	src->id = NONE;
}

static void add_source(struct world *w, struct source *src, enum source_kind kind)
{
	int id;

	forget(src);
	src->space = (uint32_t)pick(w, 3) / 2;
	snprintf(src->name, sizeof(src->name), "%s-%d", kinds[kind], (int)(src - w->sources));
	if (kind == SOURCE_KVM)
		id = add_kvm(w, src);
	else
		id = kind == SOURCE_LOG ? add_log(w, src) : add_own(w, src);
	say(w, "add source %d, %s, space %u, granule 2^%u", id, src->name, src->space, src->shift);
	if (id < 0)
		differs(w, "%s: adding it returns %d", src->name, id);
	src->id = id < 0 ? NONE : id;
}

void op_source_add(struct world *w)
{
	enum source_kind kind = pick(w, 2) ? SOURCE_LOG : SOURCE_OWN;
	/* The first place is KVM's. */
	struct source *src = &w->sources[1];

	if (w->has_kvm && w->kvm_source == NONE && !w->rings_are_gone && pick(w, 3)) {
		add_source(w, w->sources, SOURCE_KVM);
		return;
	}
	while (src < w->sources + MAX_SOURCES && src->id != NONE)
		src++;
	if (src < w->sources + MAX_SOURCES && (!pick_source(w, kind) || !pick(w, 4)))
		add_source(w, src, kind);
}

/* A last look, as the engine does it, into a log that goes. */
static void log_goes(struct world *w, struct source *src)
{
	unsigned int i;
	uint64_t unit;

	for (i = 0; i < MAX_SLOTS; i++) {
		struct slot *s = &w->slots[i];

		if (s->id == NONE || s->space != src->space)
			continue;
		for (unit = 0; unit < s->units; unit++) {
			if (src->log.marked[s->at + unit])
				model_mark(w, &w->blocks[s->block], s->offset + unit, 1);
		}
	}
}

static void kvm_goes(struct world *w)
{
	w->rings_are_gone = fake_kvm_has_rings(&w->kvm);
	w->kvm_source = NONE;
	w->kvm.attached = false;
	fake_kvm_forget_reads(&w->kvm);
}

void op_source_remove(struct world *w)
{
	struct source *src = pick_source(w, (enum source_kind)pick(w, 3));

	if (!src)
		return;
	/* Nothing may be left in it, and nothing new may come. */
	w->meanwhile = false;
	if (src->kind != SOURCE_LOG)
		sync_run(w, SILT_SYNC_NO_CONSUMER);
	else
		log_goes(w, src);
	say(w, "remove source %d", src->id);
	expect(w, silt_sync_source_remove(w->sync, src->id), 0, "silt_sync_source_remove()");
	if (src->kind == SOURCE_KVM)
		kvm_goes(w);
	forget(src);
}

void op_log_replace(struct world *w)
{
	struct source *src = pick_source(w, SOURCE_LOG);
	int refuse;

	if (!src)
		return;
	refuse = src->log.refuse;
	say(w, "replace %s, the owner answers %d", src->name, -refuse);
	expect(w, silt_sync_log_replace(w->sync, src->id), -refuse, "silt_sync_log_replace()");
	if (src->log.replaced != !refuse)
		differs(w, "%s: replaced or not, against what was asked", src->name);
}

void op_log_refuse(struct world *w)
{
	struct source *src = pick_source(w, SOURCE_LOG);

	if (!src)
		return;
	src->log.refuse = errors[pick(w, 3)];
	say(w, "the owner of %s is going to refuse", src->name);
}

void op_vcpu_add(struct world *w)
{
	if (!w->has_kvm || !fake_kvm_has_rings(&w->kvm) || w->kvm.nvcpus == FAKE_KVM_VCPUS)
		return;
	say(w, "add vCPU %u", w->kvm.nvcpus);
	fake_kvm_vcpu_add(&w->kvm);
	if (w->kvm_source != NONE)
		expect(w, add_vcpu(w, &w->sources[w->kvm_source], w->kvm.nvcpus - 1), 0,
		       "silt_sync_ring_add_vcpu()");
}

static void reap_fails(struct world *w)
{
	uint64_t before = w->kvm.resets;
	int64_t got = silt_sync_ring_reap(w->sync, w->sources[w->kvm_source].id);

	say(w, "reap, which fails: %ld", got);
	if (w->kvm.failure.fired)
		expect(w, got, -w->kvm.failure.error, "silt_sync_ring_reap()");
	else if (!w->rings_unsure)
		expect(w, got, (int64_t)(w->kvm.resets - before), "silt_sync_ring_reap()");
	w->rings_unsure |= w->kvm.failure.fired;
	memset(&w->kvm.failure, 0, sizeof(w->kvm.failure));
}

static void let_kvm_fail(struct world *w)
{
	bool rings = fake_kvm_has_rings(&w->kvm) && pick(w, 2);

	w->kvm.failure = (struct fake_kvm_failure){
		.request = rings ? KVM_RESET_DIRTY_RINGS : KVM_GET_DIRTY_LOG,
		.after = rings ? 0 : (unsigned int)pick(w, 3),
		.error = errors[pick(w, 3)],
	};
	say(w, "request %#lx is going to fail, after %u", w->kvm.failure.request,
	    w->kvm.failure.after);
}

static void let_own_fail(struct world *w, struct source *src)
{
	src->own.fail = errors[pick(w, 3)];
	src->own.fail_after = (unsigned int)pick(w, 2);
	say(w, "%s is going to fail, after %u", src->name, src->own.fail_after);
}

/* One source fails, or two: the first one's error is told. */
void op_read_fails(struct world *w)
{
	struct source *own = pick_source(w, SOURCE_OWN);
	uint64_t which = 1 + pick(w, 3);

	if (own && which & 1)
		let_own_fail(w, own);
	if (w->kvm_source != NONE && which & 2)
		let_kvm_fail(w);
	if (w->kvm.failure.request == KVM_RESET_DIRTY_RINGS && pick(w, 2))
		reap_fails(w);
	op_sync(w);
	if (own)
		own->own.fail = 0;
}

/* An entry that KVM would never write: nothing may come of it but an error. */
void op_ring_hostile(struct world *w)
{
	struct slot *s = pick_slot(w);
	uint32_t id = (uint32_t)rng_next(&w->rng);
	uint64_t page = pick(w, 100);

	if (w->kvm_source == NONE || !fake_kvm_has_rings(&w->kvm))
		return;
	if (s && pick(w, 2)) {
		id = s->space << 16 | s->number;
		page = s->units / w->granule_units + (UINT64_MAX >> (1 + pick(w, 63)));
	} else if (slot_at(w, id >> 16, 0) || id >> 16 < SPACES) {
		id |= SPACES << 16;
	}
	if (!fake_kvm_push(&w->kvm, (unsigned int)pick(w, w->kvm.nvcpus), id, page))
		return;
	say(w, "a ring names slot %#x, page %#lx", id, page);
	w->rings_unsure = w->rings_hostile = w->rings_strange = true;
	if (pick(w, 2))
		reap(w);
	op_sync(w);
}
