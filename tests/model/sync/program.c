/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "world.h"

/* How often each comes: of all, so many parts. */
static const struct operation {
	operation_fn *run;
	unsigned int weight;
} operations[] = {
	{op_guest_writes, 22},	 {op_sync, 14},	       {op_take, 16},	       {op_take_all, 6},
	{op_device_writes, 9},	 {op_own_writes, 7},   {op_mark, 3},	       {op_kernel_write, 3},
	{op_discard, 3},	 {op_send_fails, 3},   {op_put_back, 1},       {op_clear_fails, 3},
	{op_read_fails, 3},	 {op_ring_hostile, 1}, {op_block_add, 2},      {op_block_resize, 3},
	{op_block_remove, 1},	 {op_slot_add, 6},     {op_slot_remove, 3},    {op_consumer_add, 2},
	{op_consumer_remove, 1}, {op_source_add, 3},   {op_source_remove, 1},  {op_log_replace, 1},
	{op_log_refuse, 1},	 {op_vcpu_add, 1},     {op_wrong_argument, 1},
};

#define KINDS	    (sizeof(operations) / sizeof(operations[0]))
#define BREAK_KINDS KINDS /* the number of op_break */

/* Something to begin with. */
static operation_fn *const first_operations[] = {
	op_block_add,  op_block_add, op_consumer_add, op_slot_add,   op_slot_add,
	op_source_add, op_slot_add,  op_source_add,   op_source_add, op_slot_add,
};

#define FIRST (sizeof(first_operations) / sizeof(first_operations[0]))

static uint8_t kind_of(operation_fn *run)
{
	uint8_t kind = 0;

	while (operations[kind].run != run)
		kind++;
	return kind;
}

static uint8_t draw_kind(struct rng *rng)
{
	unsigned int total = 0, at;
	uint8_t kind;

	for (kind = 0; kind < KINDS; kind++)
		total += operations[kind].weight;
	at = (unsigned int)rng_below(rng, total);
	for (kind = 0; at >= operations[kind].weight; kind++)
		at -= operations[kind].weight;
	return kind;
}

void program_make(struct program *p, uint64_t seed, bool spoiled)
{
	struct rng rng = {seed};
	unsigned int i;

	p->seed = rng_next(&rng);
	p->n = PROGRAM_OPERATIONS;
	for (i = 0; i < p->n; i++) {
		p->op[i].kind = i < FIRST ? kind_of(first_operations[i]) : draw_kind(&rng);
		p->op[i].seed = rng_next(&rng);
	}
	if (spoiled)
		p->op[FIRST + rng_below(&rng, p->n - FIRST)].kind = BREAK_KINDS;
}

static void run_operation(struct world *w, const struct program *p, unsigned int i)
{
	uint8_t kind = p->op[i].kind;

	w->rng = (struct rng){p->op[i].seed};
	w->meanwhile_rng = (struct rng){~p->op[i].seed};
	w->meanwhile = pick(w, 3) == 0;
	if (kind == BREAK_KINDS)
		op_break(w);
	else
		operations[kind].run(w);
	device_settle(w);
	model_compare_counts(w);
	if (i % 16 == 0)
		model_law(w);
	if (i % 64 == 0)
		model_compare_bits(w);
	if (w->kvm.breach[0])
		differs(w, "KVM: %s", w->kvm.breach);
}

/* A consumer that took all is done: its copy is memory, and nothing is dirty any more. */
static void expect_rest(struct world *w)
{
	unsigned int i;
	int c;

	sync_run(w, SILT_SYNC_NO_CONSUMER);
	for (i = 0; i < MAX_BLOCKS; i++) {
		struct block *b = &w->blocks[i];

		for (c = 0; b->id != NONE && c < MAX_CONSUMERS; c++) {
			uint64_t left = model_count(w, b, c, 0, block_pages(w, b));

			if (!w->consumers[c])
				continue;
			if (left)
				differs(w, "block %d: %lu pages stay dirty for consumer %d", b->id,
					left, c);
			if (memcmp(b->read[c], b->stored, b->units * sizeof(*b->stored)))
				differs(w, "block %d: the copy of consumer %d is not memory", b->id,
					c);
		}
	}
}

static void expect_stats(struct world *w)
{
	struct silt_sync_stats stats = {.size = sizeof(stats)};

	expect(w, silt_sync_stats(w->sync, &stats), 0, "silt_sync_stats()");
	expect(w, (int64_t)stats.clears, (int64_t)(w->kvm.clears + w->failed_clears),
	       "stats: clears");
	expect(w, (int64_t)stats.cleared_pages, (int64_t)w->kvm.cleared, "stats: cleared pages");
}

static void end(struct world *w)
{
	int c;

	w->rng = (struct rng){1};
	w->meanwhile = false;
	model_law(w);
	model_compare_bits(w);
	if (pick_consumer(w) == NONE)
		op_consumer_add(w);
	while (w->has_kvm && w->kvm_source == NONE && !w->rings_are_gone && !w->wrong[0])
		op_source_add(w);
	do {
		sync_run(w, SILT_SYNC_NO_CONSUMER);
	} while (w->kvm_source != NONE && w->rings_unsure);
	model_compare_bits(w);
	for (c = 0; c < MAX_CONSUMERS; c++) {
		if (w->consumers[c])
			take_everything(w, c);
	}
	expect_rest(w);
	expect_stats(w);
	model_compare_bits(w);
}

void program_run(const struct program *p, FILE *trace, struct outcome *out)
{
	struct world *w = world_create(p->seed);
	unsigned int i;

	w->trace = trace;
	say(w,
	    "page 2^%u, %u threads, chunks of %lu, KVM %d with granule of %lu, at most %lu a clear",
	    w->opt.page_shift, w->opt.threads, w->opt.chunk_pages,
	    w->has_kvm ? (int)w->kvm.kind : NONE, w->granule_units, w->opt.clear_max_dirty);
	for (i = 0; i < p->n && !w->wrong[0]; i++)
		run_operation(w, p, i);
	if (!w->wrong[0])
		end(w);
	out->spoiled = w->spoiled;
	snprintf(out->wrong, sizeof(out->wrong), "%s", w->wrong);
	world_destroy(w);
}
