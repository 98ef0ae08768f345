/* SPDX-License-Identifier: BSD-3-Clause */
/* The inline half of access.h; include that one. */
#ifndef SILT_ACCESS_IMPL_H
#define SILT_ACCESS_IMPL_H

#if defined(__SANITIZE_THREAD__)
#define SILT_ACCESS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SILT_ACCESS_TSAN 1
#endif
#endif
#ifndef SILT_ACCESS_TSAN
#define SILT_ACCESS_TSAN 0
#endif

SILT_BEGIN_DECLS

/*
 * One entry of the table. The flags keep it where linkers collect unused sections (R), and in the
 * COMDAT group of a C++ function that is thrown away with its duplicates (?).
 */
#define SILT_ACCESS_ENTRY(insn, fixup)                            \
	".pushsection silt_access_table, \"aR?\", %%progbits\n\t" \
	".balign 4\n\t"                                           \
	".long (" insn ") - .\n\t"                                \
	".long (" fixup ") - .\n\t"                               \
	".popsection\n\t"

/*
 * A locked instruction beats mfence by far. The address is inside the red zone, where adding
 * nothing harms nobody, and away from the return address, which would make the next ret wait.
 * ThreadSanitizer models no fence, and gcc rejects the builtin under it: so this is asm there too.
 */
static inline void silt_fence(void)
{
#ifdef __x86_64__
	__asm__ volatile("lock addl $0, -64(%%rsp)" : : : "memory", "cc");
#else
	__asm__ volatile("dmb ish" : : : "memory");
#endif
}

/*
 * The accesses. What is written is an input with a "memory" clobber, since an output of an asm goto
 * is undefined where it jumps. All are volatile: gcc 12 drops an asm goto whose output nobody
 * reads.
 */
/* clang-format off */
#if SILT_ACCESS_TSAN

/* ThreadSanitizer does not see asm: its build gives up recovery to be seen. */
#define SILT_ACCESS_OR(bits)                                                                       \
	static inline bool silt_access_or##bits(uint##bits##_t *p, uint##bits##_t mask)            \
	{                                                                                          \
		__atomic_fetch_or(p, mask, __ATOMIC_SEQ_CST);                                      \
		return true;                                                                       \
	}

#define SILT_ACCESS_LOAD(bits)                                                                     \
	static inline bool silt_access_load##bits(const uint##bits##_t *p, uint##bits##_t *val)    \
	{                                                                                          \
		*val = __atomic_load_n(p, __ATOMIC_ACQUIRE);                                       \
		return true;                                                                       \
	}

#define SILT_ACCESS_STORE(bits)                                                                    \
	static inline bool silt_access_store##bits(uint##bits##_t *p, uint##bits##_t val)          \
	{                                                                                          \
		__atomic_store_n(p, val, __ATOMIC_RELEASE);                                        \
		return true;                                                                       \
	}

SILT_ACCESS_OR(8)
SILT_ACCESS_OR(64)
SILT_ACCESS_LOAD(8)
SILT_ACCESS_LOAD(16)
SILT_ACCESS_LOAD(32)
SILT_ACCESS_LOAD(64)
SILT_ACCESS_STORE(8)
SILT_ACCESS_STORE(16)
SILT_ACCESS_STORE(32)
SILT_ACCESS_STORE(64)

static inline bool silt_access_xchg64(uint64_t *p, uint64_t val, uint64_t *old)
{
	*old = __atomic_exchange_n(p, val, __ATOMIC_SEQ_CST);
	return true;
}

#elif defined(__x86_64__)

