/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check/device.h"

static enum check_role role(const struct check_device *device, unsigned int queue)
{
	return device->roles[queue % device->nroles];
}

bool check_device_fills(const struct check_device *device, unsigned int queue)
{
	return role(device, queue) == ROLE_FILLED;
}

unsigned int check_device_share(struct check_builder *b, unsigned int queue)
{
	const struct check_device *device = b->scenario->device;

	return device->share ? device->share(b, queue) : 1;
}

static const struct check_device *const devices[] = {&check_device_block, &check_device_net,
						     &check_device_fs, &check_device_vsock};

const struct check_device *check_device_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (!strcmp(devices[i]->name, name))
			return devices[i];
	return NULL;
}

bool check_device_known(const char *name)
{
	return check_device_find(name);
}

bool check_device_wrong(char why[CHECK_WRONG_LEN], const struct check_request *r,
			const char *format, ...)
{
	int used = snprintf(why, CHECK_WRONG_LEN, "wrong answer to %s: ", r->text);
	va_list ap;

	va_start(ap, format);
	vsnprintf(why + used, CHECK_WRONG_LEN - used, format, ap);
	va_end(ap);
	return false;
}

bool check_device_verify_used_len(const struct check_request *r, char why[CHECK_WRONG_LEN])
{
	uint64_t room = 0;
	unsigned int i;

	for (i = 0; i < r->nsegs; i++)
		room += r->seg[i].device_writes ? r->seg[i].len : 0;
	if (r->used_len <= room)
		return true;
	return check_device_wrong(why, r, "used length %u, but its buffers have %lu writable bytes",
				  r->used_len, room);
}
