/* SPDX-License-Identifier: BSD-3-Clause */
/* What a vCPU is told to do. */
#include <string.h>

#include "base/err.h"
#include "guest/guest_internal.h"

static int check_range(const struct guest_range *r)
{
	if (r->gpa % GUEST_PAGE)
		return silt_err(EINVAL, "guest: a range at %#llx, which is inside a page",
				(unsigned long long)r->gpa);
	if (r->gpa >= GUEST_END || r->pages > (GUEST_END - r->gpa) / GUEST_PAGE)
		return silt_err(ERANGE, "guest: a range of %llu pages at %#llx ends beyond %#llx",
				(unsigned long long)r->pages, (unsigned long long)r->gpa,
				(unsigned long long)GUEST_END);
	if (r->gpa < GUEST_SELF_GPA + GUEST_SELF_BYTES &&
	    r->gpa + r->pages * GUEST_PAGE > GUEST_SELF_GPA)
		return silt_err(ERANGE, "guest: a range of %llu pages at %#llx is where it is",
				(unsigned long long)r->pages, (unsigned long long)r->gpa);
	return 0;
}

static int check_wish(const struct guest_program *p)
{
	unsigned int i;
	int ret;

	if (p->nranges > GUEST_MAX_RANGES)
		return silt_err(EINVAL, "guest: %u ranges, at most %u", p->nranges,
				GUEST_MAX_RANGES);
	if (!p->run || p->stride < p->run || p->stride > GUEST_END / GUEST_PAGE)
		return silt_err(EINVAL, "guest: runs of %llu pages, %llu apart",
				(unsigned long long)p->run, (unsigned long long)p->stride);
	for (i = 0; i < p->nranges; i++) {
		ret = check_range(&p->ranges[i]);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* Where a run may begin, so that it ends inside the range. */
static uint64_t places_in(const struct guest_range *r, const struct guest_program *p)
{
	return r->pages < p->run ? 0 : (r->pages - p->run) / p->stride + 1;
}

static void write_program(struct program *to, const struct guest_program *p)
{
	unsigned int i;

	memset(to->ranges, 0, sizeof(to->ranges));
	to->places = 0;
	for (i = 0; i < p->nranges; i++) {
		to->ranges[i].gpa = p->ranges[i].gpa;
		to->ranges[i].places = places_in(&p->ranges[i], p);
		to->places += to->ranges[i].places;
	}
	/* Neighbouring seeds shall not begin alike, and 0 would stay 0. */
	to->seed = (p->seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	to->seed ^= to->seed >> 29;
	to->seed += !to->seed;
	to->writes = p->writes ? p->writes : UINT64_MAX;
	to->burst = p->idle_us && p->burst ? p->burst : UINT64_MAX;
	to->run = p->run;
	to->stride = p->stride * GUEST_PAGE;
	to->sequential = p->sequential;
	to->fresh = 1;
}

/* Whether the last place of a range lets a run end below GUEST_END, by the arithmetic of walks. */
static bool ends_inside(const struct program *p, const struct program_range *r)
{
	uint64_t last, end;

	return !r->places || (!__builtin_mul_overflow(r->places - 1, p->stride, &last) &&
			      !__builtin_add_overflow(last, p->run * GUEST_PAGE, &end) &&
			      !__builtin_add_overflow(end, r->gpa, &end) && end <= GUEST_END);
}

int program_check(const struct program *p)
{
	uint64_t places = 0;
	unsigned int i;

	if (!p->seed || !p->run || p->run > GUEST_END / GUEST_PAGE || p->stride % GUEST_PAGE ||
	    p->stride / GUEST_PAGE < p->run)
		return silt_err(EINVAL, "guest: a program of runs of %llu pages, %#llx bytes apart",
				(unsigned long long)p->run, (unsigned long long)p->stride);
	for (i = 0; i < GUEST_MAX_RANGES; i++) {
		if (p->ranges[i].gpa % GUEST_PAGE || !ends_inside(p, &p->ranges[i]))
			return silt_err(ERANGE, "guest: a program's %llu places from %#llx on",
					(unsigned long long)p->ranges[i].places,
					(unsigned long long)p->ranges[i].gpa);
		places += p->ranges[i].places;
	}
	if (!places || places != p->places)
		return silt_err(EINVAL, "guest: a program of %llu places, its ranges have %llu",
				(unsigned long long)p->places, (unsigned long long)places);
	return 0;
}

int program_make(struct program *to, const struct guest_program *p)
{
	int ret = check_wish(p);

	if (ret < 0)
		return ret;
	write_program(to, p);
	if (!to->places)
		return silt_err(EINVAL, "guest: no range has room for a run of %llu pages",
				(unsigned long long)p->run);
	return 0;
}

int guest_program(struct guest *g, unsigned int vcpu, const struct guest_program *program)
{
	struct vcpu *v;
	int ret;

	if (vcpu >= g->opt.vcpus)
		return silt_err(EINVAL, "guest: vCPU %u of %u", vcpu, g->opt.vcpus);
	v = &g->vcpus[vcpu];
	if (vcpu_is_running(v))
		return silt_err(EBUSY, "guest: vCPU %u runs", vcpu);
	ret = program_make(v->program, program);
	if (ret < 0)
		return ret;
	v->pace.us = program->idle_us;
	v->pace.steady = program->steady;
	v->has_program = true;
	return 0;
}
