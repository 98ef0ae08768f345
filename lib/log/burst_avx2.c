/* SPDX-License-Identifier: BSD-3-Clause */
#include <immintrin.h>
#include <string.h>

#include "log/log_internal.h"

#ifdef SILT_LOG_AVX2

#define AVX2 __attribute__((target("avx2")))

/* clang-format off */
/* Four words, or 0 for all of them if a look faults. */
AVX2 static inline __m256i look_four(const uint64_t *whole, __m256i words)
{
	__m128i low, high;

	__asm__ volatile("1: vmovq (%[whole],%[a],8), %[low]\n"
			 "2: vmovhps (%[whole],%[b],8), %[low], %[low]\n"
			 "3: vmovq (%[whole],%[c],8), %[high]\n"
			 "4: vmovhps (%[whole],%[d],8), %[high], %[high]\n"
			 "5:\n\t"
			 ".pushsection .text.unlikely, \"ax\", %%progbits\n"
			 "6: vpxor %[low], %[low], %[low]\n\t"
			 "vpxor %[high], %[high], %[high]\n\t"
			 "jmp 5b\n\t"
			 ".popsection\n\t"
			 SILT_ACCESS_ENTRY("1b", "6b")
			 SILT_ACCESS_ENTRY("2b", "6b")
			 SILT_ACCESS_ENTRY("3b", "6b")
			 SILT_ACCESS_ENTRY("4b", "6b")
			 : [low] "=&x"(low), [high] "=&x"(high)
			 : [whole] "r"(whole), [a] "r"(_mm256_extract_epi64(words, 0)),
			   [b] "r"(_mm256_extract_epi64(words, 1)),
			   [c] "r"(_mm256_extract_epi64(words, 2)),
			   [d] "r"(_mm256_extract_epi64(words, 3)));
	return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
/* clang-format on */

/* Four ranges, of which the second and the third change places. */
struct four {
	__m256i at,
		beyond; /* bytes from the first whole word on to the first one, to the last one */
};

AVX2 static inline struct four get_four(const struct silt_log_pending *p, __m256i start)
{
	__m256i low = _mm256_loadu_si256((const void *)p);
	__m256i high = _mm256_loadu_si256((const void *)(p + 2));
	__m256i len = _mm256_unpackhi_epi64(low, high);

	return (struct four){
		.at = _mm256_sub_epi64(_mm256_unpacklo_epi64(low, high), start),
		.beyond = _mm256_add_epi64(len, _mm256_set1_epi64x(-1)),
	};
}

/* The last four are made full with what is there already. */
static inline void fill(struct silt_log_pending *p, uint32_t n)
{
	for (; n % 4; n++)
		p[n] = p[0];
}

/* Negative where a range does not begin in a whole word; a log is for less than 2^63 bytes. */
AVX2 static inline __m256i outside(__m256i at, __m256i limit)
{
	return _mm256_or_si256(at, _mm256_sub_epi64(limit, at));
}

/* Less than a page where a range ends in the page that it begins in. */
AVX2 static inline __m256i across(const struct four *f)
{
	__m256i end = _mm256_add_epi64(f->at, f->beyond);

	return _mm256_or_si256(f->beyond, _mm256_xor_si256(f->at, end));
}

AVX2 static inline __m256i words_of(const uint64_t *whole, __m256i at)
{
	return look_four(whole, _mm256_srli_epi64(at, SILT_LOG_PAGE_SHIFT + 6));
}

/* The bits of the pages that ranges begin in, each the lowest of its lane. */
AVX2 static inline __m256i bits_of(const uint64_t *whole, __m256i at)
{
	__m256i page = _mm256_srli_epi64(at, SILT_LOG_PAGE_SHIFT);

	return _mm256_srlv_epi64(words_of(whole, at),
				 _mm256_and_si256(page, _mm256_set1_epi64x(63)));
}

AVX2 bool silt_log_pages_marked_avx2(struct silt_log_writer *w, uint32_t n)
{
	const __m256i start = _mm256_set1_epi64x((long long)w->start);
	const __m256i limit = _mm256_set1_epi64x((long long)w->size - 1);
	__m256i odd = _mm256_setzero_si256(), bits = _mm256_set1_epi64x(1);
	const uint64_t *whole = w->whole;
	size_t i;

	fill(w->pending, n);
	for (i = 0; i < n; i += 4) {
		struct four f = get_four(&w->pending[i], start);

		if (__builtin_expect(_mm256_movemask_pd((__m256d)outside(f.at, limit)), 0))
			return false;
		odd = _mm256_or_si256(odd, across(&f));
		bits = _mm256_and_si256(bits, bits_of(whole, f.at));
	}
	odd = _mm256_srli_epi64(odd, SILT_LOG_PAGE_SHIFT);
	return _mm256_testz_si256(odd, odd) & _mm256_testc_si256(bits, _mm256_set1_epi64x(1));
}

/* What is not so of all ranges that silt_log_collect_avx2() can do. */
struct odd {
	__m256i across, out, far;
};

AVX2 static inline bool is_odd(const struct odd *odd)
{
	__m256i bits = _mm256_or_si256(_mm256_srli_epi64(odd->across, SILT_LOG_PAGE_SHIFT),
				       _mm256_srli_epi64(odd->out, 63));

	bits = _mm256_or_si256(bits, _mm256_srli_epi64(odd->far, 6));
	return !_mm256_testz_si256(bits, bits);
}

static void put_together(struct silt_log_near *near, const uint64_t *words, const uint64_t *masks,
			 size_t n)
{
	uint64_t last = words[0], mask = 0;
	size_t i;

	near->used = 0;
	memset(near->masks, 0, sizeof(near->masks));
	for (i = 0; i < n; i++) {
		/* Those of one word that follow each other do not wait for memory. */
		if (words[i] != last) {
			near->masks[last] |= mask;
			near->used |= UINT64_C(1) << last;
			last = words[i];
			mask = 0;
		}
		mask |= masks[i];
	}
	near->masks[last] |= mask;
	near->used |= UINT64_C(1) << last;
}

AVX2 bool silt_log_collect_avx2(struct silt_log_writer *w, uint32_t n, struct silt_log_near *near)
{
	const __m256i start = _mm256_set1_epi64x((long long)w->start);
	const __m256i limit = _mm256_set1_epi64x((long long)w->size - 1);
	const __m256i first = _mm256_set1_epi64x((long long)near->first);
	uint64_t words[SILT_LOG_PENDING], masks[SILT_LOG_PENDING];
	struct odd odd = {_mm256_setzero_si256()};
	size_t i;

	fill(w->pending, n);
	for (i = 0; i < n; i += 4) {
		struct four f = get_four(&w->pending[i], start);
		__m256i page = _mm256_srli_epi64(f.at, SILT_LOG_PAGE_SHIFT);
		__m256i word = _mm256_sub_epi64(_mm256_srli_epi64(page, 6), first);
		__m256i bit = _mm256_and_si256(page, _mm256_set1_epi64x(63));

		odd.across = _mm256_or_si256(odd.across, across(&f));
		odd.out = _mm256_or_si256(odd.out, outside(f.at, limit));
		odd.far = _mm256_or_si256(odd.far, word);
		_mm256_storeu_si256((void *)&words[i], word);
		_mm256_storeu_si256((void *)&masks[i],
				    _mm256_sllv_epi64(_mm256_set1_epi64x(1), bit));
	}
	if (is_odd(&odd))
		return false;
	put_together(near, words, masks, i);
	return true;
}

/* All ones where a range lies inside the word that it begins in; its bits. */
AVX2 static inline __m256i inside_word(const struct four *f, __m256i *mask)
{
	__m256i first = _mm256_and_si256(f->at, _mm256_set1_epi64x(SILT_LOG_WORD_SIZE - 1));
	__m256i last = _mm256_add_epi64(first, f->beyond);
	__m256i from = _mm256_srli_epi64(first, SILT_LOG_PAGE_SHIFT);
	__m256i to = _mm256_srli_epi64(last, SILT_LOG_PAGE_SHIFT);
	__m256i odd = _mm256_srli_epi64(_mm256_or_si256(f->beyond, last), SILT_LOG_PAGE_SHIFT + 6);

	*mask = _mm256_sub_epi64(_mm256_sllv_epi64(_mm256_set1_epi64x(2), to),
				 _mm256_sllv_epi64(_mm256_set1_epi64x(1), from));
	return _mm256_cmpeq_epi64(odd, _mm256_setzero_si256());
}

/* Of four, those of @lanes, each of which goes on into the next word. */
static bool two_marked(const struct silt_log_writer *w, const struct silt_log_pending *p,
		       unsigned int lanes)
{
	static const unsigned char place[] = {0, 2, 1, 3};

	for (; lanes; lanes &= lanes - 1)
		if (!silt_log_two_marked(w, p + place[__builtin_ctz(lanes)]))
			return false;
	return true;
}

AVX2 bool silt_log_words_marked_avx2(struct silt_log_writer *w, uint32_t n)
{
	const __m256i start = _mm256_set1_epi64x((long long)w->start);
	const __m256i limit = _mm256_set1_epi64x((long long)w->size - 1);
	__m256i missing = _mm256_setzero_si256();
	const uint64_t *whole = w->whole;
	size_t i;

	fill(w->pending, n);
	for (i = 0; i < n; i += 4) {
		struct four f = get_four(&w->pending[i], start);
		__m256i mask, inside = inside_word(&f, &mask);
		unsigned int lanes = 15 ^ (unsigned int)_mm256_movemask_pd((__m256d)inside);

		if (__builtin_expect(_mm256_movemask_pd((__m256d)outside(f.at, limit)), 0))
			return false;
		if (__builtin_expect(lanes, 0) && !two_marked(w, &w->pending[i], lanes))
			return false;
		mask = _mm256_andnot_si256(words_of(whole, f.at), mask);
		missing = _mm256_or_si256(missing, _mm256_and_si256(mask, inside));
	}
	return _mm256_testz_si256(missing, missing);
}

#endif
