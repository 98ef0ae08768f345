/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_neon.h"

#include <arm_neon.h>
#include <stdbool.h>

#include "base/bitmap_words.h"

/* What is tested, and skipped, as a whole: four lines of 64 bytes, two of 128. */
#define GROUP_WORDS 32

static inline uint64x2_t load_shifted(const uint64_t *src, int64x2_t right, int64x2_t left)
{
	return vorrq_u64(vshlq_u64(vld1q_u64(src), right), vshlq_u64(vld1q_u64(src + 1), left));
}

/* The two words from bit @shift of @src[0] on. */
static inline uint64x2_t load(const uint64_t *src, unsigned int shift)
{
	if (!shift)
		return vld1q_u64(src);
	return load_shifted(src, vdupq_n_s64(-(int64_t)shift), vdupq_n_s64(64 - (int64_t)shift));
}

/* Two words of @dst. Return: the bits that became set, counted in each byte. */
static inline uint8x16_t merge_vector(uint64_t *dst, uint64x2_t src)
{
	uint64x2_t old = vld1q_u64(dst);

	vst1q_u64(dst, vorrq_u64(old, src));
	return vcntq_u8(vreinterpretq_u8_u64(vbicq_u64(src, old)));
}

/* Eight words. A byte holds what four vectors add to it: 32 at most. */
static inline uint64_t merge_line(uint64_t *dst, const uint64_t *src, unsigned int shift)
{
	uint8x16_t bytes = merge_vector(dst, load(src, shift));

	bytes = vaddq_u8(bytes, merge_vector(dst + 2, load(src + 2, shift)));
	bytes = vaddq_u8(bytes, merge_vector(dst + 4, load(src + 4, shift)));
	bytes = vaddq_u8(bytes, merge_vector(dst + 6, load(src + 6, shift)));
	return vaddlvq_u8(bytes);
}

static inline uint64x2_t any_of_line(const uint64_t *src)
{
	return vorrq_u64(vorrq_u64(vld1q_u64(src), vld1q_u64(src + 2)),
			 vorrq_u64(vld1q_u64(src + 4), vld1q_u64(src + 6)));
}

/* With a shift one word more is looked at; a bit of it that is not part of the group costs time. */
static inline bool group_clean(const uint64_t *src, unsigned int shift)
{
	uint64x2_t any = vorrq_u64(any_of_line(src), any_of_line(src + 8));

	any = vorrq_u64(any, vorrq_u64(any_of_line(src + 16), any_of_line(src + 24)));
	if (shift)
		any = vorrq_u64(any, vld1q_u64(src + GROUP_WORDS - 1));
	return !(vgetq_lane_u64(any, 0) | vgetq_lane_u64(any, 1));
}

static inline uint64_t merge_any(uint64_t *dst, const uint64_t *src, unsigned int shift, uint64_t n)
{
	uint64_t count = 0, i = 0, end;

	for (; i + GROUP_WORDS <= n; i = end) {
		end = i + GROUP_WORDS;
		if (group_clean(&src[i], shift))
			continue;
		for (; i < end; i += 8)
			count += merge_line(&dst[i], &src[i], shift);
	}
	for (; i < n; i++)
		count += silt_word_merge(&dst[i],
					 shift ? silt_word_shifted(&src[i], shift) : src[i]);
	return count;
}

static uint64_t merge(uint64_t *dst, const uint64_t *src, uint64_t n)
{
	return merge_any(dst, src, 0, n);
}

static uint64_t merge_shift(uint64_t *dst, const uint64_t *src, unsigned int shift, uint64_t n)
{
	return merge_any(dst, src, shift, n);
}

static inline uint8x16_t count_bytes(const uint64_t *src)
{
	return vcntq_u8(vreinterpretq_u8_u64(vld1q_u64(src)));
}

static uint64_t count(const uint64_t *src, uint64_t n)
{
	uint64_t total = 0, i = 0;

	for (; i + 8 <= n; i += 8)
		total += vaddlvq_u8(
			vaddq_u8(vaddq_u8(count_bytes(&src[i]), count_bytes(&src[i + 2])),
				 vaddq_u8(count_bytes(&src[i + 4]), count_bytes(&src[i + 6]))));
	for (; i < n; i++)
		total += silt_word_count(src[i]);
	return total;
}

