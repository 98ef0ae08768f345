/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>

#include "base/err.h"
#include "bench/log.h"

static void print_ns(double ns)
{
	printf(ns < 100 ? " %7.2f" : " %7.0f", ns);
}

static void print_row(const struct log_row *row)
{
	const struct log_figure *silt = &row->figures[LOG_SILT];
	unsigned int v;

	printf("%-17s", row->c->name);
	for (v = 0; v < LOG_VARIANTS; v++)
		print_ns(row->figures[v].ns);
	print_ns(silt->min);
	print_ns(silt->max);
	print_ns(silt->adds);
	printf(" %-6s %6.2f\n", log_variants[row->best].name, silt->ratio);
}

void log_result_print(const struct log_result *r)
{
	unsigned int i;

	printf("ns for a range (desc: a descriptor), data stores included; medians of rounds in which "
	       "all ways take turns.\n"
	       "/1: flushed after each range, /32: after 32. min, max and adds (to none) are silt's;\n"
	       "ratio: silt's to the best safe other's, round by round. Load average %.1f.\n",
	       r->load);
	puts(r->opt->replaced
		     ? "silt's writers have met a log that was truncated, and got another.\n"
		     : "");
	printf("%-17s", "case");
	for (i = 0; i < LOG_VARIANTS; i++)
		printf(" %7s", log_variants[i].name);
	printf(" %7s %7s %7s %-6s %6s\n", "min", "max", "adds", "best", "ratio");
	for (i = 0; i < r->nrows; i++)
		print_row(&r->rows[i]);
}

static void add_double(struct json_object *o, const char *key, double value)
{
	json_object_object_add(o, key, json_object_new_double(value));
}

static struct json_object *figure_json(const struct log_row *row, unsigned int variant)
{
	const struct log_figure *f = &row->figures[variant];
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "case", json_object_new_string(row->c->name));
	json_object_object_add(o, "variant", json_object_new_string(log_variants[variant].name));
	add_double(o, "ns", f->ns);
	add_double(o, "min_ns", f->min);
	add_double(o, "max_ns", f->max);
	add_double(o, "adds_ns", f->adds);
	add_double(o, "ratio", f->ratio);
	json_object_object_add(o, "rounds", json_object_new_int((int)row->rounds));
	return o;
}

int log_result_write_json(const struct log_result *r, const char *path)
{
	struct json_object *o = json_object_new_object();
	struct json_object *rows = json_object_new_array();
	unsigned int i, v;
	int ret = 0;

	json_object_object_add(o, "silt", json_object_new_string(SILT_VERSION));
	json_object_object_add(o, "schema", json_object_new_int(1));
	json_object_object_add(o, "result", json_object_new_string("pass"));
	json_object_object_add(o, "benchmark", json_object_new_string("log"));
	json_object_object_add(o, "replaced", json_object_new_boolean(r->opt->replaced));
	add_double(o, "load", r->load);
	for (i = 0; i < r->nrows; i++) {
		for (v = 0; v < LOG_VARIANTS; v++)
			json_object_array_add(rows, figure_json(&r->rows[i], v));
	}
	json_object_object_add(o, "rows", rows);
	if (json_object_to_file_ext(path, o, JSON_C_TO_STRING_PRETTY) < 0)
		ret = silt_err_sys(errno, "%s cannot be written", path);
	json_object_put(o);
	return ret;
}
