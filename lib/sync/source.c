/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "sync/sync_internal.h"

struct sync_source *sync_source_find(struct silt_sync *s, int id, const struct sync_source_ops *ops)
{
	struct sync_source *src = id >= 0 && id < SYNC_MAX_SOURCES ? s->sources[id] : NULL;

	if (src && (!ops || src->ops == ops))
		return src;
	silt_err(ENOENT, "no source %d%s%s", id, ops ? " of kind " : "", ops ? ops->kind : "");
	return NULL;
}

static int tell_slots(struct silt_sync *s, struct sync_source *src)
{
	int i, ret = 0;

	if (!src->ops->slot_added)
		return 0;
	for (i = 0; i < s->nslots && ret >= 0; i++) {
		if (s->slots[i])
			ret = src->ops->slot_added(src, s->slots[i]);
	}
	return ret;
}

int sync_source_attach(struct silt_sync *s, struct sync_source *src, const char *name,
		       const struct sync_source_ops *ops)
{
	int i = 0, ret;

	src->ops = ops;
	src->sync = s;
	while (i < SYNC_MAX_SOURCES && s->sources[i])
		i++;
	if (i == SYNC_MAX_SOURCES)
		return silt_err(E2BIG, "a sync engine has %d sources at most", i);
	src->name = strdup(name ? name : ops->kind);
	if (!src->name)
		return silt_err(ENOMEM, "no memory for source %s", name ? name : ops->kind);
	ret = tell_slots(s, src);
	if (ret < 0)
		return ret;
	s->sources[i] = src;
	return i;
}

int silt_sync_source_remove(struct silt_sync *s, int id)
{
	struct sync_source *src;

	pthread_rwlock_wrlock(&s->topology);
	src = sync_source_find(s, id, NULL);
	if (src) {
		src->ops->destroy(src);
		s->sources[id] = NULL;
	}
	pthread_rwlock_unlock(&s->topology);
	return src ? 0 : -ENOENT;
}

int64_t silt_sync_source_count(struct silt_sync *s, int id)
{
	struct sync_source *src;
	int64_t ret;

	pthread_rwlock_rdlock(&s->topology);
	src = sync_source_find(s, id, NULL);
	ret = src ? (int64_t)__atomic_load_n(&src->count, __ATOMIC_RELAXED) : -ENOENT;
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
