/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_PER_PAGE_H
#define BENCH_PER_PAGE_H

#include <stdint.h>

struct tracking;

/*
 * The way that monitors went with memory that is misaligned: KVM's bitmap is gone through page by
 * page, and each dirty one is cleared by a call of its own, in each slot that shows it.
 *
 * For demo_options.read_kvm. Return: pages newly dirty, or -errno.
 */
int64_t per_page_read(struct tracking *t);

#endif
