/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs: a driver and a device on one ring, both checked step by step against a model of
 * memory and log.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_ring.h>

#include "program.h"
#include "support/rounds.h"

#define PROGRAMS 60
#define STEPS	 1500

/* Where indirect tables lie: one of them straddles GUEST_CUT1 in the middle of a descriptor. */
#define TABLES	     UINT64_C(0x48008)
#define TABLE_STRIDE UINT64_C(264)

/* Where buffers lie: the second stretch has GUEST_CUT2 in it. */
static const struct {
	uint64_t start, end;
} stretches[] = {
	{0x28000, 0x48000},
	{0x58000, GUEST_LOW_END},
	{GUEST_HIGH, GUEST_HIGH_END},
};

static void append(struct fifo *f, struct buffer *b)
{
	f->buf[f->n++] = b;
}

static struct buffer *take(struct fifo *f, unsigned int i)
{
	struct buffer *b = f->buf[i];

	memmove(&f->buf[i], &f->buf[i + 1], (f->n - i - 1) * sizeof(f->buf[0]));
	f->n--;
	return b;
}

static void move_all(struct fifo *to, struct fifo *from)
{
	while (from->n)
		append(to, take(from, 0));
}

/* ---- The driver's side ----------------------------------------------------------------------- */

static uint32_t random_len(struct program *p)
{
	switch (below(p, 5)) {
	case 0:
		return below(p, 3);
	case 1:
		return 1 + below(p, 16);
	case 2:
		return 512;
	case 3:
		return 4096;
	default:
		return below(p, MAX_LEN);
	}
}

/* Inside a page, over a page's end by a byte or two, or up to the last byte of a stretch. */
static uint64_t random_gpa(struct program *p, uint32_t len)
{
	unsigned int s = below(p, 3);
	uint64_t start = stretches[s].start, end = stretches[s].end, gpa;

	switch (below(p, 4)) {
	case 0:
		return end - len;
	case 1:
		gpa = ((start + below(p, end - start)) & ~UINT64_C(4095)) + 4095 - below(p, 2);
		break;
	case 2:
		gpa = GUEST_CUT2 - below(p, MAX_LEN);
		end = GUEST_LOW_END;
		break;
	default:
		gpa = start + below(p, end - start);
	}
	return gpa < start || gpa + len > end ? end - len : gpa;
}

static int random_table(struct program *p)
{
	unsigned int i, first = chance(p, 30) ? 126 : below(p, NTABLES);

	if (!p->indirect || chance(p, 40))
		return -1;
	for (i = 0; i < NTABLES; i++)
		if (!p->table_busy[(first + i) % NTABLES])
			return (first + i) % NTABLES;
	return -1;
}

static struct buffer *random_buffer(struct program *p)
{
	struct buffer *b = p->buffer;
	unsigned int i, nread;

	while (b->in_use)
		b++;
	memset(b, 0, sizeof(*b));
	b->table = random_table(p);
	b->nsegs = 1 + below(p, chance(p, 60) ? 3 : MAX_SEGS);
	nread = below(p, b->nsegs + 1);
	for (i = 0; i < b->nsegs; i++) {
		struct silt_driver_seg *s = &b->seg[i];

		s->device_writes = i >= nread;
		s->len = random_len(p);
		s->gpa = random_gpa(p, s->len);
		*(s->device_writes ? &b->write_len : &b->read_len) += s->len;
	}
	return b;
}

uint64_t program_table_gpa(int table)
{
	return TABLES + table * TABLE_STRIDE;
}

static void step_add(struct program *p)
{
	struct buffer *b;
	void *table;
	int head;

	if (!p->ndescs_free)
		return;
	b = random_buffer(p);
	table = b->table < 0 ? NULL : guest_at(&p->guest, program_table_gpa(b->table));
	head = silt_driver_add(p->driver, b->seg, b->nsegs, table,
			       table ? program_table_gpa(b->table) : 0, b);
	if (!table && b->nsegs > p->ndescs_free) {
		assert_int_equal(head, -ENOSPC);
		return;
	}
	assert_true(head >= 0 && head < p->ring.num);
	b->head = head;
	b->in_use = true;
	p->format->added(p, b);
	append(&p->added, b);
}

