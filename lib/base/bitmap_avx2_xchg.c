/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_avx2.h"

#include <stdbool.h>
#include <string.h>

#include <silt/access.h>

#include "base/bitmap_avx2_vector.h"

#if SILT_ACCESS_TSAN

/* ThreadSanitizer sees neither asm nor vector loads of words that others write. */
uint64_t silt_avx2_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	return silt_generic_xchg_merge(dst, shared, n);
}

uint64_t silt_avx2_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	return silt_generic_xchg_take(dst, shared, n);
}

#else

#define GROUP_WORDS   64 /* one bit of a mask for each */
#define BLOCK_WORDS   (16 * GROUP_WORDS)
#define BLOCK_PAIRS   (BLOCK_WORDS / 2)

/*
 * Where most pairs of a block are dirty, to look for them costs more than it saves: the blocks
 * behind it are taken pair by pair, all but each 16th.
 */
#define STREAM_BLOCKS 15

/*
 * Four vectors, 16 words of the log. They only tell which words to exchange: it does no harm that
 * the load is not atomic, nor that it is not ordered against the exchanges. A mark that was visible
 * before the harvest is seen, as each byte is coherent by itself; one that comes during it is seen
 * or is left to the next harvest; and what is taken is what the exchange returns.
 */
struct vectors {
	__m256i v[4];
};

AVX2 static inline bool load16(const uint64_t *p, struct vectors *out)
{
	bool fault;

	__asm__ volatile("stc\n\t"
			 "1: vmovdqu (%[p]), %[a]\n\t"
			 "2: vmovdqu 32(%[p]), %[b]\n\t"
			 "3: vmovdqu 64(%[p]), %[c]\n\t"
			 "4: vmovdqu 96(%[p]), %[d]\n\t"
			 "clc\n"
			 "5:\n\t" /* clang-format off */
			 SILT_ACCESS_ENTRY("1b", "5b")
			 SILT_ACCESS_ENTRY("2b", "5b")
			 SILT_ACCESS_ENTRY("3b", "5b")
			 SILT_ACCESS_ENTRY("4b", "5b") /* clang-format on */
			 : [a] "=&x"(out->v[0]), [b] "=&x"(out->v[1]), [c] "=&x"(out->v[2]),
			   [d] "=&x"(out->v[3]), "=@ccc"(fault)
			 : [p] "r"(p), "m"(*(const uint64_t(*)[16])p));
	return !__builtin_expect(fault, 0);
}

/*
 * Exchange two words, whose address is a multiple of 16, with 0 unless both are 0 already. What
 * stands between two locked instructions costs as much as they do, so all that is rare is out of
 * line. A peer that writes all the time could make a compare-and-exchange fail for ever: one try,
 * then each word by itself. A fault raises @faulted and takes 0.
 */
AVX2 static inline __m128i take_pair(uint64_t *p, uint32_t *faulted)
{
	uint64_t low, high, any;

	__asm__ volatile("1: movq (%[p]), %%rax\n\t"
			 "2: movq 8(%[p]), %%rdx\n\t"
			 "movq %%rax, %[any]\n\t"
			 "orq %%rdx, %[any]\n\t"
			 "jz 4f\n\t"
			 "3: lock cmpxchg16b (%[p])\n\t"
			 "jnz 5f\n"
			 "4:\n\t"
			 ".subsection 1\n"
			 "5: xorl %%eax, %%eax\n\t"
			 "6: xchgq %%rax, (%[p])\n\t"
			 "xorl %%edx, %%edx\n\t"
			 "7: xchgq %%rdx, 8(%[p])\n\t"
			 "jmp 4b\n"
			 "8: movl $1, %[faulted]\n\t"
			 "xorl %%eax, %%eax\n\t"
			 "xorl %%edx, %%edx\n\t"
			 "jmp 4b\n\t"
			 ".previous\n\t" /* clang-format off */
			 SILT_ACCESS_ENTRY("1b", "8b")
			 SILT_ACCESS_ENTRY("2b", "8b")
			 SILT_ACCESS_ENTRY("3b", "8b")
			 SILT_ACCESS_ENTRY("6b", "8b")
			 SILT_ACCESS_ENTRY("7b", "8b") /* clang-format on */
			 : "=&a"(low), "=&d"(high), [any] "=&r"(any), [faulted] "+&r"(*faulted)
			 : [p] "r"(p), "b"(UINT64_C(0)), "c"(UINT64_C(0))
			 : "memory", "cc");
	return _mm_insert_epi64(_mm_cvtsi64_si128((long long)low), (long long)high, 1);
}

