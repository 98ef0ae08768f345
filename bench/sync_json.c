/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <json-c/json.h>

#include "base/err.h"
#include "bench/sync.h"

static void add_string(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static void add_number(struct json_object *o, const char *key, double value)
{
	json_object_object_add(o, key, json_object_new_double(value));
}

static void add_count(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_int64((int64_t)value));
}

/* null where it was not measured. */
static void add_figure(struct json_object *o, const char *key, const struct sync_figure *f)
{
	json_object_object_add(o, key, f->rounds ? json_object_new_double(f->ms) : NULL);
}

/* Minima and maxima, and each way's ratio to silt, round by round. */
static void add_spread(struct json_object *o, const struct sync_row *row)
{
	static const char *const keys[SYNC_WAYS][3] = {
		{"silt_min_ms", "silt_max_ms", NULL},
		{"limit_min_ms", "limit_max_ms", "limit_ratio"},
		{"merged_min_ms", "merged_max_ms", "merged_ratio"},
		{"per_page_min_ms", "per_page_max_ms", "per_page_ratio"},
	};
	const struct sync_figure *f = row->figures;
	unsigned int way;

	for (way = 0; way < SYNC_WAYS; way++) {
		if (!f[way].rounds)
			continue;
		add_number(o, keys[way][0], f[way].min);
		add_number(o, keys[way][1], f[way].max);
		if (keys[way][2])
			add_number(o, keys[way][2], f[way].ratio);
	}
	add_count(o, "rounds", f[SYNC_SILT].rounds);
}

static struct json_object *row_json(const struct sync_result *r, const struct sync_row *row)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "topology", r->topology->name);
	add_string(o, "pattern", sync_pattern_name(row->pattern));
	add_string(o, "step", row->step);
	add_figure(o, "silt_ms", &row->figures[SYNC_SILT]);
	add_figure(o, "limit_ms", &row->figures[SYNC_LIMIT]);
	add_figure(o, "merged_ms", &row->figures[SYNC_MERGED]);
	add_figure(o, "per_page_ms", &row->figures[SYNC_PER_PAGE]);
	add_count(o, "clears", row->clears[SYNC_SILT]);
	add_count(o, "merged_clears", row->clears[SYNC_MERGED]);
	add_count(o, "per_page_clears", row->clears[SYNC_PER_PAGE]);
	add_number(o, "longest_ioctl_us", row->longest_us);
	add_spread(o, row);
	return o;
}

static struct json_object *chunking_json(const struct sync_chunking *c)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "pattern", sync_pattern_name(c->pattern));
	add_string(o, "plan", c->chunk_pages ? "chunks" : "silt");
	add_count(o, "chunk_pages", c->chunk_pages);
	add_number(o, "ms", c->ms);
	add_count(o, "clears", c->clears);
	add_number(o, "longest_ioctl_us", c->longest_us);
	return o;
}

static struct json_object *scale_json(const struct sync_scale *s)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "topology", s->topology);
	add_count(o, "threads", s->threads);
	add_figure(o, "silt_ms", &s->silt);
	add_figure(o, "limit_ms", &s->limit);
	add_number(o, "silt_min_ms", s->silt.min);
	add_number(o, "limit_min_ms", s->limit.min);
	add_number(o, "limit_ratio", s->limit.ratio);
	return o;
}

static struct json_object *dirty_json(const struct sync_result *r)
{
	struct json_object *o = json_object_new_object();
	enum sync_pattern p;

	for (p = 0; p < SYNC_PATTERNS; p++) {
		if (!r->opt->pattern || r->dirty[p])
			add_count(o, sync_pattern_name(p), r->dirty[p]);
	}
	return o;
}

static void add_arrays(struct json_object *o, const struct sync_result *r)
{
	struct json_object *rows = json_object_new_array(), *chunkings = json_object_new_array();
	struct json_object *scales = json_object_new_array();
	unsigned int i;

	for (i = 0; i < r->nrows; i++)
		json_object_array_add(rows, row_json(r, &r->rows[i]));
	for (i = 0; i < r->nchunkings; i++)
		json_object_array_add(chunkings, chunking_json(&r->chunkings[i]));
	for (i = 0; i < r->nscales; i++)
		json_object_array_add(scales, scale_json(&r->scales[i]));
	json_object_object_add(o, "rows", rows);
	json_object_object_add(o, "chunking", chunkings);
	json_object_object_add(o, "scaling", scales);
}

int sync_result_write_json(const struct sync_result *r, const char *path)
{
	struct json_object *o = json_object_new_object();
	int ret = 0;

	add_string(o, "silt", SILT_VERSION);
	add_count(o, "schema", 1);
	add_string(o, "result", "pass");
	add_string(o, "benchmark", "sync");
	json_object_object_add(o, "kvm", json_object_new_boolean(r->kvm));
	json_object_object_add(o, "clear_cost_measured", json_object_new_boolean(r->cost.measured));
	add_number(o, "clear_call_us", r->cost.call_ns / 1e3);
	add_number(o, "clear_page_us", r->cost.page_ns / 1e3);
	json_object_object_add(o, "dirty_pages", dirty_json(r));
	add_arrays(o, r);
	if (json_object_to_file_ext(path, o, JSON_C_TO_STRING_PRETTY) < 0)
		ret = silt_err_sys(errno, "%s cannot be written", path);
	json_object_put(o);
	return ret;
}
