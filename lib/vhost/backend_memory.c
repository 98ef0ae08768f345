/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/err.h"
#include "vhost/backend_impl.h"

static struct silt_memory_region region_of(const struct silt_vhost_mem_region *r)
{
	return (struct silt_memory_region){
		.gpa = r->gpa,
		.size = r->size,
		.user_addr = r->user_addr,
		.mmap_offset = r->mmap_offset,
	};
}

/* Both maps are in the order of guest addresses. */
bool silt_memory_kept(const struct silt_memory *old, const struct silt_memory *mem)
{
	unsigned int j = 0, n = silt_memory_count(mem);
	const struct silt_memory_region *was, *is;

	if (old == mem)
		return true;
	for (unsigned int i = 0; i < silt_memory_count(old); i++) {
		was = silt_memory_region(old, i);
		while (j < n && silt_memory_region(mem, j)->gpa < was->gpa)
			j++;
		if (j == n)
			return false;
		is = silt_memory_region(mem, j);
		if (is->gpa != was->gpa || is->size != was->size || is->hva != was->hva)
			return false;
	}
	return true;
}

/* Bytes from user address @addr on that lie in one region; the most, where several hold it. */
static uint64_t mapped_from(const struct silt_memory *mem, uint64_t addr)
{
	uint64_t most = 0;

	for (unsigned int i = 0; i < silt_memory_count(mem); i++) {
		const struct silt_memory_region *r = silt_memory_region(mem, i);
		uint64_t off = addr - r->user_addr;

		if (addr >= r->user_addr && off < r->size && r->size - off > most)
			most = r->size - off;
	}
	return most;
}

bool silt_memory_covers(const struct silt_memory *mem, uint64_t addr, uint64_t size)
{
	uint64_t n;

	for (; size; addr += n, size -= n) {
		n = mapped_from(mem, addr);
		if (!n)
			return false;
		if (n > size)
			n = size;
	}
	return true;
}

/* *@mem with one region more; on failure *@mem is put. */
static int grow(struct silt_memory **mem, const struct silt_vhost_mem_region *wanted, int fd)
{
	const struct silt_memory_region region = region_of(wanted);
	struct silt_memory *old = *mem;
	int ret = silt_memory_add(old, &region, fd, mem);

	silt_memory_put(old);
	return ret;
}

int silt_set_mem_table(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_mem_table *table = &msg->payload.mem_table;
	struct silt_memory *mem;
	int ret = silt_memory_create(&mem);

	if (ret < 0)
		return ret;
	for (uint32_t i = 0; i < table->nregions; i++) {
		ret = grow(&mem, &table->regions[i], msg->fds[i]);
		if (ret < 0)
			return ret;
	}
	silt_conf_begin(b)->mem = mem;
	return silt_commit(b);
}

int silt_get_max_mem_slots(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	(void)msg;
	return silt_answer_u64(b, SILT_MEMORY_MAX_REGIONS);
}

int silt_add_mem_reg(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	struct silt_memory *mem = silt_memory_get(b->now->mem);
	int ret = grow(&mem, &msg->payload.mem_reg.region, msg->fds[0]);

	if (ret < 0)
		return ret;
	silt_conf_begin(b)->mem = mem;
	return silt_commit(b);
}

int silt_rem_mem_reg(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_mem_region *r = &msg->payload.mem_reg.region;
	struct silt_memory *mem;
	int ret = silt_memory_remove(b->now->mem, r->gpa, r->user_addr, r->size, &mem);

	if (ret < 0)
		return ret;
	silt_conf_begin(b)->mem = mem;
	return silt_commit(b);
}
