#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The sandbox of silt blk: it is entered, everything works in it, and nothing gets out of it.

    sandbox.py SILT [mutants]
"""
import ctypes
import errno
import os
import pathlib
import re
import resource
import signal
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

MUTANTS = sys.argv[-1] == "mutants" and bool(sys.argv.pop())
SILT = os.path.abspath(sys.argv.pop())
READ = "snapshot/read/inside/three/*"
IO_URING_SETUP = 425
KERNEL = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38


def engines():
    """Values of --aio that work here: containers often have no io_uring."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(IO_URING_SETUP, 0, None)
    return ["sync"] if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM) else ["io_uring", "sync"]


def deny_filters():
    """Let seccomp() fail with EPERM, in this process and what it becomes."""
    call = {"x86_64": 317, "aarch64": 277}[platform.machine()]
    code = b"".join(struct.pack("HBBI", *i) for i in (
        (0x20, 0, 0, 0),                        # the number of the call
        (0x15, 0, 1, call),                     # is it that one?
        (0x06, 0, 0, 0x50000 | errno.EPERM),    # SECCOMP_RET_ERRNO
        (0x06, 0, 0, 0x7fff0000)))              # SECCOMP_RET_ALLOW
    buf = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(buf)))
    libc = ctypes.CDLL(None)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, 2, program):
        os._exit(127)


class Sandbox(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.dir = pathlib.Path(place.name)
        self.socket = self.dir / "socket"
        with open(self.dir / "image", "wb") as image:
            image.truncate(64 << 20)

    def backend(self, *arguments, **env):
        process = subprocess.Popen(
            [SILT, "blk", f"--blk-file={self.dir}/image", f"--socket-path={self.socket}",
             "--num-queues=2", *arguments],
            text=True, stderr=subprocess.PIPE, env={**os.environ, **env})
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.connect(process)
        return process

    def connect(self, process):
        """Once a connection was closed by the peer, what comes before it has been done."""
        while True:
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(str(self.socket))
                    s.sendall(bytes(12))
                    self.assertEqual(s.recv(1), b"")
                    return
                except OSError:
                    self.assertIsNone(process.poll(), "it ended")

    def check(self, *arguments):
        return subprocess.run([SILT, "check", f"--socket-path={self.socket}", "--allow-writes",
                               "--timeout=20s", *arguments],
                              text=True, capture_output=True, timeout=100, check=False)

    def end(self, process):
        process.terminate()
        return process.wait(timeout=20)

    def status(self, pid):
        """Of each thread; the filter is one of the whole process."""
        tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
        texts = [(task / "status").read_text() for task in tasks]
        return [tuple(int(re.search(rf"^{key}:\s*(\d+)", text, re.M)[1])
                      for key in ("Seccomp", "NoNewPrivs")) for text in texts]

    def test_it_is_entered_by_default(self):
        process = self.backend()
        self.assertEqual(set(self.status(process.pid)), {(2, 1)})
        self.assertEqual(self.end(process), 0)
        self.assertFalse(self.socket.exists())

    def test_it_can_be_switched_off(self):
        process = self.backend("--sandbox=off")
        self.assertEqual(set(self.status(process.pid)), set(self.status("self")))
        self.assertEqual(self.check(f"--only={READ}").returncode, 0)
        self.assertEqual(self.end(process), 0)
        self.assertFalse(self.socket.exists())

    def test_it_is_not_left_out_where_it_is_not_to_be_had(self):
        done = subprocess.run(
            [SILT, "blk", f"--blk-file={self.dir}/image", f"--socket-path={self.socket}"],
            text=True, stderr=subprocess.PIPE, timeout=20, check=False, preexec_fn=deny_filters)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--sandbox=off", done.stderr)
        self.assertIn(os.strerror(errno.ENOSYS), done.stderr)
        self.assertFalse(self.socket.exists())

    def test_everything_works_in_it(self):
        for aio in engines():
            with self.subTest(aio=aio):
                process = self.backend(f"--aio={aio}")
                done = self.check("--quick")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIsNone(process.poll())
                self.assertEqual(self.end(process), 0)

    def test_a_kill_leaves_the_file_to_a_successor(self):
        first = self.backend()
        first.kill()
        self.assertEqual(first.wait(), -signal.SIGKILL)
        second = self.backend()
        # The first one's stderr ends when nothing of it is left.
        first.stderr.read()
        self.assertTrue(self.socket.exists())
        self.assertEqual(self.end(second), 0)

    def test_too_few_file_descriptors_leave_no_socket(self):
        for n in range(4, 40):
            process = subprocess.Popen(
                [SILT, "blk", f"--blk-file={self.dir}/image", f"--socket-path={self.socket}"],
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda n=n: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            self.addCleanup(process.kill)
            try:
                self.connect(process)
            except AssertionError:
                self.assertEqual(process.wait(), 1)
                self.assertFalse(self.socket.exists(), f"{n} file descriptors")
                continue
            self.assertEqual(self.end(process), 0)
            return
        self.fail("39 file descriptors are not enough")

    def opens_by_its_ring(self, fault):
        process = self.backend("--aio=io_uring", SILT_FAULT=fault)
        self.assertNotEqual(self.check(f"--only={READ}").returncode, 0)
        fds = pathlib.Path(f"/proc/{process.pid}/fd")
        opened = [fd for fd in os.listdir(fds) if os.readlink(fds / fd) == "/etc/passwd"]
        self.assertEqual(self.end(process), 0)
        return bool(opened)

    @unittest.skipUnless(MUTANTS and "io_uring" in engines(), "not in a release, or no io_uring")
    def test_its_rings_open_nothing(self):
        self.assertTrue(self.opens_by_its_ring("ring_unrestricted"))
        self.assertFalse(self.opens_by_its_ring("sandbox_escape_sqe"))

    @unittest.skipUnless(MUTANTS, "not in a release")
    def test_nothing_gets_out(self):
        faults = ["sandbox_escape", "sandbox_escape_ring", "sandbox_escape_abi"]
        if KERNEL >= (5, 18):
            faults.append("sandbox_escape_enter")
        for fault in faults:
            for aio in engines():
                process = self.backend(f"--aio={aio}", SILT_FAULT=fault)
                self.assertNotEqual(self.check(f"--only={READ}").returncode, 0)
                self.assertEqual(process.wait(timeout=20), -signal.SIGSYS)
                self.assertNotIn("escaped", process.stderr.read())
        process = self.backend("--sandbox=off", SILT_FAULT="sandbox_escape")
        self.check(f"--only={READ}")
        self.assertEqual(self.end(process), 0)
        self.assertIn("escaped", process.stderr.read())


unittest.main(verbosity=2)
