/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What a fuzz target offers, to libFuzzer or to standalone.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold. */
#define CHECK(cond)                                                                \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                   \
		}                                                                  \
	} while (0)

#endif
