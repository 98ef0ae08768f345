/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <silt/iotlb.h>

#include "base/err.h"

#define READ_WRITE (SILT_IOTLB_READ | SILT_IOTLB_WRITE)

/* By its last address, not its size: an entry may end at 2^64. */
struct entry {
	uint64_t first;
	uint64_t last;
	uint64_t uaddr; /* of first */
	uint64_t age;	/* the lower, the older */
	unsigned int access;
};

struct silt_iotlb {
	uint64_t refs;
	pthread_rwlock_t lock;
	uint64_t next_age;
	unsigned int count;
	struct entry entries[SILT_IOTLB_MAX]; /* sorted, without overlaps */
};

/* ---- Life ------------------------------------------------------------------------------------ */

int silt_iotlb_create(struct silt_iotlb **out)
{
	struct silt_iotlb *t = malloc(sizeof(*t));
	pthread_rwlockattr_t attr;

	if (!t)
		return silt_err(ENOMEM, "no memory for an IOTLB");
	t->refs = 1;
	t->next_age = 0;
	t->count = 0;
	/* Busy queues look addresses up without end: an invalidation must get through all the same.
	 */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&t->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	*out = t;
	return 0;
}

struct silt_iotlb *silt_iotlb_get(struct silt_iotlb *t)
{
	__atomic_add_fetch(&t->refs, 1, __ATOMIC_RELAXED);
	return t;
}

