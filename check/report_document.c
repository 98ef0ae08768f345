/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "check/file.h"
#include "check/report.h"
#include "check/report_write.h"
#include "check/text.h"

#define SCHEMA 1

struct check_document {
	uint64_t seed;
	json_object *backend;
	json_object *scenarios;
	json_object *cost; /* NULL if it was not measured */
	json_object *top;  /* all of it, once the run has ended */
	bool failed;	   /* out of memory somewhere */
};

/* @value is owned by @object afterwards. NULL stands for a failed allocation. */
static void add(struct check_document *d, json_object *object, const char *key, json_object *value)
{
	if (!object || !value || json_object_object_add(object, key, value) < 0) {
		d->failed = true;
		json_object_put(value);
	}
}

static void append(struct check_document *d, json_object *array, json_object *value)
{
	if (!array || !value || json_object_array_add(array, value) < 0) {
		d->failed = true;
		json_object_put(value);
	}
}

static void add_text(struct check_document *d, json_object *object, const char *key,
		     const char *text)
{
	char *clean = check_text_clean(text ? text : "");

	add(d, object, key, clean ? json_object_new_string(clean) : NULL);
	free(clean);
}

static void add_count(struct check_document *d, json_object *object, const char *key,
		      uint64_t value)
{
	add(d, object, key, json_object_new_uint64(value));
}

static void add_bool(struct check_document *d, json_object *object, const char *key, bool value)
{
	add(d, object, key, json_object_new_boolean(value));
}

/* To the millisecond: more would only be noise. */
static void add_seconds(struct check_document *d, json_object *object, double seconds)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", seconds);
	add(d, object, "seconds", json_object_new_double_s(seconds, text));
}

/* Addresses and bit masks as text: many programs that read JSON round numbers above 2^53. */
static void add_hex(struct check_document *d, json_object *object, const char *key, uint64_t value)
{
	char text[2 + 16 + 1];

	snprintf(text, sizeof(text), "0x%" PRIx64, value);
	add_text(d, object, key, text);
}

static void start(void *arg, const struct check_options *opt, const struct check_backend_info *info,
		  unsigned int nscenarios)
{
	struct check_document *d = arg;
	json_object *backend = json_object_new_object();

	(void)opt;
	(void)nscenarios;
	add_text(d, backend, "target", info->target);
	add_text(d, backend, "device", info->device);
	add_hex(d, backend, "features", info->features);
	add_hex(d, backend, "protocol_features", info->protocol_features);
	add_count(d, backend, "queues", info->queues);
	add_count(d, backend, "capacity", info->capacity);
	add_bool(d, backend, "read_only", info->read_only);
	json_object_put(d->backend);
	d->backend = backend;
}

static json_object *axes_object(struct check_document *d, const struct check_outcome *o)
{
	json_object *axes = json_object_new_object();

	for (unsigned int i = 0; i < o->naxes; i++)
		add_text(d, axes, o->axes[i].name, o->axes[i].value);
	return axes;
}

static json_object *page_object(struct check_document *d, const struct check_page *page)
{
	json_object *object = json_object_new_object();

	add_hex(d, object, "gpa", page->gpa);
	add_text(d, object, "class", check_class_name(page->class));
	add_text(d, object, "what", page->what);
	add_text(d, object, "request", page->request);
	add_text(d, object, "consequence", page->consequence);
	return object;
}

static json_object *pages_array(struct check_document *d, const struct check_outcome *o)
{
	json_object *pages = json_object_new_array();

	for (unsigned int i = 0; i < o->npages; i++)
		append(d, pages, page_object(d, &o->pages[i]));
	return pages;
}

static json_object *stretch_object(struct check_document *d, const struct check_stretch *stretch)
{
	json_object *object = json_object_new_object();

	add_hex(d, object, "gpa", stretch->gpa);
	add_count(d, object, "pages", stretch->pages);
	add_text(d, object, "state", check_page_state_name(stretch->state));
	add_text(d, object, "what", stretch->what);
	return object;
}

static json_object *strip_array(struct check_document *d, const struct check_outcome *o)
{
	json_object *strip = json_object_new_array();

	for (unsigned int i = 0; i < o->nstrip; i++)
		append(d, strip, stretch_object(d, &o->strip[i]));
	return strip;
}

