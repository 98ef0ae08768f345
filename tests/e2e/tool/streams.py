#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Standard streams that are closed or full: nothing else is written to, and it is said."""
import itertools
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

SILT = os.path.abspath(sys.argv.pop())
# Its size is something that silt blk has a remark about.
IMAGE = bytes((1 << 20) + 1)


def close(*fds):
    for fd in fds:
        os.close(fd)


class Streams(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.dir = pathlib.Path(place.name)

    def test_no_message_gets_into_the_image(self):
        image = self.dir / "image"
        image.write_bytes(IMAGE)
        sets = (c for n in (1, 2, 3) for c in itertools.combinations(range(3), n))
        for closed, sandbox in itertools.product(sets, ("on", "off")):
            with self.subTest(closed=closed, sandbox=sandbox):
                ours, theirs = socket.socketpair()
                with ours, theirs:
                    # Small numbers are what is about to be closed.
                    os.dup2(theirs.fileno(), 100)
                    ours.sendall(b"\xa5" * 64)
                    done = subprocess.run(
                        [SILT, "blk", f"--blk-file={image}", "--fd=100", f"--sandbox={sandbox}"],
                        stderr=subprocess.PIPE, pass_fds=[100], timeout=20, check=False,
                        preexec_fn=lambda closed=closed: close(*closed))
                    os.close(100)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(b"silt blk: " in done.stderr, 2 not in closed)
                self.assertEqual(image.read_bytes(), IMAGE)

    def test_what_cannot_be_printed_is_an_error(self):
        for words in (["--help"], ["--version"], ["blk", "--help"], ["blk", "-h"],
                      ["blk", "--print-capabilities"], ["bench", "--help"], ["bench", "-h"], ["check", "--help"]):
            with self.subTest(words=words):
                with open("/dev/full", "wb") as full:
                    done = subprocess.run([SILT, *words], stdout=full, stderr=subprocess.PIPE,
                                          timeout=20, check=False)
                self.assertEqual(done.returncode, 3)
                self.assertIn(b"standard output", done.stderr)
                done = subprocess.run([SILT, *words], stderr=subprocess.PIPE, timeout=20,
                                      check=False, preexec_fn=lambda: close(1))
                self.assertEqual(done.returncode, 3)
                self.assertIn(b"standard output", done.stderr)


unittest.main(verbosity=2)
