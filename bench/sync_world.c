/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/sync_world.h"

#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <silt/bitmap.h>
#include <silt/error.h>

#include "base/err.h"
#include "bench/stats.h"
#include "guest/guest.h"

/* Physical memory under all of the guest's: shown again and again, so that none is missed. */
#define SHARED_BYTES (UINT64_C(256) << 20)
#define HUGE_BYTES   (UINT64_C(2) << 20)

#define SPIN_GPA    UINT64_C(0xf0000000)
#define SPIN_NUMBER SYNC_MAX_SLOTS

/* Where nothing can be measured: a clear beside a running vCPU, and one more random page of it. */
#define CALL_NS 6000
#define PAGE_NS 260
/* KVM looks at every word of the mask. */
#define WORD_NS 1.2

#define MAX_SAMPLE UINT64_C(131072)
#define PARTS	   16

/* ---- Calls ----------------------------------------------------------------------------------- */

static int get(struct sync_world *w, int fd, struct kvm_dirty_log *log)
{
	const struct bench_bitmap *dirty = &w->dirty[log->slot];

	if (w->guest)
		return ioctl(fd, KVM_GET_DIRTY_LOG, log);
	memcpy(log->dirty_bitmap, dirty->words, dirty->n * sizeof(*dirty->words));
	return 0;
}

static double price(const struct sync_world *w, const struct kvm_clear_dirty_log *log)
{
	uint64_t dirty = silt_bitmap_count(log->dirty_bitmap, 0, log->num_pages);

	return w->cost.call_ns + (double)(dirty ? dirty - 1 : 0) * w->cost.page_ns +
	       (double)log->num_pages / 64 * WORD_NS;
}

static void take_out(uint64_t *dirty, const struct kvm_clear_dirty_log *log)
{
	const uint64_t *mask = log->dirty_bitmap;
	uint64_t i;

	for (i = 0; i < silt_bitmap_words(log->num_pages); i++)
		dirty[log->first_page / 64 + i] &= ~mask[i];
}

static double longer(double ns, double longest)
{
	return ns > longest ? ns : longest;
}

static int clear(struct sync_world *w, int fd, struct kvm_clear_dirty_log *log)
{
	bool real = w->guest && w->clears == SYNC_CLEARS_DONE;
	uint64_t start;
	double spent, ns;
	int ret = 0;

	if (w->clears == SYNC_CLEARS_FORGOTTEN)
		return 0;
	start = bench_now_ns();
	if (real)
		ret = ioctl(fd, KVM_CLEAR_DIRTY_LOG, log);
	else if (w->clears == SYNC_CLEARS_DONE)
		take_out(w->dirty[log->slot].words, log);
	spent = (double)(bench_now_ns() - start);
	ns = real ? spent - w->clock_ns : price(w, log);
	w->nclears++;
	w->clear_ns += ns;
	w->longest_ns = longer(ns, w->longest_ns);
	w->call_ns += spent + w->clock_ns;
	w->clear_end = log->first_page + log->num_pages;
	return ret;
}

void sync_world_charge(struct sync_world *w, uint64_t clears)
{
	w->nclears += clears;
	w->clear_ns += (double)clears * w->cost.call_ns;
	if (clears)
		w->longest_ns = longer(w->cost.call_ns, w->longest_ns);
}

int sync_world_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct sync_world *w = opaque;
	struct kvm_dirty_log *log = arg;
	int ret;

	if (request != KVM_GET_DIRTY_LOG)
		return clear(w, fd, arg);
	w->get_start[log->slot] = bench_now_ns();
	ret = get(w, fd, log);
	w->get_end[log->slot] = bench_now_ns();
	w->get_ns += (double)(w->get_end[log->slot] - w->get_start[log->slot]) - w->clock_ns;
	return ret;
}

static int vm_fd(const struct sync_world *w)
{
	return w->guest ? guest_vm_fd(w->guest) : -1;
}

