/* SPDX-License-Identifier: BSD-3-Clause */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "check/baseline.h"
#include "check/file.h"
#include "check/text.h"

#define ERROR_CLASS "error"
#define NO_WHAT	    "-"
#define KIND_MAX    256

struct entry {
	char *scenario;
	char *class;
	char *what;
	bool ran;  /* a scenario that it names was run */
	bool seen; /* and failed like this */
};

struct check_baseline {
	struct entry *entries;
	size_t count;
};

int check_baseline_create(struct check_baseline **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : silt_err_sys(ENOMEM, "cannot make a baseline");
}

static void free_entry(struct entry *e)
{
	free(e->scenario);
	free(e->class);
	free(e->what);
}

void check_baseline_destroy(struct check_baseline *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->count; i++)
		free_entry(&b->entries[i]);
	free(b->entries);
	free(b);
}

static struct entry *append(struct check_baseline *b, const char *scenario, const char *class,
			    const char *what)
{
	struct entry *all = reallocarray(b->entries, b->count + 1, sizeof(*all));
	struct entry *e;

	if (!all)
		return NULL;
	b->entries = all;
	e = &all[b->count];
	*e = (struct entry){
		.scenario = strdup(scenario), .class = strdup(class), .what = strdup(what)};
	if (!e->scenario || !e->class || !e->what) {
		free_entry(e);
		return NULL;
	}
	b->count++;
	return e;
}

static bool is_class(const char *name)
{
	for (int c = 0; c < CHECK_CLASSES; c++) {
		if (!strcmp(name, check_class_name(c)))
			return true;
	}
	for (int v = CHECK_HUNG; v <= CHECK_WROTE_OUTSIDE; v++) {
		if (!strcmp(name, check_verdict_name(v)))
			return true;
	}
	return !strcmp(name, ERROR_CLASS);
}

static int parse_line(struct check_baseline *b, char *line, const char *path, unsigned int number)
{
	char *rest = line;
	char *scenario, *class, *what;

	line[strcspn(line, "\r\n")] = '\0';
	if (!*line || *line == '#')
		return 0;
	scenario = strsep(&rest, "\t");
	class = strsep(&rest, "\t");
	what = strsep(&rest, "\t");
	if (!*scenario || !class || !what || !*what || rest)
		return silt_err(EINVAL,
				"%s, line %u: not SCENARIO, CLASS and WHAT with one tab between",
				path, number);
	if (!is_class(class))
		return silt_err(EINVAL,
				"%s, line %u: class '%s' is none of data, completion, bookkeeping, "
				"error, hung, crashed, wrote outside",
				path, number, class);
	if (!append(b, scenario, class, what))
		return silt_err_sys(ENOMEM, "cannot read %s", path);
	return 0;
}

static int parse_file(struct check_baseline *b, FILE *in, const char *path)
{
	char *line = NULL;
	size_t size = 0;
	int ret = 0;

	for (unsigned int number = 1; !ret && getline(&line, &size, in) >= 0; number++)
		ret = parse_line(b, line, path, number);
	free(line);
	if (!ret && ferror(in))
		ret = silt_err_sys(EIO, "cannot read %s", path);
	return ret;
}

int check_baseline_load(const char *path, struct check_baseline **out)
{
	FILE *in = fopen(path, "re");
	int ret;

	if (!in)
		return silt_err_sys(errno, "cannot read baseline %s", path);
	ret = check_baseline_create(out);
	if (!ret)
		ret = parse_file(*out, in, path);
	if (ret < 0) {
		check_baseline_destroy(*out);
		*out = NULL;
	}
	fclose(in);
	return ret;
}

static bool names_scenario(const struct entry *e, const char *scenario)
{
	return !strcmp(e->scenario, scenario) || !fnmatch(e->scenario, scenario, 0);
}

static struct entry *find(const struct check_baseline *b, const char *scenario, const char *class,
			  const char *what)
{
	for (size_t i = 0; i < b->count; i++) {
		struct entry *e = &b->entries[i];

		if (!strcmp(e->class, class) && !strcmp(e->what, what) &&
		    names_scenario(e, scenario))
			return e;
	}
	return NULL;
}

static struct entry *find_page(const struct check_baseline *b, const char *scenario,
			       const struct check_page *page)
{
	char kind[KIND_MAX];

	return find(b, scenario, check_class_name(page->class),
		    check_text_kind(page->what, kind, sizeof(kind)));
}

bool check_baseline_has(const struct check_baseline *b, const char *scenario,
			const struct check_page *page)
{
	return b && find_page(b, scenario, page);
}

static bool mark_seen(struct entry *e)
{
	if (e)
		e->seen = true;
	return e;
}

/* The class of a failure that is not one of pages, or NULL. */
static const char *whole_class(const struct check_outcome *o)
{
	if (o->result == CHECK_ERROR)
		return ERROR_CLASS;
	return o->result == CHECK_FAIL && o->verdict ? check_verdict_name(o->verdict) : NULL;
}

bool check_baseline_covers(struct check_baseline *b, const struct check_outcome *o)
{
	bool known = o->result == CHECK_ERROR || (o->result == CHECK_FAIL && o->npages);
	const char *class = whole_class(o);

	if (o->result == CHECK_SKIP)
		return false;
	for (size_t i = 0; i < b->count; i++)
		b->entries[i].ran |= names_scenario(&b->entries[i], o->name);
	if (class)
		known = mark_seen(find(b, o->name, class, NO_WHAT));
	for (unsigned int i = 0; i < o->npages; i++)
		known &= mark_seen(find_page(b, o->name, &o->pages[i]));
	return known;
}

static int add_entry(struct check_baseline *b, const char *scenario, const char *class,
		     const char *what)
{
	struct entry *e = find(b, scenario, class, what);

	if (!e)
		e = append(b, scenario, class, what);
	if (!e)
		return silt_err_sys(ENOMEM, "cannot add %s to the baseline", scenario);
	e->ran = true;
	e->seen = true;
	return 0;
}

int check_baseline_add(struct check_baseline *b, const struct check_outcome *o)
{
	const char *class = whole_class(o);
	char kind[KIND_MAX];
	int ret = 0;

	if (class)
		ret = add_entry(b, o->name, class, NO_WHAT);
	for (unsigned int i = 0; !ret && i < o->npages; i++)
		ret = add_entry(b, o->name, check_class_name(o->pages[i].class),
				check_text_kind(o->pages[i].what, kind, sizeof(kind)));
	return ret;
}

static bool is_gone(const struct entry *e)
{
	return e->ran && !e->seen;
}

unsigned int check_baseline_gone(const struct check_baseline *b)
{
	unsigned int gone = 0;

	for (size_t i = 0; i < b->count; i++)
		gone += is_gone(&b->entries[i]);
	return gone;
}

int check_baseline_save(const struct check_baseline *b, const char *path)
{
	struct check_file file;
	int ret = check_file_open(path, &file);

	if (ret < 0)
		return ret;
	fputs("# Known failures of silt check: scenario (a glob), class, what; tabs between.\n",
	      file.out);
	for (size_t i = 0; i < b->count; i++) {
		const struct entry *e = &b->entries[i];

		if (!is_gone(e))
			fprintf(file.out, "%s\t%s\t%s\n", e->scenario, e->class, e->what);
	}
	return check_file_commit(&file);
}
