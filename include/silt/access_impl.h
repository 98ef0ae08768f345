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
 * The accesses. Those that only write are an asm goto, whose memory is an input with a "memory"
 * clobber. Those that read are not: gcc before 12.4 loses outputs of an asm goto, or what a
 * variable held on the way that faults. They raise a flag before the access and lower it behind,
 * and a fault skips the second.
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

static inline uint64_t silt_access_look64(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
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
		bool fault;                                                                        \
                                                                                                   \
		__asm__ volatile("stc\n\t"                                                         \
				 "1: " insn " %[mem], %" reg "[v]\n\t"                             \
				 "clc\n"                                                           \
				 "2:\n\t"                                                          \
				 SILT_ACCESS_ENTRY("1b", "2b")                                     \
				 : [v] "=r"(v), "=@ccc"(fault)                                     \
				 : [mem] "m"(*p)                                                   \
				 : "memory");                                                      \
		if (__builtin_expect(fault, 0))                                                    \
			return false;                                                              \
		*val = (uint##bits##_t)v;                                                          \
		return true;                                                                       \
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
	bool fault;

	__asm__ volatile("stc\n\t"
			 "1: xchgq %[val], %[mem]\n\t"
			 "clc\n"
			 "2:\n\t"
			 SILT_ACCESS_ENTRY("1b", "2b")
			 : [val] "+r"(val), "=@ccc"(fault)
			 : [mem] "m"(*p)
			 : "memory");
	if (__builtin_expect(fault, 0))
		return false;
	*old = val;
	return true;
}

static inline uint64_t silt_access_look64(const uint64_t *p)
{
	uint64_t v = 0;

	__asm__ volatile("1: movq %[mem], %[v]\n"
			 "2:\n\t"
			 SILT_ACCESS_ENTRY("1b", "2b")
			 : [v] "+r"(v)
			 : [mem] "m"(*p)
			 : "memory");
	return v;
}

#else /* arm64 */

#ifdef __ARM_FEATURE_ATOMICS

/* The old value goes to a register: with the zero register as target it would not acquire. */
#define SILT_ACCESS_OR(bits, size, reg)                                                            \
	static inline bool silt_access_or##bits(uint##bits##_t *p, uint##bits##_t mask)            \
	{                                                                                          \
		__asm__ volatile goto("1: ldsetal" size " %" reg "[mask], " reg "9, %[mem]\n\t"    \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [mem] "Q"(*p), [mask] "r"(mask)                            \
				      : "memory", "x9"                                             \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

#else

#define SILT_ACCESS_OR(bits, size, reg)                                                            \
	static inline bool silt_access_or##bits(uint##bits##_t *p, uint##bits##_t mask)            \
	{                                                                                          \
		__asm__ volatile goto("1: ldaxr" size " " reg "9, %[mem]\n\t"                      \
				      "orr " reg "9, " reg "9, %" reg "[mask]\n\t"                 \
				      "2: stlxr" size " w10, " reg "9, %[mem]\n\t"                 \
				      "cbnz w10, 1b\n\t"                                           \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      SILT_ACCESS_ENTRY("2b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [mem] "Q"(*p), [mask] "r"(mask)                            \
				      : "memory", "x9", "x10"                                      \
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
		uint32_t fault;                                                                    \
                                                                                                   \
		__asm__ volatile("mov %w[fault], #1\n\t"                                           \
				 "1: ldar" size " %" reg "[v], %[mem]\n\t"                         \
				 "mov %w[fault], #0\n"                                             \
				 "2:\n\t"                                                          \
				 SILT_ACCESS_ENTRY("1b", "2b")                                     \
				 : [v] "=&r"(v), [fault] "=&r"(fault)                              \
				 : [mem] "Q"(*p)                                                   \
				 : "memory");                                                      \
		if (__builtin_expect(fault, 0))                                                    \
			return false;                                                              \
		*val = (uint##bits##_t)v;                                                          \
		return true;                                                                       \
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
	uint32_t fault;

#ifdef __ARM_FEATURE_ATOMICS
	__asm__ volatile("mov %w[fault], #1\n\t"
			 "1: swpal %x[val], %x[v], %[mem]\n\t"
			 "mov %w[fault], #0\n"
			 "2:\n\t"
			 SILT_ACCESS_ENTRY("1b", "2b")
			 : [v] "=&r"(v), [fault] "=&r"(fault)
			 : [mem] "Q"(*p), [val] "r"(val)
			 : "memory");
#else
	__asm__ volatile("1: mov %w[fault], #1\n\t"
			 "2: ldaxr %x[v], %[mem]\n\t"
			 "3: stlxr %w[fault], %x[val], %[mem]\n\t"
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
	*old = v;
	return true;
}

static inline uint64_t silt_access_look64(const uint64_t *p)
{
	uint64_t v = 0;

	__asm__ volatile("1: ldar %x[v], %[mem]\n"
			 "2:\n\t"
			 SILT_ACCESS_ENTRY("1b", "2b")
			 : [v] "+r"(v)
			 : [mem] "Q"(*p)
			 : "memory");
	return v;
}

#endif
/* clang-format on */

#undef SILT_ACCESS_OR
#undef SILT_ACCESS_LOAD
#undef SILT_ACCESS_STORE

SILT_END_DECLS

#endif
