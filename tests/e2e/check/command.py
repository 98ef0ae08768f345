#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""silt check as a person calls it, on the real engine and silt's own backend: each way to name the
backend, exit statuses, reports, and what must not be touched or left behind."""
import hashlib
import json
import os
import pathlib
import resource
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SILT = os.path.abspath(sys.argv.pop())
SOME = "snapshot/read/inside/three/*"
# How long there is load makes no difference to what most of these tests look at.
BRIEFLY = "--time=20ms"
IMAGE_BYTES = 64 << 20
# In front of silt blk, what it is given and says can be changed, in pass_on().
RELAY = """
import select, socket, subprocess, sys
silt, path, image = sys.argv[1:]
def forward(source, to):
    data, fds, _, _ = socket.recv_fds(source, 4096, 8)
    fds = pass_on(to is front, data, fds)
    if data:
        socket.send_fds(to, [data], fds)
    for fd in fds:
        os.close(fd)
    sent(to is front, data)
    return data
l = socket.socket(socket.AF_UNIX)
l.bind(path)
l.listen()
while True:
    front, _ = l.accept()
    back, its = socket.socketpair()
    blk = subprocess.Popen([silt, "blk", f"--fd={its.fileno()}", f"--blk-file={image}"],
                           pass_fds=[its.fileno()])
    its.close()
    while all(forward(s, back if s is front else front)
              for s in select.select([front, back], [], [])[0]):
        pass
    front.close()
    back.close()
    blk.wait()
"""
# Its log is not the one that it was given.
DEAF = """
def deafen(fd):
    if "silt-check-log" not in os.readlink(f"/proc/self/fd/{fd}"):
        return fd
    other = os.memfd_create("other")
    os.truncate(other, os.fstat(fd).st_size)
    os.close(fd)
    return other
def pass_on(answer, data, fds):
    return [deafen(fd) for fd in fds]
def sent(answer, data):
    pass
"""
# It cuts its disk once it has said how large that is.
CUTTER = """
GET_CONFIG = 24
def pass_on(answer, data, fds):
    if answer and data[:1] == bytes([GET_CONFIG]):
        os.truncate(image, 1 << 20)
    return fds
def sent(answer, data):
    pass
"""
# It dies once its ring logs.
MORTAL = """
SET_VRING_ADDR, addresses = 9, []
def pass_on(answer, data, fds):
    return fds
