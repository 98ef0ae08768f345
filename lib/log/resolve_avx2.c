/* SPDX-License-Identifier: BSD-3-Clause */
#include <immintrin.h>

#include "log/log_internal.h"

#define AVX2 __attribute__((target("avx2")))

/* What is the same for all ranges, in each lane. */
struct lanes {
	__m256i skew, whole_first, whole_last, one, two, bit;
};

AVX2 static struct lanes make_lanes(const struct silt_log_writer *w)
{
	return (struct lanes){
		.skew = _mm256_set1_epi64x(w->skew),
		.whole_first = _mm256_set1_epi64x((long long)w->whole_first),
		.whole_last = _mm256_set1_epi64x((long long)w->whole_count - 1),
		.one = _mm256_set1_epi64x(1),
		.two = _mm256_set1_epi64x(2),
		.bit = _mm256_set1_epi64x(63),
	};
}

AVX2 static inline __m256i load(const void *p)
{
	return _mm256_loadu_si256(p);
}

/*
 * As silt_log_in_word(), of four ranges. Return: not 0 in lanes whose range is not inside a whole
 * word. Words are fewer than 2^63, so that comparing them as signed numbers does.
 */
AVX2 static inline __m256i resolve_four(const struct lanes *c, const struct silt_log_pending *p,
					uint64_t *words, uint64_t *masks)
{
	__m256i low = load(p), high = load(p + 2);
	__m256i gpa = _mm256_unpacklo_epi64(low, high);
	__m256i beyond = _mm256_sub_epi64(_mm256_unpackhi_epi64(low, high), c->one);
	__m256i end = _mm256_add_epi64(gpa, beyond);
	__m256i first = _mm256_add_epi64(_mm256_srli_epi64(gpa, SILT_LOG_PAGE_SHIFT), c->skew);
	__m256i last = _mm256_add_epi64(_mm256_srli_epi64(end, SILT_LOG_PAGE_SHIFT), c->skew);
	__m256i word = _mm256_srli_epi64(first, 6);
	__m256i whole = _mm256_sub_epi64(word, c->whole_first);
	__m256i to = _mm256_sllv_epi64(c->two, _mm256_and_si256(last, c->bit));
	__m256i from = _mm256_sllv_epi64(c->one, _mm256_and_si256(first, c->bit));
	__m256i odd = _mm256_srli_epi64(beyond, SILT_LOG_PAGE_SHIFT + 6);

	_mm256_storeu_si256((void *)words, word);
	_mm256_storeu_si256((void *)masks, _mm256_sub_epi64(to, from));
	odd = _mm256_or_si256(odd, _mm256_srli_epi64(_mm256_xor_si256(first, last), 6));
	odd = _mm256_or_si256(odd, _mm256_srli_epi64(whole, 63));
	return _mm256_or_si256(odd, _mm256_cmpgt_epi64(whole, c->whole_last));
}

AVX2 bool silt_log_resolve_avx2(struct silt_log_writer *w, struct silt_log_marks *m)
{
	const struct lanes c = make_lanes(w);
	__m256i odd = _mm256_setzero_si256();
	uint32_t i, n = w->npending;

	/* The last four are made full with what is there already. */
	for (i = n; i % 4; i++)
		w->pending[i] = w->pending[0];
	for (i = 0; i < n; i += 4)
		odd = _mm256_or_si256(odd,
				      resolve_four(&c, &w->pending[i], &m->words[i], &m->masks[i]));
	if (!_mm256_testz_si256(odd, odd))
		return false;
	/* A vector's ranges are not in their order, so that all of it counts. */
	m->n = i;
	silt_log_count(&w->count.writes, n);
	return true;
}