int sync_world_get(struct sync_world *w, unsigned int slot, uint64_t *bits)
{
	struct kvm_dirty_log log = {.slot = slot, .dirty_bitmap = bits};

	if (sync_world_ioctl(w, vm_fd(w), KVM_GET_DIRTY_LOG, &log) < 0)
		return silt_err_sys(errno, "KVM_GET_DIRTY_LOG of slot %u", slot);
	return 0;
}

int sync_world_clear(struct sync_world *w, unsigned int slot, uint64_t first, uint64_t n,
		     uint64_t *bits)
{
	struct kvm_clear_dirty_log log = {
		.slot = slot, .num_pages = (uint32_t)n, .first_page = first, .dirty_bitmap = bits};

	if (sync_world_ioctl(w, vm_fd(w), KVM_CLEAR_DIRTY_LOG, &log) < 0)
		return silt_err_sys(errno, "KVM_CLEAR_DIRTY_LOG of slot %u", slot);
	return 0;
}

void sync_world_reset(struct sync_world *w)
{
	w->nclears = w->clear_end = 0;
	w->get_ns = w->clear_ns = w->longest_ns = w->call_ns = 0;
}

/* ---- Dirtying -------------------------------------------------------------------------------- */

static void add_range(struct guest_program *p, const struct sync_slot_at *slot)
{
	p->ranges[p->nranges++] = (struct guest_range){slot->gpa * SYNC_PAGE, slot->pages};
}

/* Then the vCPU goes on with writes to one page that nobody tracks: clears find it running. */
static int run(struct sync_world *w, const struct guest_program *p)
{
	static const struct guest_program spin = {
		.ranges = {{SPIN_GPA, 1}}, .nranges = 1, .run = 1, .stride = 1};
	int ret = guest_pause(w->guest);

	if (ret >= 0)
		ret = guest_program(w->guest, 0, p);
	if (ret < 0)
		return ret;
	guest_resume(w->guest);
	ret = guest_wait(w->guest);
	if (ret >= 0)
		ret = guest_program(w->guest, 0, &spin);
	if (ret >= 0)
		guest_resume(w->guest);
	return ret;
}

static int write_memory(struct sync_world *w, enum sync_pattern pattern, uint64_t writes,
			uint64_t seed)
{
	uint64_t run_pages = sync_pattern_run(pattern);
	struct guest_program p = {
		.run = run_pages, .stride = run_pages, .seed = seed, .writes = writes};
	unsigned int i;

	for (i = 0; i < w->topology->nbig; i++)
		add_range(&p, &w->topology->slots[i]);
	return run(w, &p);
}

/* Slots of all sizes in proportion. */
static void fill_memory(struct sync_world *w, enum sync_pattern pattern, uint64_t writes,
			uint64_t seed)
{
	const struct sync_topology *t = w->topology;
	unsigned int i;

	for (i = 0; i < t->nbig; i++)
		sync_pattern_fill(pattern, w->dirty[i].words, 0, t->slots[i].pages,
				  writes * (t->slots[i].pages / 64) / (t->pages / 64), &seed);
}

int sync_world_dirty_firmware(struct sync_world *w)
{
	const struct sync_topology *t = w->topology;
	struct guest_program p = {.run = 1, .stride = 1, .sequential = true};
	unsigned int i;

	for (i = t->nbig; i < t->nslots; i++) {
		if (w->guest)
			add_range(&p, &t->slots[i]);
		else
			silt_bitmap_set_range(w->dirty[i].words, 0, t->slots[i].pages);
		p.writes += t->slots[i].pages;
	}
	return w->guest ? run(w, &p) : 0;
}

int sync_world_dirty(struct sync_world *w, enum sync_pattern pattern, uint64_t seed)
{
	uint64_t writes = sync_pattern_writes(w->topology, pattern);
	int ret = 0;

	if (pattern == SYNC_CLEAN)
		return 0;
	if (w->guest)
		ret = write_memory(w, pattern, writes, seed);
	else
		fill_memory(w, pattern, writes, seed);
	return ret < 0 ? ret : sync_world_dirty_firmware(w);
}

/* ---- What a clear costs ---------------------------------------------------------------------- */

