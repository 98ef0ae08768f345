// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ways to set bits in vhost's dirty log, which is a bitmap in the memory of the process that owns
 * the device: bit n of it is page n of the guest, in the order of a native long.
 *
 * Each way but "pin" accesses the word that holds the bits directly, with page faults disabled.
 * What may be wrong with the page then (not there, swapped out, write-protected, copied on write,
 * registered with userfaultfd) is put right by pinning it, as vhost does for every single bit. An
 * aligned word never leaves its page, so the log itself may lie at any address and have any size:
 * the bytes around it that share a word with it are accessed, but not changed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/highmem.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include <asm/futex.h>

#include "log_write.h"

#if !defined(CONFIG_64BIT) || defined(__BIG_ENDIAN)
#error "64-bit little-endian only"
#endif

#define LOG_PAGE_SHIFT 12

/* A loop that loses this often is better off in the kernel's mapping of the page. */
#define MAX_TRIES 16

#define count(what) this_cpu_inc(silt_counters.what)

/* Set the bits of @mask; -EFAULT: access faulted, -EAGAIN: lost too often, -ENOSYS: no such way. */
typedef int set_direct(unsigned long __user *word, unsigned long mask);

DEFINE_PER_CPU(struct silt_counters, silt_counters);
DEFINE_STATIC_KEY_FALSE(silt_test_first);

#ifdef SILT_BROKEN
unsigned int silt_window;

static void widen_window(void)
{
	unsigned int i;

	for (i = 0; i < READ_ONCE(silt_window); i++)
		cpu_relax();
}
#endif

static noinline int or_pinned(unsigned long __user *word, unsigned long mask)
{
	struct page *page;
	void *base;
	int r;

	r = pin_user_pages_fast((unsigned long)word, 1, FOLL_WRITE, &page);
	if (r != 1)
		return r < 0 ? r : -EFAULT;
	base = kmap_local_page(page);
	atomic_long_or(mask, (atomic_long_t *)(base + offset_in_page(word)));
	kunmap_local(base);
	unpin_user_pages_dirty_lock(&page, 1, true);
	count(pinned);
	return 0;
}

static noinline int report(u64 address, u64 length, int r)
{
	count(failed);
	pr_warn_ratelimited(
		"%s: %llu bytes written at guest address 0x%llx are not logged: error %d\n",
		current->comm, length, address, r);
	return r;
}

static int or_after_failure(unsigned long __user *word, unsigned long mask, int why)
{
	if (why == -EFAULT)
		count(faulted);
	else
		count(contended);
	return or_pinned(word, mask);
}

/* The rest of a log write of one word: apart, so that the part before it needs no stack. */
static noinline int finish_word(unsigned long __user *word, unsigned long mask, int why,
				u64 address, u64 length)
{
	int r = or_after_failure(word, mask, why);

	return r ? report(address, length, r) : 0;
}

/* True if all bits of @mask are set; false if not, or if nobody knows. */
static __always_inline bool has_bits(const unsigned long __user *word, unsigned long mask)
{
	unsigned long old;

	/* The caller's data must be visible before this looks: who has it not visible clears later.
	 */
	smp_mb();
	if (!user_read_access_begin(word, sizeof(*word)))
		return false;
	unsafe_get_user(old, word, fault);
	user_read_access_end();
	return (old & mask) == mask;
fault:
	user_read_access_end();
	return false;
}

static __always_inline int or_word(unsigned long __user *word, unsigned long mask, set_direct *set)
{
	int r;

	pagefault_disable();
	if (static_branch_unlikely(&silt_test_first) && has_bits(word, mask)) {
		pagefault_enable();
		count(skipped);
		return 0;
	}
	r = set(word, mask);
	pagefault_enable();
	if (likely(!r))
		count(direct);
	return r;
}

/* Bits of the log, counted from the address 0, so that where it begins makes no difference. */
struct log_range {
	u64 first;
	u64 bits;
};

static __always_inline struct log_range log_range(void __user *log_base, u64 address, u64 length)
{
	return (struct log_range){
		.first = (u64)log_base * BITS_PER_BYTE + (address >> LOG_PAGE_SHIFT),
		.bits = ((address % BIT(LOG_PAGE_SHIFT)) + length + BIT(LOG_PAGE_SHIFT) - 1) >>
			LOG_PAGE_SHIFT,
	};
}

static __always_inline unsigned long __user *word_of(u64 bit)
{
	return (unsigned long __user *)(bit / BITS_PER_LONG * sizeof(long));
}

static __always_inline unsigned long mask_of(u64 first, u64 bits)
{
	return ~0UL >> (BITS_PER_LONG - bits) << first % BITS_PER_LONG;
}

/* What is behind a word that cannot be logged is still worth being logged. */
static __always_inline int log_words(void __user *log_base, u64 address, u64 length,
				     set_direct *set)
{
	struct log_range range = log_range(log_base, address, length);
	int r, failure = 0;
	u64 here;

	for (; range.bits; range.first += here, range.bits -= here) {
		unsigned long __user *word = word_of(range.first);
		unsigned long mask;

		here = min_t(u64, range.bits, BITS_PER_LONG - range.first % BITS_PER_LONG);
		mask = mask_of(range.first, here);
		r = or_word(word, mask, set);
		if (unlikely(r))
			r = or_after_failure(word, mask, r);
		failure = failure ?: r;
	}
	return failure ? report(address, length, failure) : 0;
}

