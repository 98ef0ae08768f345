/* SPDX-License-Identifier: BSD-3-Clause */
#include <json-c/json.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check/text.h"
#include "demo/report.h"

#define SCHEMA 1

/* @value is owned by @object afterwards. NULL stands for a failed allocation. */
static bool add(json_object *object, const char *key, json_object *value)
{
	if (object && value && !json_object_object_add(object, key, value))
		return true;
	json_object_put(value);
	return false;
}

/* Return: @value, or NULL, which has no members. */
static json_object *attach(json_object *object, const char *key, json_object *value)
{
	return add(object, key, value) ? value : NULL;
}

static bool append(json_object *array, json_object *value)
{
	if (array && value && !json_object_array_add(array, value))
		return true;
	json_object_put(value);
	return false;
}

static bool add_count(json_object *object, const char *key, uint64_t value)
{
	return add(object, key, json_object_new_uint64(value));
}

static bool add_ms(json_object *object, const char *key, uint64_t ns)
{
	return add(object, key, json_object_new_double((double)ns / 1e6));
}

static bool add_text(json_object *object, const char *key, const char *text)
{
	char *clean = check_text_clean(text);
	bool ok = add(object, key, clean ? json_object_new_string(clean) : NULL);

	free(clean);
	return ok;
}

static bool add_hash(json_object *object, const char *key, const struct ram_hash *hash)
{
	char text[33];

	return add_text(object, key, report_hash_text(hash, text));
}

static bool fill_guest(json_object *o, const struct report *r)
{
	const struct machine_config *c = &r->machine->config;

	return add_count(o, "memory", c->memory) && add_count(o, "vcpus", c->vcpus) &&
	       add(o, "kvm", json_object_new_boolean(c->kvm)) &&
	       add_text(o, "tracked_by", vm_sources(r->machine->vm)) &&
	       add_text(o, "pattern", report_pattern_name(r->opt->pattern)) &&
	       add_count(o, "rate", r->opt->rate) && add_count(o, "disk_rate", c->disk_rate) &&
	       add_count(o, "seed", c->seed);
}

static bool fill_goals(json_object *o, const struct report *r)
{
	const struct silt_precopy_goals *g = &r->opt->goals;

	return add_ms(o, "downtime_ms", g->downtime_ns) &&
	       add_ms(o, "deadline_ms", g->deadline_ns) && add_count(o, "bandwidth", g->bandwidth);
}

static bool fill_sync(json_object *o, const struct silt_precopy_round *round)
{
	const struct silt_sync_stats *s = &round->sync;

	return add_ms(o, "total_ms", round->sync_ns) && add_ms(o, "get_ms", s->get_ns) &&
	       add_ms(o, "merge_ms", s->merge_ns) && add_ms(o, "misaligned_ms", s->misaligned_ns) &&
	       add_ms(o, "log_ms", s->log_ns) && add_ms(o, "ring_ms", s->ring_ns) &&
	       add_ms(o, "pagemap_ms", s->pagemap_ns) && add_ms(o, "own_ms", s->own_ns);
}

static bool fill_forecast(json_object *o, const struct silt_precopy_forecast *f)
{
	return add_text(o, "verdict", report_verdict_name(f->verdict)) &&
	       add_ms(o, "end_ms", f->end_ns) && add_ms(o, "end_low_ms", f->end_low_ns) &&
	       add_ms(o, "end_high_ms", f->end_high_ns) &&
	       add_ms(o, "downtime_ms", f->downtime_ns) &&
	       add_ms(o, "downtime_low_ms", f->downtime_low_ns) &&
	       add_ms(o, "downtime_high_ms", f->downtime_high_ns) &&
	       add_ms(o, "floor_ms", f->floor_ns) && add_ms(o, "now_ms", f->now_ns) &&
	       add(o, "dirty_rate", json_object_new_double(f->dirty_rate)) &&
	       add(o, "working_set", json_object_new_double(f->working_set)) &&
	       add(o, "bandwidth", json_object_new_double(f->bandwidth));
}

static bool fill_taken(json_object *array, const struct report *r, const struct report_row *row)
{
	unsigned int i;
	bool ok = true;

	for (i = 0; i < r->ncolumns && ok; i++)
		ok = append(array, json_object_new_int64(row->taken[i]));
	return ok;
}

