// SPDX-License-Identifier: GPL-2.0-only
// vhost: log used ring writes that span IOTLB entries
//
// log_used() takes the number of ranges that a write to the used ring falls
// into for the bound of its loop, but overwrites it in the first round: only
// the first range is logged. Keep the bound.

@@
identifier i, n;
expression list es;
@@
 log_used(...)
 {
 <...
 for (i = 0; i < n; i++) {
-	n = log_write_hva(es);
-	if (n)
-		return n;
+	int r = log_write_hva(es);
+
+	if (r)
+		return r;
 }
 ...>
 }
