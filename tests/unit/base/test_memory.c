/* SPDX-License-Identifier: BSD-3-Clause */
/* Guest memory maps against an array of regions that is searched from end to end. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/access.h>
#include <silt/error.h>
#include <silt/memory.h>

#include "base/access_range.h"
#include "support/faults.h"
#include "support/proc.h"
#include "support/rng.h"

#define FILES	  3
#define FILE_SIZE 200000
#define SPAN	  1000000
#define MODEL	  24
#define HELD	  8
#define NAME	  "silt-test-memory"

struct region {
	struct silt_memory_region r;
	int file;
};

struct model {
	struct region regions[MODEL];
	unsigned int n;
};

/* A map, and what it must look like for as long as it is held. */
struct pair {
	struct silt_memory *m;
	struct model model;
};

static int files[FILES];

static uint8_t byte_at(int file, uint64_t off)
{
	return (uint8_t)(off * 31 + (off >> 8) * 7 + (uint64_t)file * 101);
}

static void make_files(void)
{
	static uint8_t buf[FILE_SIZE];
	uint64_t off;
	int i;

	for (i = 0; i < FILES; i++) {
		for (off = 0; off < FILE_SIZE; off++)
			buf[off] = byte_at(i, off);
		files[i] = proc_memfd(NAME, FILE_SIZE);
		assert_int_equal(pwrite(files[i], buf, FILE_SIZE, 0), FILE_SIZE);
	}
}

static bool meet(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	unsigned __int128 aend = (unsigned __int128)a + alen, bend = (unsigned __int128)b + blen;

	return a < bend && b < aend;
}

static int expected(const struct model *model, const struct silt_memory_region *r)
{
	const unsigned __int128 limit = UINT64_MAX;
	unsigned int i;

	if (!r->size || (unsigned __int128)r->gpa + r->size > limit ||
	    (unsigned __int128)r->user_addr + r->size > limit)
		return -EINVAL;
	for (i = 0; i < model->n; i++) {
		const struct silt_memory_region *o = &model->regions[i].r;

		if (meet(r->gpa, r->size, o->gpa, o->size))
			return -EEXIST;
	}
	if ((unsigned __int128)r->mmap_offset + r->size > FILE_SIZE)
		return -EINVAL;
	return 0;
}

static uint64_t random_edge(struct rng *rng)
{
	static const uint64_t edges[] = {0,	    1,		UINT64_C(1) << 63,
					 INT64_MAX, UINT64_MAX, UINT64_MAX - 4095};

	return edges[rng_below(rng, sizeof(edges) / sizeof(edges[0]))];
}

static struct silt_memory_region random_region(struct rng *rng)
{
	struct silt_memory_region r = {
		.gpa = rng_below(rng, SPAN),
		.size = 1 + rng_below(rng, 30000),
		.user_addr = rng_below(rng, SPAN),
		.mmap_offset = rng_below(rng, FILE_SIZE - 20000),
	};

	if (rng_one_in(rng, 10))
		r.gpa = random_edge(rng);
	if (rng_one_in(rng, 10))
		r.size = random_edge(rng);
	if (rng_one_in(rng, 10))
		r.user_addr = random_edge(rng);
	if (rng_one_in(rng, 10))
		r.mmap_offset = random_edge(rng);
	return r;
}

static void add(struct rng *rng, struct pair *p)
{
	struct silt_memory_region r = random_region(rng);
	int file = (int)rng_below(rng, FILES), want = expected(&p->model, &r), ret;
	struct silt_memory *m = NULL;

	if (p->model.n == MODEL)
		return;
	ret = silt_memory_add(p->m, &r, files[file], &m);
	assert_int_equal(ret, want);
	if (ret < 0) {
		assert_null(m);
		assert_true(silt_errmsg()[0]);
		return;
	}
	silt_memory_put(p->m);
	p->m = m;
	p->model.regions[p->model.n++] = (struct region){r, file};
}

static void remove_region(struct rng *rng, struct pair *p)
{
	unsigned int i = p->model.n ? (unsigned int)rng_below(rng, p->model.n) : 0;
	struct silt_memory_region r = p->model.n ? p->model.regions[i].r : random_region(rng);
	bool wrong = !p->model.n || rng_one_in(rng, 3);
	struct silt_memory *m = NULL;

	if (wrong && p->model.n)
		*(uint64_t *[]){&r.gpa, &r.user_addr, &r.size}[rng_below(rng, 3)] += 1;
	assert_int_equal(silt_memory_remove(p->m, r.gpa, r.user_addr, r.size, &m),
			 wrong ? -ENOENT : 0);
	if (wrong)
		return;
	silt_memory_put(p->m);
	p->m = m;
	p->model.regions[i] = p->model.regions[--p->model.n];
}

