/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "check/report.h"
#include "check/text.h"

#define KIND_MAX 256

/*
 * Scenarios that went wrong in the same way are shown once: by class and kind for misses, by kind
 * of reason for errors and skips. The first one is shown whole. What a hostile case found is always
 * shown whole: it may be an attacker's way in.
 */
struct group {
	enum check_result result;
	enum check_verdict verdict;
	enum check_class class;
	char kind[KIND_MAX];
	unsigned int scenarios;
	uint64_t pages;
	uint64_t gpa;
	char *what, *request, *consequence; /* of the first missed page */
	char *reason, *repro;
	unsigned int last; /* number of the outcome that was counted last */
};

struct check_terminal {
	struct check_terminal_options opt;
	struct group *groups;
	size_t ngroups;
	unsigned int outcomes;
	uint64_t class_pages[CHECK_CLASSES];
	uint64_t changed, late, ignored, ambiguous;
	uint64_t measured, marked, extra; /* pages that tell what log writes cost */
	uint64_t in_case;		  /* extra ones that do not */
	unsigned int verdicts[CHECK_WROTE_OUTSIDE + 1];
	char *cost; /* of logging, in words, or NULL */
	bool progress_shown;
	bool failed; /* out of memory somewhere */
};

enum paint {
	PLAIN,
	BOLD,
	RED,
	GREEN,
	YELLOW
};

