#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""silt demo: migrations that work, and migrations that are broken off anywhere.

    demo.py SILT kvm|threads COUNT [SEED]
                                     so many migrations, one after the other
    demo.py SILT cut|kill-source|kill-destination|cancel COUNT [SEED]
                                     broken off at so many random bytes, and around the switchover
    demo.py SILT points              ... at points of the program: in builds with -Dmutants=true
    demo.py SILT faults              a disk that does not log all it writes is seen: there, too
    demo.py SILT dead-disk           silt blk is killed under the source
    demo.py SILT slow                two network namespaces, and a slow link between them
"""
import atexit
import ctypes
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

import proxy

PR_SET_CHILD_SUBREAPER = 36
SKIPPED = 77
SMALL = ["--memory=16M", "--rate=20000", "--disk=200", "--before=20", "--after=20"]
LIMIT_S = 100
# struct link_verdict: whoever loses that knows only that it was said.
VERDICT = 24
POINTS = {
    "source": ["track", "round", "pause", "paused", "saved", "last-round"],
    "destination": ["round", "load", "loaded", "start", "started"],
}
# In tests of what a disk's backend loses: what it does not mark is in pages that only it writes.
FAULTS = {
    "data_unlogged": {},
    "data_last_page": {},
    "used_flag_ignored": {},
    # ... in a second migration, after one that was cancelled.
    "log_all_ignored_after_toggle": {"SILT_DEMO_CANCEL": "source-round"},
}


STARTED = []


def start(arguments, **more):
    """A process that does not outlive this one, whatever comes."""
    process = subprocess.Popen(arguments, text=True, stderr=subprocess.STDOUT, **more)
    STARTED.append(process)
    return process


def end_started():
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.wait()


def skip(why):
    print(why)
    sys.exit(SKIPPED)


def fail(what, *outputs):
    sys.exit("\n".join([what, *outputs]))


def run(silt, arguments, **more):
    done = subprocess.run([silt, "demo", *arguments], text=True, capture_output=True,
                          timeout=LIMIT_S, check=False, **more)
    return done.returncode, done.stdout + done.stderr


def check_report(report):
    rows = report["rows"]
    assert report["result"] == "equal", report["result"]
    assert re.fullmatch("[0-9a-f]{32}", report["source_hash"])
    assert report["source_hash"] == report["destination_hash"]
    assert report["counters"]["wrong_pages"] == report["counters"]["wrong_pages_later"] == 0
    assert report["counters"]["writes_later"] > report["counters"]["writes"] > 0
    assert report["counters"]["reads_later"] > report["counters"]["reads"] > 0
    assert report["rounds"] == len(rows) >= 2
    assert [row["round"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["last"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert sum(row["pages"] for row in rows) == report["pages_sent"]
    assert rows[0]["pages"] == sum(column["pages"] for column in report["columns"])
    # The soonest answer is what the way takes, not the first one.
    trips = [row["rtt_ms"] for row in rows]
    assert trips == sorted(trips, reverse=True) and trips[-1] > 0, trips
    for row in rows:
        assert sum(row["taken"]) == row["pages"], row
    assert 0 < report["downtime_ms"] < report["total_ms"]
    assert any(column["owner"] == "disk" for column in report["columns"])
    # Each owner of pages was seen to write some of them.
    wrote = {column["owner"] for row in rows[1:]
             for column, taken in zip(report["columns"], row["taken"]) if taken}
    assert wrote == {column["owner"] for column in report["columns"]}, wrote


def check_page(text, report):
    assert report["source_hash"] in text and "uPlot" in text and "MIT License" in text
    assert "@" + "DATA@" not in text and not re.search(r'(src|href)="', text)


def migrate(silt, kind, count, first):
    """Each with a report; the last also as a page."""
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as place:
            report, page = pathlib.Path(place, "report.json"), pathlib.Path(place, "page.html")
            arguments = [f"--seed={seed}", f"--json={report}", f"--html={page}", "--after=50",
                         "--memory=64M", "--pattern=" + ["random", "runs", "sequential"][seed % 3]]
            if kind == "threads":
                arguments.append("--no-kvm")
            status, said = run(silt, arguments)
            if status:
                fail(f"seed {seed}: exit {status}", said)
            data = json.loads(report.read_text())
            if kind == "kvm" and not data["guest"]["kvm"]:
                skip(said.splitlines()[0])
            try:
                check_report(data)
                check_page(page.read_text(), data)
            except AssertionError:
                print(said)
                raise
    print(f"{count} migrations, memory equal")


class Destination:
    """A silt demo that listens, and what it said in the end."""

    def __init__(self, silt):
        self.process = start([silt, "demo", "--listen=127.0.0.1:0", "--timeout=1000"],
                             stdout=subprocess.PIPE)
        self.said = self.process.stdout.readline()
        self.port = int(self.said.split()[-1])

    def wait(self):
        self.said += self.process.communicate(timeout=LIMIT_S)[0]
        return self.process.returncode

    def ran(self):
        return "the guest runs here" in self.said


class Breaking:
    """One migration that is broken off, and the one after it."""

    def __init__(self, silt, how, trigger):
        self.silt, self.how, self.trigger = silt, how, trigger
        self.first = Destination(silt)
        self.proxy = proxy.Proxy()
        self.proxy.trigger = trigger
        self.proxy.action = {"cut": None, "none": lambda: None,
                             "kill-source": lambda: self.source.kill(),
                             "kill-destination": lambda: self.first.process.kill(),
                             "cancel": lambda: self.source.send_signal(signal.SIGINT)}[how]
        self.proxy.up(self.first.port)
        self.source = self.start_source()

    def start_source(self):
        # A pipe that nobody reads yet could fill up.
        out = tempfile.TemporaryFile("w+")
        source = start([self.silt, "demo", f"--to=127.0.0.1:{self.proxy.port}",
                        "--attempts=1000", *SMALL], stdout=out)
        source.out = out
        return source

    @staticmethod
    def hear(source):
        """It has ended. Return: what it said."""
        source.wait(timeout=LIMIT_S)
        source.out.seek(0)
        with source.out:
            return source.out.read()

    def wrong(self, what, *outputs):
        fail(f"{self.how} at {self.trigger}: {what}", "-- first destination", self.first.said,
             *outputs)

    def finish(self):
        """The first destination has ended. Return: did the guest run there?"""
        status = self.first.wait()
        self.proxy.down()
        if self.how == "kill-source" and self.proxy.fired.is_set():
            return self.finish_without_source(status)
        if (self.how == "kill-destination" and status == -signal.SIGKILL
                and proxy.STARTED in self.proxy.seen):
            return self.finish_without_guest()
        if self.first.ran():
            said = self.hear(self.source)
            if self.how == "cancel" and self.source.returncode == -signal.SIGINT:
                return self.finish_without_source(status)  # there was nothing left to cancel
            if status or self.source.returncode or not said.endswith("\nequal\n"):
                self.wrong(f"it ran there, exit {status}, source {self.source.returncode}", said)
            if said.count("source:") != 1:
                self.wrong("it ran there, and was migrated again", said)
            return True
        if not status:
            self.wrong("it did not run there, yet all is well")
        self.migrate_again(self.source)
        return False

    def finish_without_source(self, status):
        if self.how == "kill-source":
            self.hear(self.source)
        if not status:
            self.wrong("a guest whose source died is said to be equal")
        self.migrate_again(self.start_source())
        return self.first.ran()

    def finish_without_guest(self):
        """It had been handed over: that it was lost there is no reason to run it here."""
        said = self.hear(self.source)
        if said.endswith("\nequal\n") and not self.source.returncode:
            return True  # killed when all was said
        if self.source.returncode != 1 or not re.search("^unsure: ", said, re.MULTILINE):
            self.wrong(f"the guest was lost there, source {self.source.returncode}", said)
        self.migrate_again(self.start_source())
        return True

    def migrate_again(self, source):
        second = Destination(self.silt)
        self.proxy.up(second.port)
        said = self.hear(source)
        if self.how == "cancel" and source.returncode == -signal.SIGINT:
            source = self.start_source()  # there was nothing yet to cancel
            said = self.hear(source)
        if source.returncode:
            second.process.kill()
        status = second.wait()
        self.proxy.down()
        if status or source.returncode or not said.endswith("\nequal\n") or not second.ran():
            self.wrong(f"the second: exit {source.returncode}, {status}", said,
                       "-- second destination", second.said)


def measure(silt):
    """The bytes of a migration, both ways."""
    b = Breaking(silt, "none", None)
    assert b.finish()
    return b.proxy.bytes


def triggers(total, count, rng):
    """At random bytes, some of them near the end; and around the frames that hand the guest over."""
    chosen = [proxy.Trigger("forward", rng.randrange(total["forward"] - VERDICT))
              for _ in range((count + 1) // 2)]
    chosen += [proxy.Trigger("backward", rng.randrange(total["backward"]))
               for _ in range(count // 2)]
    size = proxy.HEADER.size
    for direction, frame in (("forward", proxy.LOAD), ("backward", proxy.LOADED),
                             ("forward", proxy.START), ("backward", proxy.STARTED)):
        chosen += [proxy.Trigger(direction, at, frame) for at in (0, size // 2, size)]
    return chosen


def break_off(silt, how, count, seed):
    rng = random.Random(seed)
    there = fired = 0
    chosen = triggers(measure(silt), count, rng)
    for trigger in chosen:
        b = Breaking(silt, how, trigger)
        there += b.finish()
        fired += b.proxy.fired.is_set()
    print(f"{how}: {len(chosen)} times, {fired} of them in time; it ran there {there} times")
    if fired < len(chosen) / 2:
        fail("most came too late")


def end_orphans(what):
    """What a killed source left behind ends by itself, and with an error."""
    while True:
        try:
            signal.alarm(LIMIT_S)
            pid, status = os.wait()
            signal.alarm(0)
        except ChildProcessError:
            signal.alarm(0)
            return
        name = f"{what}: orphan {pid}"
        if os.WIFSIGNALED(status):
            fail(f"{name} ended by signal {os.WTERMSIG(status)}")


def points(silt):
    """
    The destination is the source's own child; a second migration follows. The last round is told of
    when the guest has been handed over: then it runs there.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for action in "KILL", "CUT", "CANCEL":
        for side, names in POINTS.items():
            for name in names if (action, side) != ("CANCEL", "destination") else []:
                what = f"{action.lower()} at {side}-{name}"
                status, said = run(silt, ["--attempts=2", "--timeout=2000", *SMALL],
                                   env={**os.environ, f"SILT_DEMO_{action}": f"{side}-{name}"})
                if action == "KILL" and side == "source":
                    if status != -signal.SIGKILL:
                        fail(f"{what}: exit {status}", said)
                    end_orphans(what)
                    continue
                ran_there = name in ("last-round", "start", "started") and action != "KILL"
                attempts = 1 + len(re.findall("^(?:failed|cancelled): ", said, re.MULTILINE))
                if status or "\nequal\n" not in said or ran_there != (attempts == 1):
                    fail(f"{what}: exit {status}, {attempts} attempts", said)
    print("every point")