AVX2 static inline uint64_t zero_words(__m256i v)
{
	__m256i zero = _mm256_cmpeq_epi64(v, _mm256_setzero_si256());

	return (uint64_t)_mm256_movemask_pd(_mm256_castsi256_pd(zero));
}

/* A bit for each word of a group that is not 0. Return: false if it faulted. */
AVX2 static inline bool dirty_words(const uint64_t *shared, uint64_t *mask)
{
	uint64_t zeros = 0;
	struct vectors w;
	unsigned int i;

	for (i = 0; i < GROUP_WORDS; i += 16) {
		if (!load16(&shared[i], &w))
			return false;
		zeros |= (zero_words(w.v[0]) | zero_words(w.v[1]) << 4 | zero_words(w.v[2]) << 8 |
			  zero_words(w.v[3]) << 12)
			 << i;
	}
	*mask = ~zeros;
	return true;
}

/* Pairs of a block that are not clean, by their first words. */
struct pairs {
	unsigned int n;
	uint16_t word[BLOCK_PAIRS + 8];
};

/*
 * How many of a group are dirty is anyone's guess, and a wrong guess of the processor's costs more
 * than to write eight numbers always.
 */
AVX2 static inline void add_pairs(struct pairs *list, uint64_t mask, unsigned int first)
{
	unsigned int count, i;

	mask = (mask | mask >> 1) & UINT64_C(0x5555555555555555);
	for (count = (unsigned int)_mm_popcnt_u64(mask); mask; list->n += 8) {
		for (i = 0; i < 8; i++) {
			list->word[list->n + i] = (uint16_t)(first + _tzcnt_u64(mask));
			mask = _blsr_u64(mask);
		}
	}
	list->n -= (unsigned int)-count % 8;
}

/* Return: false if it faulted. */
AVX2 static inline bool find_pairs(const uint64_t *shared, unsigned int words, struct pairs *list)
{
	unsigned int i;
	uint64_t mask;

	list->n = 0;
	for (i = 0; i < words; i += GROUP_WORDS) {
		if (!dirty_words(&shared[i], &mask))
			return false;
		add_pairs(list, mask, i);
	}
	return true;
}

/* What to do with words that were taken: merge them into @dst, or store them. */
enum purpose {
	MERGE,
	COPY
};

/* Four words to @dst. Return: @total, four sums, with what counts of them added. */
AVX2 static inline ALWAYS __m256i put_vector(__m256i total, uint64_t *dst, __m256i taken,
					     enum purpose purpose)
{
	const __m256i zero = _mm256_setzero_si256();

	if (purpose == MERGE)
		return add_bytes(total, merge_vector(dst, taken));
	store(dst, taken);
	/* What is not zero compares as 0, what is as -1. */
	total = _mm256_add_epi64(total, _mm256_set1_epi64x(1));
	return _mm256_add_epi64(total, _mm256_cmpeq_epi64(taken, zero));
}

/* Words of which most are dirty. Return: as the kernels. */
AVX2 static inline ALWAYS uint64_t take_dense(uint64_t *dst, uint64_t *shared, unsigned int words,
					      enum purpose purpose)
{
	__m256i total = _mm256_setzero_si256();
	uint32_t faulted = 0;
	unsigned int i;

	for (i = 0; i < words; i += LINE_WORDS) {
		__m128i a = take_pair(&shared[i], &faulted);
		__m128i b = take_pair(&shared[i + 2], &faulted);
		__m128i c = take_pair(&shared[i + 4], &faulted);
		__m128i d = take_pair(&shared[i + 6], &faulted);

		total = put_vector(total, &dst[i], _mm256_set_m128i(b, a), purpose);
		total = put_vector(total, &dst[i + 4], _mm256_set_m128i(d, c), purpose);
	}
	return faulted ? SILT_BITMAP_FAULTED : sum(total);
}