/* Page by page, as @bits has them. Return: the median, or -errno. */
static int clear_each(struct sync_world *w, unsigned int slot, const uint64_t *bits, double *ns)
{
	double each[512];
	uint64_t mask, bit, pages = w->topology->slots[slot].pages;
	unsigned int n = 0;
	int ret = 0;

	for (bit = silt_bitmap_next(bits, 0, pages); bit < pages && n < 512 && !ret;
	     bit = silt_bitmap_next(bits, bit + 1, pages)) {
		uint64_t first = bit / 64 * 64, rest = pages - first;

		mask = UINT64_C(1) << bit % 64;
		sync_world_reset(w);
		ret = sync_world_clear(w, slot, first, rest < 64 ? rest : 64, &mask);
		each[n++] = w->clear_ns;
	}
	*ns = n ? stats_median(each, n) : CALL_NS;
	return ret;
}

/* In parts. Return: what a page more costs, the median of them, or -errno. */
static int clear_parts(struct sync_world *w, unsigned int slot, uint64_t *bits, double *ns)
{
	uint64_t part = w->topology->slots[slot].pages / PARTS / 64 * 64, dirty, i;
	double each[PARTS];
	unsigned int n = 0;
	int ret = 0;

	for (i = 0; i < PARTS && !ret; i++) {
		dirty = silt_bitmap_count(bits, i * part, part);
		if (dirty < 2)
			continue;
		sync_world_reset(w);
		ret = sync_world_clear(w, slot, i * part, part, &bits[i * part / 64]);
		each[n++] = (w->clear_ns - w->cost.call_ns - (double)part / 64 * WORD_NS) /
			    (double)(dirty - 1);
	}
	*ns = n ? stats_median(each, n) : PAGE_NS;
	return ret;
}

static int measure_with(struct sync_world *w, uint64_t *bits)
{
	unsigned int firmware = w->topology->nbig;
	uint64_t writes = sync_pattern_writes(w->topology, SYNC_RANDOM);
	int ret = write_memory(w, SYNC_RANDOM, writes < MAX_SAMPLE ? writes : MAX_SAMPLE, 1);

	if (!ret)
		ret = sync_world_dirty_firmware(w);
	if (!ret)
		ret = sync_world_get(w, firmware, bits);
	if (!ret)
		ret = clear_each(w, firmware, bits, &w->cost.call_ns);
	if (!ret)
		ret = sync_world_get(w, firmware - 1, bits);
	if (!ret)
		ret = clear_parts(w, firmware - 1, bits, &w->cost.page_ns);
	w->cost.measured = !ret;
	return ret;
}

/* Samples lie in other slots too. */
static int clean(struct sync_world *w, uint64_t *bits)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < w->topology->nslots && !ret; i++) {
		ret = sync_world_get(w, i, bits);
		if (!ret)
			ret = sync_world_clear(w, i, 0, w->topology->slots[i].pages, bits);
	}
	return ret;
}

static int measure(struct sync_world *w)
{
	struct bench_bitmap bits;
	int ret = bench_bitmap_make(&bits, w->topology->slots[w->topology->nbig - 1].pages);

	if (!ret)
		ret = measure_with(w, bits.words);
	if (!ret)
		ret = clean(w, bits.words);
	bench_bitmap_free(&bits);
	return ret;
}

/* ---- The guest ------------------------------------------------------------------------------- */

