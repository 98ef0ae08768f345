/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdlib.h>

#include <silt/access.h>

#include "base/access_range.h"
#include "base/err.h"

/*
 * The registered ranges. A signal handler reads them while other threads add and remove: slots are
 * used again and chunks are never freed, so that a reader may stop anywhere for any time. A slot
 * that is being changed (its version is odd, or moved while it was read) is passed over: the range
 * that a faulting access lies in cannot be the one that is changing, since whoever accesses it
 * keeps it mapped and registered.
 */
struct slot {
	uint64_t version;
	uintptr_t first;
	uintptr_t last;
	bool used; /* under the lock only */
};

#define SLOTS 64

struct chunk {
	struct chunk *next;
	struct slot slots[SLOTS];
};

static struct chunk head;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* An empty slot has first > last, which no address lies between. */
static void slot_set(struct slot *s, uintptr_t first, uintptr_t last, bool used)
{
	__atomic_store_n(&s->version, s->version + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&s->first, first, __ATOMIC_RELEASE);
	__atomic_store_n(&s->last, last, __ATOMIC_RELEASE);
	__atomic_store_n(&s->version, s->version + 1, __ATOMIC_RELEASE);
	s->used = used;
}

static bool slot_holds(const struct slot *s, uintptr_t addr)
{
	uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
	uintptr_t first = __atomic_load_n(&s->first, __ATOMIC_ACQUIRE);
	uintptr_t last = __atomic_load_n(&s->last, __ATOMIC_ACQUIRE);

	/* Version 0 is a slot that was never used, whose zeroes would be the range [0, 0]. */
	return version && version % 2 == 0 && addr >= first && addr <= last &&
	       __atomic_load_n(&s->version, __ATOMIC_RELAXED) == version;
}

bool silt_access_in_range(uintptr_t addr)
{
	const struct chunk *c;
	unsigned int i;

	for (c = &head; c; c = __atomic_load_n(&c->next, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < SLOTS; i++) {
			if (slot_holds(&c->slots[i], addr))
				return true;
		}
	}
	return false;
}

/* The first slot that is not used; a new chunk if there is none. NULL if memory ran out. */
static struct slot *slot_take(void)
{
	struct chunk *c, *tail = NULL;
	unsigned int i;

	for (c = &head; c; c = c->next) {
		for (i = 0; i < SLOTS; i++) {
			if (!c->slots[i].used)
				return &c->slots[i];
		}
		tail = c;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	__atomic_store_n(&tail->next, c, __ATOMIC_RELEASE);
	return &c->slots[0];
}

static struct slot *slot_find(uintptr_t first, uintptr_t last)
{
	struct chunk *c;
	unsigned int i;

	for (c = &head; c; c = c->next) {
		for (i = 0; i < SLOTS; i++) {
			struct slot *s = &c->slots[i];

			if (s->used && s->first == first && s->last == last)
				return s;
		}
	}
	return NULL;
}

int silt_access_add_range(const void *addr, size_t len)
{
	uintptr_t first = (uintptr_t)addr, last;
	struct slot *s;

	if (!len || __builtin_add_overflow(first, len - 1, &last))
		return silt_err(EINVAL, "access range at %p, %zu bytes, is empty or wraps", addr,
				len);
	pthread_mutex_lock(&lock);
	s = slot_take();
	if (s)
		slot_set(s, first, last, true);
	pthread_mutex_unlock(&lock);
	return s ? 0 : silt_err(ENOMEM, "no memory for one more access range");
}

void silt_access_del_range(const void *addr, size_t len)
{
	uintptr_t first = (uintptr_t)addr;
	struct slot *s;

	if (!len)
		return;
	pthread_mutex_lock(&lock);
	s = slot_find(first, first + (len - 1));
	if (s)
		slot_set(s, UINTPTR_MAX, 0, false);
	pthread_mutex_unlock(&lock);
}
