/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sys/mman.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "check/neighbour.h"

void check_neighbour_take(struct check_neighbour *n, struct check_guest *g,
			  enum check_guest_side side)
{
	uint64_t gpa = n->npages < NEIGHBOUR_PAGES ? check_guest_alloc(g, side, 0, GUEST_PAGE) : 0;

	if (gpa)
		n->page[n->npages++].page = gpa / GUEST_PAGE;
}

int check_neighbour_join(struct check_neighbour *n, int fd, uint64_t size, uint64_t offset)
{
	uint8_t *file = mmap(NULL, offset + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (file == MAP_FAILED)
		return silt_err_sys(errno, "cannot map the dirty log");
	n->file = file;
	n->file_size = offset + size;
	n->log = file + offset;
	return 0;
}

void check_neighbour_leave(struct check_neighbour *n)
{
	unsigned int i;

	if (n->file)
		munmap(n->file, n->file_size);
	n->file = NULL;
	for (i = 0; i < n->npages; i++)
		n->page[i].set = false;
}

void check_neighbour_mark(struct check_neighbour *n)
{
	struct check_neighbour_page *p;

	if (!n->file || !n->npages)
		return;
	p = &n->page[n->next++ % n->npages];
	if (p->set)
		return;
	__atomic_fetch_or(&n->log[p->page / 8], 1 << p->page % 8, __ATOMIC_SEQ_CST);
	p->set = true;
	p->marked++;
}

void check_neighbour_harvested(struct check_neighbour *n, uint64_t *marked)
{
	struct check_neighbour_page *p;

	for (p = n->page; p < n->page + n->npages; p++) {
		p->lost += p->set && !silt_bitmap_test(marked, p->page);
		p->set = false;
		silt_bitmap_clear(marked, p->page);
	}
}

const struct check_neighbour_page *check_neighbour_robbed(const struct check_neighbour *n)
{
	const struct check_neighbour_page *p, *worst = NULL;

	for (p = n->page; p < n->page + n->npages; p++)
		if (p->lost && (!worst || p->lost > worst->lost))
			worst = p;
	return worst;
}