static void check_address(const struct pair *p, uint64_t gpa, uint64_t want)
{
	uint64_t len = want, off;
	uint8_t *hva = silt_memory_translate(p->m, gpa, &len);
	unsigned int i;

	for (i = 0; i < p->model.n; i++) {
		const struct region *o = &p->model.regions[i];

		off = gpa - o->r.gpa;
		if (gpa < o->r.gpa || off >= o->r.size)
			continue;
		assert_non_null(hva);
		assert_int_equal(len, want < o->r.size - off ? want : o->r.size - off);
		assert_int_equal(hva[0], byte_at(o->file, o->r.mmap_offset + off));
		assert_int_equal(hva[len - 1], byte_at(o->file, o->r.mmap_offset + off + len - 1));
		return;
	}
	assert_null(hva);
	assert_int_equal(len, 0);
}

/* The region with the lowest guest address among those that hold the range. */
static const struct region *user_region(const struct model *model, uint64_t addr, uint64_t len)
{
	const struct region *found = NULL;
	unsigned int i;

	for (i = 0; i < model->n; i++) {
		const struct region *o = &model->regions[i];
		uint64_t off = addr - o->r.user_addr;

		if (addr >= o->r.user_addr && off < o->r.size && len <= o->r.size - off &&
		    (!found || o->r.gpa < found->r.gpa))
			found = o;
	}
	return found;
}

static void check_user(const struct pair *p, uint64_t addr, uint64_t len)
{
	uint8_t *hva = silt_memory_user_to_hva(p->m, addr, len);
	const struct region *o = user_region(&p->model, addr, len);

	if (!o) {
		assert_null(hva);
		return;
	}
	assert_non_null(hva);
	assert_int_equal(hva[0], byte_at(o->file, o->r.mmap_offset + (addr - o->r.user_addr)));
}

static void check_listing(const struct pair *p)
{
	uint64_t end = 0, prev = 0;
	unsigned int i, j;

	assert_int_equal(silt_memory_count(p->m), p->model.n);
	for (i = 0; i < p->model.n; i++) {
		const struct silt_memory_region *r = silt_memory_region(p->m, i), *o = NULL;

		for (j = 0; j < p->model.n; j++) {
			if (p->model.regions[j].r.gpa == r->gpa)
				o = &p->model.regions[j].r;
		}
		assert_non_null(o);
		assert_true(o->size == r->size && o->user_addr == r->user_addr &&
			    o->mmap_offset == r->mmap_offset);
		assert_true(!i || r->gpa > prev);
		prev = r->gpa;
		end = r->gpa + r->size;
	}
	assert_int_equal(silt_memory_end(p->m), end);
}

static void check(struct rng *rng, const struct pair *p)
{
	unsigned int i;

	check_listing(p);
	for (i = 0; i < p->model.n; i++) {
		const struct silt_memory_region *r = &p->model.regions[i].r;

		check_address(p, r->gpa, r->size);
		check_address(p, r->gpa - 1, 2);
		check_address(p, r->gpa + r->size - 1, UINT64_MAX);
		check_address(p, r->gpa + r->size, 1);
		check_user(p, r->user_addr, r->size);
		check_user(p, r->user_addr, r->size + 1);
		check_user(p, r->user_addr + r->size - 1, 1);
		check_user(p, r->user_addr + r->size, 0);
		check_user(p, r->user_addr + 1, UINT64_MAX);
	}
	check_address(p, rng_below(rng, SPAN), 1 + rng_below(rng, 100000));
	check_address(p, random_edge(rng), 1);
	check_user(p, rng_below(rng, SPAN), rng_below(rng, 100));
}

static void swap_held(struct rng *rng, struct pair *held, const struct pair *p)
{
	struct pair *h = &held[rng_below(rng, HELD)];

	silt_memory_put(h->m);
	h->m = NULL;
	if (rng_one_in(rng, 2)) {
		*h = *p;
		silt_memory_get(h->m);
	}
}

static void random_programs(void **state)
{
	struct rng rng = rng_make(6);
	struct pair p = {0}, held[HELD] = {0};
	unsigned int fds, step, i;

	(void)state;
	make_files();
	fds = proc_count_fds();
	assert_int_equal(silt_memory_create(&p.m), 0);
	for (step = 0; step < 4000; step++) {
		if (step / 100 % 2 ? rng_one_in(&rng, 3) : !rng_one_in(&rng, 3))
			add(&rng, &p);
		else
			remove_region(&rng, &p);
		check(&rng, &p);
		swap_held(&rng, held, &p);
		i = (unsigned int)rng_below(&rng, HELD);
		if (held[i].m)
			check(&rng, &held[i]);
	}
	silt_memory_put(p.m);
	for (i = 0; i < HELD; i++)
		silt_memory_put(held[i].m);
	assert_int_equal(proc_count_maps(NAME), 0);
	assert_int_equal(proc_count_fds(), fds);
	for (i = 0; i < FILES; i++)
		close(files[i]);
}

