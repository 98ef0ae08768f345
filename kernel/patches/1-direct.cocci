// SPDX-License-Identifier: GPL-2.0-only
// vhost: set dirty log bits without pinning
//
// log_write() pins the log's page for each bit that it sets, although that
// page is nearly always there and writable, and although vhost runs in the
// address space that it belongs to.
//
// Set the bits by direct user access instead, with page faults disabled, all
// those of one long at once. The futex helpers do that atomically on every
// architecture that has futexes. What they cannot access (not present,
// swapped out, write-protected, copied on write, watched by userfaultfd) is
// pinned as before; so is everything where an architecture has no such
// helper.
//
// The log keeps its layout and needs no alignment: an aligned long that
// holds one of its bits lies in the same page as that bit, and bits beside
// the log are not changed. Setting stays atomic with regard to everyone who
// sets or clears bits in the same long.

@log@
@@
 log_write(...) { ... }

@include depends on log@
@@
 #include <linux/kcov.h>
+
+#include <asm/futex.h>

@removed depends on log@
@@
-set_bit_to_user(...) { ... }

@replaced depends on removed@
@@
-log_write(...) { ... }

@depends on replaced@
attribute name __user;
typedef u32;
@@
+static int set_bits_direct(void __user *word, unsigned long mask)
+{
+	/* Futexes have 32 bits: which half of the long has its lower bits? */
+	int flip = IS_ENABLED(CONFIG_CPU_BIG_ENDIAN) ? sizeof(long) / sizeof(u32) - 1 : 0;
+	u32 __user *halves = word;
+	int old;
+	int i;
+	int r = 0;
+
+	/* Whatever is wrong with the page is left to log_write_pinned(). */
+	pagefault_disable();
+	for (i = 0; !r && i < sizeof(long) / sizeof(u32); i++) {
+		u32 half = mask >> i * 32;
+
+		if (half)
+			r = arch_futex_atomic_op_inuser(FUTEX_OP_OR, half, &old, &halves[i ^ flip]);
+	}
+	pagefault_enable();
+	return r;
+}
+
 log_write_hva(...) { ... }

@depends on replaced@
attribute name __user;
@@
+static int set_bits_pinned(void __user *word, unsigned long mask)
+{
+	struct page *page;
+	void *base;
+	int r;
+
+	r = pin_user_pages_fast((unsigned long)word, 1, FOLL_WRITE, &page);
+	if (r != 1)
+		return r < 0 ? r : -EFAULT;
+	base = kmap_local_page(page);
+	atomic_long_or(mask, base + offset_in_page(word));
+	kunmap_local(base);
+	unpin_user_pages_dirty_lock(&page, 1, true);
+	return 0;
+}
+
 log_write_hva(...) { ... }

@depends on replaced@
typedef u64;
@@
+/*
+ * Bits of the log are counted from address zero: longs begin there, and
+ * need not where the log does. This is the mask of those from @bit to @end
+ * that lie in one long with @bit.
+ */
+static unsigned long log_mask(u64 bit, u64 end)
+{
+	unsigned long mask = BITMAP_FIRST_WORD_MASK(bit);
+
+	if (end - round_down(bit, BITS_PER_LONG) < BITS_PER_LONG)
+		mask &= BITMAP_LAST_WORD_MASK(end);
+	return mask;
+}
+
 log_write_hva(...) { ... }

// The direct way calls it last, and so needs no stack of its own.
@depends on replaced@
attribute name __user, noinline;
typedef u64;
@@
+static noinline int log_write_pinned(u64 bit, u64 end)
+{
+	for (; bit < end; bit = round_down(bit, BITS_PER_LONG) + BITS_PER_LONG) {
+		void __user *word = u64_to_user_ptr(bit / BITS_PER_LONG * sizeof(long));
+		int r = set_bits_pinned(word, log_mask(bit, end));
+
+		if (r)
+			return r;
+	}
+	return 0;
+}
+
 log_write_hva(...) { ... }

@depends on replaced@
attribute name __user;
typedef u64;
@@
+static int log_write(void __user *log_base, u64 write_address, u64 write_length)
+{
+	u64 bit = (u64)(unsigned long)log_base * BITS_PER_BYTE + write_address / VHOST_PAGE_SIZE;
+	u64 last;
+
+	if (!write_length)
+		return 0;
+	last = bit + (write_address % VHOST_PAGE_SIZE + write_length - 1) / VHOST_PAGE_SIZE;
+	if ((unsigned long)(last / BITS_PER_BYTE) != last / BITS_PER_BYTE)
+		return -EFAULT;
+	for (; bit <= last; bit = round_down(bit, BITS_PER_LONG) + BITS_PER_LONG) {
+		void __user *word = u64_to_user_ptr(bit / BITS_PER_LONG * sizeof(long));
+
+		if (unlikely(set_bits_direct(word, log_mask(bit, last + 1))))
+			return log_write_pinned(bit, last + 1);
+	}
+	return 0;
+}
+
 log_write_hva(...) { ... }