static void step_driver_publish(struct program *p)
{
	bool kick = p->format->shown(p);

	assert_int_equal(silt_driver_publish(p->driver), p->added.n && kick);
	move_all(&p->available, &p->added);
}

static void forget(struct program *p, struct buffer *b)
{
	p->format->collected(p, b);
	p->ndescs_free += b->ndescs;
	if (b->table >= 0)
		p->table_busy[b->table] = false;
	b->in_use = false;
}

static void step_collect(struct program *p)
{
	void *token;
	uint32_t len;
	int ret = silt_driver_collect(p->driver, &token, &len);
	const struct buffer *b = p->used.buf[0];

	assert_int_equal(ret, p->used.n > 0);
	if (!ret)
		return;
	assert_ptr_equal(token, b);
	/* A packed ring's length counts only where something can have been written. */
	assert_int_equal(len, p->format == &packed_format && !b->write_len ? 0 : b->used_len);
	forget(p, take(&p->used, 0));
}

static void step_enable_call(struct program *p)
{
	p->format->want_call(p, true);
	assert_int_equal(silt_driver_enable_call(p->driver), p->used.n > 0);
}

static void step_disable_call(struct program *p)
{
	p->format->want_call(p, false);
	assert_int_equal(silt_driver_disable_call(p->driver), 0);
}

static void step_scribble(struct program *p)
{
	uint32_t len = 1 + below(p, 64), i;
	uint64_t gpa = random_gpa(p, len);
	uint8_t byte;

	for (i = 0; i < len; i++) {
		byte = rng_next(&p->rng);
		*(uint8_t *)guest_at(&p->guest, gpa + i) = byte;
		model_store(&p->model, gpa + i, &byte, 1);
	}
}

/* ---- The device's side ----------------------------------------------------------------------- */

/* The guest address of byte @off of the readable or the writable bytes. */
static uint64_t byte_gpa(const struct buffer *b, bool writable, uint64_t off)
{
	unsigned int i;

	for (i = 0; i < b->nsegs; i++) {
		if (b->seg[i].device_writes != writable)
			continue;
		if (off < b->seg[i].len)
			return b->seg[i].gpa + off;
		off -= b->seg[i].len;
	}
	fail_msg("offset beyond the buffer");
	return 0;
}

/* Segments must cover the bytes one after the other, none reaching over a cut between regions. */
static void check_segments(const struct program *p, const struct buffer *b, bool writable)
{
	const struct silt_virtq_elem *e = b->elem;
	unsigned int i = writable ? e->nread : 0;
	unsigned int end = writable ? e->nread + e->nwrite : e->nread;
	uint64_t off = 0, len = writable ? b->write_len : b->read_len;

	for (; i < end; i++) {
		uint64_t gpa = e->gpa[i], n = e->iov[i].iov_len;

		assert_true(n > 0 && off + n <= len);
		assert_int_equal(gpa, byte_gpa(b, writable, off));
		assert_int_equal(gpa + n - 1, byte_gpa(b, writable, off + n - 1));
		assert_false(gpa < GUEST_CUT2 && gpa + n > GUEST_CUT2);
		assert_ptr_equal(e->iov[i].iov_base, guest_hva(&p->guest, gpa));
		off += n;
	}
	assert_int_equal(off, len);
}

static void step_pop(struct program *p)
{
	struct silt_virtq_elem *elem;
	int ret = silt_virtq_pop(p->vq, &elem);
	struct buffer *b;

	assert_int_equal(ret, p->available.n > 0);
	if (ret) {
		b = take(&p->available, 0);
		b->elem = elem;
		p->format->popped(p, b);
		assert_int_equal(elem->head, b->head);
		assert_int_equal(elem->read_len, b->read_len);
		assert_int_equal(elem->write_len, b->write_len);
		check_segments(p, b, false);
		check_segments(p, b, true);
		append(&p->popped, b);
		append(&p->order, b);
	}
	assert_int_equal(silt_virtq_inflight(p->vq), p->popped.n);
	assert_int_equal(silt_virtq_last_avail(p->vq), p->last_avail);
}

static struct buffer *any_popped(struct program *p)
{
	return p->popped.n ? p->popped.buf[below(p, p->popped.n)] : NULL;
}

