/* SPDX-License-Identifier: BSD-3-Clause */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "check/hostile.h"

#define MAX_VALUES 48

static const struct check_hostile_group *const groups[] = {
	&check_hostile_log_base,    &check_hostile_log_place,	 &check_hostile_log_gone,
	&check_hostile_log_flood,   &check_hostile_memory_table, &check_hostile_memory_removed,
	&check_hostile_memory_gone, &check_hostile_ring_address, &check_hostile_ring_number,
	&check_hostile_ring_index,  &check_hostile_chain,	 &check_hostile_table,
	&check_hostile_avail,	    &check_hostile_rewrite,	 &check_hostile_message,
	&check_hostile_config,	    &check_hostile_fds,		 &check_hostile_fd_flood,
	&check_hostile_inflight,    &check_hostile_cut,		 &check_hostile_silence,
	&check_hostile_closed,	    &check_hostile_iotlb,
};

#define NGROUPS (sizeof(groups) / sizeof(*groups))

/* Values of a group that some case has. */
struct seen {
	bool value[HOSTILE_AXES][MAX_VALUES];
};

static unsigned int axis_count(const struct check_hostile_group *g)
{
	unsigned int n = 0;

	while (n < HOSTILE_AXES && g->axis[n].n)
		n++;
	return n;
}

/* The next combination, in the order of a counter. Return: false after the last one. */
static bool advance(const struct check_hostile_group *g, uint8_t *value)
{
	unsigned int i = axis_count(g);

	while (i-- > 0) {
		if (++value[i] < g->axis[i].n)
			return true;
		value[i] = 0;
	}
	return false;
}

static void name_case(struct check_hostile_case *c)
{
	size_t used = snprintf(c->name, sizeof(c->name), "hostile/%s", c->group->name);
	unsigned int i, n = axis_count(c->group);

	for (i = 0; i < n && used < sizeof(c->name); i++)
		used += snprintf(c->name + used, sizeof(c->name) - used, "/%s",
				 c->group->axis[i].values[c->value[i]]);
}

static bool shows_new_value(struct seen *seen, const struct check_hostile_case *c)
{
	unsigned int i, n = axis_count(c->group);
	bool is_new = false;

	for (i = 0; i < n; i++) {
		is_new |= !seen->value[i][c->value[i]];
		seen->value[i][c->value[i]] = true;
	}
	return is_new;
}

static int add_case(struct check_hostile_list *list, const struct check_hostile_group *g,
		    const uint8_t *value, struct seen *seen)
{
	struct check_hostile_case *all = reallocarray(list->v, list->n + 1, sizeof(*all));
	struct check_hostile_case *c;

	if (!all)
		return silt_err_sys(ENOMEM, "cannot generate the hostile cases");
	list->v = all;
	c = &all[list->n++];
	c->group = g;
	memcpy(c->value, value, sizeof(c->value));
	name_case(c);
	c->quick = shows_new_value(seen, c);
	return 0;
}

static int generate_group(struct check_hostile_list *list, const struct check_hostile_group *g)
{
	uint8_t value[HOSTILE_AXES] = {0};
	struct seen seen = {0};
	int ret = 0;

	do {
		if (!g->valid || g->valid(value))
			ret = add_case(list, g, value, &seen);
	} while (!ret && advance(g, value));
	return ret;
}

int check_hostile_generate(struct check_hostile_list *list)
{
	unsigned int i;
	int ret = 0;

	*list = (struct check_hostile_list){0};
	for (i = 0; i < NGROUPS && !ret; i++)
		ret = generate_group(list, groups[i]);
	return ret;
}

static bool selected(const struct check_options *opt, const struct check_hostile_case *c)
{
	return (!opt->quick || c->quick) && (!opt->only || !fnmatch(opt->only, c->name, 0));
}

int check_hostile_select(const struct check_options *opt, struct check_hostile_list *list)
{
	unsigned int i, n = 0;
	int ret = check_hostile_generate(list);

	for (i = 0; i < list->n; i++)
		if (selected(opt, &list->v[i]))
			list->v[n++] = list->v[i];
	list->n = n;
	return ret;
}

void check_hostile_list_free(struct check_hostile_list *list)
{
	free(list->v);
	*list = (struct check_hostile_list){0};
}

static void print_group(const struct check_hostile_group *g, FILE *out)
{
	unsigned int i, value, n = axis_count(g);

	fprintf(out, "%s: %s\n", g->name, g->about);
	for (i = 0; i < n; i++) {
		fprintf(out, "  %-8s ", g->axis[i].name);
		for (value = 0; value < g->axis[i].n; value++)
			fprintf(out, " %s", g->axis[i].values[value]);
		fputc('\n', out);
	}
}

int check_hostile_print(const struct check_options *opt, FILE *out)
{
	struct check_hostile_list list;
	unsigned int i;
	int ret = check_hostile_select(opt, &list);

	for (i = 0; i < NGROUPS && !ret; i++)
		print_group(groups[i], out);
	fputc('\n', out);
	for (i = 0; i < list.n && !ret; i++)
		fprintf(out, "%s\n", list.v[i].name);
	check_hostile_list_free(&list);
	return !ret && ferror(out) ? silt_err_sys(EIO, "cannot write the list") : ret;
}
