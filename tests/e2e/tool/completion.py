#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Completion in bash: every option that a command takes, and what its value may be.

    completion.py SILT SOURCE_DIR
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop()).resolve()
SILT = os.path.abspath(sys.argv.pop())
ASK = """
. "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_silt
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Where the options of each command are read.
READERS = {"check": "check_args.c", "blk": "cmd_blk.c", "demo": "cmd_demo.c"}


class Completion(unittest.TestCase):
    def complete(self, *words, **more):
        done = subprocess.run(["bash", "-c", ASK, "bash", SOURCE / "data" / "silt.bash", SILT,
                               *words], capture_output=True, text=True, check=True, **more)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(set(self.complete("")),
                         {"blk", "check", "demo", "bench", "--help", "--version"})
        self.assertEqual(self.complete("ch"), ["check"])
        self.assertEqual(self.complete("bench", "con"), ["converge"])

    def test_every_option_of_a_command(self):
        for command, reader in READERS.items():
            text = (SOURCE / "tool" / reader).read_text()
            known = {f"--{name}" + ("=" if how == "required" else "")
                     for name, how in re.findall(r'\{"([a-z-]+)", (required|no)_argument', text)}
            self.assertGreater(len(known), 5)
            self.assertEqual(set(self.complete(command, "--")), known)
        self.assertEqual(self.complete("check", "--hos"), ["--hostile"])
        self.assertIn("--topology=", self.complete("bench", "sync", "--"))

    def test_values(self):
        for words in (["--device="], ["--device", "="], ["--device", "=", ""]):
            self.assertEqual(self.complete("check", *words),
                             ["block", "net", "fs", "vsock", "auto"])
        self.assertEqual(self.complete("check", "--ignore", "=", "b"), ["bookkeeping"])
        self.assertEqual(self.complete("blk", "--aio=s"), ["sync"])
        names = self.complete("check", "--only", "=", "migration/gr")
        listed = subprocess.run([SILT, "check", "--list"], capture_output=True, text=True,
                                check=True).stdout.split()
        self.assertEqual(names, [name for name in listed if name.startswith("migration/gr")])
        self.assertGreater(len(names), 1)

    def test_files_and_commands(self):
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, "report.json").touch()
            self.assertEqual(self.complete("check", "--json", "=", "rep", cwd=place),
                             ["report.json"])
        self.assertIn("python3", self.complete("check", "--quick", "--", "python"))


unittest.main(verbosity=2)
