/* SPDX-License-Identifier: BSD-3-Clause */
#include <silt/access.h>

/*
 * Short copies are steps of 16 and 8 bytes whose last one overlaps the one before it; a byte may so
 * be stored twice. Long ones are left to the machine's string instruction where there is one.
 */
#if SILT_ACCESS_TSAN

/* ThreadSanitizer must see every access, and guest memory is read while others write it. */
static void copy_word(void *dst, const void *src)
{
	uint64_t word = __atomic_load_n((const uint64_t *)src, __ATOMIC_RELAXED);

	__atomic_store_n((uint64_t *)dst, word, __ATOMIC_RELAXED);
}

static void copy_byte(void *dst, const void *src)
{
	uint8_t byte = __atomic_load_n((const uint8_t *)src, __ATOMIC_RELAXED);

	__atomic_store_n((uint8_t *)dst, byte, __ATOMIC_RELAXED);
}

bool silt_access_copy(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;

	while (len) {
		bool word = len >= 8 && !(((uintptr_t)d | (uintptr_t)s) & 7);
		size_t n = word ? 8 : 1;

		if (word)
			copy_word(d, s);
		else
			copy_byte(d, s);
		d += n;
		s += n;
		len -= n;
	}
	return true;
}

bool silt_access_fill(void *dst, uint8_t byte, size_t len)
{
	uint8_t *d = dst;

	while (len--)
		__atomic_store_n(d++, byte, __ATOMIC_RELAXED);
	return true;
}

#else

/* clang-format off */
#ifdef __x86_64__

#define LOAD1  "movb (%[src]), %%al"
#define LOAD2  "movw (%[src]), %%ax"
#define LOAD4  "movl (%[src]), %%eax"
#define LOAD8  "movq (%[src]), %%rax"
#define LOAD16 "movups (%[src]), %%xmm0"
#define STORE1  "movb %%al, (%[dst])"
#define STORE2  "movw %%ax, (%[dst])"
#define STORE4  "movl %%eax, (%[dst])"
#define STORE8  "movq %%rax, (%[dst])"
#define STORE16 "movups %%xmm0, (%[dst])"
#define SCRATCH "rax", "xmm0"
#define FILL1  "movb %b[word], (%[dst])"
#define FILL8  "movq %q[word], (%[dst])"

#else

#define LOAD1  "ldrb w9, [%[src]]"
#define LOAD2  "ldrh w9, [%[src]]"
#define LOAD4  "ldr w9, [%[src]]"
#define LOAD8  "ldr x9, [%[src]]"
#define LOAD16 "ldp x9, x10, [%[src]]"
#define STORE1  "strb w9, [%[dst]]"
#define STORE2  "strh w9, [%[dst]]"
#define STORE4  "str w9, [%[dst]]"
#define STORE8  "str x9, [%[dst]]"
#define STORE16 "stp x9, x10, [%[dst]]"
#define SCRATCH "x9", "x10"
#define FILL1  "strb %w[word], [%[dst]]"
#define FILL8  "str %x[word], [%[dst]]"

#endif

/* The scratch registers are clobbers, so that there is no output that a fault would leave open. */
#define COPY_STEP(n)                                                                               \
	static inline bool copy##n(char *dst, const char *src)                                     \
	{                                                                                          \
		__asm__ volatile goto("1: " LOAD##n "\n\t"                                         \
				      "2: " STORE##n "\n\t"                                        \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      SILT_ACCESS_ENTRY("2b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [dst] "r"(dst), [src] "r"(src)                             \
				      : "memory", SCRATCH                                          \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

#define FILL_STEP(n)                                                                               \
	static inline bool fill##n(char *dst, uint64_t word)                                       \
	{                                                                                          \
		__asm__ volatile goto("1: " FILL##n "\n\t"                                         \
				      SILT_ACCESS_ENTRY("1b", "%l[fault]")                         \
				      : /* no outputs */                                           \
				      : [dst] "r"(dst), [word] "r"(word)                           \
				      : "memory"                                                   \
				      : fault);                                                    \
		return true;                                                                       \
	fault:                                                                                     \
		return false;                                                                      \
	}

COPY_STEP(1)
COPY_STEP(2)
COPY_STEP(4)
COPY_STEP(8)
COPY_STEP(16)
FILL_STEP(1)
FILL_STEP(8)

#ifdef __x86_64__

/* From here on the string instruction's start-up cost is lost in the copy. */
#define LONG_COPY 1024

static bool copy_long(char *dst, const char *src, size_t len)
{
	__asm__ volatile goto("movq %[dst], %%rdi\n\t"
			      "movq %[src], %%rsi\n\t"
			      "movq %[len], %%rcx\n\t"
			      "1: rep movsb\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      : /* no outputs */
			      : [dst] "r"(dst), [src] "r"(src), [len] "r"(len)
			      : "memory", "rdi", "rsi", "rcx"
			      : fault);
	return true;
fault:
	return false;
}

#endif
/* clang-format on */

static bool copy_short(char *dst, const char *src, size_t len)
{
	if (len >= 8)
		return copy8(dst, src) && copy8(dst + len - 8, src + len - 8);
	if (len >= 4)
		return copy4(dst, src) && copy4(dst + len - 4, src + len - 4);
	if (len >= 2)
		return copy2(dst, src) && copy2(dst + len - 2, src + len - 2);
	return !len || copy1(dst, src);
}

bool silt_access_copy(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;
	size_t i;

	if (len < 16)
		return copy_short(d, s, len);
#ifdef __x86_64__
	if (len >= LONG_COPY)
		return copy_long(d, s, len);
#endif
	for (i = 0; i < len - 16; i += 16) {
		if (!copy16(d + i, s + i))
			return false;
	}
	return copy16(d + len - 16, s + len - 16);
}

bool silt_access_fill(void *dst, uint8_t byte, size_t len)
{
	uint64_t word = byte * UINT64_C(0x0101010101010101);
	char *d = dst;
	size_t i;

	if (len < 8) {
		for (i = 0; i < len; i++) {
			if (!fill1(d + i, word))
				return false;
		}
		return true;
	}
	for (i = 0; i < len - 8; i += 8) {
		if (!fill8(d + i, word))
			return false;
	}
	return fill8(d + len - 8, word);
}

#endif