def faults(silt):
    for fault, more in FAULTS.items():
        arguments = ["--attempts=2", "--memory=64M", "--disk=400", "--rate=5000", "--after=20"]
        status, said = run(silt, arguments, env={**os.environ, **more, "SILT_FAULT": fault})
        if status != 1 or "\ndifferent: " not in said:
            fail(f"{fault}: not seen, exit {status}", said)
    print(f"{len(FAULTS)} faults seen")


def ip(*arguments):
    done = subprocess.run(arguments, text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(arguments)}: {done.stderr.strip()}")


def make_link(names, rate):
    """Two namespaces with addresses for documentation, and a link of so many bits a second."""
    ends = ["silt0", "silt1"]
    for name in names:
        ip("ip", "netns", "add", name)
    ip("ip", "link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1],
       "netns", names[1])
    for i, name in enumerate(names):
        ip("ip", "-n", name, "address", "add", f"192.0.2.{i + 1}/24", "dev", ends[i])
        ip("ip", "-n", name, "link", "set", ends[i], "up")
    ip("tc", "-n", names[0], "qdisc", "add", "dev", ends[0], "root", "tbf", "rate", f"{rate}bit",
       "burst", "64kb", "latency", "50ms")


def migrate_slowly(silt, names, rate, place):
    there = start(["ip", "netns", "exec", names[1], silt, "demo", "--listen=:7000"],
                  stdout=subprocess.PIPE)
    there.stdout.readline()
    report = pathlib.Path(place, "report.json")
    done = subprocess.run(["ip", "netns", "exec", names[0], silt, "demo", "--to=192.0.2.2:7000",
                           "--memory=32M", "--rate=1000", "--disk=20", f"--json={report}"],
                          text=True, capture_output=True, timeout=LIMIT_S, check=False)
    said = there.communicate(timeout=LIMIT_S)[0]
    if done.returncode or there.returncode:
        fail(f"exit {done.returncode}, {there.returncode}", done.stdout + done.stderr, said)
    data = json.loads(report.read_text())
    check_report(data)
    seconds, link = data["total_ms"] / 1000, rate / 8
    print(f"{data['bytes_sent']} bytes in {seconds:.2f} s, {data['rounds']} rounds, "
          f"{data['downtime_ms']:.0f} ms down")
    # The link held it up: nothing else would.
    assert data["bytes_sent"] / seconds < 1.2 * link


