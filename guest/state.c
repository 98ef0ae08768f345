/* SPDX-License-Identifier: BSD-3-Clause */
/* What of the guest is not in its slots, to be carried to another one. */
#include <string.h>

#include "base/err.h"
#include "guest/guest_internal.h"

/* Of one vCPU; between programs of one kind of machine. */
struct state {
	uint32_t idle_us;
	uint8_t steady;
	uint8_t has_program;
	uint8_t unused[2];
	struct program program;
	uint8_t registers[ARCH_REGISTERS];
};

size_t guest_state_bytes(const struct guest *g)
{
	return g->opt.vcpus * sizeof(struct state);
}

static int refuse_running(struct guest *g)
{
	unsigned int i;

	for (i = 0; i < g->opt.vcpus; i++)
		if (vcpu_is_running(&g->vcpus[i]))
			return silt_err(EBUSY, "guest: vCPU %u runs", i);
	return 0;
}

static int save(struct vcpu *v, uint8_t *to)
{
	struct state s = {
		.idle_us = v->pace.us, .steady = v->pace.steady, .has_program = v->has_program};
	int ret = arch_vcpu_save(v, s.registers);

	s.program = *v->program;
	memcpy(to, &s, sizeof(s));
	return ret;
}

int guest_save(struct guest *g, void *state)
{
	unsigned int i;
	int ret = refuse_running(g);

	for (i = 0; i < g->opt.vcpus && ret >= 0; i++)
		ret = save(&g->vcpus[i], (uint8_t *)state + i * sizeof(struct state));
	return ret;
}

static int load(struct vcpu *v, const uint8_t *from)
{
	struct state s;
	int ret;

	memcpy(&s, from, sizeof(s));
	ret = s.has_program ? program_check(&s.program) : 0;
	if (ret >= 0)
		ret = arch_vcpu_load(v, s.registers);
	if (ret < 0)
		return ret;
	*v->program = s.program;
	v->pace.us = s.idle_us;
	v->pace.steady = s.steady;
	v->has_program = s.has_program;
	return 0;
}

int guest_load(struct guest *g, const void *state, size_t bytes)
{
	unsigned int i;
	int ret = refuse_running(g);

	if (ret >= 0 && bytes != guest_state_bytes(g))
		return silt_err(EINVAL, "guest: a state of %zu bytes, %u vCPUs have %zu", bytes,
				g->opt.vcpus, guest_state_bytes(g));
	for (i = 0; i < g->opt.vcpus && ret >= 0; i++)
		ret = load(&g->vcpus[i], (const uint8_t *)state + i * sizeof(struct state));
	return ret;
}
