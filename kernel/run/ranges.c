// SPDX-License-Identifier: GPL-2.0-only
/*
 * Log writes of the livepatch (its build for tests), called directly: which bits they set, compared
 * with a model that sets one after the other, and how many atomics that took: one for each word of
 * the log that has a bit of the range, or one for each page.
 *	ranges METHOD words|pages
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIRECTORY "/sys/kernel/debug/silt_vhost/"
#define PAGE	  4096U
#define PAGE_BITS (8 * PAGE)
#define LOG_PAGE  (8 * PAGE * PAGE) /* bytes of memory that it stands for */
#define LOG_SIZE  (4 * PAGE)
#define LOG_BITS  (8 * LOG_SIZE)
#define WORD_BITS 64U
#define RANDOM	  2000

/* As kernel/livepatch/debug.c reads it. */
struct request {
	char method[16];
	uint64_t log_base;
	uint64_t address;
	uint64_t length;
};

/* A write that begins at @offset of the page whose bit is the log's bit @bit. */
struct range {
	const char *name;
	uint64_t bit;
	uint64_t offset;
	uint64_t length;
};

static const struct range edges[] = {
	{"one page", 64, 0, PAGE},
	{"nothing", 64, 1, 0},
	{"one byte, the last of a page", 64, PAGE - 1, 1},
	{"two bytes on two pages", 64, PAGE - 1, 2},
	{"two pages of two words", 63, 0, 2 * PAGE},
	{"all 64 pages of a word", 64, 0, 64 * PAGE},
	{"64 pages, from the second bit of a word", 65, 0, 64 * PAGE},
	{"64 pages, the first and the last in part", 64, 1, 64 * PAGE - 2},
	{"65 pages", 64, 0, 65 * PAGE},
	{"63 pages that end a word", 65, 0, 63 * PAGE},
	{"128 pages of three words", 96, 0, 128 * PAGE},
	{"64 pages on two pages of the log", PAGE_BITS - 32, 0, 64 * PAGE},
	{"a whole page of the log", PAGE_BITS, 0, LOG_PAGE},
	{"a word and a bit on either side of it", 127, 0, 66 * PAGE},
};

static const char *method;
static bool by_pages;
static unsigned char *the_log, *model;
static unsigned int checks, failures;

static uint64_t random_state = 88172645463325252;

static uint64_t below(uint64_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 11) % bound;
}

static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Words, or with the pin bits, that were set so far or found set. */
static uint64_t count_atomics(void)
{
	FILE *file = fopen(DIRECTORY "counters", "r");
	uint64_t value, sum = 0;
	char name[32];

	if (!file)
		die("counters");
	while (fscanf(file, "%31s %" SCNu64, name, &value) == 2)
		if (!strcmp(name, "direct") || !strcmp(name, "pinned"))
			sum += value;
	fclose(file);
	return sum;
}

/* The log begins @before bytes in front of the memory that the bits lie in. */
static void log_write(const struct range *range, uint64_t before)
{
	static int fd = -1;
	struct request request = {
		.log_base = (uintptr_t)the_log - before,
		.address = (8 * before + range->bit) * PAGE + range->offset,
		.length = range->length,
	};

	if (fd < 0)
		fd = open(DIRECTORY "log_write", O_WRONLY);
	strncpy(request.method, method, sizeof(request.method) - 1);
	if (fd < 0 || write(fd, &request, sizeof(request)) != sizeof(request))
		die("log_write");
}

/* Sets the bits of @range in the model; returns how many atomics it may take. */
static uint64_t set_in_model(const struct range *range)
{
	uint64_t bit = range->bit, end, words = 0, pages = 0;

	if (!range->length)
		return 0;
	end = bit + (range->offset + range->length - 1) / PAGE;
	for (; bit <= end; bit++) {
		model[bit / 8] |= 1U << bit % 8;
		words += !pages || !(bit % WORD_BITS);
		pages++;
	}
	return by_pages ? pages : words;
}

/* True if exactly the bits of the range were set, by as many atomics as it may take. */
static bool is_right(const struct range *range, uint64_t before)
{
	uint64_t took = count_atomics(), wanted = set_in_model(range);

	log_write(range, before);
	took = count_atomics() - took;
	if (took == wanted && !memcmp(the_log, model, LOG_SIZE))
		return true;
	printf("# bit %" PRIu64 ", offset %" PRIu64 ", %" PRIu64 " bytes, log %" PRIu64
	       " bytes before: %" PRIu64 " atomics, not %" PRIu64 "%s\n",
	       range->bit, range->offset, range->length, before, took, wanted,
	       memcmp(the_log, model, LOG_SIZE) ? "; wrong bits" : "");
	return false;
}

static void forget(void)
{
	memset(the_log, 0, LOG_SIZE);
	memset(model, 0, LOG_SIZE);
}

static void check(bool right, const char *what)
{
	printf("%s %u ranges, %s: %s\n", right ? "ok" : "not ok", ++checks, method, what);
	failures += !right;
}

/* Anywhere, mostly of few pages, and with logs that begin at any byte, however far before. */
static bool random_ranges_are_right(void)
{
	struct range range = {};
	unsigned int i;

	for (i = 0; i < RANDOM; i++) {
		range.bit = below(LOG_BITS);
		range.offset = below(2) ? below(PAGE) : 0;
		range.length = below(PAGE * (below(4) ? 4ULL : 300ULL));
		range.length %= (LOG_BITS - range.bit) * PAGE - range.offset + 1;
		if (!is_right(&range, below(2) ? below(1ULL << 36) : below(16)))
			return false;
		if (!below(8))
			forget();
	}
	return true;
}

int main(int argc, char **argv)
{
	const struct range *range;

	if (argc != 3 || (strcmp(argv[2], "words") && strcmp(argv[2], "pages"))) {
		fprintf(stderr, "usage: ranges METHOD words|pages\n");
		return 2;
	}
	method = argv[1];
	by_pages = !strcmp(argv[2], "pages");
	the_log = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	model = calloc(1, LOG_SIZE);
	if (the_log == MAP_FAILED || !model)
		die("memory");
	for (range = edges; range < edges + sizeof(edges) / sizeof(edges[0]); range++) {
		/* What is not there yet would be pinned, and not set directly. */
		forget();
		check(is_right(range, 0), range->name);
	}
	check(random_ranges_are_right(), "random ones");
	return failures ? 1 : 0;
}