def sent(answer, data):
    if answer and data[:1] == bytes([SET_VRING_ADDR]):
        addresses.append(data)
    if len(addresses) == 2:
        blk.kill()
        blk.wait()
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
"""


class Check(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.dir = pathlib.Path(self.place.name)
        self.tmp = self.dir / "tmp"
        self.tmp.mkdir()
        self.report = self.dir / "report.json"

    def check(self, *arguments, status, **more):
        done = subprocess.run([SILT, "check", f"--json={self.report}", *arguments], text=True,
                              capture_output=True, timeout=200, check=False,
                              env={**os.environ, "TMPDIR": str(self.tmp)}, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(list(self.tmp.iterdir()), [], "left behind")
        return done

    def scenarios(self, result="pass"):
        report = json.loads(self.report.read_text())
        self.assertEqual(report["result"], result)
        self.assertEqual(report["schema"], 1)
        return report["scenarios"]

    def image(self):
        path = self.dir / "image"
        with open(path, "wb") as f:
            for block in range(IMAGE_BYTES >> 20):
                f.write(hashlib.sha256(b"%d" % block).digest() * (1 << 15))
        return path

    def digest(self, path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def backend(self, *arguments, **more):
        process = subprocess.Popen([SILT, "blk", f"--blk-file={self.image()}", "--num-queues=2",
                                    *arguments], **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    def listening_backend(self):
        """A backend on a socket that listens before it starts, so that nothing has to be awaited."""
        path = str(self.dir / "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        self.backend(f"--fd={listener.fileno()}", pass_fds=[listener.fileno()])
        listener.close()
        return path

    def test_self_test_passes_and_says_what_it_ran(self):
        self.check("--self-test", "--quick", status=0)
        names = [s["name"] for s in self.scenarios()]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(all(s["result"] in ("pass", "skip") for s in self.scenarios()))
        self.assertTrue(any(s["changed"] for s in self.scenarios()))
        listed = subprocess.run([SILT, "check", "--list", "--quick"], text=True,
                                capture_output=True, check=True).stdout.split()
        self.assertLessEqual(set(names), set(listed))

    def test_the_seed_chooses_the_scenarios(self):
        def run(seed):
            self.check("--self-test", "--quick", BRIEFLY, f"--seed={seed}", status=0)
            return [(s["name"], s["axes"], s["result"]) for s in self.scenarios()]
        self.assertEqual(run(5), run(5))
        self.assertNotEqual(run(5), run(6))

    def test_the_cost_of_logging(self):
        done = self.check("--self-test", f"--only={SOME}", "--cost", status=0)
        cost = json.loads(self.report.read_text())["cost"]
        self.assertIn(cost["meaning"], done.stdout)
        for logging, median in ((False, "off_per_second"), (True, "on_per_second")):
            rates = sorted(s["requests"] / s["seconds"] for s in cost["slices"]
                           if s["logging"] == logging)
            self.assertEqual(len(rates), 8)
            self.assertAlmostEqual(cost[median], (rates[3] + rates[4]) / 2, places=3)
        self.assertGreater(cost["changed"], 0)
        self.assertEqual(cost["marked_per_changed"], cost["marked"] / cost["changed"])
        self.check("--self-test", f"--only={SOME}", status=0)
        self.assertNotIn("cost", json.loads(self.report.read_text()))

    def test_repro_shows_the_scenario_again(self):
        self.check("--self-test", "--quick", BRIEFLY, status=0)
        first = next(s for s in self.scenarios() if s["result"] == "pass")
        words = shlex.split(first["repro"])
        self.assertEqual(words[:2], ["silt", "check"])
        self.check(*words[2:], status=0)
        self.assertEqual([s["name"] for s in self.scenarios()], [first["name"]])

    def test_a_foreign_disk_is_left_alone(self):
        path = self.listening_backend()
        before = self.digest(self.dir / "image")
        self.check(f"--socket-path={path}", BRIEFLY, status=0)
        self.assertEqual(self.digest(self.dir / "image"), before)
        for scenario in self.scenarios():
            if scenario["axes"].get("request") in ("write", "discard", "write-zeroes"):
                self.assertEqual(scenario["result"], "skip", scenario["name"])
                if scenario["mode"] != "restart" and "not offer" not in scenario["reason"]:
                    self.assertIn("--allow-writes", scenario["reason"])

    def test_only_a_backend_of_its_own_is_killed(self):
        self.check("--only=restart/*", "--seed=3", "--", SILT, "blk", "--socket-path={socket}",
                   "--blk-file={image}", "--num-queues=2", status=0)
        self.assertEqual({s["result"] for s in self.scenarios()}, {"pass"})
        self.check("--only=restart/*", f"--socket-path={self.listening_backend()}", status=77)
        for scenario in self.scenarios("skip"):
            self.assertIn("only a backend that silt check starts", scenario["reason"])

    def test_allowed_writes_are_made(self):
        path = self.listening_backend()
        before = self.digest(self.dir / "image")
        self.check(f"--socket-path={path}", "--allow-writes", "--quick", BRIEFLY, status=0)
        self.assertNotEqual(self.digest(self.dir / "image"), before)

    def test_a_connected_socket(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        self.backend(f"--fd={theirs.fileno()}", pass_fds=[theirs.fileno()])
        theirs.close()
        self.check(f"--fd={ours.fileno()}", f"--only={SOME}",
                   pass_fds=[ours.fileno()], status=0)
        ours.close()

    def test_load_runs_for_the_time_that_is_asked_for(self):
        began = time.monotonic()
        self.check("--self-test", "--only=shadow/exchange/8k", "--time=1500ms", status=0)
        self.assertGreaterEqual(time.monotonic() - began, 1.5)
        (scenario,) = self.scenarios()
        self.assertEqual((scenario["mode"], scenario["stale"]), ("shadow", 0))
        self.assertGreater(scenario["changed"], 100)
        self.assertIn("--time=1500ms", scenario["repro"])

    def test_little_time_is_no_reason_to_check_nothing(self):
        """One request at a time, a read of 17 or 18 pages: four in each quarter of the time."""
        self.check("--self-test", "--time=1ms",
                   "--only=shadow/*/64k/depth-1/*", status=0)
        self.assertGreater(max(s["changed"] for s in self.scenarios("pass")), 16 * 17)

    def test_what_needs_another_connection_or_more_queues_is_skipped(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        self.backend(f"--fd={theirs.fileno()}", pass_fds=[theirs.fileno()])
        theirs.close()
        self.check(f"--fd={ours.fileno()}", "--only=migration/reconnect", pass_fds=[ours.fileno()],
                   status=77)
        self.assertIn("connection", self.scenarios("skip")[0]["reason"])
        self.check(f"--fd={ours.fileno()}", "--only=shadow/*queues-4*", pass_fds=[ours.fileno()],
                   status=77)
        self.assertIn("queues", self.scenarios("skip")[0]["reason"])
        ours.close()

    def test_a_backend_that_connects(self):
        path = self.dir / "socket"
        # As backends in client mode do: connect, serve, and connect again.
        client = (
            "import socket, subprocess, sys\n"
            "while True:\n"
            "    s = socket.socket(socket.AF_UNIX)\n"
            "    try: s.connect(sys.argv[1])\n"
            "    except OSError: continue\n"
            "    subprocess.run(sys.argv[2:] + [f'--fd={s.fileno()}'], pass_fds=[s.fileno()])\n")
        connecting = subprocess.Popen([sys.executable, "-c", client, path, SILT, "blk",
                                       f"--blk-file={self.image()}", "--num-queues=2"])
        self.addCleanup(connecting.wait)
        self.addCleanup(connecting.terminate)
        self.check(f"--listen={path}", f"--only={SOME}", status=0)

    def test_a_command_is_started(self):
        self.check("--quick", BRIEFLY, "--", SILT, "blk", "--socket-path={socket}",
                   "--blk-file={image}", status=0)
        self.assertTrue(all(s["result"] in ("pass", "skip") for s in self.scenarios()))

    def test_a_command_is_asked_what_it_is(self):
        backend = self.dir / "backend"
        arguments = ["--", str(backend), "--socket-path={socket}", "--blk-file={image}"]
        for says, status in (('{"type": "block"}', 0), ('{"type": "gpu"}', 3), ("block", 3)):
            backend.write_text("#!/bin/sh\n"
                               f"[ $1 = --print-capabilities ] && echo '{says}' && exit\n"
                               f"exec {SILT} blk \"$@\"\n")
            backend.chmod(0o755)
            self.check("--device=auto", f"--only={SOME}", *arguments, status=status)
        backend.write_text("#!/bin/sh\nexec sleep 1000\n")
        done = self.check("--device=auto", "--timeout=200ms", *arguments, status=3)
        self.assertIn("does not end within 200 ms", done.stderr)
        self.check("--device=auto", "--self-test", status=2)

    def test_a_command_that_ends_with_its_connection(self):
        # It listens, or is still there, until the next connection is made: that one is for nothing.
        once = (
            "import os, select, socket, subprocess, sys\n"
            "s = socket.socket(socket.AF_UNIX)\n"
            "s.bind(sys.argv[1])\n"
            "s.listen()\n"
            "c, _ = s.accept()\n"
            "if sys.argv[2] == 'deaf': s.close()\n"
            "subprocess.run(sys.argv[3:] + [f'--fd={c.fileno()}'], pass_fds=[c.fileno()])\n"
            "if sys.argv[2] == 'listening': select.select([s], [], [])\n")
        for kind in ("listening", "deaf"):
            self.check(f"--only={SOME}", "--", sys.executable, "-c", once, "{socket}", kind, SILT,
                       "blk", "--blk-file={image}", "--num-queues=2", status=0)

    def test_what_is_in_the_way_of_a_socket_is_left_alone(self):
        path = self.dir / "precious"
        path.write_text("data")
        self.check(f"--listen={path}", status=3)
        self.assertEqual(path.read_text(), "data")
        taken = self.listening_backend()
        self.check(f"--listen={taken}", status=3)
        self.check(f"--socket-path={taken}", f"--only={SOME}", status=0)

    def test_a_backend_that_takes_no_connection(self):
        path = str(self.dir / "busy")
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
            listener.bind(path)
            listener.listen(0)
            other.connect(path)
            done = self.check(f"--socket-path={path}", "--timeout=300ms", status=3)
            self.assertIn("took no connection within 300 ms", done.stderr)

    def test_no_place_to_keep_anything(self):
        (self.dir / "silt-check-keep").touch()
        done = self.check("--self-test", f"--only={SOME}", "--keep", status=3, cwd=self.dir)
        self.assertIn("cannot keep anything in silt-check-keep", done.stderr)

    def relay(self, how):
        (self.dir / "relay.py").write_text("import os, signal\n" + how + RELAY)
        return ["--", sys.executable, str(self.dir / "relay.py"), SILT, "{socket}", "{image}"]

    def test_a_death_is_no_hang(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # The seed says after how many requests only the ring is looked at.
        for seed in range(1, 4):
            self.check("--only=restart/used/*", f"--seed={seed}", *self.relay(MORTAL), status=1)
            reasons = [s["reason"] for s in self.scenarios("fail") if s["result"] != "skip"]
            self.assertNotEqual(reasons, [])
            for reason in reasons:
                self.assertIn("died of signal 6", reason)

    def test_an_image_that_is_cut(self):
        done = self.check(*self.relay(CUTTER), status=3)
        self.assertIn("the image ends at byte 1048576, but the backend says that its disk has "
                      "16777216", done.stderr)

    def spans(self):
        return sorted(p.relative_to(self.dir) for p in self.dir.glob("silt-check-keep/**/span-*"))

    def test_what_was_kept_before_is_replaced(self):
        again = ["--keep", "--only=snapshot/read/straddle/three/log-late", *self.relay(DEAF)]
        self.check(*again, status=1, cwd=self.dir)
        spans = self.spans()
        self.assertEqual([s.name for s in spans], [f"span-{i + 1}" for i in range(len(spans))])
        old = self.dir / spans[0].with_name(f"span-{len(spans) + 1}")
        other = self.dir / "silt-check-keep" / "snapshot" / "other" / "span-1"
        for path in old, other:
            path.mkdir(parents=True)
            (path / "log").touch()
        self.check(*again, status=1, cwd=self.dir)
        self.assertEqual(self.spans(), sorted([*spans, other.relative_to(self.dir)]))

    def test_no_room_for_a_disk(self):
        limit = 12345678  # not between two writes
        done = self.check("--self-test", status=3, preexec_fn=lambda: (
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertRegex(done.stderr, "no room for a disk of 16 MiB in .*: File too large")

    def test_the_longest_directory_for_temporary_files(self):
        for length, status in ((70, 0), (71, 3)):
            self.tmp = pathlib.Path(f"{self.dir}/".ljust(length, "t"))
            self.tmp.mkdir()
            done = self.check("--self-test", f"--only={SOME}", status=status)
            self.assertEqual("TMPDIR" in done.stderr, bool(status))

    def test_unreachable_backends(self):
        self.check(f"--socket-path={self.dir}/nobody", status=3)
        self.assertEqual(self.scenarios("error"), [])
        for command in (["/nonexistent/backend"], ["false"], ["tail", "-f", "/dev/null"]):
            done = self.check("--timeout=300ms", "--", *command, "{socket}", status=3)
            self.assertRegex(done.stderr, r"^silt check: ")
            self.assertEqual(self.scenarios("error"), [])

    def test_nothing_applies(self):
        path = self.listening_backend()
        self.check(f"--socket-path={path}", "--only=snapshot/write/*", status=77)
        self.scenarios("skip")

    def test_no_scenario_has_the_name(self):
        self.check("--self-test", "--only=nothing/like/this", status=2)

    def test_a_signal_leaves_nothing_behind(self):
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            # It may be ignored here, under nohup or in the background of a shell.
            signal.signal(number, signal.SIG_DFL)
            # What the backend has started holds the fifo open as long as it lives, as a daemon, too.
            check = subprocess.Popen([SILT, "check", f"--json={self.report}", "--", "sh", "-c",
                                      "trap '' TERM; setsid tail -f /dev/null 3>$2 & "
                                      "tail -f /dev/null 3>$2; exit", "sh",
                                      "{socket}", str(fifo)],
                                     env={**os.environ, "TMPDIR": str(self.tmp)},
                                     text=True, stderr=subprocess.PIPE)
            with open(fifo, "rb") as alive:
                self.assertNotEqual(list(self.tmp.iterdir()), [])
                check.send_signal(number)
                self.assertEqual(check.communicate()[1], "")
                self.assertEqual(check.wait(), -number)
                self.assertEqual(alive.read(), b"")
            self.assertEqual(list(self.tmp.iterdir()), [])
            self.assertFalse(self.report.exists())

    def test_a_signal_leaves_no_socket(self):
        path = self.dir / "socket"
        for connected in (False, True):
            with socket.socket(socket.AF_UNIX) as backend:
                check = subprocess.Popen([SILT, "check", f"--listen={path}", "--timeout=60s"],
                                         env={**os.environ, "TMPDIR": str(self.tmp)},
                                         text=True, stderr=subprocess.PIPE)
                while not path.exists():
                    self.assertIsNone(check.poll())
                if connected:
                    while backend.connect_ex(str(path)):
                        self.assertIsNone(check.poll())
                    backend.recv(1)
                check.terminate()
                self.assertEqual(check.communicate()[1], "")
                self.assertEqual(check.wait(), -signal.SIGTERM)
            self.assertFalse(path.exists())
            self.assertEqual(list(self.tmp.iterdir()), [])

    def test_nobody_reads_the_report(self):
        check = subprocess.Popen([SILT, "check", "-v", "--self-test"], bufsize=0,
                                 env={**os.environ, "TMPDIR": str(self.tmp)},
                                 stdout=subprocess.PIPE)
        check.stdout.read(1)
        check.stdout.close()
        self.assertEqual(check.wait(), -signal.SIGPIPE)
        self.assertEqual(list(self.tmp.iterdir()), [])

    def test_trace_shows_the_messages(self):
        trace = self.dir / "trace"
        self.check("--self-test", f"--only={SOME}", f"--trace={trace}", status=0)
        for word in ("SET_LOG_BASE", "SET_VRING_ADDR", "GET_VRING_BASE"):
            self.assertIn(word, trace.read_text())
        for line in trace.read_text().splitlines():
            self.assertRegex(line, r"^(# snapshot/|-> [A-Z]|<- [A-Z])")
        done = self.check("--self-test", f"--only={SOME}", "--trace=/dev/full", status=3)
        self.assertIn("/dev/full", done.stderr)


unittest.main(verbosity=2)
