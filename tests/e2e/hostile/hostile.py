#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""silt check --hostile: silt blk stands it all and grows by nothing; backends that do not are told.

    hostile.py SILT all|quick|mutants
"""
import collections
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

WHAT = sys.argv.pop()
SILT = os.path.abspath(sys.argv.pop())

# Memory of its own that silt blk may have after all cases, in KiB; logs and guest memory are files.
MOST_MEMORY = 32 << 10
# SIGTERM goes to all of its group; what is not silt blk stays.
NEVER_ENDS = f'trap "" TERM; {SILT} blk --socket-path=$1 --blk-file=$2 & sleep 600'
CUTTER = """
import os, select, socket, subprocess, sys
silt, path, image = sys.argv[1:]
SET_VRING_ADDR = 9
def cut(fd):
    if "silt-check-memory" in os.readlink(f"/proc/self/fd/{fd}"):
        try:
            os.ftruncate(fd, 0)
        except PermissionError:
            pass # it is sealed
    os.close(fd)
def forward(source, to):
    data, fds, _, _ = socket.recv_fds(source, 4096, 8)
    if to is front and data[:1] == bytes([SET_VRING_ADDR]):
        answers.append(data)
    if len(answers) == 2: # the ring has its address, and logs
        while shared:
            cut(shared.pop())
    if data:
        socket.send_fds(to, [data], fds)
    shared.extend(fds)
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
    shared, answers = [], []
    try:
        while all(forward(s, back if s is front else front)
                  for s in select.select([front, back], [], [])[0]):
            pass
    except OSError:
        pass
    front.close()
    back.close()
    blk.wait()