/* All of @bytes shows the same few pages. */
static void *map_shared(uint64_t bytes)
{
	int fd = memfd_create("silt-bench-memory", MFD_CLOEXEC);
	char *memory = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t at, n;

	if (fd < 0 || memory == MAP_FAILED || ftruncate(fd, SHARED_BYTES) < 0)
		goto fail;
	memory += HUGE_BYTES - (uintptr_t)memory % HUGE_BYTES;
	for (at = 0; at < bytes; at += n) {
		n = bytes - at < SHARED_BYTES ? bytes - at : SHARED_BYTES;
		if (mmap(memory + at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    MAP_FAILED)
			goto fail;
	}
	madvise(memory, bytes, MADV_HUGEPAGE);
	close(fd);
	return memory;
fail:
	silt_err_sys(errno, "memory of a guest with %llu bytes", (unsigned long long)bytes);
	if (fd >= 0)
		close(fd);
	return NULL;
}

static int add_slots(struct sync_world *w)
{
	const struct sync_topology *t = w->topology;
	struct guest_slot spin = {
		.number = SPIN_NUMBER, .gpa = SPIN_GPA, .bytes = SYNC_PAGE, .memory = w->spin};
	char *memory = w->memory;
	unsigned int i;
	int ret = guest_slot_set(w->guest, &spin);

	for (i = 0; i < t->nslots && ret >= 0; i++) {
		struct guest_slot slot = {.number = i,
					  .gpa = t->slots[i].gpa * SYNC_PAGE,
					  .bytes = t->slots[i].pages * SYNC_PAGE,
					  .memory = memory,
					  .logged = true};

		ret = guest_slot_set(w->guest, &slot);
		memory += slot.bytes;
	}
	return ret;
}

static int fill_guest(struct sync_world *w)
{
	const struct sync_topology *t = w->topology;
	unsigned int i;

	for (i = 0; i < t->nslots; i++)
		w->memory_bytes += t->slots[i].pages * SYNC_PAGE;
	w->memory = map_shared(w->memory_bytes);
	w->spin = guest_memory_map(SYNC_PAGE);
	if (!w->memory || !w->spin)
		return -ENOMEM;
	return add_slots(w);
}

static int make_guest(struct sync_world *w)
{
	struct guest_options opt = {.log = GUEST_LOG_MANUAL, .vcpus = 1};
	int ret;

	if (w->topology->log_pages > GUEST_END / SYNC_PAGE) {
		w->why = "guests are at most 512 GiB large";
		return 0;
	}
	ret = guest_create(&opt, &w->guest);
	if (ret < 0) {
		w->guest = NULL;
		w->why = "there is no KVM to be had";
		return guest_missing(ret) ? 0 : ret;
	}
	ret = fill_guest(w);
	return ret < 0 ? ret : measure(w);
}

static int make_bitmaps(struct sync_world *w)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < w->topology->nslots && !ret; i++)
		ret = bench_bitmap_make(&w->dirty[i], w->topology->slots[i].pages);
	return ret;
}

/* A small guest tells what clears cost, where there can be one. */
static int measure_elsewhere(struct sync_world *w)
{
	struct sync_topology small_topology;
	struct sync_world small;
	int ret;

	sync_topology_make("16g", &small_topology);
	ret = sync_world_create(&small, &small_topology, true);
	if (!ret)
		w->cost = small.cost;
	sync_world_destroy(&small);
	return ret;
}

static double clock_cost(void)
{
	double each[101];
	uint64_t last = bench_now_ns(), now;
	unsigned int i;

	for (i = 0; i < 101; i++, last = now) {
		now = bench_now_ns();
		each[i] = (double)(now - last);
	}
	return stats_median(each, 101);
}

int sync_world_create(struct sync_world *w, const struct sync_topology *topology, bool kvm)
{
	int ret = 0;

	*w = (struct sync_world){.topology = topology,
				 .cost = {.call_ns = CALL_NS, .page_ns = PAGE_NS}};
	w->clock_ns = clock_cost();
	if (kvm)
		ret = make_guest(w);
	if (ret < 0 || w->guest)
		return ret;
	if (kvm && topology->log_pages > GUEST_END / SYNC_PAGE)
		ret = measure_elsewhere(w);
	return ret < 0 ? ret : make_bitmaps(w);
}

void sync_world_destroy(struct sync_world *w)
{
	unsigned int i;

	guest_destroy(w->guest);
	if (w->memory)
		munmap(w->memory, w->memory_bytes);
	if (w->spin)
		guest_memory_unmap(w->spin, SYNC_PAGE);
	for (i = 0; i < SYNC_MAX_SLOTS; i++)
		bench_bitmap_free(&w->dirty[i]);
	*w = (struct sync_world){0};
}
