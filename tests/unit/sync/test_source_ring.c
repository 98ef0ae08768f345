/* SPDX-License-Identifier: BSD-3-Clause */
/* Dirty rings, on a fake of KVM that protects pages as the kernel does. */
#include <errno.h>
#include <pthread.h>

#include "bits.h"
#include "fake_rings.h"
#include "support/rng.h"

#define PAGE	    UINT64_C(4096)
#define BLOCK_PAGES 1024

/* Pages of the block that slot 0, 1 and 2 show from their first on: no alignment. */
static const uint64_t offsets[RINGS_SLOTS] = {0, 301, 707};

struct machine {
	struct rings rings;
	struct silt_sync *s;
	int block, source;
	int slots[RINGS_SLOTS];
};

static struct silt_sync_ring ring_options(struct machine *m)
{
	return (struct silt_sync_ring){.size = sizeof(struct silt_sync_ring),
				       .name = "vcpus",
				       .ring_bytes = RING_BYTES,
				       .page_shift = 12,
				       .ioctl = rings_ioctl,
				       .opaque = &m->rings};
}

static int show(struct machine *m, unsigned int slot, uint32_t flags)
{
	m->rings.slots[slot].id = slot;
	m->slots[slot] = add_slot(m->s, slot, m->block, (1 + slot) * 1000 * PAGE, SLOT_PAGES * PAGE,
				  offsets[slot] * PAGE, flags);
	return m->slots[slot];
}

static void add_rings(struct machine *m, const struct silt_sync_ring *opt)
{
	unsigned int i;

	m->source = silt_sync_add_ring(m->s, opt);
	assert_true(m->source >= 0);
	for (i = 0; i < m->rings.nvcpus; i++)
		assert_int_equal(silt_sync_ring_add_vcpu(m->s, m->source, m->rings.vcpus[i].fd), 0);
}

/* Slots 0 and 1 are there and logged, one consumer has nothing dirty. */
static void start(struct machine *m, unsigned int nvcpus)
{
	struct silt_sync_ring opt = ring_options(m);

	rings_create(&m->rings, nvcpus);
	m->s = engine(12, 1);
	m->block = silt_sync_block_add(m->s, "ram", BLOCK_PAGES * PAGE, NULL);
	assert_int_equal(silt_sync_consumer_add(m->s, false), 0);
	assert_true(show(m, 0, SILT_SYNC_SLOT_LOGGED) >= 0);
	add_rings(m, &opt);
	assert_true(show(m, 1, SILT_SYNC_SLOT_LOGGED) >= 0);
}

static void stop(struct machine *m)
{
	silt_sync_destroy(m->s);
	rings_destroy(&m->rings);
}

static int64_t dirty_of_slot(struct machine *m, unsigned int slot)
{
	return silt_sync_dirty(m->s, 0, m->block, offsets[slot], SLOT_PAGES);
}

static bool is_dirty(struct machine *m, unsigned int slot, uint64_t page)
{
	return silt_sync_dirty(m->s, 0, m->block, offsets[slot] + page, 1);
}

/* ---- Programs -------------------------------------------------------------------------------- */

struct program {
	struct machine m;
	struct rng rng;
	bool bits[BLOCK_PAGES];
	uint64_t copy[RINGS_SLOTS][SLOT_PAGES];
};

static void write_some(struct program *p)
{
	unsigned int n = (unsigned int)rng_below(&p->rng, 80), vcpu, slot;

	for (; n; n--) {
		vcpu = (unsigned int)rng_below(&p->rng, p->m.rings.nvcpus);
		slot = (unsigned int)rng_below(&p->rng, 2);
		if (rings_full(&p->m.rings, vcpu))
			assert_true(silt_sync_ring_reap(p->m.s, p->m.source) >= RING_ENTRIES);
		rings_write(&p->m.rings, vcpu, slot, rng_below(&p->rng, SLOT_PAGES));
		/* The exit for a full ring leaves an entry twice. */
		if (rng_one_in(&p->rng, 20) && !rings_full(&p->m.rings, vcpu) &&
		    p->m.rings.slots[slot].entered[5])
			rings_push(&p->m.rings, vcpu, slot, 5);
	}
}

static void sync_once(struct program *p)
{
	uint64_t page, fresh = 0;
	unsigned int slot;

	for (slot = 0; slot < 2; slot++) {
		for (page = 0; page < SLOT_PAGES; page++) {
			if (!p->m.rings.slots[slot].entered[page])
				continue;
			p->m.rings.slots[slot].entered[page] = false;
			fresh += !p->bits[offsets[slot] + page];
			p->bits[offsets[slot] + page] = true;
		}
	}
	assert_int_equal(silt_sync_run(p->m.s, 0), fresh);
	expect_bits(p->m.s, 0, p->m.block, p->bits, BLOCK_PAGES);
}