static void step_read(struct program *p)
{
	uint8_t got[MAX_SEGS * MAX_LEN];
	struct buffer *b = any_popped(p);
	uint64_t off, len, i;

	if (!b)
		return;
	off = below(p, b->read_len + 1);
	len = below(p, b->read_len - off + 1);
	assert_int_equal(silt_virtq_read(p->vq, b->elem, off, got, len), 0);
	for (i = 0; i < len; i++)
		assert_int_equal(got[i], model_load8(&p->model, byte_gpa(b, false, off + i)));
	assert_int_equal(silt_virtq_read(p->vq, b->elem, off, got, b->read_len - off + 1), -EINVAL);
}

static void store_through_iov(const struct silt_virtq_elem *e, uint64_t off, const uint8_t *src,
			      uint64_t len)
{
	unsigned int seg;

	for (seg = e->nread; len; seg++) {
		uint64_t n = e->iov[seg].iov_len;

		for (; off < n && len; off++, len--)
			((uint8_t *)e->iov[seg].iov_base)[off] = *src++;
		off -= n;
	}
}

static void step_write(struct program *p)
{
	uint8_t bytes[MAX_SEGS * MAX_LEN];
	struct buffer *b = any_popped(p);
	uint64_t off, len, i;

	if (!b)
		return;
	off = below(p, b->write_len + 1);
	len = chance(p, 50) ? b->write_len - off : below(p, b->write_len - off + 1);
	for (i = 0; i < len; i++) {
		bytes[i] = rng_next(&p->rng);
		model_device_data(&p->model, byte_gpa(b, true, off + i), bytes[i]);
	}
	if (chance(p, 50)) {
		assert_int_equal(silt_virtq_write(p->vq, b->elem, off, bytes, len), 0);
	} else {
		store_through_iov(b->elem, off, bytes, len);
		silt_virtq_wrote(p->vq, b->elem, off,
				 off + len == b->write_len && chance(p, 50) ? UINT64_MAX : len);
	}
	assert_int_equal(silt_virtq_write(p->vq, b->elem, off, bytes, b->write_len - off + 1),
			 -EINVAL);
}

/* IN_ORDER: what is done waits for all that was popped before it. */
static void stage(struct program *p, struct buffer *b)
{
	unsigned int i = 0;

	b->done = true;
	if (p->in_order) {
		while (p->order.n && p->order.buf[0]->done)
			append(&p->staged, take(&p->order, 0));
		return;
	}
	while (p->order.buf[i] != b)
		i++;
	append(&p->staged, take(&p->order, i));
}

static void step_push(struct program *p)
{
	struct buffer *b;

	if (!p->popped.n)
		return;
	b = take(&p->popped, below(p, p->popped.n));
	b->used_len = chance(p, 60) ? b->write_len : chance(p, 20) ? 0 : rng_next(&p->rng);
	silt_virtq_push(p->vq, b->elem, b->used_len);
	stage(p, b);
}

unsigned int program_run_end(const struct program *p, unsigned int i)
{
	while (p->in_order && i + 1 < p->staged.n &&
	       p->staged.buf[i]->used_len == p->staged.buf[i]->write_len)
		i++;
	return i;
}

static void step_publish(struct program *p)
{
	bool call = p->format->used(p);

	assert_int_equal(silt_virtq_publish(p->vq), p->staged.n && call);
	if (p->staged.n)
		model_check_log(&p->model, guest_log(&p->guest), true);
	move_all(&p->used, &p->staged);
}

static void step_enable_kick(struct program *p)
{
	p->format->want_kick(p, true);
	assert_int_equal(silt_virtq_enable_kick(p->vq), p->available.n > 0);
	model_check_log(&p->model, guest_log(&p->guest), true);
}

static void step_disable_kick(struct program *p)
{
	p->format->want_kick(p, false);
	assert_int_equal(silt_virtq_disable_kick(p->vq), 0);
}

static void step_flush(struct program *p)
{
	silt_virtq_flush(p->vq);
	model_check_log(&p->model, guest_log(&p->guest), true);
}

static void set_log(struct program *p, struct silt_log *log)
{
	uint64_t gpa;

	p->model.log_data = log && chance(p, 80);
	p->model.log_used = log && chance(p, 80);
	gpa = chance(p, 70) ? p->ring.used : 0x200000 + 4 * below(p, 4096);
	p->model.used_gpa = p->format == &packed_format ? p->ring.device.used_gpa : gpa;
	p->model.desc_gpa = p->ring.device.desc_gpa;
	silt_virtq_set_log(p->vq, log, p->model.log_data, p->model.log_used, gpa);
}

