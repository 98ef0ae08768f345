/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/reference_bitmap.h"

#include <stddef.h>

#ifdef __x86_64__
#include <immintrin.h>

/* The library's kernels may use these instructions, so may what they are compared with. */
#define FAST __attribute__((target("avx2,popcnt,bmi,bmi2")))
#else
#define FAST
#endif

FAST static inline uint64_t merge_word(uint64_t *dst, uint64_t bits)
{
	uint64_t fresh = bits & ~*dst;

	*dst |= bits;
	return (uint64_t)__builtin_popcountll(fresh);
}

static inline uint64_t take_word(uint64_t *shared)
{
	if (!__atomic_load_n(shared, __ATOMIC_RELAXED))
		return 0;
	return __atomic_exchange_n(shared, 0, __ATOMIC_SEQ_CST);
}

FAST uint64_t ref_merge_words(uint64_t *dst, const uint64_t *src, uint64_t n)
{
	uint64_t count = 0, i;

	for (i = 0; i < n; i++)
		count += merge_word(&dst[i], src[i]);
	return count;
}

FAST uint64_t ref_xchg_merge_words(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t count = 0, i, bits;

	for (i = 0; i < n; i++) {
		bits = take_word(&shared[i]);
		if (bits)
			count += merge_word(&dst[i], bits);
	}
	return count;
}

void ref_list_two_atomics(uint64_t *first, uint64_t *second, const uint64_t *src, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (!src[i])
			continue;
		__atomic_fetch_or(&first[i], src[i], __ATOMIC_SEQ_CST);
		__atomic_fetch_or(&second[i], src[i], __ATOMIC_SEQ_CST);
	}
}

void ref_log_or_words(uint64_t *list, uint64_t *shared, uint64_t n)
{
	uint64_t i, bits;

	for (i = 0; i < n; i++) {
		bits = take_word(&shared[i]);
		if (bits)
			__atomic_fetch_or(&list[i], bits, __ATOMIC_SEQ_CST);
	}
}

FAST void ref_log_per_bit(uint64_t *shared, uint64_t n, void (*mark)(void *opaque, uint64_t bit),
			  void *opaque)
{
	uint64_t i, bits;

	for (i = 0; i < n; i++) {
		for (bits = take_word(&shared[i]); bits; bits &= bits - 1)
			mark(opaque, i * 64 + (uint64_t)__builtin_ctzll(bits));
	}
}

uint64_t ref_per_page(uint64_t *dst, uint64_t dst_first, uint64_t *list, uint64_t list_first,
		      uint64_t npages, void (*clear)(void *opaque, uint64_t page), void *opaque)
{
	uint64_t count = 0, i, from, to, bit, old;

	for (i = 0; i < npages; i++) {
		from = list_first + i;
		bit = UINT64_C(1) << from % 64;
		if (!(__atomic_fetch_and(&list[from / 64], ~bit, __ATOMIC_SEQ_CST) & bit))
			continue;
		to = dst_first + i;
		bit = UINT64_C(1) << to % 64;
		old = dst[to / 64];
		dst[to / 64] = old | bit;
		count += !(old & bit);
		if (clear)
			clear(opaque, to);
	}
	return count;
}

#ifdef __x86_64__

FAST static inline __m256i count_bytes(__m256i v)
{
	const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1,
					       1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
	const __m256i nibble = _mm256_set1_epi8(0x0f);
	__m256i low = _mm256_and_si256(v, nibble);
	__m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);

	return _mm256_add_epi8(_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high));
}

FAST static inline __m256i merge_vector(__m256i total, uint64_t *dst, const uint64_t *src)
{
	__m256i old = _mm256_load_si256((const __m256i *)dst);
	__m256i bits = _mm256_load_si256((const __m256i *)src);
	__m256i bytes = count_bytes(_mm256_andnot_si256(old, bits));

	_mm256_store_si256((__m256i *)dst, _mm256_or_si256(old, bits));
	return _mm256_add_epi64(total, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
}

FAST static uint64_t sum(__m256i total)
{
	return (uint64_t)_mm256_extract_epi64(total, 0) + (uint64_t)_mm256_extract_epi64(total, 1) +
	       (uint64_t)_mm256_extract_epi64(total, 2) + (uint64_t)_mm256_extract_epi64(total, 3);
}

/* Two vectors a turn: more gained nothing where it was tried. */
FAST uint64_t ref_merge_avx2(uint64_t *dst, const uint64_t *src, uint64_t n)
{
	__m256i even = _mm256_setzero_si256(), odd = even;
	uint64_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		even = merge_vector(even, &dst[i], &src[i]);
		odd = merge_vector(odd, &dst[i + 4], &src[i + 4]);
	}
	return sum(even) + sum(odd) + ref_merge_words(&dst[i], &src[i], n - i);
}

FAST uint64_t ref_merge_skip(uint64_t *dst, const uint64_t *src, uint64_t n)
{
	__m256i even = _mm256_setzero_si256(), odd = even, any;
	uint64_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		any = _mm256_or_si256(_mm256_load_si256((const __m256i *)&src[i]),
				      _mm256_load_si256((const __m256i *)&src[i + 4]));
		if (_mm256_testz_si256(any, any))
			continue;
		even = merge_vector(even, &dst[i], &src[i]);
		odd = merge_vector(odd, &dst[i + 4], &src[i + 4]);
	}
	return sum(even) + sum(odd) + ref_merge_words(&dst[i], &src[i], n - i);
}

struct pair {
	uint64_t low, high;
};

static inline struct pair take_pair(uint64_t *shared)
{
	struct pair p = {__atomic_load_n(&shared[0], __ATOMIC_RELAXED),
			 __atomic_load_n(&shared[1], __ATOMIC_RELAXED)};

	if (p.low | p.high)
		__asm__ volatile("1: lock cmpxchg16b (%[shared])\n\t"
				 "jnz 1b"
				 : "+a"(p.low), "+d"(p.high)
				 : [shared] "r"(shared), "b"(UINT64_C(0)), "c"(UINT64_C(0))
				 : "memory", "cc");
	return p;
}

FAST uint64_t ref_xchg_merge16(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t count = 0, i;
	struct pair p;

	for (i = 0; i + 2 <= n; i += 2) {
		p = take_pair(&shared[i]);
		if (!(p.low | p.high))
			continue;
		count += merge_word(&dst[i], p.low);
		count += merge_word(&dst[i + 1], p.high);
	}
	return count + ref_xchg_merge_words(&dst[i], &shared[i], n - i);
}

#endif
