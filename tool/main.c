/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "tool.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} commands[] = {
	{"blk", cmd_blk, "serve a disk image to a virtual machine over vhost-user"},
#ifdef TOOL_CHECK
	{"check", cmd_check, "prove that a vhost-user backend logs every page it writes"},
#endif
#ifdef TOOL_BENCH
	{"bench", cmd_bench, "measure silt against its peers"},
#endif
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

int main(int argc, char **argv)
{
	if (argc < 2)
		return help(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(stdout);
	if (!strcmp(argv[1], "--version"))
		return tool_version();
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "silt: no command '%s'\nTry 'silt --help'.\n", argv[1]);
	return TOOL_USAGE;
}
