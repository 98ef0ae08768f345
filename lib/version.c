/* SPDX-License-Identifier: BSD-3-Clause */
#include <silt/silt.h>

const char *silt_version(void)
{
	return SILT_VERSION;
}