/* What a map holds is mapped, what no map holds any more is not. */
static void lifetime(void **state)
{
	struct silt_memory_region r = {.gpa = 0, .size = 8192};
	struct silt_memory *empty, *one, *none;
	int fd = proc_memfd(NAME, 8192);
	uintptr_t hva;

	(void)state;
	assert_int_equal(silt_memory_create(&empty), 0);
	assert_int_equal(silt_memory_end(empty), 0);
	assert_int_equal(silt_memory_add(empty, &r, fd, &one), 0);
	close(fd);
	assert_int_equal(proc_count_maps(NAME), 1);
	assert_int_equal(silt_memory_remove(one, 0, 0, 8192, &none), 0);
	assert_int_equal(proc_count_maps(NAME), 1);
	silt_memory_put(none);
	silt_memory_put(silt_memory_get(one));
	assert_int_equal(proc_count_maps(NAME), 1);
	hva = (uintptr_t)silt_memory_region(one, 0)->hva;
	assert_true(silt_access_in_range(hva));
	silt_memory_put(one);
	assert_int_equal(proc_count_maps(NAME), 0);
	assert_false(silt_access_in_range(hva));
	silt_memory_put(empty);
	silt_memory_put(NULL);
}

static void too_many(void **state)
{
	struct silt_memory_region r = {.size = 1};
	int fd = proc_memfd(NAME, 4096), ret = 0;
	struct silt_memory *m, *next;
	unsigned int i;

	(void)state;
	assert_int_equal(silt_memory_create(&m), 0);
	for (i = 0; i <= SILT_MEMORY_MAX_REGIONS && !ret; i++) {
		r.gpa = r.user_addr = i * 2;
		r.mmap_offset = i;
		ret = silt_memory_add(m, &r, fd, &next);
		if (ret)
			break;
		silt_memory_put(m);
		m = next;
	}
	assert_int_equal(ret, -E2BIG);
	assert_int_equal(i, SILT_MEMORY_MAX_REGIONS);
	assert_int_equal(proc_count_maps(NAME), SILT_MEMORY_MAX_REGIONS);
	silt_memory_put(m);
	assert_int_equal(proc_count_maps(NAME), 0);
	close(fd);
}

static int add_fd(int fd)
{
	struct silt_memory_region r = {.gpa = 0x1000, .size = 4096};
	struct silt_memory *m, *next = NULL;
	int ret;

	assert_int_equal(silt_memory_create(&m), 0);
	ret = silt_memory_add(m, &r, fd, &next);
	silt_memory_put(next);
	silt_memory_put(m);
	return ret;
}

static void wrong_files(void **state)
{
	int fd = proc_memfd(NAME, 8192), pipes[2], rdonly, null = open("/dev/null", O_RDWR);
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rdonly = open(path, O_RDONLY);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(add_fd(fd), 0);
	assert_int_equal(add_fd(rdonly), -EACCES);
	assert_non_null(strstr(silt_errmsg(), "not open for reading and writing"));
	assert_int_equal(add_fd(pipes[0]), -ENODEV);
	assert_int_equal(add_fd(null), -ENODEV);
	assert_int_equal(add_fd(-1), -EBADF);
	assert_int_equal(ftruncate(fd, 4095), 0);
	assert_int_equal(add_fd(fd), -EINVAL);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(add_fd(fd), -EPERM);
	assert_non_null(strstr(silt_errmsg(), "sealed against writing"));
	assert_int_equal(proc_count_maps(NAME), 0);
	close(fd);
	close(rdonly);
	close(null);
	close(pipes[0]);
	close(pipes[1]);
}

/* A region whose file shrinks is an access that fails, no more. */
static void truncated(void **state)
{
	struct silt_memory_region r = {.gpa = 0x1000, .size = 4096, .mmap_offset = 512};
	int fd = proc_memfd(NAME, 8192);
	struct silt_memory *empty, *m;
	uint64_t len = 8;
	uint8_t *p;

	(void)state;
	faults_recover();
	assert_int_equal(silt_memory_create(&empty), 0);
	assert_int_equal(silt_memory_add(empty, &r, fd, &m), 0);
	p = silt_memory_translate(m, 0x1000, &len);
	assert_true(silt_access_store8(p, 1));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(silt_access_store8(p, 1));
	assert_false(silt_access_store8(p + 4095, 1));
	silt_memory_put(m);
	silt_memory_put(empty);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs), cmocka_unit_test(lifetime),
		cmocka_unit_test(too_many),	   cmocka_unit_test(wrong_files),
		cmocka_unit_test(truncated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
