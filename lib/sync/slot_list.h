/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_SLOT_LIST_H
#define SILT_SYNC_SLOT_LIST_H

#include <stdint.h>

struct sync_slot;

/* The slots that a source looks after, in the order of a key of its own choice. */
struct sync_slot_list {
	struct sync_slot_entry {
		uint64_t key;
		struct sync_slot *slot;
	} * entries;
	unsigned int n;
	unsigned int room;
};

/* Return: 0, or -ENOMEM with a message. Keys differ. */
int sync_slot_list_add(struct sync_slot_list *list, uint64_t key, struct sync_slot *slot);
/* A slot that is not in the list is none of its business. */
void sync_slot_list_remove(struct sync_slot_list *list, const struct sync_slot *slot);
void sync_slot_list_free(struct sync_slot_list *list);

/* The slot of a key, or NULL. */
struct sync_slot *sync_slot_list_find(const struct sync_slot_list *list, uint64_t key);

#endif