/* Take some runs, and copy their pages as they are now. */
static void take_some(struct program *p, unsigned int runs)
{
	uint64_t first = 0, page;
	unsigned int slot;
	int64_t n;

	while (runs-- && first < BLOCK_PAGES) {
		n = silt_sync_take(p->m.s, 0, p->m.block, first, BLOCK_PAGES, &first);
		assert_true(n >= 0);
		if (!n)
			return;
		for (page = first; page < first + (uint64_t)n; page++) {
			slot = page >= offsets[1];
			p->copy[slot][page - offsets[slot]] =
				p->m.rings.slots[slot].memory[page - offsets[slot]];
			p->bits[page] = false;
		}
		first += (uint64_t)n;
	}
}

static void program(uint64_t seed)
{
	static struct program p;
	unsigned int round, slot;

	p = (struct program){.rng = rng_make(seed)};
	start(&p.m, 1 + (unsigned int)rng_below(&p.rng, MAX_VCPUS));
	for (round = 0; round < 40; round++) {
		write_some(&p);
		if (rng_one_in(&p.rng, 3))
			assert_true(silt_sync_ring_reap(p.m.s, p.m.source) >= 0);
		if (rng_one_in(&p.rng, 2))
			sync_once(&p);
		take_some(&p, (unsigned int)rng_below(&p.rng, 10));
	}
	sync_once(&p);
	take_some(&p, UINT32_MAX);
	for (slot = 0; slot < 2; slot++)
		assert_memory_equal(p.copy[slot], p.m.rings.slots[slot].memory,
				    sizeof(p.copy[slot]));
	stop(&p.m);
}

static void test_programs(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 100; seed++)
		program(seed);
}

/* ---- Single laws ----------------------------------------------------------------------------- */

/* All entries of a ring, again and again: its end is no special place. */
static void test_full(void **state)
{
	struct machine m;
	unsigned int round;
	uint64_t page;

	(void)state;
	start(&m, 1);
	for (round = 0; round < 3; round++) {
		for (page = 0; page < RING_ENTRIES; page++)
			rings_write(&m.rings, 0, 0, 3 * page % SLOT_PAGES);
		assert_true(rings_full(&m.rings, 0));
		assert_int_equal(silt_sync_ring_reap(m.s, m.source), RING_ENTRIES);
		assert_int_equal(silt_sync_ring_reap(m.s, m.source), 0);
		assert_int_equal(silt_sync_run(m.s, 0), RING_ENTRIES);
		assert_int_equal(drain(m.s, 0, m.block), RING_ENTRIES);
	}
	assert_int_equal(m.rings.resets, 3);
	stop(&m);
}

/* One entry that is taken already, and one that is neither: reaping ends there. */
static void test_flags(void **state)
{
	struct machine m;

	(void)state;
	start(&m, 1);
	rings_write(&m.rings, 0, 0, 1);
	m.rings.vcpus[0].entries[1] = (struct kvm_dirty_gfn){.flags = 3, .slot = 0, .offset = 9};
	assert_int_equal(silt_sync_run(m.s, 0), 1);
	assert_true(is_dirty(&m, 0, 1));
	m.rings.vcpus[0].entries[1].flags = 4;
	assert_int_equal(silt_sync_ring_reap(m.s, m.source), 0);
	stop(&m);
}

/* What an entry could have meant is everything that is logged; the next sync starts afresh. */
static void expect_refused(struct machine *m, const char *in_message)
{
	expect_error(silt_sync_run(m->s, 0), EPROTO, "source vcpus");
	assert_non_null(strstr(silt_errmsg(), in_message));
	assert_int_equal(dirty_of_slot(m, 0), SLOT_PAGES);
	assert_int_equal(dirty_of_slot(m, 1), SLOT_PAGES);
	drain(m->s, 0, m->block);
	assert_int_equal(silt_sync_run(m->s, 0), 0);
}

