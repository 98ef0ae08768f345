/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of random operations on an engine and on its model.
 *
 *     model_sync OPERATIONS [SEED]    none may show a difference
 *     model_sync spoil [SEED]         the engine is spoiled in each: all must show one
 *
 * Programs run in a child, so that one that crashes or hangs is reported as any other: with its
 * seed, and with the shortest part of it that still fails.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"
#include "support/rng.h"

#define HANGS_AFTER    30 /* seconds */
#define SPOILED	       300
#define SHRINK_SECONDS 60

/* What the child says. */
struct progress {
	uint64_t seed; /* of the program that runs */
	unsigned int spoiled;
	unsigned int unseen;
};

static struct program program;

static void run_programs(struct progress *progress, uint64_t seed, uint64_t n, bool spoil)
{
	struct outcome outcome;
	uint64_t i;

	for (i = 0; i < n; i++) {
		progress->seed = seed + i;
		alarm(HANGS_AFTER);
		program_make(&program, seed + i, spoil);
		program_run(&program, NULL, &outcome);
		progress->spoiled += outcome.spoiled;
		if (outcome.spoiled && !outcome.wrong[0]) {
			fprintf(stderr, "seed %#lx: spoiled, and not seen\n", seed + i);
			progress->unseen++;
		}
		if (outcome.wrong[0] && !outcome.spoiled)
			exit(1);
	}
}

static int status_of(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("a child");
		exit(3);
	}
	return status;
}

static bool fails(const struct program *p)
{
	struct outcome outcome;
	pid_t child = fork();

	if (!child) {
		alarm(HANGS_AFTER);
		/* What a crash prints was seen once. */
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		program_run(p, NULL, &outcome);
		_exit(outcome.wrong[0] != 0);
	}
	return status_of(child) != 0;
}

static void drop(struct program *p, unsigned int first, unsigned int n)
{
	memmove(&p->op[first], &p->op[first + n], (p->n - first - n) * sizeof(p->op[0]));
	p->n -= n;
}

/* Drop ever smaller pieces that the failure does not need. */
static void shrink(struct program *p)
{
	time_t until = time(NULL) + SHRINK_SECONDS;
	unsigned int piece, first;

	for (piece = p->n / 2; piece; piece /= 2) {
		for (first = 0; first < p->n && time(NULL) < until;) {
			unsigned int n = first + piece < p->n ? piece : p->n - first;
			struct program shorter = *p;

			drop(&shorter, first, n);
			if (fails(&shorter))
				*p = shorter;
			else
				first += n;
		}
	}
}

static void show(const struct program *p, const char *of)
{
	struct outcome outcome;
	pid_t child;
	int status;

	fprintf(stderr, "%u operations%s:\n", p->n, of);
	child = fork();
	if (!child) {
		alarm(HANGS_AFTER);
		program_run(p, stderr, &outcome);
		fprintf(stderr, "=> %s\n", outcome.wrong[0] ? outcome.wrong : "no difference");
		_exit(0);
	}
	status = status_of(child);
	if (WIFSIGNALED(status))
		fprintf(stderr, "=> signal %d\n", WTERMSIG(status));
}

static void show_failure(uint64_t seed)
{
	fprintf(stderr, "seed %#lx failed: model_sync 1 %#lx\n", seed, seed);
	program_make(&program, seed, false);
	if (!fails(&program)) {
		fprintf(stderr, "run again, it does not\n");
		return;
	}
	shrink(&program);
	show(&program, " are enough");
}

int main(int argc, char **argv)
{
	bool spoil = argc > 1 && !strcmp(argv[1], "spoil");
	struct rng rng = rng_make(4);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : rng_next(&rng);
	uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	uint64_t n = spoil ? SPOILED : (operations + PROGRAM_OPERATIONS - 1) / PROGRAM_OPERATIONS;
	struct progress *progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	if (!n || progress == MAP_FAILED) {
		fprintf(stderr, "usage: model_sync OPERATIONS|spoil [SEED]\n");
		return 2;
	}
	child = fork();
	if (!child) {
		run_programs(progress, seed, n, spoil);
		exit(0);
	}
	if (status_of(child)) {
		show_failure(progress->seed);
		return 1;
	}
	printf("%lu programs of %u operations, seed %#lx; %u spoiled\n", n, PROGRAM_OPERATIONS,
	       seed, progress->spoiled);
	return progress->unseen || (spoil && progress->spoiled < n / 4);
}
