/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>

#include "base/err.h"
#include "bench/precopy.h"

#define MIB 1048576.0

static void print_sizes(const struct precopy_bench *b)
{
	unsigned int i;

	printf("\n%8s %10s\n", "GiB", "s");
	for (i = 0; i < b->nsizes; i++)
		printf("%8" PRIu64 " %10.3f\n", b->sizes[i].gib, b->sizes[i].seconds);
	printf("a straight line through them: r^2 %.5f\n", b->r2);
}

void precopy_bench_print(const struct precopy_bench *b)
{
	unsigned int i;

	printf("MB of guest memory a second over TCP, loopback, both ends on this machine: medians of\n"
	       "rounds in which the ways take turns. plain: writev() and read(), 256 KiB at a time;\n"
	       "ratio: silt to it, round by round. %" PRIu64 " MiB of memory.\n\n",
	       b->opt->mib);
	printf("%-8s %6s %8s %8s %8s %8s %8s %8s %7s\n", "memory", "rounds", "silt", "min", "max",
	       "plain", "min", "max", "ratio");
	for (i = 0; i < b->nrows; i++) {
		const struct precopy_row *r = &b->rows[i];

		printf("%-8s %6u %8.0f %8.0f %8.0f %8.0f %8.0f %8.0f %7.2f\n", r->name, r->rounds,
		       r->silt.median, r->silt.min, r->silt.max, r->plain.median, r->plain.min,
		       r->plain.max, r->ratio);
	}
	if (b->peak_of)
		printf("\nmemory taken by both ends beside %.0f MiB of the guest's: %.1f MiB, bitmaps "
		       "included\n",
		       (double)b->peak_of / MIB, (double)b->peak_bytes / MIB);
	if (b->nsizes)
		print_sizes(b);
}

static void add_double(struct json_object *o, const char *key, double value)
{
	json_object_object_add(o, key, json_object_new_double(value));
}

static void add_number(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_int64((int64_t)value));
}

static struct json_object *spread_json(const struct precopy_spread *s)
{
	struct json_object *o = json_object_new_object();

	add_double(o, "median", s->median);
	add_double(o, "min", s->min);
	add_double(o, "max", s->max);
	return o;
}

static struct json_object *rows_json(const struct precopy_bench *b)
{
	struct json_object *rows = json_object_new_array(), *o;
	unsigned int i;

	for (i = 0; i < b->nrows; i++) {
		o = json_object_new_object();
		json_object_object_add(o, "memory", json_object_new_string(b->rows[i].name));
		add_number(o, "rounds", b->rows[i].rounds);
		json_object_object_add(o, "silt_mb_s", spread_json(&b->rows[i].silt));
		json_object_object_add(o, "plain_mb_s", spread_json(&b->rows[i].plain));
		add_double(o, "ratio", b->rows[i].ratio);
		json_object_array_add(rows, o);
	}
	return rows;
}

static struct json_object *sizes_json(const struct precopy_bench *b)
{
	struct json_object *sizes = json_object_new_array(), *o;
	unsigned int i;

	for (i = 0; i < b->nsizes; i++) {
		o = json_object_new_object();
		add_number(o, "gib", b->sizes[i].gib);
		add_double(o, "seconds", b->sizes[i].seconds);
		json_object_array_add(sizes, o);
	}
	return sizes;
}

int precopy_bench_write_json(const struct precopy_bench *b, const char *path)
{
	struct json_object *o = json_object_new_object();
	int ret = 0;

	json_object_object_add(o, "silt", json_object_new_string(SILT_VERSION));
	json_object_object_add(o, "schema", json_object_new_int(1));
	json_object_object_add(o, "result", json_object_new_string("pass"));
	json_object_object_add(o, "benchmark", json_object_new_string("precopy"));
	add_number(o, "memory_mib", b->opt->mib);
	json_object_object_add(o, "rows", rows_json(b));
	if (b->peak_of) {
		add_number(o, "peak_bytes", b->peak_bytes);
		add_number(o, "peak_of_bytes", b->peak_of);
	}
	if (b->nsizes) {
		json_object_object_add(o, "sizes", sizes_json(b));
		add_double(o, "r2", b->r2);
	}
	if (json_object_to_file_ext(path, o, JSON_C_TO_STRING_PRETTY) < 0)
		ret = silt_err_sys(errno, "%s cannot be written", path);
	json_object_put(o);
	return ret;
}
