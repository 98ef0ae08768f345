/* SPDX-License-Identifier: BSD-3-Clause */
/* For processors that nobody has written a guest for. */
#include "base/err.h"
#include "guest/guest_internal.h"

struct program *arch_program(const struct guest *g, unsigned int vcpu)
{
	return (struct program *)(g->self + vcpu * GUEST_PAGE);
}

int arch_fill_memory(struct guest *g)
{
	(void)g;
	return silt_err(EOPNOTSUPP, "guest: there is none for this kind of processor");
}

int arch_vcpu_setup(struct vcpu *v)
{
	return arch_fill_memory(v->guest);
}

int arch_vcpu_save(struct vcpu *v, void *registers)
{
	(void)registers;
	return arch_fill_memory(v->guest);
}

int arch_vcpu_load(struct vcpu *v, const void *registers)
{
	(void)registers;
	return arch_fill_memory(v->guest);
}