static uint64_t next_any(const uint64_t *src, uint64_t from, uint64_t n)
{
	uint64x2_t any;

	for (; from + 8 <= n; from += 8) {
		any = any_of_line(&src[from]);
		if (vgetq_lane_u64(any, 0) | vgetq_lane_u64(any, 1))
			break;
	}
	return silt_generic_next_any(src, from, n);
}

static uint64_t next_hole(const uint64_t *src, uint64_t from, uint64_t n)
{
	uint64x2_t all;

	for (; from + 8 <= n; from += 8) {
		all = vandq_u64(vandq_u64(vld1q_u64(&src[from]), vld1q_u64(&src[from + 2])),
				vandq_u64(vld1q_u64(&src[from + 4]), vld1q_u64(&src[from + 6])));
		if ((vgetq_lane_u64(all, 0) & vgetq_lane_u64(all, 1)) != UINT64_MAX)
			break;
	}
	return silt_generic_next_hole(src, from, n);
}

/*
 * Granules differ by a power of two, and are converted by doubling or halving bits as often. The
 * steps are done in registers, a vector of 16 bytes into two or two into one.
 */

/* Each bit of a nibble made two, as a byte. */
static inline uint8x16_t doubled_nibbles(uint8x16_t nibbles)
{
	static const uint8_t table[16] = {0x00, 0x03, 0x0c, 0x0f, 0x30, 0x33, 0x3c, 0x3f,
					  0xc0, 0xc3, 0xcc, 0xcf, 0xf0, 0xf3, 0xfc, 0xff};

	return vqtbl1q_u8(vld1q_u8(table), nibbles);
}

/* Make each bit 2^@log2 and store the 16 << @log2 bytes. */
static uint64_t *grow(uint64_t *dst, uint8x16_t v, unsigned int log2)
{
	uint8x16_t low, high;

	if (!log2) {
		vst1q_u64(dst, vreinterpretq_u64_u8(v));
		return dst + 2;
	}
	low = doubled_nibbles(vandq_u8(v, vdupq_n_u8(0x0f)));
	high = doubled_nibbles(vshrq_n_u8(v, 4));
	dst = grow(dst, vzip1q_u8(low, high), log2 - 1);
	return grow(dst, vzip2q_u8(low, high), log2 - 1);
}

static void expand(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n)
{
	uint64_t i;

	for (i = 0; i + 2 <= n; i += 2)
		dst = grow(dst, vreinterpretq_u8_u64(vld1q_u64(&src[i])), log2);
	silt_generic_expand(dst, &src[i], log2, n - i);
}

/* Bits 2i and 2i + 1 of each 8 go to bit i. */
static inline uint8x16_t halved(uint8x16_t v)
{
	v = vandq_u8(vorrq_u8(v, vshrq_n_u8(v, 1)), vdupq_n_u8(0x55));
	v = vandq_u8(vorrq_u8(v, vshrq_n_u8(v, 1)), vdupq_n_u8(0x33));
	return vandq_u8(vorrq_u8(v, vshrq_n_u8(v, 2)), vdupq_n_u8(0x0f));
}

/* Make each 2^@log2 bits of 16 << @log2 bytes one. */
static uint8x16_t reduce(const uint64_t *src, unsigned int log2)
{
	uint8x16_t low, high;

	if (!log2)
		return vreinterpretq_u8_u64(vld1q_u64(src));
	low = halved(reduce(src, log2 - 1));
	high = halved(reduce(src + (UINT64_C(1) << log2), log2 - 1));
	return vorrq_u8(vuzp1q_u8(low, high), vshlq_n_u8(vuzp2q_u8(low, high), 4));
}

static void shrink(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n)
{
	uint64_t i;

	for (i = 0; i + 2 <= n; i += 2)
		vst1q_u64(&dst[i], vreinterpretq_u64_u8(reduce(&src[i << log2], log2)));
	silt_generic_shrink(&dst[i], &src[i << log2], log2, n - i);
}

const struct silt_bitmap_kernels silt_bitmap_neon = {
	.name = "neon",
	.merge = merge,
	.merge_shift = merge_shift,
	.count = count,
	.expand = expand,
	.shrink = shrink,
	.xchg_merge = silt_neon_xchg_merge,
	.xchg_take = silt_neon_xchg_take,
	.next_any = next_any,
	.next_hole = next_hole,
};
