/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/slot_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* The first entry whose key is not below @key. */
static unsigned int position(const struct sync_slot_list *list, uint64_t key)
{
	unsigned int low = 0, high = list->n, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (list->entries[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int grow(struct sync_slot_list *list)
{
	unsigned int room = list->room ? 2 * list->room : 8;
	void *entries = realloc(list->entries, room * sizeof(*list->entries));

	if (!entries)
		return silt_err(ENOMEM, "no memory for a source's list of %u slots", room);
	list->entries = entries;
	list->room = room;
	return 0;
}

int sync_slot_list_add(struct sync_slot_list *list, uint64_t key, struct sync_slot *slot)
{
	unsigned int at = position(list, key);
	int ret = list->n == list->room ? grow(list) : 0;

	if (ret)
		return ret;
	memmove(&list->entries[at + 1], &list->entries[at],
		(list->n - at) * sizeof(*list->entries));
	list->entries[at] = (struct sync_slot_entry){.key = key, .slot = slot};
	list->n++;
	return 0;
}

void sync_slot_list_remove(struct sync_slot_list *list, const struct sync_slot *slot)
{
	unsigned int i;

	for (i = 0; i < list->n; i++) {
		if (list->entries[i].slot != slot)
			continue;
		list->n--;
		memmove(&list->entries[i], &list->entries[i + 1],
			(list->n - i) * sizeof(*list->entries));
		return;
	}
}

void sync_slot_list_free(struct sync_slot_list *list)
{
	free(list->entries);
	*list = (struct sync_slot_list){.entries = NULL};
}

struct sync_slot *sync_slot_list_find(const struct sync_slot_list *list, uint64_t key)
{
	unsigned int at = position(list, key);

	return at < list->n && list->entries[at].key == key ? list->entries[at].slot : NULL;
}