#define SILT_ACCESS_OR(bits, insn, imm)                                                            \
	static inline bool silt_access_or##bits(uint##bits##_t *p, uint##bits##_t mask)            \
	{                                                                                          \
		__asm__ volatile goto("1: lock " insn " %[mask], %[mem]\n\t"                       \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [mem] "m"(*p), [mask] imm "r"(mask)                        \
				      : "memory", "cc"                                             \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

/* Loads acquire and stores release by the architecture's own order. */
#define SILT_ACCESS_LOAD(bits, insn, reg)                                                          \
	static inline bool silt_access_load##bits(const uint##bits##_t *p, uint##bits##_t *val)    \
	{                                                                                          \
		uint64_t v;                                                                        \
												   \
		__asm__ volatile goto("1: " insn " %[mem], %" reg "[v]\n\t"                        \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : [v] "=r"(v)                                                \
				      : [mem] "m"(*p)                                              \
				      : "memory"                                                   \
				      : fault);                                                    \
		*val = (uint##bits##_t)v;                                                          \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

#define SILT_ACCESS_STORE(bits, insn, imm)                                                         \
	static inline bool silt_access_store##bits(uint##bits##_t *p, uint##bits##_t val)          \
	{                                                                                          \
		__asm__ volatile goto("1: " insn " %[val], %[mem]\n\t"                             \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [mem] "m"(*p), [val] imm "r"(val)                          \
				      : "memory"                                                   \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

SILT_ACCESS_OR(8, "orb", "i")
SILT_ACCESS_OR(64, "orq", "e")
SILT_ACCESS_LOAD(8, "movzbl", "k")
SILT_ACCESS_LOAD(16, "movzwl", "k")
SILT_ACCESS_LOAD(32, "movl", "k")
SILT_ACCESS_LOAD(64, "movq", "q")
SILT_ACCESS_STORE(8, "movb", "i")
SILT_ACCESS_STORE(16, "movw", "i")
SILT_ACCESS_STORE(32, "movl", "i")
SILT_ACCESS_STORE(64, "movq", "e")

static inline bool silt_access_xchg64(uint64_t *p, uint64_t val, uint64_t *old)
{
	uint64_t v;

	/* A move of its own: not every compiler gets an operand right that is both in and out. */
	__asm__ volatile goto("movq %[val], %[v]\n\t"
			      "1: xchgq %[v], %[mem]\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      : [v] "=&r"(v)
			      : [mem] "m"(*p), [val] "er"(val)
			      : "memory"
			      : fault);
	*old = v;
	return true;
fault:
	return false;
}

#else /* arm64 */

#ifdef __ARM_FEATURE_ATOMICS

/* The old value goes to a register: with the zero register as target it would not acquire. */
#define SILT_ACCESS_OR(bits, size, reg)                                                            \
	static inline bool silt_access_or##bits(uint##bits##_t *p, uint##bits##_t mask)            \
	{                                                                                          \
		uint64_t v;                                                                        \
												   \
		__asm__ volatile goto("1: ldsetal" size " %" reg "[mask], %" reg "[v], %[mem]\n\t" \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : [v] "=&r"(v)                                               \
				      : [mem] "Q"(*p), [mask] "r"(mask)                            \
				      : "memory"                                                   \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

#else

#define SILT_ACCESS_OR(bits, size, reg)                                                            \
	static inline bool silt_access_or##bits(uint##bits##_t *p, uint##bits##_t mask)            \
	{                                                                                          \
		uint64_t v;                                                                        \
		uint32_t again;                                                                    \
												   \
		__asm__ volatile goto("1: ldaxr" size " %" reg "[v], %[mem]\n\t"                   \
				      "orr %" reg "[v], %" reg "[v], %" reg "[mask]\n\t"           \
				      "2: stlxr" size " %w[again], %" reg "[v], %[mem]\n\t"        \
				      "cbnz %w[again], 1b\n\t"                                     \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      SILT_ACCESS_ENTRY("2b", "%l[fault]")                         \
				      : [v] "=&r"(v), [again] "=&r"(again)                         \
				      : [mem] "Q"(*p), [mask] "r"(mask)                            \
				      : "memory"                                                   \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

#endif

#define SILT_ACCESS_LOAD(bits, size, reg)                                                          \
	static inline bool silt_access_load##bits(const uint##bits##_t *p, uint##bits##_t *val)    \
	{                                                                                          \
		uint64_t v;                                                                        \
												   \
		__asm__ volatile goto("1: ldar" size " %" reg "[v], %[mem]\n\t"                    \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : [v] "=r"(v)                                                \
				      : [mem] "Q"(*p)                                              \
				      : "memory"                                                   \
				      : fault);                                                    \
		*val = (uint##bits##_t)v;                                                          \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

#define SILT_ACCESS_STORE(bits, size, reg)                                                         \
	static inline bool silt_access_store##bits(uint##bits##_t *p, uint##bits##_t val)          \
	{                                                                                          \
		__asm__ volatile goto("1: stlr" size " %" reg "[val], %[mem]\n\t"                  \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [mem] "Q"(*p), [val] "r"(val)                              \
				      : "memory"                                                   \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

SILT_ACCESS_OR(8, "b", "w")
SILT_ACCESS_OR(64, "", "x")
SILT_ACCESS_LOAD(8, "b", "w")
SILT_ACCESS_LOAD(16, "h", "w")
SILT_ACCESS_LOAD(32, "", "w")
SILT_ACCESS_LOAD(64, "", "x")
SILT_ACCESS_STORE(8, "b", "w")
SILT_ACCESS_STORE(16, "h", "w")
SILT_ACCESS_STORE(32, "", "w")
SILT_ACCESS_STORE(64, "", "x")

static inline bool silt_access_xchg64(uint64_t *p, uint64_t val, uint64_t *old)
{
	uint64_t v;

#ifdef __ARM_FEATURE_ATOMICS
	__asm__ volatile goto("1: swpal %x[val], %x[v], %[mem]\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      : [v] "=&r"(v)
			      : [mem] "Q"(*p), [val] "r"(val)
			      : "memory"
			      : fault);
#else
	uint32_t again;

	__asm__ volatile goto("1: ldaxr %x[v], %[mem]\n\t"
			      "2: stlxr %w[again], %x[val], %[mem]\n\t"
			      "cbnz %w[again], 1b\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      SILT_ACCESS_ENTRY("2b", "%l[fault]")
			      : [v] "=&r"(v), [again] "=&r"(again)
			      : [mem] "Q"(*p), [val] "r"(val)
			      : "memory"
			      : fault);
#endif
	*old = v;
	return true;
fault:
	return false;
}

#endif
/* clang-format on */

#undef SILT_ACCESS_OR
#undef SILT_ACCESS_LOAD
#undef SILT_ACCESS_STORE

SILT_END_DECLS

#endif