"""
SAFE = ("correct", "ignored", "refused")


class Hostile(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.dir = pathlib.Path(place.name)

    def check(self, *arguments, status, **env):
        report = self.dir / "report.json"
        done = subprocess.run([SILT, "check", "--hostile", f"--json={report}", *arguments],
                              text=True, capture_output=True, timeout=600, check=False,
                              env={**os.environ, **env})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.output = done.stdout + done.stderr
        return json.loads(report.read_text())["scenarios"] if report.exists() else []

    def verdicts(self, scenarios):
        return collections.Counter(s["verdict"] for s in scenarios)

    def proof(self, scenarios):
        """Nothing was left out, and each kind of verdict occurs."""
        self.assertTrue(all(s["result"] == "pass" and s["mode"] == "hostile" for s in scenarios))
        self.assertEqual(set(self.verdicts(scenarios)), set(SAFE))
        for scenario in scenarios:
            self.assertRegex(scenario["reason"], r"^a (frontend|guest).*: ", scenario["name"])
        self.assertIn("0 hung, 0 crashed, 0 wrote outside", self.output)

    def failure(self, verdict, *arguments, **env):
        scenarios = self.check(*arguments, status=1, **env)
        self.assertEqual(set(s["result"] for s in scenarios), {"fail"})
        self.assertEqual(set(self.verdicts(scenarios)), {verdict}, self.output)
        for scenario in scenarios:
            self.assertIn(f"{verdict.upper()} {scenario['name']}\n", self.output)
            self.assertIn(scenario["repro"], self.output)
        return scenarios

    def shell(self, script):
        """A backend that is silt blk in the clothes of a worse one."""
        return ["--", "sh", "-c", script, "sh", "{socket}", "{image}"]


@unittest.skipUnless(WHAT in ("quick", "all"), "another build's")
class Safe(Hostile):
    quick = ["--quick"] if WHAT == "quick" else []

    def test_silt_blk_started_afresh_for_each_case(self):
        self.proof(self.check("--self-test", *self.quick, status=0))

    def status(self, pid, key):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(rf"^{key}:\s*(\d+)", text, re.M)[1])

    def resources(self, pid):
        return (len(os.listdir(f"/proc/{pid}/fd")), self.status(pid, "Threads"))

    def test_one_silt_blk_for_all_cases(self):
        path = str(self.dir / "socket")
        with open(self.dir / "image", "wb") as image:
            image.truncate(16 << 20)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        blk = subprocess.Popen([SILT, "blk", f"--fd={listener.fileno()}", "--num-queues=2",
                                f"--blk-file={self.dir}/image"],
                               pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
        listener.close()
        self.addCleanup(blk.wait)
        self.addCleanup(blk.kill)
        # One case first: whatever is made on demand is there then.
        self.check(f"--socket-path={path}", "--allow-writes", "--only=hostile/log-flood/good",
                   status=0)
        before = self.resources(blk.pid)
        self.proof(self.check(f"--socket-path={path}", "--allow-writes", *self.quick, status=0))
        self.assertEqual(self.resources(blk.pid), before, "file descriptors, threads")
        self.assertLess(self.status(blk.pid, "RssAnon"), MOST_MEMORY)
        self.assertLess(self.status(blk.pid, "VmPeak"), 1 << 20, "address space")
        blk.terminate()
        self.assertEqual(blk.wait(timeout=20), 0)


@unittest.skipUnless(WHAT in ("quick", "all"), "another build's")
class Verdicts(Hostile):
    def test_others_backends_are_left_alone(self):
        for target in (["--socket-path=/nonexistent"], ["--listen=/nonexistent/socket"],
                       ["--", SILT, "blk", "--socket-path={socket}", "--blk-file=/nonexistent"]):
            self.check(*target, status=2)
            self.assertIn("--allow-writes must be given", self.output)

    def test_it_is_never_part_of_the_ordinary_run(self):
        listed = subprocess.run([SILT, "check", "--list"], text=True, capture_output=True,
                                check=True).stdout
        self.assertNotIn("hostile/", listed)
        listed = subprocess.run([SILT, "check", "--list", "--hostile"], text=True,
                                capture_output=True, check=True).stdout
        self.assertIn("hostile/chain/loop-self/direct/logged\n", listed)
        self.assertNotIn("snapshot/", listed)

    def test_a_backend_that_does_not_end_hangs(self):
        self.failure("hung", "--only=hostile/silence/connected",
                     *self.shell(NEVER_ENDS))

    def test_a_backend_that_dies_of_a_signal_crashes(self):
        scenarios = self.failure("crashed", "--only=hostile/silence/connected", *self.shell(
            f'trap "echo last words; kill -SEGV $$" TERM; {SILT} blk --socket-path=$1 '
            '--blk-file=$2 & wait'))
        self.assertIn("died of signal 11 (Segmentation fault); its last lines:\nlast words",
                      scenarios[0]["reason"])

    def test_a_backend_that_ends_with_its_connection_is_started_again(self):
        # The shell ends, and with it its group, when the first connection was closed.
        scenarios = self.check("--only=hostile/disconnect/*/once", "--", sys.executable, "-c", (
            "import socket, subprocess, sys\n"
            "l = socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen()\n"
            "s, _ = l.accept(); l.close()\n"
            f"subprocess.run(['{SILT}', 'blk', f'--fd={{s.fileno()}}',\n"
            "                '--blk-file=' + sys.argv[2]], pass_fds=[s.fileno()])\n"),
                               "{socket}", "{image}", status=0)
        self.assertEqual(set(self.verdicts(scenarios)), {"correct"})

    def test_a_backend_may_take_guest_memory_away(self):
        # Between the checker and silt blk, once all is set up.
        cutter = self.dir / "cutter.py"
        cutter.write_text(CUTTER)
        for only, status in ("hostile/chain/empty/*/logged", 0), ("hostile/memory-gone/*", 1):
            scenarios = self.check(f"--only={only}", "--", sys.executable, str(cutter), SILT,
                                   "{socket}", "{image}", status=status)
            self.assertEqual(collections.Counter(s["result"] for s in scenarios)["error"], 0,
                             self.output)

    def test_no_log_is_taken_away_from_a_backend_that_has_none(self):
        # What silt blk offers, but for VHOST_F_LOG_ALL, bit 26.
        relay = ("import os, socket, subprocess, sys, threading\n"
                 "l = socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen()\n"
                 "def carry(a, b, hide):\n"
                 "    while True:\n"
                 "        data, fds, _, _ = socket.recv_fds(a, 4096, 8)\n"
                 "        if hide and data[:4] == b'\\1\\0\\0\\0':\n"
                 "            data = data[:15] + bytes([data[15] & ~4]) + data[16:]\n"
                 "        if not data:\n"
                 "            return b.shutdown(socket.SHUT_RDWR)\n"
                 "        socket.send_fds(b, [data], fds)\n"
                 "        [os.close(fd) for fd in fds]\n"
                 "while True:\n"
                 "    a, _ = l.accept()\n"
                 "    b, theirs = socket.socketpair()\n"
                 f"    subprocess.Popen(['{SILT}', 'blk', f'--fd={{theirs.fileno()}}',\n"
                 "                      '--blk-file=' + sys.argv[2]], pass_fds=[theirs.fileno()])\n"
                 "    theirs.close()\n"
                 "    for ends in (a, b, False), (b, a, True):\n"
                 "        threading.Thread(target=carry, args=ends, daemon=True).start()\n")
        scenarios = self.check("--only=hostile/log-gone/*/busy", "--", sys.executable, "-c",
                               relay, "{socket}", "{image}", status=77)
        self.assertEqual({s["result"] for s in scenarios}, {"skip"})
        self.assertIn("it has no log", scenarios[0]["reason"])

    def test_known_failures(self):
        command = ["--only=hostile/silence/connected",
                   *self.shell(NEVER_ENDS)]
        baseline = f"--baseline={self.dir}/known"
        self.check(baseline, "--write-baseline", *command, status=0)
        self.assertIn("hostile/silence/connected\thung\t-\n", (self.dir / "known").read_text())
        self.check(baseline, *command, status=0)

    def test_repro_shows_the_case_again(self):
        first = self.check("--self-test", "--only=hostile/chain/empty/*/logged", status=0)[0]
        words = shlex.split(first["repro"])
        self.assertEqual(words[:2], ["silt", "check"])
        words.remove("--hostile")
        again = self.check(*words[2:], status=0)
        self.assertEqual([s["name"] for s in again], [first["name"]])


@unittest.skipUnless(WHAT == "mutants", "not in a release")
class Mutants(Hostile):
    def test_a_log_at_the_wrong_place_is_seen(self):
        scenarios = self.failure("wrote outside", "--self-test",
                                 "--only=hostile/log-place/*/exact",
                                 SILT_FAULT="log_offset_ignored")
        for scenario in scenarios:
            self.assertIn("before its start", scenario["reason"])

    def test_a_hang_is_seen(self):
        self.failure("hung", "--self-test", "--only=hostile/chain/loop-empty/*/unlogged",
                     "--timeout=1s", SILT_FAULT="chain_unbounded")

    def test_a_crash_is_seen(self):
        scenarios = self.failure("crashed", "--self-test", "--only=hostile/chain/empty/*/logged",
                                 SILT_FAULT="die_on_request")
        for scenario in scenarios:
            self.assertRegex(scenario["reason"], "(during the case|by the time of the next "
                             f"connection) the backend died of signal {signal.SIGSEGV.value}")


unittest.main(verbosity=2)
