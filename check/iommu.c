/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <silt/bitmap.h>
#include <silt/error.h>
#include <silt/iotlb.h>

#include "check/iommu.h"
#include "check/session.h"

/* Far enough from all memory, and inside the log, so that marks at I/O virtual addresses count. */
#define IOVA_OFFSET UINT64_C(0x40000000)

/* Which of a page's addresses was not marked. */
#define HALF_OWN   1
#define HALF_ALIAS 2

/* How many misses have another request answered before they are. */
#define LATE_EVERY 4

static bool scattered(const struct check_iommu *io)
{
	return io->mode == IOMMU_MISSES || io->mode == IOMMU_MOVED;
}

static uint64_t pages(const struct check_guest_region *r)
{
	return r->size / GUEST_PAGE;
}

/* ---- Life ------------------------------------------------------------------------------------ */

int check_iommu_prepare(struct check_session *s, const struct check_scenario *scenario)
{
	s->iommu.mode = scenario->value[AXIS_IOMMU];
	return scattered(&s->iommu) ? check_guest_scatter(s->guest) : 0;
}

uint64_t check_iommu_iova(const struct check_iommu *io, uint64_t gpa)
{
	return check_iommu_on(io) ? gpa + IOVA_OFFSET : gpa;
}

/* ---- Entries --------------------------------------------------------------------------------- */

static struct check_guest_region *region_of(struct check_session *s, uint64_t gpa)
{
	struct check_guest_region *r;

	for (r = s->guest->region; r < s->guest->region + GUEST_SIDES; r++)
		if (gpa >= r->gpa && gpa - r->gpa < r->size)
			return r;
	return NULL;
}

/* A user address: where guest-physical memory lies in the checker, page by page. */
static uint64_t user_addr(struct check_session *s, uint64_t gpa)
{
	const struct check_guest_region *r = region_of(s, gpa);
	uint64_t page = check_guest_page(r, (gpa - r->gpa) / GUEST_PAGE);

	return (uintptr_t)r->flat + page * GUEST_PAGE + gpa % GUEST_PAGE;
}

static bool inside(uint64_t gpa, uint64_t start, uint64_t len)
{
	return gpa >= start && gpa - start < len;
}

/* Rings are memory that both ends write. */
static bool find_ring(const struct check_session *s, uint64_t gpa, struct check_iommu_entry *e)
{
	const struct check_session_queue *q;

	e->access = SILT_IOTLB_READ | SILT_IOTLB_WRITE;
	for (q = s->queue; q < s->queue + s->nqueues; q++) {
		const struct check_iommu_entry parts[] = {
			{q->desc, silt_virtq_desc_size(q->num), e->access},
			{q->avail, silt_virtq_avail_size(q->num), e->access},
			{q->used, silt_virtq_used_size(q->num), e->access},
		};
		unsigned int i;

		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			*e = parts[i];
			if (inside(gpa, e->gpa, e->len))
				return true;
		}
	}
	return false;
}

/* A buffer's part on one page: the mapping ends where the buffer ends. */
static bool find_buffer(const struct check_session *s, uint64_t gpa, struct check_iommu_entry *e)
{
	uint64_t page = gpa / GUEST_PAGE * GUEST_PAGE, end = page + GUEST_PAGE;
	const struct check_place *p;
	unsigned int i;

	for (i = 0; i < s->places->n; i++) {
		p = &s->places->v[i];
		if (!p->request || !inside(gpa, p->gpa, p->len))
			continue;
		e->gpa = p->gpa > page ? p->gpa : page;
		e->len = (p->gpa + p->len < end ? p->gpa + p->len : end) - e->gpa;
		/* A device should not read what it writes, but it may. */
		e->access = SILT_IOTLB_READ;
		if (p->kind != PLACE_READABLE && p->kind != PLACE_TABLE)
			e->access |= SILT_IOTLB_WRITE;
		return true;
	}
	return false;
}

/* In-kernel vhost takes rings that have several entries: then each has a page. */
static void cut_to_page(uint64_t gpa, struct check_iommu_entry *e)
{
	uint64_t page = gpa / GUEST_PAGE * GUEST_PAGE, end = e->gpa + e->len;

	if (e->gpa < page)
		e->gpa = page;
	if (end > page + GUEST_PAGE)
		end = page + GUEST_PAGE;
	e->len = end - e->gpa;
}

