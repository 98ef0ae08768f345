/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_NOTICE_H
#define BLK_NOTICE_H

/* One line on stderr, after "silt blk: ". Any thread. */
void blk_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));

#endif
