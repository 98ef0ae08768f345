/* SPDX-License-Identifier: BSD-3-Clause */
#include "check/report.h"

static void start(void *arg, const struct check_options *opt, const struct check_backend_info *info,
		  unsigned int nscenarios)
{
	struct check_report *r = arg;

	r->selected = nscenarios;
	for (unsigned int i = 0; i < r->nto; i++) {
		if (r->to[i].start)
			r->to[i].start(r->to[i].arg, opt, info, nscenarios);
	}
}

static void running(void *arg, const char *name, unsigned int i, unsigned int n)
{
	struct check_report *r = arg;

	for (unsigned int k = 0; k < r->nto; k++) {
		if (r->to[k].running)
			r->to[k].running(r->to[k].arg, name, i, n);
	}
}

static void learn(struct check_report *r, const struct check_outcome *o)
{
	int ret = check_baseline_add(r->baseline, o);

	if (ret < 0 && !r->error)
		r->error = ret;
}

static void outcome(void *arg, const struct check_outcome *engine)
{
	struct check_report *r = arg;
	struct check_outcome o = *engine;

	if (r->baseline) {
		/* Asked first, also when learning: entries that are gone are found by it. */
		o.known = check_baseline_covers(r->baseline, &o);
		if (r->learn && !o.known && (o.result == CHECK_FAIL || o.result == CHECK_ERROR)) {
			learn(r, &o);
			o.known = true;
		}
	}
	r->totals.count[o.result]++;
	r->totals.known += o.known;
	r->totals.missed_pages += o.missed + o.stale;
	r->totals.seconds += o.seconds;
	for (unsigned int i = 0; i < r->nto; i++) {
		if (r->to[i].outcome)
			r->to[i].outcome(r->to[i].arg, &o);
	}
}

static void cost(void *arg, const struct check_cost *c)
{
	struct check_report *r = arg;

	for (unsigned int i = 0; i < r->nto; i++) {
		if (r->to[i].cost)
			r->to[i].cost(r->to[i].arg, c);
	}
}

struct check_reporter check_report_entry(struct check_report *report)
{
	return (struct check_reporter){
		.arg = report,
		.start = start,
		.running = running,
		.outcome = outcome,
		.cost = cost,
	};
}

enum check_result check_report_verdict(const struct check_totals *t)
{
	unsigned int bad = t->count[CHECK_FAIL] + t->count[CHECK_ERROR];

	if (bad > t->known)
		return CHECK_FAIL;
	return bad + t->count[CHECK_PASS] ? CHECK_PASS : CHECK_SKIP;
}