/*
 * A locked instruction waits for every store before it, so nothing is stored to @dst between them:
 * its lines are fetched meanwhile, and written once the whole list was taken.
 */
AVX2 static inline bool take_listed(__m128i *taken, uint64_t *dst, uint64_t *shared,
				    const struct pairs *list)
{
	uint32_t faulted = 0;
	unsigned int i;

	for (i = 0; i < list->n; i++)
		__builtin_prefetch(&dst[list->word[i]], 1);
	for (i = 0; i < list->n; i++)
		taken[i] = take_pair(&shared[list->word[i]], &faulted);
	return !faulted;
}

AVX2 static inline ALWAYS uint64_t put_pair(uint64_t *dst, __m128i taken, enum purpose purpose)
{
	uint64_t low = (uint64_t)_mm_cvtsi128_si64(taken);
	uint64_t high = (uint64_t)_mm_extract_epi64(taken, 1);

	if (purpose == MERGE)
		return merge_word(&dst[0], low) + merge_word(&dst[1], high);
	_mm_storeu_si128((__m128i *)dst, taken);
	return (low != 0) + (high != 0);
}

/* Any words. Return: as the kernels; also whether most of them were dirty. */
AVX2 static inline ALWAYS uint64_t take_sparse(uint64_t *dst, uint64_t *shared, unsigned int words,
					       enum purpose purpose, bool *dense)
{
	__m128i taken[BLOCK_PAIRS];
	struct pairs list;
	uint64_t count = 0;
	unsigned int i;

	if (!find_pairs(shared, words, &list) || !take_listed(taken, dst, shared, &list))
		return SILT_BITMAP_FAULTED;
	if (purpose == COPY)
		memset(dst, 0, words * sizeof(*dst));
	for (i = 0; i < list.n; i++)
		count += put_pair(&dst[list.word[i]], taken[i], purpose);
	*dense = list.n > words / 2 * 3 / 4;
	return count;
}

/* @n is a multiple of GROUP_WORDS. */
AVX2 static inline ALWAYS uint64_t take_blocks(uint64_t *dst, uint64_t *shared, uint64_t n,
					       enum purpose purpose)
{
	unsigned int streaming = 0, words;
	uint64_t count = 0, more, i;
	bool dense = false;

	for (i = 0; i < n; i += words) {
		words = n - i < BLOCK_WORDS ? n - i : BLOCK_WORDS;
		if (streaming) {
			more = take_dense(&dst[i], &shared[i], words, purpose);
			streaming--;
		} else {
			more = take_sparse(&dst[i], &shared[i], words, purpose, &dense);
			streaming = dense ? STREAM_BLOCKS : 0;
		}
		if (more == SILT_BITMAP_FAULTED)
			return more;
		count += more;
	}
	return count;
}

static inline uint64_t add(uint64_t a, uint64_t b)
{
	return a == SILT_BITMAP_FAULTED || b == SILT_BITMAP_FAULTED ? SILT_BITMAP_FAULTED : a + b;
}

AVX2 uint64_t silt_avx2_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t head = words_to_line(shared, n), end = n - (n - head) % GROUP_WORDS, count;

	count = silt_generic_xchg_merge(dst, shared, head);
	count = add(count, take_blocks(&dst[head], &shared[head], end - head, MERGE));
	return add(count, silt_generic_xchg_merge(&dst[end], &shared[end], n - end));
}

AVX2 uint64_t silt_avx2_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t head = words_to_line(shared, n), end = n - (n - head) % GROUP_WORDS, count;

	count = silt_generic_xchg_take(dst, shared, head);
	count = add(count, take_blocks(&dst[head], &shared[head], end - head, COPY));
	return add(count, silt_generic_xchg_take(&dst[end], &shared[end], n - end));
}

#endif