static void outcome(void *arg, const struct check_outcome *o)
{
	struct check_document *d = arg;
	json_object *object = json_object_new_object();

	add_text(d, object, "name", o->name);
	add_text(d, object, "mode", o->mode);
	add(d, object, "axes", axes_object(d, o));
	add_text(d, object, "result", check_result_name(o->result));
	if (o->verdict)
		add_text(d, object, "verdict", check_verdict_name(o->verdict));
	add_bool(d, object, "known", o->known);
	add_text(d, object, "reason", o->reason);
	add_count(d, object, "changed", o->changed);
	add_count(d, object, "logged", o->logged);
	add_count(d, object, "missed", o->missed);
	add_count(d, object, "extra", o->extra);
	add_count(d, object, "stale", o->stale);
	add_count(d, object, "late", o->late);
	add_count(d, object, "ignored", o->ignored);
	add_count(d, object, "ambiguous", o->ambiguous);
	add_seconds(d, object, o->seconds);
	add(d, object, "pages", pages_array(d, o));
	add(d, object, "strip", strip_array(d, o));
	add_text(d, object, "repro", o->repro);
	append(d, d->scenarios, object);
}

static void add_number(struct check_document *d, json_object *object, const char *key, double value)
{
	add(d, object, key, json_object_new_double(value));
}

static json_object *slices_array(struct check_document *d, const struct check_cost *cost)
{
	json_object *slices = json_object_new_array();

	for (unsigned int i = 0; i < cost->nslices; i++) {
		const struct check_cost_slice *slice = &cost->slices[i];
		json_object *object = json_object_new_object();

		add_number(d, object, "at", slice->at);
		add_number(d, object, "seconds", slice->seconds);
		add_bool(d, object, "logging", slice->logging);
		add_count(d, object, "requests", slice->requests);
		append(d, slices, object);
	}
	return slices;
}

static void cost(void *arg, const struct check_cost *c)
{
	struct check_document *d = arg;
	json_object *object = json_object_new_object();
	char meaning[CHECK_MEANING_LEN];

	if (c->failed) {
		add_text(d, object, "failed", c->failed);
	} else {
		check_cost_meaning(c, meaning, sizeof(meaning));
		add_text(d, object, "requests", c->requests);
		add_number(d, object, "off_per_second", c->off);
		add_number(d, object, "on_per_second", c->on);
		add_number(d, object, "share", check_cost_share(c));
		add_count(d, object, "changed", c->changed);
		add_count(d, object, "marked", c->marked);
		add_number(d, object, "marked_per_changed", check_cost_marked_ratio(c));
		add_text(d, object, "meaning", meaning);
		add(d, object, "slices", slices_array(d, c));
	}
	json_object_put(d->cost);
	d->cost = object;
}

int check_document_create(uint64_t seed, struct check_document **out)
{
	struct check_document *d = calloc(1, sizeof(*d));

	*out = d;
	if (!d)
		return silt_err_sys(ENOMEM, "cannot make a report");
	d->seed = seed;
	d->backend = json_object_new_object();
	d->scenarios = json_object_new_array();
	if (d->backend && d->scenarios)
		return 0;
	check_document_destroy(d);
	*out = NULL;
	return silt_err_sys(ENOMEM, "cannot make a report");
}

struct check_reporter check_document_entry(struct check_document *d)
{
	return (struct check_reporter){.arg = d, .start = start, .outcome = outcome, .cost = cost};
}

int check_document_end(struct check_document *d, const struct check_totals *totals,
		       const char *reason)
{
	json_object *top = json_object_new_object();
	enum check_result result = totals ? check_report_verdict(totals) : CHECK_ERROR;

	add_text(d, top, "silt", SILT_VERSION);
	add_count(d, top, "schema", SCHEMA);
	add_text(d, top, "result", check_result_name(result));
	if (!totals)
		add_text(d, top, "reason", reason);
	add_count(d, top, "seed", d->seed);
	add_seconds(d, top, totals ? totals->seconds : 0);
	add(d, top, "backend", json_object_get(d->backend));
	add(d, top, "scenarios", json_object_get(d->scenarios));
	if (d->cost)
		add(d, top, "cost", json_object_get(d->cost));
	add_count(d, top, "missed_pages", totals ? totals->missed_pages : 0);
	json_object_put(d->top);
	d->top = top;
	return d->failed ? silt_err_sys(ENOMEM, "cannot make a report") : 0;
}

int check_document_save(const struct check_document *d, enum check_format format, const char *path)
{
	static int (*const writers[CHECK_FORMATS])(json_object *, FILE *) = {
		[CHECK_JSON] = check_write_json,
		[CHECK_TAP] = check_write_tap,
		[CHECK_JUNIT] = check_write_junit,
		[CHECK_HTML] = check_write_html,
	};
	struct check_file file;
	int ret = check_file_open(path, &file);

	if (ret < 0)
		return ret;
	ret = writers[format](d->top, file.out);
	if (ret == 0)
		return check_file_commit(&file);
	check_file_abandon(&file);
	return silt_err_sys(-ret, "cannot write %s", path);
}

void check_document_destroy(struct check_document *d)
{
	if (!d)
		return;
	json_object_put(d->backend);
	json_object_put(d->scenarios);
	json_object_put(d->cost);
	json_object_put(d->top);
	free(d);
}