/* Return: false if nothing is mapped there. */
static bool find(struct check_session *s, uint64_t gpa, struct check_iommu_entry *e)
{
	const struct check_guest_region *r = region_of(s, gpa);

	if (!r)
		return false;
	if (scattered(&s->iommu) && !find_ring(s, gpa, e))
		return find_buffer(s, gpa, e);
	if (scattered(&s->iommu)) {
		if (!s->f)
			cut_to_page(gpa, e);
		return true;
	}
	*e = (struct check_iommu_entry){r->gpa, r->size, SILT_IOTLB_READ | SILT_IOTLB_WRITE};
	return true;
}

static int update(struct check_session *s, const struct check_iommu_entry *e)
{
	const struct silt_vhost_iotlb m = {.type = SILT_VHOST_IOTLB_UPDATE,
					   .iova = e->gpa + IOVA_OFFSET,
					   .size = e->len,
					   .user_addr = user_addr(s, e->gpa),
					   .perm = e->access};
	int ret = check_transport_call(s->transport, iotlb_send, &m);

	return ret < 0 ? check_session_failed(s, ret, "IOTLB_MSG") : 0;
}

int check_iommu_added(struct check_session *s, enum check_guest_side side)
{
	const struct check_guest_region *r = &s->guest->region[side];

	if (s->iommu.mode != IOMMU_STATIC)
		return 0;
	return update(s, &(struct check_iommu_entry){r->gpa, r->size,
						     SILT_IOTLB_READ | SILT_IOTLB_WRITE});
}

int check_iommu_begin(struct check_session *s)
{
	int ret;

	if (!check_iommu_on(&s->iommu))
		return 0;
	ret = check_transport_call(s->transport, iotlb_open);
	return ret < 0 ? check_session_failed(s, ret, "SET_BACKEND_REQ_FD") : 0;
}

int check_iommu_start(struct check_session *s)
{
	const struct check_session_queue *q;
	struct check_iommu_entry e;
	uint64_t gpa, end;
	int ret = 0;

	if (s->f || !scattered(&s->iommu))
		return 0;
	for (q = s->queue; q < s->queue + s->nqueues; q++) {
		end = q->used + silt_virtq_used_size(q->num);
		for (gpa = q->used; gpa < end && !ret; gpa = e.gpa + e.len)
			ret = find(s, gpa, &e) ? update(s, &e) : -EFAULT;
	}
	return ret;
}

/* ---- Misses ---------------------------------------------------------------------------------- */

static const char *access_name(unsigned int access)
{
	return access == SILT_IOTLB_READ ? "read" : access == SILT_IOTLB_WRITE ? "write" : "use";
}

/* Return: whether there is a translation that allows what is asked for; then the backend has it. */
static int answer(struct check_session *s, const struct silt_vhost_iotlb *m)
{
	struct check_iommu_entry e = {.access = 0};

	if (!find(s, m->iova - IOVA_OFFSET, &e) || m->perm & ~e.access) {
		check_session_wrong(s,
				    "the backend asked to %s I/O virtual address 0x%lx, which it "
				    "may not",
				    access_name(m->perm), m->iova);
		return 0;
	}
	return update(s, &e) < 0 ? -EPROTO : 1;
}

static int serve_one(struct check_session *s, const struct silt_vhost_iotlb *m)
{
	int ret = 0;

	if (s->trace)
		fprintf(s->trace, "<- %s iova 0x%lx perm %u\n",
			m->type == SILT_VHOST_IOTLB_MISS ? "miss" : "access fail", m->iova,
			m->perm);
	if (m->type == SILT_VHOST_IOTLB_ACCESS_FAIL)
		return check_session_error(s,
					   "the backend says that it may not access I/O virtual "
					   "address 0x%lx",
					   m->iova);
	/* A monitor may be in the middle of something else, and a backend must answer that. */
	if (++s->iommu.misses % LATE_EVERY == 0)
		ret = check_session_barrier(s);
	if (ret == 0)
		ret = answer(s, m);
	if (ret < 0)
		return ret;
	ret = check_transport_call(s->transport, iotlb_answer, ret);
	return ret < 0 ? check_session_failed(s, ret, "an answer on the back channel") : 0;
}

int check_iommu_serve(struct check_session *s)
{
	struct silt_vhost_iotlb m;
	int ret;

	if (s->transport->iotlb_fd < 0)
		return 0;
	while ((ret = check_transport_call(s->transport, iotlb_recv, &m)) > 0) {
		ret = serve_one(s, &m);
		if (ret < 0)
			return ret;
	}
	return ret < 0 ? check_session_failed(s, ret, "the back channel") : 0;
}

