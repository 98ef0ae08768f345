// SPDX-License-Identifier: GPL-2.0-only
/*
 * Livepatch of vhost's log_write(), so that dirty bits are set without pinning the page they lie
 * in.
 *
 * Copyright (C) the authors of silt
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/kernel.h>
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/string.h>

#include "log_write.h"

static char *method = "";
module_param(method, charp, 0444);
MODULE_PARM_DESC(
	method,
	"how bits are set: or (x86), cmpxchg (x86), futex, pin; default: the first there is");

static bool test_first;
module_param(test_first, bool, 0444);
MODULE_PARM_DESC(test_first,
		 "do not write what is set already, which costs a full barrier each time");

#ifdef SILT_BROKEN
module_param_named(window, silt_window, uint, 0644);
MODULE_PARM_DESC(window, "how often to relax between reading a word and writing it");
#endif

static struct klp_func funcs[] = {
	{.old_name = "log_write"},
	{},
};

static struct klp_object objs[] = {
	{.name = "vhost", .funcs = funcs},
	{},
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objs,
};

static struct dentry *debugfs;

static int counters_show(struct seq_file *file, void *unused)
{
	struct silt_counters sum = {};
	const struct silt_counters *one;
	int cpu;

	for_each_possible_cpu(cpu) {
		one = per_cpu_ptr(&silt_counters, cpu);
		sum.direct += READ_ONCE(one->direct);
		sum.skipped += READ_ONCE(one->skipped);
		sum.faulted += READ_ONCE(one->faulted);
		sum.contended += READ_ONCE(one->contended);
		sum.pinned += READ_ONCE(one->pinned);
		sum.failed += READ_ONCE(one->failed);
	}
	seq_printf(file, "direct %llu\nskipped %llu\nfaulted %llu\n", sum.direct, sum.skipped,
		   sum.faulted);
	seq_printf(file, "contended %llu\npinned %llu\nfailed %llu\n", sum.contended, sum.pinned,
		   sum.failed);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static const struct silt_method *find_method(const char *name)
{
	const struct silt_method *one;

	for (one = silt_methods; one->name; one++)
		if (!*name || !strcmp(one->name, name))
			return one;
	return NULL;
}

static int __init silt_vhost_init(void)
{
	const struct silt_method *chosen = find_method(method);
	int r;

	if (!chosen) {
		pr_err("method '%s' is not among those of this build\n", method);
		return -EINVAL;
	}
	if (!*method)
		method = (char *)chosen->name;
	funcs[0].new_func = chosen->log_write;
	if (test_first)
		static_branch_enable(&silt_test_first);
	debugfs = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_file("counters", 0444, debugfs, NULL, &counters_fops);
#ifdef SILT_BROKEN
	silt_debug_create(debugfs);
#endif
	r = klp_enable_patch(&patch);
	if (r) {
		debugfs_remove(debugfs);
		return r;
	}
	pr_info("log writes of vhost by method %s%s\n", method,
		test_first ? ", testing first" : "");
	return 0;
}

static void __exit silt_vhost_exit(void)
{
	debugfs_remove(debugfs);
}

module_init(silt_vhost_init);
module_exit(silt_vhost_exit);
MODULE_DESCRIPTION("Set bits of vhost's dirty log without pinning");
MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