static void test_hostile_entries(void **state)
{
	struct machine m;

	(void)state;
	start(&m, 2);
	assert_true(show(&m, 2, 0) >= 0);
	rings_push(&m.rings, 1, 0, SLOT_PAGES);
	expect_refused(&m, "0xc8");
	rings_push(&m.rings, 0, 1, UINT64_MAX);
	assert_int_equal(silt_sync_ring_reap(m.s, m.source), 1);
	expect_refused(&m, "slot 1 of address space 0");
	rings_push(&m.rings, 0, 0xfffff, 0);
	expect_refused(&m, "slot 65535 of address space 15");
	rings_push(&m.rings, 1, 2, 7);
	rings_write(&m.rings, 1, 0, 7);
	expect_refused(&m, "slot 2 of address space 0, which is unknown or not logged");
	assert_int_equal(dirty_of_slot(&m, 2), 0);
	stop(&m);
}

/* The guest may use a slot before the engine is told of it. */
static void test_slot_that_comes_late(void **state)
{
	struct machine m;
	uint32_t id;

	(void)state;
	start(&m, 1);
	rings_push(&m.rings, 0, 2, 7);
	assert_int_equal(silt_sync_ring_reap(m.s, m.source), 1);
	assert_true(show(&m, 2, SILT_SYNC_SLOT_LOGGED) >= 0);
	assert_int_equal(silt_sync_run(m.s, 0), SLOT_PAGES);
	assert_int_equal(dirty_of_slot(&m, 2), SLOT_PAGES);
	assert_int_equal(silt_sync_slot_remove(m.s, m.slots[2]), 0);
	drain(m.s, 0, m.block);
	/* More than can be told apart: then any may be one. */
	for (id = 100; id < 200; id++) {
		rings_push(&m.rings, 0, id, 7);
		assert_int_equal(silt_sync_ring_reap(m.s, m.source), 1);
	}
	expect_refused(&m, "slot 164");
	assert_true(show(&m, 2, SILT_SYNC_SLOT_LOGGED) >= 0);
	assert_int_equal(silt_sync_run(m.s, 0), SLOT_PAGES);
	stop(&m);
}

/* What was written through a slot before it went is in no ring any more when it comes again. */
static void test_removed_slot(void **state)
{
	struct machine m;

	(void)state;
	start(&m, 1);
	rings_write(&m.rings, 0, 1, 7);
	assert_int_equal(silt_sync_slot_remove(m.s, m.slots[1]), 0);
	assert_int_equal(dirty_of_slot(&m, 1), SLOT_PAGES);
	drain(m.s, 0, m.block);
	assert_int_equal(silt_sync_run(m.s, 0), 0);
	assert_true(show(&m, 1, SILT_SYNC_SLOT_LOGGED) >= 0);
	rings_write(&m.rings, 0, 1, 9);
	assert_int_equal(silt_sync_run(m.s, 0), 1);
	assert_true(is_dirty(&m, 1, 9));
	stop(&m);
}

/* Where a reset fails, a write after it makes no entry: the page stays dirty until one works. */
static void test_reset_fails(void **state)
{
	struct machine m;

	(void)state;
	start(&m, 1);
	rings_write(&m.rings, 0, 0, 7);
	m.rings.fail_reset = EIO;
	expect_error(silt_sync_ring_reap(m.s, m.source), EIO, "source vcpus");
	expect_error(silt_sync_run(m.s, 0), EIO, "KVM_RESET_DIRTY_RINGS");
	assert_int_equal(dirty_of_slot(&m, 0), SLOT_PAGES);
	drain(m.s, 0, m.block);
	rings_write(&m.rings, 0, 0, 7);
	m.rings.fail_reset = 0;
	assert_int_equal(silt_sync_run(m.s, 0), 1);
	assert_true(is_dirty(&m, 0, 7));
	drain(m.s, 0, m.block);
	assert_int_equal(silt_sync_run(m.s, 0), 0);
	stop(&m);
}

/* A signal would cut a reset short, and writes to the pages behind it would make no entries. */
static void test_signals(void **state)
{
	struct machine m;
	uint64_t page;

	(void)state;
	start(&m, 2);
	m.rings.signals = true;
	for (page = 0; page < 6; page++)
		rings_write(&m.rings, page % 2, page % 2, page);
	assert_int_equal(silt_sync_run(m.s, 0), 6);
	drain(m.s, 0, m.block);
	for (page = 0; page < 6; page++)
		rings_write(&m.rings, page % 2, page % 2, page);
	assert_int_equal(silt_sync_ring_reap(m.s, m.source), 6);
	assert_int_equal(silt_sync_run(m.s, 0), 6);
	stop(&m);
}

/* A reset that was cut short all the same: the page that it has lost is written unseen from then
 * on. */
