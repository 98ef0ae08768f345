/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_avx2.h"

#include "base/bitmap_avx2_vector.h"
#include "base/bitmap_words.h"

#define BLOCK_LINES 256
#define BLOCK_WORDS (BLOCK_LINES * LINE_WORDS)

/*
 * Where more than this part of a block's lines are dirty, to look for them costs about as much as
 * to merge them all: the blocks behind it are merged whole, and then a small one says whether that
 * is still so.
 */
#define DENSE_PART    4
#define STREAM_BLOCKS 15
#define PROBE_WORDS   (BLOCK_WORDS / 8)

/* A line of @src, two vectors; with a @shift its words begin inside those of @src. */
struct line {
	__m256i low, high;
};

AVX2 static inline __m256i load_shifted(const uint64_t *src, __m128i right, __m128i left)
{
	return _mm256_or_si256(_mm256_srl_epi64(load(src), right),
			       _mm256_sll_epi64(load(src + 1), left));
}

AVX2 static inline struct line load_line(const uint64_t *src, unsigned int shift)
{
	__m128i right = _mm_cvtsi32_si128((int)shift), left = _mm_cvtsi32_si128(64 - (int)shift);

	if (!shift)
		return (struct line){load(src), load(src + 4)};
	return (struct line){load_shifted(src, right, left), load_shifted(src + 4, right, left)};
}

AVX2 static inline __m256i merge_lines(__m256i total, uint64_t *dst, const uint64_t *src,
				       unsigned int shift, unsigned int words)
{
	unsigned int i;

	for (i = 0; i < words; i += LINE_WORDS) {
		struct line line = load_line(&src[i], shift);
		__m256i bytes = _mm256_add_epi8(merge_vector(&dst[i], line.low),
						merge_vector(&dst[i + 4], line.high));

		total = add_bytes(total, bytes);
	}
	return total;
}

/* Four lines. Return: a bit for each that is not clean. */
AVX2 static inline uint64_t four_dirty(const uint64_t *src)
{
	__m256i line[4], pair[2], all;
	unsigned int i;

	for (i = 0; i < 4; i++)
		line[i] =
			_mm256_or_si256(load(&src[i * LINE_WORDS]), load(&src[i * LINE_WORDS + 4]));
	for (i = 0; i < 2; i++)
		pair[i] = _mm256_or_si256(_mm256_unpacklo_epi64(line[2 * i], line[2 * i + 1]),
					  _mm256_unpackhi_epi64(line[2 * i], line[2 * i + 1]));
	all = _mm256_or_si256(_mm256_permute2x128_si256(pair[0], pair[1], 0x20),
			      _mm256_permute2x128_si256(pair[0], pair[1], 0x31));
	all = _mm256_cmpeq_epi64(all, _mm256_setzero_si256());
	return (uint64_t)_mm256_movemask_pd(_mm256_castsi256_pd(all)) ^ 0xf;
}

static inline uint64_t words_dirty(const uint64_t *src, unsigned int n)
{
	uint64_t any = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		any |= src[i];
	return any != 0;
}

/* @n lines, at most 64. No branch depends on what is found: which are dirty is anyone's guess. */
AVX2 static inline uint64_t lines_dirty(const uint64_t *src, unsigned int n)
{
	uint64_t dirty = 0;
	unsigned int i;

	for (i = 0; i + 4 <= n; i += 4)
		dirty |= four_dirty(&src[i * LINE_WORDS]) << i;
	for (; i < n; i++)
		dirty |= words_dirty(&src[i * LINE_WORDS], LINE_WORDS) << i;
	return dirty;
}

/* Lines of a block that are not clean, by their first words. */
struct dirty {
	uint64_t start; /* of the block */
	unsigned int n;
	uint16_t word[BLOCK_LINES];
};

/* Each is fetched well before it is used, so that their misses do not add up. */
AVX2 static inline void list_lines(struct dirty *list, uint64_t dirty, unsigned int first,
				   const uint64_t *dst)
{
	unsigned int word;

	for (; dirty; dirty &= dirty - 1) {
		word = (first + (unsigned int)__builtin_ctzll(dirty)) * LINE_WORDS;
		list->word[list->n++] = (uint16_t)word;
		__builtin_prefetch(&dst[word], 1);
	}
}

AVX2 static inline void find_dirty(struct dirty *list, const uint64_t *dst, const uint64_t *src,
				   unsigned int lines)
{
	unsigned int i;

	for (i = 0; i < lines; i += 64)
		list_lines(list, lines_dirty(&src[i * LINE_WORDS], lines - i < 64 ? lines - i : 64),
			   i, dst);
}

/*
 * With a shift a line of @dst has parts of two of the processor's in @src. Each of these is loaded
 * once; the words of @src before the first and behind the last are looked at one by one. There is
 * one word more than @lines hold.
 */
AVX2 static inline void find_dirty_shifted(struct dirty *list, const uint64_t *dst,
					   const uint64_t *src, unsigned int lines)
{
	unsigned int head = (unsigned int)words_to_line(src + 1, LINE_WORDS) + 1, i, n;
	uint64_t before = words_dirty(src, head), now;

	for (src += head, i = 0; i + 1 < lines; i += n) {
		n = lines - 1 - i < 64 ? lines - 1 - i : 64;
		now = lines_dirty(&src[i * LINE_WORDS], n);
		list_lines(list, now | ((now << 1 | before) & UINT64_MAX >> (64 - n)), i, dst);
		before = now >> (n - 1);
	}
	now = words_dirty(&src[i * LINE_WORDS], LINE_WORDS + 1 - head);
	list_lines(list, now | before, i, dst);
}

