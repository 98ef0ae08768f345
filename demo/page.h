/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_PAGE_H
#define DEMO_PAGE_H

/* The report's page, before and behind its data. */
extern const char page_head[], page_tail[];

#endif
