/* SPDX-License-Identifier: BSD-3-Clause */
/* Is memory what the guest says that it did? */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "demo/machine.h"
#include "guest/walk.h"

/* The last write to a page. */
struct last {
	uint64_t number; /* 0: none */
	uint64_t at;	 /* offset in the page */
};

struct ledger {
	struct last *pages[RAM_BLOCKS];
};

static uint64_t ledger_bytes(const struct ram *r, unsigned int block)
{
	return r->blocks[block].bytes / GUEST_PAGE * sizeof(struct last);
}

static void free_ledger(struct ledger *l, const struct ram *r)
{
	unsigned int i;

	for (i = 0; i < RAM_BLOCKS; i++)
		if (l->pages[i])
			munmap(l->pages[i], ledger_bytes(r, i));
}

static int make_ledger(struct ledger *l, const struct ram *r)
{
	unsigned int i;

	*l = (struct ledger){0};
	for (i = 0; i < RAM_BLOCKS; i++) {
		void *p = mmap(NULL, ledger_bytes(r, i), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED) {
			free_ledger(l, r);
			return silt_err(ENOMEM, "demo: no memory to check the guest with");
		}
		l->pages[i] = p;
	}
	return 0;
}

static void enter_writes(struct ledger *l, const struct machine *m, unsigned int vcpu)
{
	const struct program *p = vm_program_of(m->vm, vcpu);
	uint64_t writes = vm_writes(m->vm, vcpu), offset;
	struct walk_write w;
	struct walk walk;
	int block;

	walk_begin(&walk, p, program_first_number(vcpu));
	while (writes--) {
		w = walk_next(&walk, p);
		block = ram_find(&m->ram, w.gpa, &offset);
		if (block >= 0)
			l->pages[block][offset / GUEST_PAGE] =
				(struct last){.number = w.number, .at = offset % GUEST_PAGE};
	}
}

static int64_t wrong_pages(const struct ledger *l, const struct ram *r, unsigned int block)
{
	const struct ram_block *b = &r->blocks[block];
	uint64_t page, number;
	int64_t wrong = 0;

	for (page = 0; page < b->bytes / GUEST_PAGE; page++) {
		const struct last *last = &l->pages[block][page];

		if (!last->number)
			continue;
		memcpy(&number, b->memory + page * GUEST_PAGE + last->at, sizeof(number));
		wrong += number != last->number;
	}
	return wrong;
}

int64_t machine_check(const struct machine *m)
{
	struct ledger l;
	int64_t wrong;
	unsigned int i;
	int ret = make_ledger(&l, &m->ram);

	if (ret < 0)
		return ret;
	for (i = 0; i < m->config.vcpus; i++)
		if (vm_writes(m->vm, i))
			enter_writes(&l, m, i);
	wrong = (int64_t)disk_check(m->disk);
	for (i = 0; i < RAM_BLOCKS; i++)
		wrong += wrong_pages(&l, &m->ram, i);
	free_ledger(&l, &m->ram);
	return wrong;
}
