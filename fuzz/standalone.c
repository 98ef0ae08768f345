/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a fuzz target without a fuzzer:
 *     NAME [COUNT [SEED]]   COUNT pseudo-random inputs, the first made from SEED
 *     NAME FILE...          inputs that a fuzzer has kept
 * When an input fails, its seed is said: NAME 1 SEED runs it alone.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/rng.h"
#include "target.h"

#define MAX_INPUT 4096

static uint8_t input[MAX_INPUT];
static uint64_t seed = 1;

static void on_abort(int sig)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "failed with seed %llu\n", (unsigned long long)seed);

	(void)sig;
	(void)!write(STDERR_FILENO, line, n);
}

/* Short inputs as well as long ones, and bytes that are small or large more often than not. */
static size_t make_input(struct rng rng)
{
	size_t size = rng_below(&rng, rng_one_in(&rng, 2) ? 64 : MAX_INPUT), i;

	for (i = 0; i < size; i++)
		input[i] = rng_next(&rng) >> (rng_one_in(&rng, 3) ? 60 : 56);
	return size;
}

static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	size_t size;

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	size = fread(input, 1, sizeof(input), f);
	fclose(f);
	LLVMFuzzerTestOneInput(input, size);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long count = 1000;
	char *end = NULL;
	int i, ret = 0;

	if (argc > 1)
		count = strtoul(argv[1], &end, 0);
	if (end && *end) {
		for (i = 1; i < argc; i++)
			ret |= run_file(argv[i]);
		return ret;
	}
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0);
	signal(SIGABRT, on_abort);
	for (; count; count--, seed++)
		LLVMFuzzerTestOneInput(input, make_input(rng_make(seed)));
	return 0;
}
