// SPDX-License-Identifier: GPL-2.0-only
// vhost: set dirty log bits by one cmpxchg on x86
//
// Where an architecture has unsafe_try_cmpxchg_user(), which is x86 today,
// it takes all bits of a long in one go, and costs less than the futex
// helper, which is a loop of its own. Bounded: whoever loses again and again
// pins the page, and sets the bits in the kernel's mapping of it.

@direct@
@@
 set_bits_direct(...) { ... }
+#endif

@depends on direct@
attribute name __user;
@@
+#ifdef unsafe_try_cmpxchg_user
+static int set_bits_direct(void __user *addr, unsigned long mask)
+{
+	unsigned long __user *word = addr;
+	unsigned long old;
+	int tries;
+	int r = -EFAULT;
+
+	pagefault_disable();
+	if (!user_access_begin(word, sizeof(*word)))
+		goto out;
+	unsafe_get_user(old, word, fault);
+	r = -EAGAIN;
+	for (tries = 0; tries < 16; tries++) {
+		if (unsafe_try_cmpxchg_user(word, &old, old | mask, fault)) {
+			r = 0;
+			break;
+		}
+	}
+fault:
+	user_access_end();
+out:
+	pagefault_enable();
+	return r;
+}
+#else
 set_bits_direct(...) { ... }
