/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_LOG_XCHG8_H
#define SILT_LOG_XCHG8_H

#include <silt/access.h>

/* A fault-safe exchange of one byte, as those in access.h: for the edges of a log. */
/* clang-format off */
static inline bool silt_log_xchg8(uint8_t *p, uint8_t val, uint8_t *old)
{
#if SILT_ACCESS_TSAN
	*old = __atomic_exchange_n(p, val, __ATOMIC_SEQ_CST);
	return true;
#else
#ifdef __x86_64__
	bool fault;

	__asm__ volatile("stc\n\t"
			 "1: xchgb %[val], %[mem]\n\t"
			 "clc\n"
			 "2:\n\t"
			 SILT_ACCESS_ENTRY("1b", "2b")
			 : [val] "+q"(val), "=@ccc"(fault)
			 : [mem] "m"(*p)
			 : "memory");
	if (__builtin_expect(fault, 0))
		return false;
	*old = val;
	return true;
#else
	uint32_t v, fault;

#ifdef __ARM_FEATURE_ATOMICS
	__asm__ volatile("mov %w[fault], #1\n\t"
			 "1: swpalb %w[val], %w[v], %[mem]\n\t"
			 "mov %w[fault], #0\n"
			 "2:\n\t"
			 SILT_ACCESS_ENTRY("1b", "2b")
			 : [v] "=&r"(v), [fault] "=&r"(fault)
			 : [mem] "Q"(*p), [val] "r"(val)
			 : "memory");
#else
	__asm__ volatile("1: mov %w[fault], #1\n\t"
			 "2: ldaxrb %w[v], %[mem]\n\t"
			 "3: stlxrb %w[fault], %w[val], %[mem]\n\t"
			 "cbnz %w[fault], 1b\n"
			 "4:\n\t"
			 SILT_ACCESS_ENTRY("2b", "4b")
			 SILT_ACCESS_ENTRY("3b", "4b")
			 : [v] "=&r"(v), [fault] "=&r"(fault)
			 : [mem] "Q"(*p), [val] "r"(val)
			 : "memory");
#endif
	if (__builtin_expect(fault, 0))
		return false;
	*old = (uint8_t)v;
	return true;
#endif
#endif
}
/* clang-format on */

#endif
