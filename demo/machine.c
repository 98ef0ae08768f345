/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "demo/machine.h"

/* Bursts come so often where the rate is not too low for it. */
#define BURST_US 2000

int machine_open(struct machine *m, const struct machine_config *config)
{
	int ret;

	*m = (struct machine){.config = *config};
	ret = ram_open(&m->ram, config->memory, config->vcpus);
	if (ret < 0)
		return ret;
	ret = vm_open(&m->ram, config->kvm, &m->vm);
	if (ret >= 0)
		ret = disk_open(&m->ram, config, &m->disk);
	if (ret < 0)
		machine_close(m);
	return ret;
}

void machine_close(struct machine *m)
{
	disk_close(m->disk);
	vm_close(m->vm);
	ram_close(&m->ram);
	m->disk = NULL;
	m->vm = NULL;
}

static void set_pattern(struct guest_program *p, enum demo_pattern pattern)
{
	p->run = pattern == DEMO_RUNS ? 512 : 1;
	p->stride = pattern == DEMO_SPARSE ? 1000 : p->run;
	p->sequential = pattern == DEMO_SEQUENTIAL;
}

/* So many writes in each burst, and as many bursts as the rate wants. */
static void set_rate(struct guest_program *p, double rate)
{
	p->burst = (uint64_t)(rate * BURST_US / 1e6);
	p->burst += !p->burst;
	p->idle_us = (uint32_t)((double)p->burst * 1e6 / rate);
	p->steady = true;
}

int machine_program(struct machine *m, enum demo_pattern pattern, uint64_t rate)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < m->config.vcpus && ret >= 0; i++) {
		struct guest_program p = {.seed = m->config.seed + i};

		p.nranges = ram_ranges(&m->ram, i, p.ranges);
		set_pattern(&p, pattern);
		set_rate(&p, (double)rate / m->config.vcpus);
		ret = vm_program(m->vm, i, &p);
	}
	return ret;
}

int machine_resume(struct machine *m)
{
	int ret = disk_start(m->disk);

	if (ret >= 0)
		vm_resume(m->vm);
	return ret;
}

int machine_pause(struct machine *m)
{
	int ret = vm_pause(m->vm);

	disk_pause(m->disk);
	return ret;
}

size_t machine_state_bytes(const struct machine *m)
{
	return disk_state_bytes() + vm_state_bytes(m->vm);
}

int machine_save(const struct machine *m, uint8_t *state)
{
	disk_save(m->disk, state);
	return vm_save(m->vm, state + disk_state_bytes());
}

int machine_load(struct machine *m, const uint8_t *state, size_t bytes)
{
	int ret;

	if (bytes != machine_state_bytes(m))
		return silt_err(EINVAL, "demo: %zu bytes of device state, this guest has %zu",
				bytes, machine_state_bytes(m));
	ret = disk_load(m->disk, state, disk_state_bytes());
	if (ret < 0)
		return ret;
	return vm_load(m->vm, state + disk_state_bytes(), bytes - disk_state_bytes());
}

void machine_count(const struct machine *m, struct machine_counts *counts)
{
	unsigned int i;

	counts->writes = 0;
	for (i = 0; i < m->config.vcpus; i++)
		counts->writes += vm_writes(m->vm, i);
	counts->reads = disk_reads(m->disk);
}
