/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} commands[] = {
	{"blk", cmd_blk, "serve a disk image to a virtual machine over vhost-user"},
	{"check", cmd_check, "prove that a vhost-user backend logs every page it writes"},
	{"demo", cmd_demo, "migrate a small guest while it runs, and compare"},
	{"bench", cmd_bench, "measure silt against its peers"},
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static int help(FILE *out)
{
	fputs("silt: dirty pages of live-migrating virtual machines\n"
	      "\n"
	      "Usage: silt COMMAND [OPTION]...\n"
	      "\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < NCOMMANDS; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].what);
	fputs("\n"
	      "  silt COMMAND --help   options and examples of a command\n"
	      "  silt --version        print the version\n",
	      out);
	return out == stdout ? TOOL_OK : TOOL_USAGE;
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			return &commands[i];
	return NULL;
}

/* The command in a program name like /usr/bin/silt-blk, or NULL. */
static const struct command *find_in_name(const char *program)
{
	const char *base = strrchr(program, '/');

	base = base ? base + 1 : program;
	return strncmp(base, "silt-", 5) ? NULL : find(base + 5);
}

/*
 * If a standard stream is closed, the next file that is opened takes its number, and messages go
 * into it: a disk image, say. Opened for reading only, so that printing is an error as before.
 */
static int hold_standard_streams(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDONLY);
		if (fd < 0)
			return -errno;
	} while (fd <= STDERR_FILENO);
	close(fd);
	return 0;
}

static int run(int argc, char **argv)
{
	const struct command *command = argc ? find_in_name(argv[0]) : NULL;

	if (command)
		return command->run(argc, argv);
	if (argc < 2)
		return help(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(stdout);
	if (!strcmp(argv[1], "--version"))
		return tool_version();
	command = find(argv[1]);
	if (command)
		return command->run(argc - 1, argv + 1);
	fprintf(stderr, "silt: no command '%s'\nTry 'silt --help'.\n", argv[1]);
	return TOOL_USAGE;
}

/* What was asked for and cannot be printed was not done. */
static int finish(int status)
{
	if ((fflush(stdout) || ferror(stdout)) && status == TOOL_OK) {
		fputs("silt: standard output cannot be written\n", stderr);
		return TOOL_ENVIRONMENT;
	}
	return status;
}

int main(int argc, char **argv)
{
	int ret = hold_standard_streams();

	if (ret < 0) {
		fprintf(stderr, "silt: /dev/null cannot be opened: %s\n", strerrordesc_np(-ret));
		return TOOL_ENVIRONMENT;
	}
	return finish(run(argc, argv));
}
