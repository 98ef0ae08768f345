/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/access_stream.h"

#include <silt/access.h>

#if defined(__x86_64__) && !SILT_ACCESS_TSAN

/* clang-format off */

/* One line. */
static inline bool stream_line(char *dst, const char *src)
{
	__asm__ volatile goto("movdqa (%[src]), %%xmm0\n\t"
			      "movdqa 16(%[src]), %%xmm1\n\t"
			      "movdqa 32(%[src]), %%xmm2\n\t"
			      "movdqa 48(%[src]), %%xmm3\n\t"
			      "1: movntdq %%xmm0, (%[dst])\n\t"
			      "2: movntdq %%xmm1, 16(%[dst])\n\t"
			      "3: movntdq %%xmm2, 32(%[dst])\n\t"
			      "4: movntdq %%xmm3, 48(%[dst])\n\t"
			      SILT_ACCESS_ENTRY("1b", "%l[fault]")
			      SILT_ACCESS_ENTRY("2b", "%l[fault]")
			      SILT_ACCESS_ENTRY("3b", "%l[fault]")
			      SILT_ACCESS_ENTRY("4b", "%l[fault]")
			      : /* no outputs */
			      : [dst] "r"(dst), [src] "r"(src)
			      : "memory", "xmm0", "xmm1", "xmm2", "xmm3"
			      : fault);
	return true;
fault:
	return false;
}

/* clang-format on */

bool silt_access_stream(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;
	size_t i;
	bool ok = true;

	for (i = 0; i < len && ok; i += SILT_ACCESS_STREAM)
		ok = stream_line(d + i, s + i);
	/* Such stores are ordered with others by this alone. */
	__asm__ volatile("sfence" : : : "memory");
	return ok;
}

#else

bool silt_access_stream(void *dst, const void *src, size_t len)
{
	return silt_access_copy(dst, src, len);
}

#endif
