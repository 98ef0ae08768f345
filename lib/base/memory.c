/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include <silt/memory.h>
#include <silt/range.h>

#include "base/err.h"
#include "base/mapping.h"

/* A region's mapping, shared by all maps that hold the region. */
struct backing {
	uint64_t refs;
	struct silt_mapping mapping;
};

struct entry {
	struct silt_memory_region region;
	struct backing *backing;
};

/* Nothing but the count changes once the map is handed out. */
struct silt_memory {
	uint64_t refs;
	unsigned int count;
	struct entry entries[]; /* sorted by gpa */
};

static void backing_put(struct backing *b)
{
	if (__atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL))
		return;
	silt_mapping_destroy(&b->mapping);
	free(b);
}

static struct silt_memory *memory_alloc(unsigned int count)
{
	struct silt_memory *m = malloc(sizeof(*m) + count * sizeof(m->entries[0]));

	if (!m) {
		silt_err(ENOMEM, "no memory for a guest memory map of %u regions", count);
		return NULL;
	}
	m->refs = 1;
	m->count = count;
	return m;
}

/* Copy @n entries of @old from @from on, with a reference of @m's own to each backing. */
static void memory_share(struct silt_memory *m, unsigned int to, const struct silt_memory *old,
			 unsigned int from, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		m->entries[to + i] = old->entries[from + i];
		__atomic_add_fetch(&m->entries[to + i].backing->refs, 1, __ATOMIC_RELAXED);
	}
}

/* How many entries begin at or below @gpa. */
static unsigned int memory_search(const struct silt_memory *m, uint64_t gpa)
{
	unsigned int lo = 0, hi = m->count;

	while (lo < hi) {
		unsigned int mid = lo + (hi - lo) / 2;

		if (m->entries[mid].region.gpa <= gpa)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int silt_memory_create(struct silt_memory **out)
{
	struct silt_memory *m = memory_alloc(0);

	if (!m)
		return -ENOMEM;
	*out = m;
	return 0;
}

/* Neither kind of address may wrap; one past the last byte must be a number too. */
static int check_region(const struct silt_memory_region *r)
{
	uint64_t end;

	if (!r->size)
		return silt_err(EINVAL, "guest memory region at %#" PRIx64 ": size is 0", r->gpa);
	if (__builtin_add_overflow(r->gpa, r->size, &end))
		return silt_err(EINVAL,
				"guest memory region: guest address %#" PRIx64
				" plus size %#" PRIx64 " wraps",
				r->gpa, r->size);
	if (__builtin_add_overflow(r->user_addr, r->size, &end))
		return silt_err(EINVAL,
				"guest memory region: user address %#" PRIx64 " plus size %#" PRIx64
				" wraps",
				r->user_addr, r->size);
	return 0;
}

static int check_room(const struct silt_memory *m, const struct silt_memory_region *r)
{
	unsigned int i;

	if (m->count == SILT_MEMORY_MAX_REGIONS)
		return silt_err(E2BIG, "more than %d guest memory regions",
				SILT_MEMORY_MAX_REGIONS);
	for (i = 0; i < m->count; i++) {
		const struct silt_memory_region *o = &m->entries[i].region;

		if (silt_range_overlap(r->gpa, r->size, o->gpa, o->size))
			return silt_err(EEXIST,
					"guest memory region at %#" PRIx64 ", %#" PRIx64
					" bytes, overlaps the one at %#" PRIx64 ", %#" PRIx64
					" bytes",
					r->gpa, r->size, o->gpa, o->size);
	}
	return 0;
}

static int backing_create(const struct silt_memory_region *r, int fd, struct backing **out)
{
	struct backing *b = malloc(sizeof(*b));
	int ret;

	if (!b)
		return silt_err(ENOMEM, "no memory for a guest memory region");
	b->refs = 1;
	ret = silt_mapping_create(&b->mapping, fd, r->mmap_offset, r->size, "guest memory region");
	if (ret) {
		free(b);
		return ret;
	}
	*out = b;
	return 0;
}

int silt_memory_add(const struct silt_memory *old, const struct silt_memory_region *r, int fd,
		    struct silt_memory **out)
{
	struct backing *backing = NULL;
	struct silt_memory *m;
	unsigned int at;
	int ret = check_region(r);

	if (!ret)
		ret = check_room(old, r);
	if (!ret)
		ret = backing_create(r, fd, &backing);
	if (ret)
		return ret;
	m = memory_alloc(old->count + 1);
	if (!m) {
		backing_put(backing);
		return -ENOMEM;
	}
	at = memory_search(old, r->gpa);
	memory_share(m, 0, old, 0, at);
	m->entries[at] = (struct entry){.region = *r, .backing = backing};
	m->entries[at].region.hva = backing->mapping.start;
	memory_share(m, at + 1, old, at, old->count - at);
	*out = m;
	return 0;
}

int silt_memory_remove(const struct silt_memory *old, uint64_t gpa, uint64_t user_addr,
		       uint64_t size, struct silt_memory **out)
{
	unsigned int at = memory_search(old, gpa);
	const struct silt_memory_region *r;
	struct silt_memory *m;

	r = at ? &old->entries[at - 1].region : NULL;
	if (!r || r->gpa != gpa || r->user_addr != user_addr || r->size != size)
		return silt_err(ENOENT,
				"no guest memory region at %#" PRIx64 ", user address %#" PRIx64
				", %#" PRIx64 " bytes",
				gpa, user_addr, size);
	m = memory_alloc(old->count - 1);
	if (!m)
		return -ENOMEM;
	memory_share(m, 0, old, 0, at - 1);
	memory_share(m, at - 1, old, at, old->count - at);
	*out = m;
	return 0;
}

struct silt_memory *silt_memory_get(struct silt_memory *m)
{
	__atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
	return m;
}

void silt_memory_put(struct silt_memory *m)
{
	unsigned int i;

	if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < m->count; i++)
		backing_put(m->entries[i].backing);
	free(m);
}

void *silt_memory_translate(const struct silt_memory *m, uint64_t gpa, uint64_t *len)
{
	unsigned int at = memory_search(m, gpa);
	const struct silt_memory_region *r;
	uint64_t off;

	if (at) {
		r = &m->entries[at - 1].region;
		off = gpa - r->gpa;
		if (off < r->size) {
			if (*len > r->size - off)
				*len = r->size - off;
			return (char *)r->hva + off;
		}
	}
	*len = 0;
	return NULL;
}

void *silt_memory_user_to_hva(const struct silt_memory *m, uint64_t addr, uint64_t len)
{
	unsigned int i;

	for (i = 0; i < m->count; i++) {
		const struct silt_memory_region *r = &m->entries[i].region;

		/* An empty range still has to have its address in the region. */
		if (silt_range_within(addr, len ? len : 1, r->user_addr, r->size))
			return (char *)r->hva + (addr - r->user_addr);
	}
	return NULL;
}

uint64_t silt_memory_end(const struct silt_memory *m)
{
	const struct silt_memory_region *last;

	if (!m->count)
		return 0;
	last = &m->entries[m->count - 1].region;
	return last->gpa + last->size;
}

unsigned int silt_memory_count(const struct silt_memory *m)
{
	return m->count;
}

const struct silt_memory_region *silt_memory_region(const struct silt_memory *m, unsigned int i)
{
	return &m->entries[i].region;
}