def slow(silt):
    names = [f"silt-{os.getpid()}-{i}" for i in range(2)]
    rate = 200_000_000
    try:
        try:
            make_link(names, rate)
        except (OSError, FileNotFoundError) as error:
            skip(f"no network namespaces with a slow link here: {error}")
        with tempfile.TemporaryDirectory() as place:
            migrate_slowly(silt, names, rate, place)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def children(pid):
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def name(pid):
    """The first argument; none if it has just ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return b""


def dead_disk(silt):
    """silt blk dies while its guest migrates slowly: that is said, and the guest stays."""
    source = start([silt, "demo", "--memory=16M", "--bandwidth=8M", "--disk=100"],
                   stdout=subprocess.PIPE)
    said = source.stdout.readline()
    disks = [child for child in children(source.pid) if name(child) == b"silt-blk"]
    if len(disks) != 1:
        fail("no silt blk", said, source.communicate(timeout=LIMIT_S)[0])
    os.kill(disks[0], signal.SIGKILL)
    said += source.communicate(timeout=LIMIT_S)[0]
    if source.returncode != 1 or not re.search("^failed: .*silt blk has ended", said,
                                               re.MULTILINE):
        fail(f"a dead disk: exit {source.returncode}", said)
    print("a dead disk is told of")


def main():
    atexit.register(end_started)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    silt, what, *more = sys.argv[1:]
    silt = os.path.abspath(silt)
    if what in ("kvm", "threads"):
        migrate(silt, what, int(more[0]), int(more[1]) if len(more) > 1 else 1)
    elif what in ("points", "faults", "slow", "dead-disk"):
        {"points": points, "faults": faults, "slow": slow, "dead-disk": dead_disk}[what](silt)
    else:
        break_off(silt, what, int(more[0]), int(more[1]) if len(more) > 1 else 1)


main()