static void test_reset_cut_short(void **state)
{
	struct machine m;
	int i;

	(void)state;
	start(&m, 2);
	rings_write(&m.rings, 0, 0, 7);
	rings_write(&m.rings, 0, 0, 8);
	rings_write(&m.rings, 1, 1, 9);
	m.rings.stop = true;
	expect_error(silt_sync_run(m.s, 0), EINTR,
		     "source vcpus: KVM_RESET_DIRTY_RINGS was cut short");
	assert_int_equal(dirty_of_slot(&m, 0), SLOT_PAGES);
	for (i = 0; i < 3; i++) {
		drain(m.s, 0, m.block);
		rings_write(&m.rings, 0, 0, 7);
		assert_int_equal(silt_sync_run(m.s, 0), 3);
		assert_true(is_dirty(&m, 0, 7) && is_dirty(&m, 0, 8) && is_dirty(&m, 1, 9));
	}
	stop(&m);
}

/* A source that comes later, say for a second migration, goes on where KVM does. */
static void test_ring_that_was_used(void **state)
{
	struct machine m;
	struct silt_sync_ring opt;
	uint64_t page;

	(void)state;
	start(&m, 2);
	opt = ring_options(&m);
	for (page = 0; page < RING_ENTRIES - 3; page++)
		rings_write(&m.rings, 0, 0, page);
	assert_int_equal(silt_sync_run(m.s, 0), RING_ENTRIES - 3);
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	drain(m.s, 0, m.block);
	add_rings(&m, &opt);
	assert_int_equal(silt_sync_run(m.s, 0), 0);
	for (page = 0; page < 5; page++)
		rings_write(&m.rings, 0, 0, page);
	assert_int_equal(silt_sync_run(m.s, 0), 5);
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	drain(m.s, 0, m.block);
	/* Full of entries that nobody took: one is as good a beginning as another. */
	for (page = 0; page < RING_ENTRIES; page++)
		rings_write(&m.rings, 0, 0, page);
	rings_write(&m.rings, 1, 1, 3);
	add_rings(&m, &opt);
	assert_int_equal(silt_sync_run(m.s, 0), RING_ENTRIES + 1);
	rings_write(&m.rings, 0, 0, 1);
	drain(m.s, 0, m.block);
	assert_int_equal(silt_sync_run(m.s, 0), 1);
	stop(&m);
}

/* What a source left unprotected is protected by the first reaping of the next one. */
static void test_reset_left_to_the_next_source(void **state)
{
	struct machine m;
	struct silt_sync_ring opt;

	(void)state;
	start(&m, 1);
	opt = ring_options(&m);
	rings_write(&m.rings, 0, 0, 7);
	m.rings.fail_reset = EIO;
	expect_error(silt_sync_run(m.s, 0), EIO, "KVM_RESET_DIRTY_RINGS");
	m.rings.fail_reset = 0;
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	add_rings(&m, &opt);
	assert_int_equal(silt_sync_run(m.s, 0), 0);
	drain(m.s, 0, m.block);
	rings_write(&m.rings, 0, 0, 7);
	assert_int_equal(silt_sync_run(m.s, 0), 1);
	stop(&m);
}

static int refuse(void *opaque, const struct silt_sync_log_file *file)
{
	bool *refuses = opaque;

	(void)file;
	return *refuses ? -EAGAIN : 0;
}

/* A slot that is refused by a source was not there: entries that named it are not forgotten. */
static void test_refused_slot(void **state)
{
	struct machine m;
	bool refuses = false;
	struct silt_sync_log log = {.size = sizeof(log), .replace = refuse, .opaque = &refuses};
	struct silt_sync_slot far = {.size = sizeof(far),
				     .number = 2,
				     .gpa = UINT64_C(1) << 40,
				     .bytes = SLOT_PAGES * PAGE,
				     .flags = SILT_SYNC_SLOT_LOGGED};

	(void)state;
	start(&m, 1);
	far.block = m.block;
	far.offset = offsets[2] * PAGE;
	assert_true(silt_sync_add_log(m.s, &log) >= 0);
	m.rings.slots[2].id = 2;
	rings_write(&m.rings, 0, 2, 5);
	assert_int_equal(silt_sync_ring_reap(m.s, m.source), 1);
	refuses = true;
	expect_error(silt_sync_slot_add(m.s, &far), EAGAIN, "refused a dirty log");
	refuses = false;
	assert_true(silt_sync_slot_add(m.s, &far) >= 0);
	assert_int_equal(silt_sync_run(m.s, 0), SLOT_PAGES);
	stop(&m);
}

