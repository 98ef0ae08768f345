/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "check/file.h"
#include "check/report.h"
#include "check/text.h"

#define SCHEMA 1

struct check_json {
	uint64_t seed;
	json_object *backend;
	json_object *scenarios;
	bool failed; /* out of memory somewhere */
};

/* @value is owned by @object afterwards. NULL stands for a failed allocation. */
static void add(struct check_json *j, json_object *object, const char *key, json_object *value)
{
	if (!object || !value || json_object_object_add(object, key, value) < 0) {
		j->failed = true;
		json_object_put(value);
	}
}

static void append(struct check_json *j, json_object *array, json_object *value)
{
	if (!array || !value || json_object_array_add(array, value) < 0) {
		j->failed = true;
		json_object_put(value);
	}
}

static void add_text(struct check_json *j, json_object *object, const char *key, const char *text)
{
	char *clean = check_text_clean(text ? text : "");

	add(j, object, key, clean ? json_object_new_string(clean) : NULL);
	free(clean);
}

static void add_count(struct check_json *j, json_object *object, const char *key, uint64_t value)
{
	add(j, object, key, json_object_new_uint64(value));
}

static void add_bool(struct check_json *j, json_object *object, const char *key, bool value)
{
	add(j, object, key, json_object_new_boolean(value));
}

/* Addresses and bit masks as text: many programs that read JSON round numbers above 2^53. */
static void add_hex(struct check_json *j, json_object *object, const char *key, uint64_t value)
{
	char text[2 + 16 + 1];

	snprintf(text, sizeof(text), "0x%" PRIx64, value);
	add_text(j, object, key, text);
}

static void start(void *arg, const struct check_options *opt, const struct check_backend_info *info,
		  unsigned int nscenarios)
{
	struct check_json *j = arg;
	json_object *backend = json_object_new_object();

	(void)opt;
	(void)nscenarios;
	add_text(j, backend, "target", info->target);
	add_text(j, backend, "device", info->device);
	add_hex(j, backend, "features", info->features);
	add_hex(j, backend, "protocol_features", info->protocol_features);
	add_count(j, backend, "queues", info->queues);
	add_count(j, backend, "capacity", info->capacity);
	add_bool(j, backend, "read_only", info->read_only);
	json_object_put(j->backend);
	j->backend = backend;
}

static json_object *axes_object(struct check_json *j, const struct check_outcome *o)
{
	json_object *axes = json_object_new_object();

	for (unsigned int i = 0; i < o->naxes; i++)
		add_text(j, axes, o->axes[i].name, o->axes[i].value);
	return axes;
}

static json_object *page_object(struct check_json *j, const struct check_page *page)
{
	json_object *object = json_object_new_object();

	add_hex(j, object, "gpa", page->gpa);
	add_text(j, object, "class", check_class_name(page->class));
	add_text(j, object, "what", page->what);
	add_text(j, object, "request", page->request);
	return object;
}

static json_object *pages_array(struct check_json *j, const struct check_outcome *o)
{
	json_object *pages = json_object_new_array();

	for (unsigned int i = 0; i < o->npages; i++)
		append(j, pages, page_object(j, &o->pages[i]));
	return pages;
}

static void outcome(void *arg, const struct check_outcome *o)
{
	struct check_json *j = arg;
	json_object *object = json_object_new_object();

	add_text(j, object, "name", o->name);
	add_text(j, object, "mode", o->mode);
	add(j, object, "axes", axes_object(j, o));
	add_text(j, object, "result", check_result_name(o->result));
	if (o->verdict)
		add_text(j, object, "verdict", check_verdict_name(o->verdict));
	add_bool(j, object, "known", o->known);
	add_text(j, object, "reason", o->reason);
	add_count(j, object, "changed", o->changed);
	add_count(j, object, "logged", o->logged);
	add_count(j, object, "missed", o->missed);
	add_count(j, object, "extra", o->extra);
	add_count(j, object, "stale", o->stale);
	add_count(j, object, "late", o->late);
	add_count(j, object, "ignored", o->ignored);
	add(j, object, "pages", pages_array(j, o));
	add_text(j, object, "repro", o->repro);
	append(j, j->scenarios, object);
}

int check_json_create(uint64_t seed, struct check_json **out)
{
	struct check_json *j = calloc(1, sizeof(*j));

	*out = j;
	if (!j)
		return silt_err_sys(ENOMEM, "cannot make a JSON report");
	j->seed = seed;
	j->backend = json_object_new_object();
	j->scenarios = json_object_new_array();
	if (j->backend && j->scenarios)
		return 0;
	check_json_destroy(j);
	*out = NULL;
	return silt_err_sys(ENOMEM, "cannot make a JSON report");
}

struct check_reporter check_json_entry(struct check_json *j)
{
	return (struct check_reporter){.arg = j, .start = start, .outcome = outcome};
}

static json_object *envelope(struct check_json *j, const struct check_totals *totals,
			     const char *reason)
{
	json_object *top = json_object_new_object();
	enum check_result result = totals ? check_report_verdict(totals) : CHECK_ERROR;

	add_text(j, top, "silt", SILT_VERSION);
	add_count(j, top, "schema", SCHEMA);
	add_text(j, top, "result", check_result_name(result));
	if (!totals)
		add_text(j, top, "reason", reason);
	add_count(j, top, "seed", j->seed);
	add(j, top, "backend", json_object_get(j->backend));
	add(j, top, "scenarios", json_object_get(j->scenarios));
	add_count(j, top, "missed_pages", totals ? totals->missed_pages : 0);
	return top;
}

int check_json_save(struct check_json *j, const struct check_totals *totals, const char *reason,
		    const char *path)
{
	json_object *top = envelope(j, totals, reason);
	const char *text = json_object_to_json_string_ext(
		top,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
	struct check_file file;
	int ret;

	if (j->failed || !text) {
		json_object_put(top);
		return silt_err_sys(ENOMEM, "cannot write %s", path);
	}
	ret = check_file_open(path, &file);
	if (!ret) {
		fprintf(file.out, "%s\n", text);
		ret = check_file_commit(&file);
	}
	json_object_put(top);
	return ret;
}

void check_json_destroy(struct check_json *j)
{
	if (!j)
		return;
	json_object_put(j->backend);
	json_object_put(j->scenarios);
	free(j);
}