void silt_iotlb_put(struct silt_iotlb *t)
{
	if (!t || __atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_rwlock_destroy(&t->lock);
	free(t);
}

/* ---- Entries --------------------------------------------------------------------------------- */

/* The first entry that ends at or behind @iova; t->count if there is none. */
static unsigned int search(const struct silt_iotlb *t, uint64_t iova)
{
	unsigned int lo = 0, hi = t->count;

	while (lo < hi) {
		unsigned int mid = lo + (hi - lo) / 2;

		if (t->entries[mid].last < iova)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void insert_at(struct silt_iotlb *t, unsigned int at, const struct entry *e)
{
	memmove(&t->entries[at + 1], &t->entries[at], (t->count - at) * sizeof(*e));
	t->entries[at] = *e;
	t->count++;
}

static void remove_at(struct silt_iotlb *t, unsigned int at, unsigned int n)
{
	t->count -= n;
	memmove(&t->entries[at], &t->entries[at + n], (t->count - at) * sizeof(t->entries[0]));
}

static void evict_oldest(struct silt_iotlb *t)
{
	unsigned int i, oldest = 0;

	for (i = 1; i < t->count; i++)
		if (t->entries[i].age < t->entries[oldest].age)
			oldest = i;
	remove_at(t, oldest, 1);
}

static void make_room(struct silt_iotlb *t, unsigned int n)
{
	while (t->count > SILT_IOTLB_MAX - n)
		evict_oldest(t);
}

static void cut_head(struct entry *e, uint64_t first)
{
	e->uaddr += first - e->first;
	e->first = first;
}

/* [first, last] lies inside entry @at: leave what is before and behind it. There is room for it. */
static void cut_middle(struct silt_iotlb *t, unsigned int at, uint64_t first, uint64_t last)
{
	struct entry behind = t->entries[at];

	cut_head(&behind, last + 1);
	t->entries[at].last = first - 1;
	insert_at(t, at + 1, &behind);
}

/* Leave nothing for [first, last]; there is room for one entry more. Return: where it would be. */
static unsigned int carve(struct silt_iotlb *t, uint64_t first, uint64_t last)
{
	unsigned int at = search(t, first), end;

	if (at == t->count || t->entries[at].first > last)
		return at;
	if (t->entries[at].first < first) {
		if (t->entries[at].last > last) {
			cut_middle(t, at, first, last);
			return at + 1;
		}
		t->entries[at++].last = first - 1;
	}
	for (end = at; end < t->count && t->entries[end].last <= last; end++)
		;
	remove_at(t, at, end - at);
	if (at < t->count && t->entries[at].first <= last)
		cut_head(&t->entries[at], last + 1);
	return at;
}

static bool continues(const struct entry *e, const struct entry *next)
{
	return e->last + 1 == next->first && e->uaddr + (next->first - e->first) == next->uaddr &&
	       e->access == next->access;
}

/* Join entry @at and the one behind it, if that continues it. */
static void join(struct silt_iotlb *t, unsigned int at)
{
	struct entry *e = &t->entries[at];

	if (at + 1 >= t->count || !continues(e, e + 1))
		return;
	e->last = e[1].last;
	e->age = e->age > e[1].age ? e->age : e[1].age;
	remove_at(t, at + 1, 1);
}

/* Has @new another translation, or less access, than what is entered for the same addresses? */
static bool contradicts(const struct silt_iotlb *t, const struct entry *new)
{
	unsigned int i;

	for (i = search(t, new->first); i < t->count && t->entries[i].first <= new->last; i++) {
		const struct entry *old = &t->entries[i];

		if (old->uaddr - old->first != new->uaddr - new->first ||
		    old->access & ~new->access)
			return true;
	}
	return false;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static int check_update(uint64_t iova, uint64_t size, uint64_t uaddr, unsigned int access)
{
	uint64_t last;

	if (!size)
		return silt_err(EINVAL, "IOTLB update of %#" PRIx64 ": size is 0", iova);
	if (__builtin_add_overflow(iova, size - 1, &last))
		return silt_err(EINVAL,
				"IOTLB update: address %#" PRIx64 " plus size %#" PRIx64 " wraps",
				iova, size);
	if (__builtin_add_overflow(uaddr, size - 1, &last))
		return silt_err(EINVAL,
				"IOTLB update: user address %#" PRIx64 " plus size %#" PRIx64
				" wraps",
				uaddr, size);
	if (!access || access & ~READ_WRITE)
		return silt_err(EINVAL, "IOTLB update of %#" PRIx64 ": access %u, must be 1 to %u",
				iova, access, READ_WRITE);
	return 0;
}

int silt_iotlb_update(struct silt_iotlb *t, uint64_t iova, uint64_t size, uint64_t uaddr,
		      unsigned int access)
{
	struct entry new = {
		.first = iova, .last = iova + size - 1, .uaddr = uaddr, .access = access};
	unsigned int at;
	int ret = check_update(iova, size, uaddr, access);

	if (ret < 0)
		return ret;
	pthread_rwlock_wrlock(&t->lock);
	ret = contradicts(t, &new);
	make_room(t, 2);
	at = carve(t, new.first, new.last);
	new.age = t->next_age++;
	insert_at(t, at, &new);
	join(t, at);
	if (at)
		join(t, at - 1);
	pthread_rwlock_unlock(&t->lock);
	return ret;
}

int silt_iotlb_invalidate(struct silt_iotlb *t, uint64_t iova, uint64_t size)
{
	uint64_t last = iova + size - 1;

	if (iova > last)
		return silt_err(EINVAL,
				"IOTLB invalidation: address %#" PRIx64 ", size %#" PRIx64
				" is no range",
				iova, size);
	pthread_rwlock_wrlock(&t->lock);
	make_room(t, 1);
	carve(t, iova, last);
	pthread_rwlock_unlock(&t->lock);
	return 0;
}

/* ---- Looking up ------------------------------------------------------------------------------ */

/* Return: whether @iova is entered for @access; then *@len is cut off at the entry's end. */
static bool find(struct silt_iotlb *t, uint64_t iova, uint64_t *len, unsigned int access,
		 uint64_t *uaddr)
{
	const struct entry *e;
	unsigned int at;
	bool found;

	pthread_rwlock_rdlock(&t->lock);
	at = search(t, iova);
	e = &t->entries[at];
	found = at < t->count && e->first <= iova && !(access & ~e->access);
	if (found) {
		*uaddr = e->uaddr + (iova - e->first);
		if (*len - 1 > e->last - iova)
			*len = e->last - iova + 1;
	}
	pthread_rwlock_unlock(&t->lock);
	return found;
}

void *silt_iotlb_translate(struct silt_iotlb *t, const struct silt_memory *mem, uint64_t iova,
			   uint64_t *len, unsigned int access, uint64_t *gpa)
{
	const struct silt_memory_region *r;
	uint64_t uaddr, off;
	unsigned int i;

	if (!find(t, iova, len, access, &uaddr)) {
		*len = 0;
		return NULL;
	}
	for (i = 0; i < silt_memory_count(mem); i++) {
		r = silt_memory_region(mem, i);
		off = uaddr - r->user_addr;
		if (uaddr < r->user_addr || off >= r->size)
			continue;
		if (*len > r->size - off)
			*len = r->size - off;
		*gpa = r->gpa + off;
		return (char *)r->hva + off;
	}
	*len = 0;
	return NULL;
}

unsigned int silt_iotlb_count(struct silt_iotlb *t)
{
	unsigned int count;

	pthread_rwlock_rdlock(&t->lock);
	count = t->count;
	pthread_rwlock_unlock(&t->lock);
	return count;
}
