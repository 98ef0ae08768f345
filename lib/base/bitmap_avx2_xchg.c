/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_avx2.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include <silt/access.h>

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

#define AVX2   __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define ALWAYS __attribute__((always_inline))

#define LINE_WORDS    8
#define GROUP_WORDS   64 /* one bit of a mask for each */
#define BLOCK_WORDS   (16 * GROUP_WORDS)
#define BLOCK_PAIRS   (BLOCK_WORDS / 2)

/*
 * Where most pairs of a block are dirty, to look for them costs more than it saves: the blocks
 * behind it are taken pair by pair, all but each 16th.
 */
#define DENSE_PAIRS   (BLOCK_PAIRS * 3 / 4)
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
 * Exchange two words, whose address is a multiple of 16, with 0 unless both are 0 already. A peer
 * that writes all the time could make a compare-and-exchange fail for ever: one try, then each by
 * itself. Return: false if it faulted.
 */
static inline bool take_pair(uint64_t *p, uint64_t *low, uint64_t *high)
{
	uint64_t any;
	bool fault, done;

	__asm__ volatile("stc\n\t"
			 "1: movq (%[p]), %%rax\n\t"
			 "2: movq 8(%[p]), %%rdx\n\t"
			 "movq %%rax, %[any]\n\t"
			 "orq %%rdx, %[any]\n\t"
			 "jz 4f\n\t"
			 "stc\n\t"
			 "3: lock cmpxchg16b (%[p])\n"
			 "4: clc\n"
			 "5:\n\t" /* clang-format off */
			 SILT_ACCESS_ENTRY("1b", "5b")
			 SILT_ACCESS_ENTRY("2b", "5b")
			 SILT_ACCESS_ENTRY("3b", "5b") /* clang-format on */
			 : "=&a"(*low), "=&d"(*high), [any] "=&r"(any), "=@ccc"(fault),
			   "=@ccz"(done)
			 : [p] "r"(p), "b"(UINT64_C(0)), "c"(UINT64_C(0))
			 : "memory");
	if (__builtin_expect(fault, 0))
		return false;
	if (__builtin_expect(!done, 0))
		return silt_access_xchg64(&p[0], 0, low) && silt_access_xchg64(&p[1], 0, high);
	return true;
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
AVX2 static inline bool find_pairs(const uint64_t *shared, struct pairs *list)
{
	unsigned int i;
	uint64_t mask;

	list->n = 0;
	for (i = 0; i < BLOCK_WORDS; i += GROUP_WORDS) {
		if (!dirty_words(&shared[i], &mask))
			return false;
		add_pairs(list, mask, i);
	}
	return true;
}

/*
 * A locked instruction waits for every store before it, so nothing is stored to @dst between them:
 * its lines are fetched meanwhile, and written once the whole list was taken.
 */
static inline void fetch(const uint64_t *p)
{
	__asm__ volatile("prefetchw %0" : : "m"(*p));
}

struct taken {
	uint64_t word[BLOCK_WORDS] __attribute__((aligned(64)));
};

AVX2 static inline bool take_listed(struct taken *out, uint64_t *dst, uint64_t *shared,
				    const struct pairs *list)
{
	unsigned int i;

	for (i = 0; i < list->n; i++)
		fetch(&dst[list->word[i]]);
	for (i = 0; i < list->n; i++) {
		if (!take_pair(&shared[list->word[i]], &out->word[2 * i], &out->word[2 * i + 1]))
			return false;
	}
	return true;
}

AVX2 static inline uint64_t merge_word(uint64_t *dst, uint64_t bits)
{
	uint64_t fresh = bits & ~*dst;

	*dst |= fresh;
	return _mm_popcnt_u64(fresh);
}

AVX2 static inline uint64_t merge_listed(uint64_t *dst, const struct taken *taken,
					 const struct pairs *list)
{
	uint64_t count = 0;
	unsigned int i;

	for (i = 0; i < list->n; i++) {
		count += merge_word(&dst[list->word[i]], taken->word[2 * i]);
		count += merge_word(&dst[list->word[i] + 1], taken->word[2 * i + 1]);
	}
	return count;
}

AVX2 static inline uint64_t copy_listed(uint64_t *dst, const struct taken *taken,
					const struct pairs *list)
{
	uint64_t count = 0;
	unsigned int i;

	memset(dst, 0, BLOCK_WORDS * sizeof(*dst));
	for (i = 0; i < list->n; i++) {
		dst[list->word[i]] = taken->word[2 * i];
		dst[list->word[i] + 1] = taken->word[2 * i + 1];
		count += (taken->word[2 * i] != 0) + (taken->word[2 * i + 1] != 0);
	}
	return count;
}

AVX2 static inline bool take_each(struct taken *out, uint64_t *shared)
{
	unsigned int i;

	for (i = 0; i < BLOCK_WORDS; i += 2) {
		if (!take_pair(&shared[i], &out->word[i], &out->word[i + 1]))
			return false;
	}
	return true;
}

AVX2 static inline uint64_t copy_each(uint64_t *dst, const struct taken *taken)
{
	uint64_t count = 0;
	unsigned int i;

	for (i = 0; i < BLOCK_WORDS; i++) {
		dst[i] = taken->word[i];
		count += taken->word[i] != 0;
	}
	return count;
}

/* A block where most is dirty. Return: as the kernels, as the next two. */
AVX2 static inline ALWAYS uint64_t take_dense(uint64_t *dst, uint64_t *shared, bool merge)
{
	struct taken taken;

	if (!take_each(&taken, shared))
		return SILT_BITMAP_FAULTED;
	return merge ? silt_bitmap_avx2.merge(dst, taken.word, BLOCK_WORDS)
		     : copy_each(dst, &taken);
}

/* Any block. Also says whether most of it was dirty. */
AVX2 static inline ALWAYS uint64_t take_sparse(uint64_t *dst, uint64_t *shared, bool merge,
					       bool *dense)
{
	struct pairs list;
	struct taken taken;

	if (!find_pairs(shared, &list) || !take_listed(&taken, dst, shared, &list))
		return SILT_BITMAP_FAULTED;
	*dense = list.n > DENSE_PAIRS;
	return merge ? merge_listed(dst, &taken, &list) : copy_listed(dst, &taken, &list);
}

AVX2 static inline ALWAYS uint64_t take_blocks(uint64_t *dst, uint64_t *shared, uint64_t n,
					       bool merge)
{
	unsigned int streaming = 0;
	uint64_t count = 0, more, i;
	bool dense = false;

	for (i = 0; i < n; i += BLOCK_WORDS) {
		if (streaming) {
			more = take_dense(&dst[i], &shared[i], merge);
			streaming--;
		} else {
			more = take_sparse(&dst[i], &shared[i], merge, &dense);
			streaming = dense ? STREAM_BLOCKS : 0;
		}
		if (more == SILT_BITMAP_FAULTED)
			return more;
		count += more;
	}
	return count;
}

/* Words before the first line boundary, at most @n. */
static inline uint64_t words_to_line(const uint64_t *p, uint64_t n)
{
	uint64_t words = -((uintptr_t)p / 8) % LINE_WORDS;

	return words < n ? words : n;
}

static inline uint64_t add(uint64_t a, uint64_t b)
{
	return a == SILT_BITMAP_FAULTED || b == SILT_BITMAP_FAULTED ? SILT_BITMAP_FAULTED : a + b;
}

AVX2 uint64_t silt_avx2_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t head = words_to_line(shared, n), end = n - (n - head) % BLOCK_WORDS, count;

	count = silt_generic_xchg_merge(dst, shared, head);
	count = add(count, take_blocks(&dst[head], &shared[head], end - head, true));
	return add(count, silt_generic_xchg_merge(&dst[end], &shared[end], n - end));
}

AVX2 uint64_t silt_avx2_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t head = words_to_line(shared, n), end = n - (n - head) % BLOCK_WORDS, count;

	count = silt_generic_xchg_take(dst, shared, head);
	count = add(count, take_blocks(&dst[head], &shared[head], end - head, false));
	return add(count, silt_generic_xchg_take(&dst[end], &shared[end], n - end));
}

#endif
