/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>

#include "base/err.h"
#include "bench/blk.h"

static const char *wait_name(enum bench_wait wait)
{
	return wait == BENCH_POLL ? "poll" : "call";
}

static void print_row(const struct blk_result *r, const struct blk_row *row)
{
	const struct blk_figure *silt = &row->figures[0], *best = &row->figures[row->best];

	printf("%5u %3u KiB %-5s %7.1f %6.1f-%-6.1f %5.1f", row->depth, row->bytes / 1024,
	       row->write ? "write" : "read", silt->iops / 1e3, silt->min / 1e3, silt->max / 1e3,
	       silt->cpu_us);
	if (row->best)
		printf("  %7.1f %6.1f-%-6.1f %5.1f %-12s %5.2f %5.2f-%-5.2f", best->iops / 1e3,
		       best->min / 1e3, best->max / 1e3, best->cpu_us, r->names[row->best],
		       best->ratio, best->ratio_min, best->ratio_max);
	putchar('\n');
}

void bench_blk_print(const struct blk_result *r)
{
	printf("Thousands of requests a second; image in the page cache of %s; driver waits by %s%s;\n"
	       "%u rounds of %.2f s each, taking turns; medians and extremes; CPU: us a request.\n",
	       r->file_system, r->opt->wait == BENCH_POLL ? "polling" : "sleeping",
	       r->opt->logging ? "; dirty logging on" : "", r->opt->rounds, r->slice_s);
	if (r->nbackends > 1)
		puts("Ratio: silt's requests to those of the peer's faster variant, round by round.");
	putchar('\n');
	printf("%5s %7s %-5s %7s %13s %5s", "depth", "size", "op", "silt", "min-max", "CPU");
	if (r->nbackends > 1)
		printf("  %7s %13s %5s %-12s %5s %s", "peer", "min-max", "CPU", "which", "ratio",
		       "min-max");
	putchar('\n');
	for (unsigned int i = 0; i < r->nrows; i++)
		print_row(r, &r->rows[i]);
}

static void print_costs_of(const struct blk_result *r, const struct blk_row *row)
{
	for (unsigned int b = 0; b < r->nbackends; b++) {
		const struct blk_cost *cost = &row->costs[b];

		printf("%5u %3u KiB %-5s %-12s %7.1f %7.1f %8.3f", row->depth, row->bytes / 1024,
		       row->write ? "write" : "read", r->names[b], cost->off / 1e3, cost->on / 1e3,
		       cost->ratio);
		if (cost->bound)
			printf(" %8.3f", cost->bound);
		putchar('\n');
	}
}

void bench_blk_print_costs(const struct blk_result *r)
{
	printf("Thousands of requests a second with dirty logging off and on, medians; image in the\n"
	       "page cache of %s; driver waits by %s; %u pairs of slices of %.3f s, which take turns.\n"
	       "Ratio: time of a request with logging on to that without, pair by pair, the median;\n"
	       "bound: it is not above that with 95 %% confidence (from 5 pairs on).\n\n",
	       r->file_system, r->opt->wait == BENCH_POLL ? "polling" : "sleeping", r->opt->rounds,
	       r->slice_s);
	printf("%5s %7s %-5s %-12s %7s %7s %8s %8s\n", "depth", "size", "op", "backend", "off",
	       "on", "ratio", "bound");
	for (unsigned int i = 0; i < r->nrows; i++)
		print_costs_of(r, &r->rows[i]);
}