/* ---- Mappings that go ------------------------------------------------------------------------ */

static int invalidate(struct check_session *s, uint64_t gpa, uint64_t len)
{
	const struct silt_vhost_iotlb m = {
		.type = SILT_VHOST_IOTLB_INVALIDATE, .iova = gpa + IOVA_OFFSET, .size = len};
	int ret = check_transport_call(s->transport, iotlb_send, &m);

	if (ret < 0)
		return check_session_failed(s, ret, "IOTLB_MSG");
	return s->protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK ? 0 : check_session_barrier(s);
}

static int take_rings(struct check_session *s)
{
	const struct check_session_queue *q;
	int ret = 0;

	for (q = s->queue; q < s->queue + s->nqueues && !ret; q++) {
		ret = invalidate(s, q->used, silt_virtq_used_size(q->num));
		if (ret == 0)
			ret = invalidate(s, q->avail, silt_virtq_avail_size(q->num));
		if (ret == 0)
			ret = invalidate(s, q->desc, silt_virtq_desc_size(q->num));
	}
	return ret;
}

int check_iommu_take_away(struct check_session *s)
{
	const struct check_place *p;
	unsigned int i;
	int ret = 0;

	if (s->iommu.mode != IOMMU_MOVED)
		return 0;
	for (i = 0; i < s->places->n && !ret; i++) {
		p = &s->places->v[i];
		if (p->request && p->request->done)
			ret = invalidate(s, p->gpa, p->len);
	}
	return ret < 0 ? ret : take_rings(s);
}

int check_iommu_move(struct check_session *s)
{
	if (s->iommu.mode != IOMMU_MOVED)
		return 0;
	return check_guest_move_rings(s->guest) < 0 ? check_session_error(s, "%s", silt_errmsg())
						    : 0;
}

/* ---- Logs ------------------------------------------------------------------------------------ */

/* The other page of the log that stands for a page of guest memory, or 0. */
static uint64_t alias_of(const struct check_session *s, enum check_guest_side side, uint64_t page)
{
	return side == GUEST_LOW && check_iommu_aliases(&s->iommu)
		       ? (SESSION_ALIAS - s->guest->region[side].gpa) / GUEST_PAGE + page
		       : 0;
}

/* Is the page of guest memory marked wherever it has to be? */
static bool marked_all(const struct check_session *s, enum check_guest_side side, uint64_t page,
		       const uint64_t *marked, uint8_t *half)
{
	uint64_t alias = alias_of(s, side, page);
	bool own = silt_bitmap_test(marked, page);
	bool other = alias ? silt_bitmap_test(marked, alias) : own;

	if (own != other)
		*half |= own ? HALF_ALIAS : HALF_OWN;
	return own && other;
}

static void harvested(struct check_session *s, enum check_guest_side side, uint64_t *marked)
{
	const struct check_guest_region *r = &s->guest->region[side];
	uint64_t first = r->gpa / GUEST_PAGE, page, n = pages(r);
	uint8_t seen[GUEST_MAX_PAGES];

	for (page = 0; page < n; page++)
		seen[page] = marked_all(s, side, first + check_guest_page(r, page), marked,
					&s->iommu.half[side][page]);
	for (page = 0; page < n; page++) {
		if (alias_of(s, side, first))
			silt_bitmap_clear_range(marked, alias_of(s, side, first + page), 1);
		if (seen[page])
			silt_bitmap_set(marked, first + page);
		else
			silt_bitmap_clear_range(marked, first + page, 1);
	}
}

void check_iommu_harvested(struct check_session *s, uint64_t *marked)
{
	if (!check_iommu_on(&s->iommu))
		return;
	harvested(s, GUEST_LOW, marked);
	harvested(s, GUEST_HIGH, marked);
}

uint64_t check_iommu_page(const struct check_session *s, uint64_t page)
{
	unsigned int side;

	for (side = 0; side < GUEST_SIDES && check_iommu_on(&s->iommu); side++) {
		const struct check_guest_region *r = &s->guest->region[side];
		uint64_t first = r->gpa / GUEST_PAGE, own;

		if (!inside(page, first, pages(r)))
			continue;
		own = first + check_guest_page(r, page - first);
		return s->iommu.half[side][page - first] == HALF_ALIAS ? alias_of(s, side, own)
								       : own;
	}
	return page;
}