static bool fill_row(json_object *o, const struct report *r, const struct report_row *row)
{
	const struct silt_precopy_round *round = &row->round;
	json_object *sync = attach(o, "sync", json_object_new_object());
	json_object *forecast = attach(o, "forecast", json_object_new_object());
	json_object *taken = attach(o, "taken", json_object_new_array());

	return taken && add_count(o, "round", round->round) &&
	       add(o, "last", json_object_new_boolean(round->last)) &&
	       add_ms(o, "began_ms", round->began_ns) && add_ms(o, "total_ms", round->total_ns) &&
	       add_ms(o, "clear_ms", round->clear_ns) && add_ms(o, "scan_ms", round->scan_ns) &&
	       add_ms(o, "send_ms", round->send_ns) && add_ms(o, "rtt_ms", round->rtt_ns) &&
	       add_count(o, "pages", round->pages) &&
	       add_count(o, "zero_pages", round->zero_pages) &&
	       add_count(o, "bytes", round->bytes) && add_count(o, "new_pages", round->new_pages) &&
	       add_count(o, "dirty_pages", round->dirty_pages) &&
	       add_count(o, "throttle", round->throttle) && fill_sync(sync, round) &&
	       fill_forecast(forecast, &round->forecast) && fill_taken(taken, r, row);
}

static bool fill_rows(json_object *array, const struct report *r)
{
	json_object *row;
	bool ok = true;
	size_t i;

	for (i = 0; i < r->nrows && ok; i++) {
		row = json_object_new_object();
		ok = append(array, row) && fill_row(row, r, &r->rows[i]);
	}
	return ok;
}

static bool fill_columns(json_object *array, const struct report *r)
{
	json_object *o;
	bool ok = true;
	unsigned int i;
	char name[16];

	for (i = 0; i < r->ncolumns && ok; i++) {
		const struct report_column *c = &r->columns[i];

		o = json_object_new_object();
		ok = append(array, o) &&
		     add_text(o, "block", r->machine->ram.blocks[c->block].name) &&
		     add_text(o, "owner", report_owner_name(c->owner, name)) &&
		     add_count(o, "first", c->first) && add_count(o, "pages", c->pages);
	}
	return ok;
}

static bool fill_switchover(json_object *o, const struct report *r)
{
	const struct silt_precopy_result *t = &r->result;

	return add_ms(o, "pause_ms", t->pause_ns) && add_ms(o, "save_ms", t->save_ns) &&
	       add_ms(o, "sync_ms", t->sync_ns) && add_ms(o, "send_ms", t->send_ns) &&
	       add_ms(o, "load_ms", t->load_ns) && add_ms(o, "start_ms", t->start_ns) &&
	       add_ms(o, "hash_ms", r->there.hash_ns) &&
	       add_count(o, "state_bytes", t->state_bytes);
}

static bool fill_counters(json_object *o, const struct link_outcome *there)
{
	return add_count(o, "writes", there->counts.writes) &&
	       add_count(o, "reads", there->counts.reads) &&
	       add(o, "wrong_pages", json_object_new_int64(there->wrong)) &&
	       add_count(o, "writes_later", there->counts_later.writes) &&
	       add_count(o, "reads_later", there->counts_later.reads) &&
	       add(o, "wrong_pages_later", json_object_new_int64(there->wrong_later));
}

static bool fill_result(json_object *o, const struct report *r)
{
	const struct silt_precopy_result *t = &r->result;

	return add_count(o, "schema", SCHEMA) &&
	       add_text(o, "result", report_outcome_name(r->outcome)) &&
	       add_text(o, "reason", r->reason) && add_count(o, "rounds", t->rounds) &&
	       add_ms(o, "total_ms", t->total_ns) &&
	       add_ms(o, "downtime_ms",
		      t->downtime_ns > r->there.hash_ns ? t->downtime_ns - r->there.hash_ns : 0) &&
	       add_ms(o, "expected_downtime_ms", t->expected_downtime_ns) &&
	       add_count(o, "pages_sent", t->pages) && add_count(o, "zero_pages", t->zero_pages) &&
	       add_count(o, "bytes_sent", t->bytes) &&
	       add_hash(o, "source_hash", &r->source_hash) &&
	       add_hash(o, "destination_hash", &r->there.hash);
}

static bool fill(json_object *o, const struct report *r)
{
	bool ok = fill_result(o, r);
	json_object *guest = attach(o, "guest", json_object_new_object());
	json_object *goals = attach(o, "goals", json_object_new_object());
	json_object *switchover = attach(o, "switchover", json_object_new_object());
	json_object *counters = attach(o, "counters", json_object_new_object());
	json_object *columns = attach(o, "columns", json_object_new_array());
	json_object *rows = attach(o, "rows", json_object_new_array());

	return ok && fill_guest(guest, r) && fill_goals(goals, r) &&
	       fill_switchover(switchover, r) && fill_counters(counters, &r->there) && columns &&
	       rows && fill_columns(columns, r) && fill_rows(rows, r);
}

char *report_json(const struct report *r)
{
	json_object *o = json_object_new_object();
	char *text = NULL;

	/* A slash is written with a backslash: so no text ends a script in a page. */
	if (o && fill(o, r))
		text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	json_object_put(o);
	return text;
}