static const char *paint(const struct check_terminal *t, enum paint p)
{
	static const char *const codes[] = {
		[PLAIN] = "\033[0m",  [BOLD] = "\033[1m",    [RED] = "\033[1;31m",
		[GREEN] = "\033[32m", [YELLOW] = "\033[33m",
	};

	return t->opt.colour ? codes[p] : "";
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- While it runs --------------------------------------------------------------------------- */

static void erase_progress(struct check_terminal *t)
{
	if (t->progress_shown)
		fputs("\r\033[K", t->opt.progress);
	t->progress_shown = false;
}

static int terminal_width(FILE *f)
{
	struct winsize size;

	if (ioctl(fileno(f), TIOCGWINSZ, &size) < 0 || size.ws_col < 20)
		return 80;
	return size.ws_col;
}

static void running(void *arg, const char *name, unsigned int i, unsigned int n)
{
	struct check_terminal *t = arg;
	char line[256];

	if (!t->opt.progress)
		return;
	snprintf(line, sizeof(line), "[%u/%u] %s", i + 1, n, name);
	fprintf(t->opt.progress, "\r\033[K%.*s", terminal_width(t->opt.progress) - 1, line);
	fflush(t->opt.progress);
	t->progress_shown = true;
}

static void print_size(FILE *out, uint64_t bytes)
{
	if (bytes >= UINT64_C(1) << 30)
		fprintf(out, "%.1f GiB", (double)bytes / (1 << 30));
	else if (bytes >= UINT64_C(1) << 20)
		fprintf(out, "%.1f MiB", (double)bytes / (1 << 20));
	else
		fprintf(out, "%" PRIu64 " bytes", bytes);
}

static void start(void *arg, const struct check_options *opt, const struct check_backend_info *info,
		  unsigned int nscenarios)
{
	struct check_terminal *t = arg;
	FILE *out = t->opt.out;

	if (t->opt.verbosity < 0)
		return;
	fprintf(out, "backend: %s\n%s device, %" PRIu64 " queue%s", info->target, info->device,
		info->queues, plural(info->queues));
	if (info->capacity) {
		fputs(", ", out);
		print_size(out, info->capacity);
	}
	fprintf(out, "%s; %u scenario%s, seed %" PRIu64 "\n", info->read_only ? ", read-only" : "",
		nscenarios, plural(nscenarios), opt->seed);
	if (t->opt.verbosity > 0)
		fprintf(out, "features 0x%" PRIx64 ", protocol features 0x%" PRIx64 "\n",
			info->features, info->protocol_features);
	fflush(out);
}

static void print_scenario(struct check_terminal *t, const struct check_outcome *o)
{
	static const enum paint paints[] = {GREEN, RED, YELLOW, RED};
	FILE *out = t->opt.out;

	erase_progress(t);
	fprintf(out, "%s%-5s%s %s: ", paint(t, paints[o->result]), check_result_name(o->result),
		paint(t, PLAIN), o->name);
	if (o->verdict)
		fputs(check_verdict_name(o->verdict), out);
	else
		fprintf(out, "changed %" PRIu64 ", missed %" PRIu64 ", extra %" PRIu64, o->changed,
			o->missed + o->stale, o->extra);
	fprintf(out, ", %.0f ms", o->seconds * 1000);
	if (o->known)
		fputs(" (known)", out);
	if (o->reason && *o->reason) {
		fputs("\n      ", out);
		check_text_print(out, o->reason, "      ");
	}
	putc('\n', out);
	fflush(out);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static char *copy(struct check_terminal *t, const char *text)
{
	char *s = strdup(text ? text : "");

	t->failed |= !s;
	return s;
}

static struct group *new_group(struct check_terminal *t, const struct group *like,
			       const struct check_outcome *o)
{
	struct group *all = reallocarray(t->groups, t->ngroups + 1, sizeof(*all));
	struct group *g;

	if (!all) {
		t->failed = true;
		return NULL;
	}
	t->groups = all;
	g = &all[t->ngroups++];
	*g = *like;
	g->reason = copy(t, o->reason);
	g->repro = copy(t, o->repro);
	return g;
}

static struct group *find_group(struct check_terminal *t, const struct group *like)
{
	for (size_t i = 0; i < t->ngroups; i++) {
		struct group *g = &t->groups[i];

		if (g->result == like->result && g->class == like->class &&
		    !strcmp(g->kind, like->kind))
			return g;
	}
	return NULL;
}

/* Several pages of one outcome may be of one group. */
static void count_scenario(const struct check_terminal *t, struct group *g)
{
	if (g->last != t->outcomes)
		g->scenarios++;
	g->last = t->outcomes;
}

static void group_page(struct check_terminal *t, const struct check_outcome *o,
		       const struct check_page *page)
{
	struct group like = {.result = CHECK_FAIL, .class = page->class};
	struct group *g;

	check_text_kind(page->what, like.kind, sizeof(like.kind));
	g = find_group(t, &like);
	if (!g) {
		g = new_group(t, &like, o);
		if (!g)
			return;
		g->gpa = page->gpa;
		g->what = copy(t, page->what);
		g->request = copy(t, page->request);
		g->consequence = copy(t, page->consequence);
	}
	g->pages++;
	count_scenario(t, g);
}

static void group_reason(struct check_terminal *t, const struct check_outcome *o)
{
	struct group like = {.result = o->result};
	struct group *g;

	check_text_sentence_kind(o->reason ? o->reason : "", like.kind, sizeof(like.kind));
	g = find_group(t, &like);
	if (!g)
		g = new_group(t, &like, o);
	if (g)
		count_scenario(t, g);
}

static void show_verdict(struct check_terminal *t, const struct check_outcome *o)
{
	struct group like = {.result = CHECK_FAIL, .verdict = o->verdict};
	struct group *g;

	snprintf(like.kind, sizeof(like.kind), "%s", o->name);
	g = new_group(t, &like, o);
	if (g)
		count_scenario(t, g);
}

/* What a backend marks because one before it may have written there is not what its writes cost. */
static void count_marks(struct check_terminal *t, const struct check_outcome *o)
{
	if (o->mode && !strcmp(o->mode, "restart")) {
		t->in_case += o->extra;
		return;
	}
	t->measured += o->changed;
	t->marked += o->logged + o->extra;
	t->extra += o->extra;
}

static void outcome(void *arg, const struct check_outcome *o)
{
	struct check_terminal *t = arg;

	t->outcomes++;
	t->verdicts[o->verdict]++;
	if (o->verdict && o->result == CHECK_FAIL && !o->known)
		show_verdict(t, o);
	t->changed += o->changed;
	count_marks(t, o);
	t->late += o->late;
	t->ignored += o->ignored;
	t->ambiguous += o->ambiguous;
	for (unsigned int i = 0; i < o->npages; i++)
		t->class_pages[o->pages[i].class]++;
	if (o->result == CHECK_SKIP || (o->result == CHECK_ERROR && !o->known))
		group_reason(t, o);
	for (unsigned int i = 0; !o->known && i < o->npages; i++) {
		if (!check_baseline_has(t->opt.baseline, o->name, &o->pages[i]))
			group_page(t, o, &o->pages[i]);
	}
	if (t->opt.verbosity > 0)
		print_scenario(t, o);
}

/* ---- At the end ------------------------------------------------------------------------------ */

/* Misses before errors before skips, data first, then what occurred most often. */
static int by_weight(const void *pa, const void *pb)
{
	static const int rank[] = {[CHECK_FAIL] = 0, [CHECK_ERROR] = 1, [CHECK_SKIP] = 2};
	const struct group *a = pa, *b = pb;

	if (a->result != b->result)
		return rank[a->result] - rank[b->result];
	if (a->verdict != b->verdict)
		return (int)b->verdict - (int)a->verdict;
	if (a->class != b->class)
		return (int)a->class - (int)b->class;
	return (a->scenarios < b->scenarios) - (a->scenarios > b->scenarios);
}

/* The command names the scenario. */
static void print_again(struct check_terminal *t, const struct group *g)
{
	fprintf(t->opt.out, "  again: %s\n\n", g->repro);
}

static void print_miss(struct check_terminal *t, const struct group *g)
{
	FILE *out = t->opt.out;

	fprintf(out,
		"%sMISSED%s %s: %s%s%s, %" PRIu64 " page%s in %u scenario%s\n"
		"  page 0x%" PRIx64 ": %s\n"
		"  request: %s\n"
		"  consequence: %s\n",
		paint(t, RED), paint(t, PLAIN), check_class_name(g->class), paint(t, BOLD), g->kind,
		paint(t, PLAIN), g->pages, plural(g->pages), g->scenarios, plural(g->scenarios),
		g->gpa, g->what, g->request, g->consequence);
	print_again(t, g);
}

static void print_verdict_group(struct check_terminal *t, const struct group *g)
{
	static const char *const titles[] = {[CHECK_HUNG] = "HUNG",
					     [CHECK_CRASHED] = "CRASHED",
					     [CHECK_WROTE_OUTSIDE] = "WROTE OUTSIDE"};

	fprintf(t->opt.out, "%s%s%s %s%s%s\n  ", paint(t, RED), titles[g->verdict], paint(t, PLAIN),
		paint(t, BOLD), g->kind, paint(t, PLAIN));
	check_text_print(t->opt.out, g->reason, "  ");
	putc('\n', t->opt.out);
	print_again(t, g);
}

static void print_error(struct check_terminal *t, const struct group *g)
{
	fprintf(t->opt.out, "%sERROR%s in %u scenario%s: ", paint(t, RED), paint(t, PLAIN),
		g->scenarios, plural(g->scenarios));
	check_text_print(t->opt.out, g->reason, "  ");
	putc('\n', t->opt.out);
	print_again(t, g);
}

static void print_skip(struct check_terminal *t, const struct group *g)
{
	fprintf(t->opt.out, "%sskipped%s %u: ", paint(t, YELLOW), paint(t, PLAIN), g->scenarios);
	check_text_print(t->opt.out, g->reason, "  ");
	putc('\n', t->opt.out);
}

static void print_groups(struct check_terminal *t)
{
	if (t->ngroups)
		qsort(t->groups, t->ngroups, sizeof(*t->groups), by_weight);
	for (size_t i = 0; i < t->ngroups; i++) {
		const struct group *g = &t->groups[i];

		if (g->verdict)
			print_verdict_group(t, g);
		else if (g->result == CHECK_FAIL)
			print_miss(t, g);
		else if (g->result == CHECK_ERROR)
			print_error(t, g);
		else if (t->opt.verbosity >= 0)
			print_skip(t, g);
	}
}

static void print_pages(struct check_terminal *t, const struct check_totals *totals)
{
	FILE *out = t->opt.out;

	fprintf(out, "%" PRIu64 " page%s changed, %" PRIu64 " missed", t->changed,
		plural(t->changed), totals->missed_pages);
	for (int c = 0, n = 0; c < CHECK_CLASSES; c++) {
		if (t->class_pages[c])
			fprintf(out, "%s%" PRIu64 " %s", n++ ? ", " : " (", t->class_pages[c],
				check_class_name(c));
		if (n && c == CHECK_CLASSES - 1)
			putc(')', out);
	}
	if (t->ignored)
		fprintf(out, ", %" PRIu64 " ignored", t->ignored);
	if (t->ambiguous)
		fprintf(out, ", %" PRIu64 " ambiguous", t->ambiguous);
	fprintf(out, ", %" PRIu64 " marked though unchanged", t->extra);
	if (t->late)
		fprintf(out, ", %" PRIu64 " marked in a log that was replaced before", t->late);
	if (t->measured)
		fprintf(out, "; %.2f marked for each changed", (double)t->marked / t->measured);
	if (t->in_case)
		fprintf(out, "; %" PRIu64 " marked in case after a restart", t->in_case);
	putc('\n', out);
}

static void cost(void *arg, const struct check_cost *c)
{
	struct check_terminal *t = arg;

	free(t->cost);
	if (c->failed) {
		char *why = check_text_clean(c->failed);

		if (!why || asprintf(&t->cost, "not measured: %s", why) < 0)
			t->cost = NULL;
		free(why);
	} else {
		char meaning[CHECK_MEANING_LEN];

		check_cost_meaning(c, meaning, sizeof(meaning));
		if (asprintf(&t->cost, "%.0f a second with it, %.0f without; %s\n  %s", c->on,
			     c->off, c->requests, meaning) < 0)
			t->cost = NULL;
	}
	t->failed |= !t->cost;
}

static void print_cost(const struct check_terminal *t)
{
	if (t->cost)
		fprintf(t->opt.out, "cost of logging: %s\n", t->cost);
}

static bool is_hostile(const struct check_terminal *t)
{
	return t->outcomes && t->verdicts[CHECK_NO_VERDICT] < t->outcomes;
}

static void print_verdicts(struct check_terminal *t)
{
	for (int v = CHECK_CORRECT; v <= CHECK_WROTE_OUTSIDE; v++)
		fprintf(t->opt.out, "%s%u %s", v > CHECK_CORRECT ? ", " : "", t->verdicts[v],
			check_verdict_name(v));
	putc('\n', t->opt.out);
}

static void print_totals(struct check_terminal *t, const struct check_totals *totals)
{
	fprintf(t->opt.out, "%u passed, %u failed, %u in error, %u skipped",
		totals->count[CHECK_PASS], totals->count[CHECK_FAIL], totals->count[CHECK_ERROR],
		totals->count[CHECK_SKIP]);
	if (totals->known)
		fprintf(t->opt.out, " (%u known)", totals->known);
	fprintf(t->opt.out, ", %.1f s\n", totals->seconds);
	if (is_hostile(t))
		print_verdicts(t);
	else
		print_pages(t, totals);
}

static void print_verdict(struct check_terminal *t, const struct check_totals *totals)
{
	enum check_result verdict = check_report_verdict(totals);
	const char *text = "every page that the backend changed was logged";

	if (verdict == CHECK_SKIP)
		text = "no scenario applies to this backend";
	else if (verdict == CHECK_FAIL && totals->missed_pages)
		text = "the backend changed pages without logging them; a migration would lose them";
	else if (verdict == CHECK_FAIL && is_hostile(t) && totals->count[CHECK_FAIL])
		text = "a frontend or a guest can make the backend hang, crash or write where it may "
		       "not";
	else if (verdict == CHECK_FAIL)
		text = "the backend did not do what it was asked";
	else if (totals->known)
		text = "nothing failed that the baseline does not list";
	else if (is_hostile(t))
		text = "the backend stood all that was sent to it";
	else if (t->ignored)
		text = "no page was missed but of ignored classes";
	else if (t->ambiguous)
		text = "no page was missed but of packed rings, with one of two log addresses: "
		       "see 'ambiguous' in silt-check(1)";
	fprintf(t->opt.out, "%s%s%s: %s\n",
		paint(t, verdict == CHECK_PASS	 ? GREEN
			 : verdict == CHECK_SKIP ? YELLOW
						 : RED),
		verdict == CHECK_PASS	? "PASS"
		: verdict == CHECK_SKIP ? "SKIP"
					: "FAIL",
		paint(t, PLAIN), text);
}

static void print_gone(struct check_terminal *t)
{
	unsigned int gone = t->opt.baseline ? check_baseline_gone(t->opt.baseline) : 0;

	if (gone)
		fprintf(t->opt.out,
			"%u known failure%s did not occur; --write-baseline takes %s out\n", gone,
			plural(gone), gone == 1 ? "it" : "them");
}

int check_terminal_finish(struct check_terminal *t, const struct check_totals *totals)
{
	erase_progress(t);
	if (t->failed)
		return silt_err_sys(ENOMEM, "cannot print the report");
	print_groups(t);
	if (t->opt.verbosity >= 0 || check_report_verdict(totals) == CHECK_FAIL) {
		print_totals(t, totals);
		print_cost(t);
		print_gone(t);
		print_verdict(t, totals);
	}
	return fflush(t->opt.out) ? silt_err_sys(errno, "cannot print the report") : 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

int check_terminal_create(const struct check_terminal_options *opt, struct check_terminal **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return silt_err_sys(ENOMEM, "cannot make a report");
	(*out)->opt = *opt;
	return 0;
}

struct check_reporter check_terminal_entry(struct check_terminal *t)
{
	return (struct check_reporter){
		.arg = t,
		.start = start,
		.running = running,
		.outcome = outcome,
		.cost = cost,
	};
}

void check_terminal_destroy(struct check_terminal *t)
{
	if (!t)
		return;
	erase_progress(t);
	for (size_t i = 0; i < t->ngroups; i++) {
		struct group *g = &t->groups[i];

		free(g->what);
		free(g->request);
		free(g->consequence);
		free(g->reason);
		free(g->repro);
	}
	free(t->groups);
	free(t->cost);
	free(t);
}
