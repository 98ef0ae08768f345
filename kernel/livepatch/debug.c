// SPDX-License-Identifier: GPL-2.0-only
/* For tests only: log writes by any method, into the memory of the process that asks for them. */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "log_write.h"

/* What is written into the file: one of these. */
struct request {
	char method[16];
	u64 log_base;
	u64 address;
	u64 length;
};

static ssize_t log_write_write(struct file *file, const char __user *buffer, size_t size,
			       loff_t *position)
{
	const struct silt_method *one;
	struct request request;
	int r;

	if (size != sizeof(request))
		return -EINVAL;
	if (copy_from_user(&request, buffer, size))
		return -EFAULT;
	for (one = silt_methods; one->name; one++)
		if (!strncmp(one->name, request.method, sizeof(request.method)))
			break;
	if (!one->name)
		return -ENOENT;
	r = one->log_write((void __user *)request.log_base, request.address, request.length);
	return r ?: size;
}

static const struct file_operations log_write_fops = {
	.owner = THIS_MODULE,
	.write = log_write_write,
};

void silt_debug_create(struct dentry *directory)
{
	debugfs_create_file("log_write", 0200, directory, NULL, &log_write_fops);
}
