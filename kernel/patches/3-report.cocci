// SPDX-License-Identifier: GPL-2.0-only
// vhost: warn when the dirty log cannot be written
//
// Nobody looks at what log_write() returns, and nobody could do anything
// about it: the guest's page is written already. So a log that cannot be
// written (unmapped, read-only, cut short) loses dirty pages, and the guest
// is corrupt after its migration, without a word about it anywhere. Warn.

@@
identifier base, address, length, r;
type T1, T2, T3;
@@
 log_write(T1 base, T2 address, T3 length)
 {
 <...
 r = set_bits_pinned(...);
+if (unlikely(r))
+	pr_warn_ratelimited("%s: no dirty log at 0x%llx: %d\n", current->comm, address, r);
 ...>
 }
