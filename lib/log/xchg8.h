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
	uint32_t v;

#ifdef __x86_64__
	__asm__ volatile goto("movl %k[val], %k[v]\n\t"
			      "1: xchgb %b[v], %[mem]\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      : [v] "=&r"(v)
			      : [mem] "m"(*p), [val] "r"((uint32_t)val)
			      : "memory"
			      : fault);
#elif defined(__ARM_FEATURE_ATOMICS)
	__asm__ volatile goto("1: swpalb %w[val], %w[v], %[mem]\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      : [v] "=&r"(v)
			      : [mem] "Q"(*p), [val] "r"(val)
			      : "memory"
			      : fault);
#else
	uint32_t again;

	__asm__ volatile goto("1: ldaxrb %w[v], %[mem]\n\t"
			      "2: stlxrb %w[again], %w[val], %[mem]\n\t"
			      "cbnz %w[again], 1b\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      SILT_ACCESS_ENTRY("2b", "%l[fault]")
			      : [v] "=&r"(v), [again] "=&r"(again)
			      : [mem] "Q"(*p), [val] "r"(val)
			      : "memory"
			      : fault);
#endif
	*old = (uint8_t)v;
	return true;
fault:
	return false;
#endif
}
/* clang-format on */

#endif