static void step_set_log(struct program *p)
{
	/* Whatever comes, marks for the log in use must be in it. */
	set_log(p, NULL);
	model_check_log(&p->model, guest_log(&p->guest), true);
	if (chance(p, 50)) {
		guest_new_log(&p->guest, below(p, 3) * 4096 + below(p, 20));
		memset(p->model.marked, 0, GUEST_LOG_SIZE);
	}
	if (chance(p, 80))
		set_log(p, p->guest.log);
}

static void step_restart(struct program *p)
{
	uint32_t base = p->format->base(p);

	if (p->popped.n || p->staged.n)
		return;
	assert_int_equal(silt_virtq_stop(p->vq), base);
	model_check_log(&p->model, guest_log(&p->guest), true);
	assert_int_equal(silt_virtq_start(p->vq, &p->ring.device, p->guest.mem, base), 0);
}

/* ---- Programs -------------------------------------------------------------------------------- */

static const struct {
	void (*run)(struct program *p);
	unsigned int weight;
} steps[] = {
	{step_add, 20},		{step_driver_publish, 12}, {step_pop, 20},
	{step_read, 4},		{step_write, 12},	   {step_push, 18},
	{step_publish, 10},	{step_collect, 18},	   {step_enable_call, 3},
	{step_disable_call, 2}, {step_enable_kick, 3},	   {step_disable_kick, 2},
	{step_scribble, 2},	{step_flush, 1},	   {step_set_log, 1},
	{step_restart, 1},
};

static void random_step(struct program *p)
{
	unsigned int total = 0, i, r;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		total += steps[i].weight;
	r = below(p, total);
	for (i = 0; r >= steps[i].weight; i++)
		r -= steps[i].weight;
	steps[i].run(p);
	if (chance(p, 10))
		model_check_memory(&p->model);
}

static void fill(struct program *p, uint8_t *mem, uint64_t len)
{
	uint64_t i, word;

	for (i = 0; i < len; i += sizeof(word)) {
		word = rng_next(&p->rng);
		memcpy(mem + i, &word, sizeof(word));
	}
}

static void set_up(struct program *p, const struct format *format, uint64_t seed)
{
	memset(p, 0, sizeof(*p));
	p->rng = rng_make(seed);
	guest_open(&p->guest);
	fill(p, p->guest.low, GUEST_LOW_SIZE);
	fill(p, p->guest.high, GUEST_HIGH_SIZE);
	p->event_idx = chance(p, 50);
	p->indirect = chance(p, 50);
	p->in_order = chance(p, 40);
	p->format = format;
	format->place(p);
	p->shown = p->last_avail = p->used_idx = p->last_used = p->avail_idx;
	p->ndescs_free = p->ring.num;
	assert_int_equal(silt_driver_create(&p->ring.driver, p->avail_idx, &p->driver), 0);
	model_open(&p->model, &p->guest, &p->ring, p->event_idx);
	assert_int_equal(silt_virtq_create(&p->vq), 0);
	assert_int_equal(silt_virtq_start(p->vq, &p->ring.device, p->guest.mem, p->format->base(p)),
			 0);
	set_log(p, p->guest.log);
}

static void tear_down(struct program *p)
{
	while (p->popped.n)
		step_push(p);
	step_publish(p);
	silt_virtq_stop(p->vq);
	model_check_log(&p->model, guest_log(&p->guest), true);
	model_check_memory(&p->model);
	while (p->used.n)
		step_collect(p);
	assert_int_equal(silt_driver_inflight(p->driver), p->added.n + p->available.n);
	silt_virtq_destroy(p->vq);
	silt_driver_destroy(p->driver);
	model_close(&p->model);
	guest_close(&p->guest);
}

static void run_programs(const struct format *format)
{
	static struct program p;
	unsigned int seed, i;

	for (seed = 1; seed <= rounds(PROGRAMS); seed++) {
		set_up(&p, format, seed);
		for (i = 0; i < STEPS; i++)
			random_step(&p);
		tear_down(&p);
	}
}

static void test_split(void **state)
{
	(void)state;
	run_programs(&split_format);
}

static void test_packed(void **state)
{
	(void)state;
	run_programs(&packed_format);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_packed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