static struct json_object *cost_json(const struct blk_result *r, const struct blk_cost *cost,
				     unsigned int backend)
{
	struct json_object *o = json_object_new_object();
	struct json_object *pairs = json_object_new_array();

	json_object_object_add(o, "backend", json_object_new_string(r->names[backend]));
	json_object_object_add(o, "iops_off", json_object_new_double(cost->off));
	json_object_object_add(o, "iops_on", json_object_new_double(cost->on));
	json_object_object_add(o, "ratio", json_object_new_double(cost->ratio));
	if (cost->bound)
		json_object_object_add(o, "bound", json_object_new_double(cost->bound));
	for (unsigned int i = 0; i < r->opt->rounds; i++) {
		struct json_object *pair = json_object_new_array();

		json_object_array_add(pair, json_object_new_double(cost->pairs[i].off));
		json_object_array_add(pair, json_object_new_double(cost->pairs[i].on));
		json_object_array_add(pairs, pair);
	}
	json_object_object_add(o, "pairs", pairs);
	return o;
}

static struct json_object *figure_json(const struct blk_result *r, const struct blk_figure *f,
				       unsigned int backend)
{
	struct json_object *o = json_object_new_object();
	struct json_object *rounds = json_object_new_array();

	json_object_object_add(o, "backend", json_object_new_string(r->names[backend]));
	json_object_object_add(o, "iops", json_object_new_double(f->iops));
	json_object_object_add(o, "iops_min", json_object_new_double(f->min));
	json_object_object_add(o, "iops_max", json_object_new_double(f->max));
	json_object_object_add(o, "cpu_us", json_object_new_double(f->cpu_us));
	for (unsigned int i = 0; i < r->opt->rounds; i++)
		json_object_array_add(rounds, json_object_new_double(f->rounds[i]));
	json_object_object_add(o, "rounds", rounds);
	if (backend) {
		json_object_object_add(o, "ratio", json_object_new_double(f->ratio));
		json_object_object_add(o, "ratio_min", json_object_new_double(f->ratio_min));
		json_object_object_add(o, "ratio_max", json_object_new_double(f->ratio_max));
	}
	return o;
}

static struct json_object *row_json(const struct blk_result *r, const struct blk_row *row)
{
	struct json_object *o = json_object_new_object();
	struct json_object *figures = json_object_new_array();

	json_object_object_add(o, "depth", json_object_new_int(row->depth));
	json_object_object_add(o, "bytes", json_object_new_int(row->bytes));
	json_object_object_add(o, "op", json_object_new_string(row->write ? "write" : "read"));
	if (row->best) {
		const struct blk_figure *best = &row->figures[row->best];

		json_object_object_add(o, "peer", json_object_new_string(r->names[row->best]));
		json_object_object_add(o, "ratio", json_object_new_double(best->ratio));
	}
	for (unsigned int b = 0; b < r->nbackends; b++)
		json_object_array_add(figures, r->opt->log_cost
						       ? cost_json(r, &row->costs[b], b)
						       : figure_json(r, &row->figures[b], b));
	json_object_object_add(o, "backends", figures);
	return o;
}

int bench_blk_write_json(const struct blk_result *r, const char *path)
{
	struct json_object *o = json_object_new_object();
	struct json_object *rows = json_object_new_array();
	int ret = 0;

	json_object_object_add(o, "silt", json_object_new_string(SILT_VERSION));
	json_object_object_add(o, "schema", json_object_new_int(1));
	json_object_object_add(o, "result", json_object_new_string("pass"));
	json_object_object_add(o, "benchmark", json_object_new_string("blk"));
	json_object_object_add(o, "file_system", json_object_new_string(r->file_system));
	json_object_object_add(o, "wait", json_object_new_string(wait_name(r->opt->wait)));
	json_object_object_add(o, "logging", json_object_new_boolean(r->opt->logging));
	json_object_object_add(o, "log_cost", json_object_new_boolean(r->opt->log_cost));
	json_object_object_add(o, "slice_s", json_object_new_double(r->slice_s));
	for (unsigned int i = 0; i < r->nrows; i++)
		json_object_array_add(rows, row_json(r, &r->rows[i]));
	json_object_object_add(o, "rows", rows);
	if (json_object_to_file_ext(path, o, JSON_C_TO_STRING_PRETTY) < 0)
		ret = silt_err_sys(errno, "%s cannot be written", path);
	json_object_put(o);
	return ret;
}