static void test_with_bitmap(void **state)
{
	struct machine m;
	struct silt_sync_ring opt;

	(void)state;
	start(&m, 1);
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	opt = ring_options(&m);
	opt.with_bitmap = true;
	add_rings(&m, &opt);
	rings_write(&m.rings, 0, 0, 7);
	m.rings.slots[0].bitmap[0] = 1 << 3;
	m.rings.slots[1].bitmap[3] = UINT64_MAX;
	assert_int_equal(silt_sync_run(m.s, 0), 2 + SLOT_PAGES - 192);
	assert_true(is_dirty(&m, 0, 3) && is_dirty(&m, 0, 7) && is_dirty(&m, 1, 192));
	assert_int_equal(m.rings.gets, 2);
	assert_false(m.rings.get_before_reset);
	m.rings.fail_get = EFAULT;
	expect_error(silt_sync_run(m.s, 0), EFAULT, "slot 0 of address space 0");
	assert_int_equal(dirty_of_slot(&m, 0), SLOT_PAGES);
	assert_int_equal(dirty_of_slot(&m, 1), SLOT_PAGES);
	stop(&m);
}

static void test_thread(void **state)
{
	struct machine m;
	struct silt_sync_ring opt;

	(void)state;
	start(&m, 1);
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	opt = ring_options(&m);
	opt.reap_ms = 1;
	rings_write(&m.rings, 0, 0, 7);
	rings_write(&m.rings, 0, 1, 8);
	add_rings(&m, &opt);
	rings_wait_for_reset(&m.rings, 1);
	assert_int_equal(silt_sync_run(m.s, 0), 2);
	assert_true(is_dirty(&m, 0, 7) && is_dirty(&m, 1, 8));
	stop(&m);
}

static void *reap_as_vcpu(void *arg)
{
	struct machine *m = arg;

	return silt_sync_ring_reap(m->s, m->source) == 1 ? m : NULL;
}

/* Whoever changes slots may wait for a vCPU, and that one for room in its ring. */
static int reap_meanwhile(void *opaque, const struct silt_sync_log_file *file)
{
	struct machine *m = opaque;
	pthread_t vcpu;
	void *ret;

	(void)file;
	rings_write(&m->rings, 0, 0, 7);
	assert_int_equal(pthread_create(&vcpu, NULL, reap_as_vcpu, m), 0);
	pthread_join(vcpu, &ret);
	assert_ptr_equal(ret, m);
	return 0;
}

static void test_reaps_while_topology_changes(void **state)
{
	struct machine m;
	struct silt_sync_log log = {.size = sizeof(log), .replace = reap_meanwhile, .opaque = &m};

	(void)state;
	start(&m, 1);
	assert_true(silt_sync_add_log(m.s, &log) >= 0);
	assert_int_equal(silt_sync_run(m.s, 0), 1);
	stop(&m);
}

static void test_misuse(void **state)
{
	struct machine m;
	struct silt_sync_ring opt;

	(void)state;
	start(&m, 1);
	opt = ring_options(&m);
	expect_error(silt_sync_add_ring(m.s, &opt), EEXIST, "source vcpus");
	assert_int_equal(silt_sync_run(m.s, 0), 0);
	expect_error(silt_sync_ring_reap(m.s, m.source + 1), ENOENT, "no source");
	expect_error(silt_sync_ring_add_vcpu(m.s, m.source, -1), EBADF, "source vcpus");
	assert_int_equal(silt_sync_source_remove(m.s, m.source), 0);
	expect_error(silt_sync_ring_reap(m.s, m.source), ENOENT, "no source");
	opt.ring_bytes = 3000;
	expect_error(silt_sync_add_ring(m.s, &opt), EINVAL, "3000");
	opt.ring_bytes = 0;
	expect_error(silt_sync_add_ring(m.s, &opt), EINVAL, "ring of 0 bytes");
	opt.ring_bytes = RING_BYTES;
	opt.page_shift = 17;
	expect_error(silt_sync_add_ring(m.s, &opt), EINVAL, "2^17");
	opt.page_shift = 16;
	expect_error(silt_sync_add_ring(m.s, &opt), EINVAL, "65536");
	stop(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_hostile_entries),
		cmocka_unit_test(test_slot_that_comes_late),
		cmocka_unit_test(test_removed_slot),
		cmocka_unit_test(test_reset_fails),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_reset_cut_short),
		cmocka_unit_test(test_ring_that_was_used),
		cmocka_unit_test(test_reset_left_to_the_next_source),
		cmocka_unit_test(test_refused_slot),
		cmocka_unit_test(test_with_bitmap),
		cmocka_unit_test(test_thread),
		cmocka_unit_test(test_reaps_while_topology_changes),
		cmocka_unit_test(test_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
