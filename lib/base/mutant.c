/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"

#ifdef SILT_MUTANTS
static const char *chosen;

static void __attribute__((constructor)) choose(void)
{
	chosen = getenv("SILT_FAULT");
}

bool silt_mutant(const char *kind)
{
	size_t len = strlen(kind);
	const char *at;

	for (at = chosen; at; at = strchr(at, ','), at += !!at)
		if (!strncmp(at, kind, len) && (!at[len] || at[len] == ','))
			return true;
	return false;
}
#endif
