// SPDX-License-Identifier: GPL-2.0-only
// vhost: warn when the dirty log cannot be written
//
// Nobody looks at what log_write() returns, and nobody could do anything
// about it: the guest's page is written already. So a log that cannot be
// written (unmapped, read-only, cut short) loses dirty pages, and the guest
// is corrupt after its migration, without a word about it anywhere. Warn.

@@
identifier r;
@@
 log_write_pinned(...)
 {
 <...
-if (r)
+if (r) {
+	pr_warn_ratelimited("%s: dirty log not written: %d\n", current->comm, r);
 	return r;
+}
 ...>
 }
