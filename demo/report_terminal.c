/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "demo/report.h"
#include "guest/pace.h"

#define BAR	    30
#define PROGRESS_NS 100000000

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static double us(uint64_t ns)
{
	return (double)ns / 1e3;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

void report_show_start(const struct report *r)
{
	const struct machine_config *c = &r->machine->config;

	if (r->opt->quiet)
		return;
	printf("guest: %u %s, %.0f MiB, %" PRIu64 " pages/s %s, disk %" PRIu64
	       " reads/s of 64 KiB; downtime goal %.0f ms",
	       c->vcpus, c->kvm ? "vCPUs under KVM" : "threads, no KVM", mib(c->memory),
	       r->opt->rate, report_pattern_name(r->opt->pattern), c->disk_rate,
	       ms(r->opt->goals.downtime_ns));
	if (r->opt->goals.bandwidth)
		printf(", at most %.1f MiB/s", mib(r->opt->goals.bandwidth));
	printf("\n\n");
}

static void show_heading(void)
{
	printf("                         |   sync, us, and its steps         |    ms of               "
	       "|                  | paused\n"
	       "round    pages     zero  |    all    get  merge    log  watch | clears   send  MiB/s "
	       "| dirtied  dirty/s | now: ms  verdict\n");
}

static void show_verdict(const struct silt_precopy_round *round)
{
	const struct silt_precopy_forecast *f = &round->forecast;

	if (round->last) {
		printf("switchover\n");
		return;
	}
	switch (f->verdict) {
	case SILT_PRECOPY_CONVERGES:
		printf("%.2f s more, down %.0f ms\n",
		       f->end_ns > round->began_ns + round->total_ns
			       ? (double)(f->end_ns - round->began_ns - round->total_ns) / 1e9
			       : 0.0,
		       ms(f->downtime_ns));
		break;
	case SILT_PRECOPY_AT_DOWNTIME:
		printf("not below %.0f ms\n", ms(f->floor_ns));
		break;
	case SILT_PRECOPY_NEVER:
		printf("never, below %.0f ms\n", ms(f->floor_ns));
		break;
	case SILT_PRECOPY_UNKNOWN:
		printf("not known yet\n");
		break;
	}
}

void report_show_round(const struct report *r, const struct silt_precopy_round *round)
{
	const struct silt_sync_stats *s = &round->sync;
	double seconds = (double)round->send_ns / 1e9;

	if (r->opt->quiet)
		return;
	if (round->round == 1)
		show_heading();
	printf("%5" PRIu64 " %8" PRIu64 " %8" PRIu64
	       "  | %6.0f %6.0f %6.0f %6.0f %6.0f | %6.1f %6.0f "
	       "%6.0f | %7" PRIu64 " %8.0f | %7.0f  ",
	       round->round, round->pages, round->zero_pages, us(round->sync_ns), us(s->get_ns),
	       us(s->merge_ns + s->misaligned_ns), us(s->log_ns),
	       us(s->pagemap_ns + s->own_ns + s->ring_ns), ms(round->clear_ns), ms(round->send_ns),
	       seconds > 0 ? mib(round->bytes) / seconds : 0.0, round->new_pages,
	       round->forecast.dirty_rate, ms(round->forecast.now_ns));
	show_verdict(round);
	fflush(stdout);
}

void report_show_progress(struct report *r)
{
	uint64_t now = pace_now_ns();
	unsigned int done, i;
	char bar[BAR + 1];

	if (!r->opt->progress || now - r->shown_ns < PROGRESS_NS || !r->expected)
		return;
	r->shown_ns = now;
	done = r->taken >= r->expected ? BAR : (unsigned int)(BAR * r->taken / r->expected);
	for (i = 0; i < BAR; i++)
		bar[i] = i < done ? '#' : '.';
	bar[BAR] = '\0';
	fprintf(stderr, "\rround %zu [%s] %" PRIu64 " of %" PRIu64 " pages ", r->nrows + 1, bar,
		r->taken, r->expected);
}

void report_clear_progress(const struct report *r)
{
	if (r->opt->progress)
		fprintf(stderr, "\r\033[K");
}

static void show_downtime(const struct report *r)
{
	const struct silt_precopy_result *t = &r->result;

	printf("\nswitchover: %.1f ms = pause %.1f, drain and save %.1f, last sync %.1f, last pages "
	       "%.1f, load %.1f, start %.1f\n",
	       ms(t->downtime_ns), ms(t->pause_ns), ms(t->save_ns), ms(t->sync_ns), ms(t->send_ns),
	       ms(t->load_ns), ms(t->start_ns));
	printf("downtime: %.1f ms, without %.1f ms in load for hashing memory as it arrived; "
	       "expected %.1f ms\n",
	       ms(t->downtime_ns - r->there.hash_ns), ms(r->there.hash_ns),
	       ms(t->expected_downtime_ns));
	printf("sent: %" PRIu64 " rounds, %" PRIu64 " pages, %" PRIu64
	       " of them zero, %.1f MiB, in %.2f s\n",
	       t->rounds, t->pages, t->zero_pages, mib(t->bytes), (double)t->total_ns / 1e9);
}

static void show_memory(const struct report *r)
{
	const struct link_outcome *there = &r->there;
	char text[33];

	printf("memory at the source:      %s\n", report_hash_text(&r->source_hash, text));
	printf("memory at the destination: %s\n", report_hash_text(&there->hash, text));
	printf("guest's counters: %" PRIu64 " pages written, %" PRIu64 " reads: %" PRId64
	       " pages wrong\n",
	       there->counts.writes, there->counts.reads, there->wrong);
	printf("after running on: %" PRIu64 " pages written, %" PRIu64 " reads: %" PRId64
	       " pages wrong\n",
	       there->counts_later.writes, there->counts_later.reads, there->wrong_later);
}

void report_show_end(const struct report *r)
{
	if (r->opt->quiet)
		return;
	if (r->outcome == DEMO_EQUAL || r->outcome == DEMO_DIFFERENT) {
		show_downtime(r);
		show_memory(r);
	}
	printf("%s%s%s\n", report_outcome_name(r->outcome), r->outcome == DEMO_EQUAL ? "" : ": ",
	       r->outcome == DEMO_EQUAL ? "" : r->reason);
	fflush(stdout);
}