AVX2 static inline __m256i merge_dirty(__m256i total, const struct dirty *list, uint64_t *dst,
				       const uint64_t *src, unsigned int shift)
{
	uint64_t word;
	unsigned int i;

	for (i = 0; i < list->n; i++) {
		word = list->start + list->word[i];
		total = merge_lines(total, &dst[word], &src[word], shift, LINE_WORDS);
	}
	return total;
}

AVX2 static inline uint64_t merge_words(uint64_t *dst, const uint64_t *src, unsigned int shift,
					uint64_t n)
{
	uint64_t count = 0, i;

	for (i = 0; i < n; i++)
		count += merge_word(&dst[i], shift ? silt_word_shifted(&src[i], shift) : src[i]);
	return count;
}

/* As many of @n words, rounded down to lines. */
static inline unsigned int at_most(unsigned int words, uint64_t n)
{
	return n < words ? (unsigned int)(n / LINE_WORDS * LINE_WORDS) : words;
}

/* A block's dirty lines are merged after those of the next one were found, and are there by then.
 */
AVX2 static inline ALWAYS uint64_t merge_any(uint64_t *dst, const uint64_t *src, unsigned int shift,
					     uint64_t n)
{
	uint64_t i = words_to_line(dst, n), count = merge_words(dst, src, shift, i);
	__m256i total = _mm256_setzero_si256();
	unsigned int streaming = 0, words, look = PROBE_WORDS, turn = 0;
	struct dirty lists[2], *list;

	lists[0].n = lists[1].n = 0;
	for (; i + LINE_WORDS <= n; i += words) {
		words = at_most(streaming ? BLOCK_WORDS : look, n - i);
		if (streaming) {
			total = merge_lines(total, &dst[i], &src[i], shift, words);
			streaming--;
			continue;
		}
		list = &lists[turn];
		list->start = i;
		list->n = 0;
		if (shift)
			find_dirty_shifted(list, &dst[i], &src[i], words / LINE_WORDS);
		else
			find_dirty(list, &dst[i], &src[i], words / LINE_WORDS);
		if (list->n <= words / LINE_WORDS / DENSE_PART) {
			turn = !turn;
			total = merge_dirty(total, &lists[turn], dst, src, shift);
			lists[turn].n = 0;
			look = BLOCK_WORDS;
			continue;
		}
		list->n = 0;
		total = merge_lines(total, &dst[i], &src[i], shift, words);
		streaming = STREAM_BLOCKS;
		look = PROBE_WORDS;
	}
	total = merge_dirty(total, &lists[!turn], dst, src, shift);
	return count + sum(total) + merge_words(&dst[i], &src[i], shift, n - i);
}

AVX2 static uint64_t merge(uint64_t *dst, const uint64_t *src, uint64_t n)
{
	return merge_any(dst, src, 0, n);
}

AVX2 static uint64_t merge_shift(uint64_t *dst, const uint64_t *src, unsigned int shift, uint64_t n)
{
	return merge_any(dst, src, shift, n);
}

AVX2 static uint64_t count(const uint64_t *src, uint64_t n)
{
	__m256i total = _mm256_setzero_si256(), bytes;
	uint64_t i = 0, rest = 0;

	for (; i + 16 <= n; i += 16) {
		bytes = _mm256_add_epi8(count_bytes(load(&src[i])), count_bytes(load(&src[i + 4])));
		bytes = _mm256_add_epi8(bytes, count_bytes(load(&src[i + 8])));
		bytes = _mm256_add_epi8(bytes, count_bytes(load(&src[i + 12])));
		total = add_bytes(total, bytes);
	}
	for (; i < n; i++)
		rest += (uint64_t)__builtin_popcountll(src[i]);
	return sum(total) + rest;
}

AVX2 static uint64_t next_any(const uint64_t *src, uint64_t from, uint64_t n)
{
	__m256i any;

	for (; from + 16 <= n; from += 16) {
		any = _mm256_or_si256(load(&src[from]), load(&src[from + 4]));
		any = _mm256_or_si256(any, load(&src[from + 8]));
		any = _mm256_or_si256(any, load(&src[from + 12]));
		if (!_mm256_testz_si256(any, any))
			break;
	}
	return silt_generic_next_any(src, from, n);
}

AVX2 static uint64_t next_hole(const uint64_t *src, uint64_t from, uint64_t n)
{
	const __m256i ones = _mm256_set1_epi64x(-1);
	__m256i all;

	for (; from + 16 <= n; from += 16) {
		all = _mm256_and_si256(load(&src[from]), load(&src[from + 4]));
		all = _mm256_and_si256(all, load(&src[from + 8]));
		all = _mm256_and_si256(all, load(&src[from + 12]));
		if (!_mm256_testc_si256(all, ones))
			break;
	}
	return silt_generic_next_hole(src, from, n);
}

const struct silt_bitmap_kernels silt_bitmap_avx2 = {
	.name = "avx2",
	.merge = merge,
	.merge_shift = merge_shift,
	.count = count,
	.expand = silt_avx2_expand,
	.shrink = silt_avx2_shrink,
	.xchg_merge = silt_avx2_xchg_merge,
	.xchg_take = silt_avx2_xchg_take,
	.next_any = next_any,
	.next_hole = next_hole,
};
