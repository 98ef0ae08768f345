#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A real guest on silt blk, migrated live between two QEMUs.

    test_migrate.py SILT WORKLOAD SCENARIO...

The guest fills buffers from its disk all the while and compares them with what the disk is known to
hold. When it has moved, and before it goes on, all of its memory is compared between source and
target, page by page; at the end the disk is compared with what the guest wrote.
"""
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import cloud
import disk
from machine import Backend, Failure, Machine, stale_pages, tail
from mitm import Relay
from stream import Stream

HERE = pathlib.Path(__file__).resolve().parent
BUFFERS = 1500
PATIENCE = 60  # seconds for any single event
FIRST_PART = 64 << 20  # bytes of a migration, less than its first pass
# A busy guest has more than a millisecond's worth to send; 0 would end it after one pass.
SLOW = {"max_bandwidth": 100 << 20, "downtime_limit": 1}
FAST = {"max_bandwidth": 100 << 30, "downtime_limit": 60000}
ROUND = r"round bad-pages=(\d+)"
VERIFIED = r"verified bad-pages=(\d+)"
RING_PACKED = 34  # a feature
BUSY_PASS = 4  # the pass of pre-copy under load from which on the switchover is allowed


class World:
    """What one scenario has started; all of it ends with the scenario."""

    def __init__(self, silt, workload, directory):
        self.silt = silt
        self.directory = directory
        self.boot_files = cloud.boot_files(directory,
                                           {"init": HERE / "init", "workload": workload})
        self.image = directory / "image"
        disk.create(self.image)
        self.started = []
        self.packed = False  # the guests' rings

    def _start(self, what, *arguments, **more):
        program = what(self.directory, *arguments, **more)
        self.started.append(program)
        return program

    def backend(self, name):
        return self._start(Backend, name, [self.silt, "blk", f"--blk-file={self.image}",
                                           "--num-queues=2"], PATIENCE)

    def relay(self, backend, lose_log=False):
        return Relay(f"{backend.path}.relay", backend.path, lose_log)

    def machine(self, name, path, incoming):
        workload = f"/dev/vda {BUFFERS} {disk.READ_CHUNKS} {disk.WRITE_CHUNKS}"
        machine = self._start(Machine, name, self.boot_files, workload, path, PATIENCE,
                              incoming=incoming, packed=self.packed)
        machine.connect()
        return machine

    def boot(self, name, path):
        """A machine whose buffers are all filled, under load."""
        machine = self.machine(name, path, incoming=False)
        machine.hear("ready")
        machine.ask("run", "running")
        expect_no_bad_page(machine.ask("round", ROUND))
        return machine

    def end(self):
        for program in self.started:
            if isinstance(program, Machine) and program.process.poll() is None:
                program.quit()
        for program in self.started:
            if isinstance(program, Backend):
                program.stop()

    def kill(self):
        for program in self.started:
            program.kill()

    def show_outputs(self):
        for program in self.started:
            for name, path in program.outputs().items():
                print(f"---- {name}\n{tail(path)}")


def expect_no_bad_page(answer):
    if answer[1] != "0":
        raise Failure(f"the guest found {answer[1]} pages that are not what the disk holds")


def begin_migration(world, source, target):
    """Return: the migration's stream, held in the middle of the first pass. Every buffer is filled
    once more until then: those that were sent already are old at the target."""
    path = f"{world.directory}/{target.name}.migration"
    target.qmp.command("migrate-incoming", uri=f"unix:{path}")
    stream = Stream(f"{path}.source", path, FIRST_PART)
    source.qmp.events.clear()  # of an earlier migration
    source.qmp.command("migrate-set-parameters", **SLOW)
    source.qmp.command("migrate", uri=f"unix:{stream.path}")
    if not stream.held.wait(PATIENCE):
        raise Failure(f"{source.name}: {FIRST_PART} bytes were not sent within {PATIENCE} s")
    expect_no_bad_page(source.ask("round", ROUND))
    return stream


def status(machine):
    return machine.qmp.command("query-migrate")["status"]


def wait_for_pass(source, number):
    while True:
        name, data = source.qmp.wait_event("MIGRATION_PASS", "MIGRATION")
        if name == "MIGRATION_PASS" and data["pass"] >= number:
            return
        # Where CPUs are few, the guest may not have run for so long that nothing was left to send.
        if data.get("status") in ("completed", "failed"):
            return


def wait_for_status(machine, wanted):
    while (is_now := status(machine)) != wanted:
        if is_now in ("failed", "completed", "cancelled"):
            raise Failure(f"{machine.name}: migration {is_now}, not {wanted}")
        machine.qmp.wait_event("MIGRATION")


def end_migration(source, target):
    """Return: how many pages of memory did not arrive. The target stays paused."""
    source.qmp.command("migrate-set-parameters", **FAST)
    wait_for_status(source, "completed")
    wait_for_status(target, "completed")
    stale = stale_pages(source, target)
    figures = source.qmp.command("query-migrate")
    print(f"{source.name} to {target.name}: {figures['total-time']} ms,"
          f" {figures['ram']['dirty-sync-count']} passes, {figures['downtime']} ms down,"
          f" {len(stale)} stale pages", *map(hex, stale[:8]))
    source.quit()
    return len(stale)


def expect_no_stale_page(stale):
    if stale:
        raise Failure(f"{stale} pages differ between source and target")


def migrate_under_load(world, source, target):
    begin_migration(world, source, target).open()
    wait_for_pass(source, BUSY_PASS)
    expect_no_stale_page(end_migration(source, target))
    target.qmp.command("cont")


def check_guest(machine):
    """The guest goes on where it was, with what it had; it is under load again afterwards."""
    expect_no_bad_page(machine.ask("verify", VERIFIED))
    machine.ask("run", "running")
    expect_no_bad_page(machine.ask("round", ROUND))


def check_disk(world, machine):
    expect_no_bad_page(machine.ask("verify", VERIFIED))
    writes = int(machine.ask("finish", r"finished writes=(\d+)")[1])
    wrong = disk.wrong_chunks(world.image, writes)
    print(f"{writes} writes, {len(wrong)} wrong chunks on the disk")
    if wrong:
        raise Failure(f"chunks of the disk are not what the guest left after {writes} writes:"
                      f" {wrong[:8]}")


def load(world):
    a, b = world.backend("a"), world.backend("b")
    source = world.boot("first", a.path)
    target = world.machine("second", b.path, incoming=True)
    migrate_under_load(world, source, target)
    check_guest(target)
    check_disk(world, target)


def packed(world):
    """Packed rings, of which no record is kept of what is in flight."""
    world.packed = True
    relay = world.relay(world.backend("a"))
    b = world.backend("b")
    source = world.boot("first", relay.path)
    if not relay.features >> RING_PACKED & 1:
        raise Failure(f"features {relay.features:#x} were acknowledged, without packed rings")
    target = world.machine("second", b.path, incoming=True)
    migrate_under_load(world, source, target)
    check_guest(target)
    check_disk(world, target)


def cancel(world):
    """A cancelled migration leaves no trace: logging ends, and the next one is whole."""
    a, b = world.backend("a"), world.backend("b")
    relay = world.relay(a)
    source = world.boot("first", relay.path)
    target = world.machine("second", b.path, incoming=True)
    stream = begin_migration(world, source, target)
    source.qmp.command("migrate_cancel")
    wait_for_status(source, "cancelled")
    stream.open()
    target.process.wait(PATIENCE)
    check_guest(source)
    if relay.logging != [True, False]:
        raise Failure(f"LOG_ALL was set to {relay.logging} when the migration was cancelled")

    target = world.machine("third", b.path, incoming=True)
    migrate_under_load(world, source, target)
    if relay.logging[:3] != [True, False, True] or relay.logs < 2:
        raise Failure(f"LOG_ALL was set to {relay.logging}, with {relay.logs} logs")
    check_guest(target)
    check_disk(world, target)


def back(world):
    """There and back again, each time under load: the first backend serves once more."""
    a, b = world.backend("a"), world.backend("b")
    first = world.boot("first", a.path)
    second = world.machine("second", b.path, incoming=True)
    migrate_under_load(world, first, second)
    check_guest(second)
    third = world.machine("third", a.path, incoming=True)
    migrate_under_load(world, second, third)
    check_guest(third)
    check_disk(world, third)


def run_dry(world, path, target):
    """The load ends in the middle of a migration. Return: the pages that did not arrive."""
    source = world.boot("first", path)
    stream = begin_migration(world, source, target)
    source.ask("idle", "idle")
    stream.open()
    return end_migration(source, target)


def dry(world):
    a, b = world.backend("a"), world.backend("b")
    target = world.machine("second", b.path, incoming=True)
    expect_no_stale_page(run_dry(world, a.path, target))
    target.qmp.command("cont")
    check_guest(target)
    check_disk(world, target)


def control(world):
    """Without the dirty log both comparisons must fail, or they would prove nothing. The queues are
    dry, so that the guest needs no ring to say what it sees."""
    a, b = world.backend("a"), world.backend("b")
    target = world.machine("second", b.path, incoming=True)
    stale = run_dry(world, world.relay(a, lose_log=True).path, target)
    target.qmp.command("cont")
    bad = int(target.ask("verify", VERIFIED)[1])
    # Its memory is what it is: there is nothing more to learn from it, and QEMU may complain.
    target.kill()
    print(f"the log was lost: {stale} stale pages, of which the guest saw {bad}")
    if not stale or not bad:
        raise Failure("the dirty log was lost, and nobody saw it")


SCENARIOS = {f.__name__: f for f in (load, packed, cancel, back, dry, control)}


def run(name, silt, workload):
    """Return: did it pass?"""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        world = World(silt, workload, pathlib.Path(place))
        try:
            SCENARIOS[name](world)
            world.end()
        except Exception:  # whatever it is, people want to see what the programs said
            traceback.print_exc(file=sys.stdout)
            world.show_outputs()
            return False
        finally:
            world.kill()
    print(f"{name}: passed in {time.monotonic() - began:.1f} s")
    return True


def main(silt, workload, *names):
    # A test that is told to end takes everything that it has started with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        results = [run(name, silt, workload) for name in names]
    except cloud.Unavailable as reason:
        print(f"no guest to migrate: {reason}")
        return 77
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