static __always_inline int log_write(void __user *log_base, u64 address, u64 length,
				     set_direct *set,
				     int (*log_many)(void __user *log_base, u64 address,
						     u64 length))
{
	struct log_range range = log_range(log_base, address, length);
	unsigned long mask;
	int r;

	if (unlikely(!length))
		return 0;
	if (unlikely(range.first % BITS_PER_LONG + range.bits > BITS_PER_LONG))
		return log_many(log_base, address, length);
	mask = mask_of(range.first, range.bits);
	r = or_word(word_of(range.first), mask, set);
	if (likely(!r))
		return 0;
	return finish_word(word_of(range.first), mask, r, address, length);
}

/* A whole replacement for each method, so that nothing is decided at each write. */
#define DEFINE_LOG_WRITE(method)                                                               \
	static noinline int log_words_##method(void __user *log_base, u64 address, u64 length) \
	{                                                                                      \
		return log_words(log_base, address, length, or_##method);                      \
	}                                                                                      \
	static int log_write_##method(void __user *log_base, u64 address, u64 length)          \
	{                                                                                      \
		return log_write(log_base, address, length, or_##method, log_words_##method);  \
	}

#ifdef CONFIG_X86_64
static __always_inline int or_locked(unsigned long __user *word, unsigned long mask)
{
	if (!user_access_begin(word, sizeof(*word)))
		return -EFAULT;
	/* clang-format off */
	asm goto("1: " LOCK_PREFIX "orq %[mask], %[word]\n"
		 _ASM_EXTABLE_UA(1b, %l[fault])
		 :
		 : [word] "m"(*(unsigned long __force *)word), [mask] "er"(mask)
		 : "memory", "cc"
		 : fault);
	/* clang-format on */
	user_access_end();
	return 0;
fault:
	user_access_end();
	return -EFAULT;
}
DEFINE_LOG_WRITE(locked)
#endif

#ifdef unsafe_try_cmpxchg_user
static __always_inline int or_cmpxchg(unsigned long __user *word, unsigned long mask)
{
	unsigned long old;
	int tries;

	if (!user_access_begin(word, sizeof(*word)))
		return -EFAULT;
	unsafe_get_user(old, word, fault);
	for (tries = 0; tries < MAX_TRIES; tries++) {
		if (likely(unsafe_try_cmpxchg_user(word, &old, old | mask, fault))) {
			user_access_end();
			return 0;
		}
	}
	user_access_end();
	return -EAGAIN;
fault:
	user_access_end();
	return -EFAULT;
}
DEFINE_LOG_WRITE(cmpxchg)
#endif

static __always_inline int or_half(u32 __user *half, u32 mask)
{
	int old, tries, r = -EAGAIN;

	for (tries = 0; tries < MAX_TRIES && r == -EAGAIN; tries++)
		r = arch_futex_atomic_op_inuser(FUTEX_OP_OR, mask, &old, half);
	return r;
}

/* What every architecture has, for words of 32 bits. */
static __always_inline int or_futex(unsigned long __user *word, unsigned long mask)
{
	u32 __user *half = (u32 __user *)word;
	int r = 0;

	if (lower_32_bits(mask))
		r = or_half(half, lower_32_bits(mask));
	if (!r && upper_32_bits(mask))
		r = or_half(half + 1, upper_32_bits(mask));
	return r;
}
DEFINE_LOG_WRITE(futex)

/* As vhost does it: every bit on its own, through a page pinned for it. */
static int log_write_pin(void __user *log_base, u64 address, u64 length)
{
	struct log_range range = log_range(log_base, address, length);
	int r;

	for (; length && range.bits; range.first++, range.bits--) {
		r = or_pinned(word_of(range.first), mask_of(range.first, 1));
		if (r)
			return report(address, length, r);
	}
	return 0;
}

#ifdef SILT_BROKEN
/* To compare with: direct access, but a compare and exchange for every page. */
static int log_write_bit(void __user *log_base, u64 address, u64 length)
{
	struct log_range range = log_range(log_base, address, length);
	int r;

	for (; length && range.bits; range.first++, range.bits--) {
		unsigned long __user *word = word_of(range.first);
		unsigned long mask = mask_of(range.first, 1);

		r = or_word(word, mask, or_cmpxchg);
		if (unlikely(r))
			r = or_after_failure(word, mask, r);
		if (unlikely(r))
			return report(address, length, r);
	}
	return 0;
}

/* Loses what others set or clear between its read and its write. */
static __always_inline int or_broken(unsigned long __user *word, unsigned long mask)
{
	unsigned long old;

	if (!user_access_begin(word, sizeof(*word)))
		return -EFAULT;
	unsafe_get_user(old, word, fault);
	user_access_end();
	widen_window();
	if (!user_access_begin(word, sizeof(*word)))
		return -EFAULT;
	unsafe_put_user(old | mask, word, fault);
	user_access_end();
	return 0;
fault:
	user_access_end();
	return -EFAULT;
}
DEFINE_LOG_WRITE(broken)
#endif

const struct silt_method silt_methods[] = {
#ifdef CONFIG_X86_64
	{"or", log_write_locked},
#endif
#ifdef unsafe_try_cmpxchg_user
	{"cmpxchg", log_write_cmpxchg},
#endif
	{"futex", log_write_futex},
	{"pin", log_write_pin},
#ifdef SILT_BROKEN
	{"bit", log_write_bit},
	{"broken", log_write_broken},
#endif
	{},
};
