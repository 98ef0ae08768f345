#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each deliberate fault of the libraries and of silt blk, and what silt check must say of it.

    mutants.py list SOURCE_DIR          the kinds in the sources, one a line
    mutants.py sync SOURCE_DIR          those of the sync engine, of which no backend is made
    mutants.py run SILT NET SOURCE_DIR KIND
                                        is this one seen, and is what is blamed really wrong?
                                        KIND@packed: where rings are packed?
    mutants.py clean SILT NET RUNS      quick runs without a fault, each with another seed: all pass

NET is the network backend of the tests. Kinds that end with -net are sought in it.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PAGE = 4096
# Whether a request is in flight at the moment that matters is left to chance: other seeds are tried.
TRIES = 8

# The faults of pages: class, and how the description of what lies there begins. One page of that
# kind has to be among the missed ones.
MISSES = {
    "batch_first_only": ("data", "read data"),
    "data_first_page_only": ("data", "read data"),
    "data_last_page": ("data", "read data"),
    "data_read_unlogged": ("data", "read data"),
    "data_unlogged": ("data", "read data"),
    "desc_reread": ("data", "read data"),
    "early_mark": ("data", "read data"),
    "error_path_unlogged": ("completion", "status of failed read"),
    "die_after_publish,restart_ring_unmarked": ("completion", "used "),
    "event_unlogged": ("bookkeeping", "event field"),
    "flags_unlogged": ("bookkeeping", "used ring flags"),
    "getid_unlogged": ("data", "get-id data"),
    "gpa_as_offset": ("data", "read data"),
    "held_marks_dropped": ("data", "read data"),
    "indirect_unlogged": ("data", "read data"),
    "iommu_first_gpa_only": ("data", "read data"),
    "iommu_first_mapping_only": ("data", "read data"),
    "iommu_iova_logged": ("data", "read data"),
    "iommu_ring_iova_logged": ("completion", "used index"),
    "inflight_toggle": ("data", "read data"),
    "last_byte": ("data", "read data"),
    "log_all_ignored_after_toggle": ("data", "read data"),
    "log_offset_ignored": ("completion", "status"),
    "log_range_loses_tail": ("data", "read data"),
    "log_swap_lost": ("data", "read data"),
    "mark_after_replace": ("data", "read data"),
    "mark_one_in_100_lost": ("data", "read data"),
    "new_region_unlogged": ("data", "read data"),
    "page_shift": ("data", "read data"),
    "partial_page": ("data", "read data"),
    "publish_unflushed": ("completion", "used index"),
    "ring_marked_early": ("completion", "used index"),
    "second_queue_unlogged": ("data", "read data"),
    "second_seg_unlogged": ("completion", "status of"),
    "status_unlogged": ("completion", "status of"),
    "stop_unflushed": ("bookkeeping", "event field"),
    "straddle2": ("data", "read data"),
    "test_first_no_fence": ("completion", "used index"),
    "used_entry_unlogged": ("completion", "used entry"),
    "used_flag_ignored": ("completion", "used index"),
    "used_gpa_ignored": ("completion", "used index"),
    "used_index_unlogged": ("completion", "used index"),
    "wrap_unlogged": ("completion", "used entry"),
}

# With packed rings, which have no used index: those of the faults that differ there, or that the
# ring's format could hide. Whether a batch reaches over a page's end is left to chance: the fault
# packed_batch_first_only is seen by the tests of lib/virtq.
PACKED_MISSES = {
    "batch_first_only": ("data", "read data"),
    "data_last_page": ("data", "read data"),
    "data_unlogged": ("data", "read data"),
    "desc_reread": ("data", "read data"),
    "event_unlogged": ("bookkeeping", "device area"),
    "flags_unlogged": ("bookkeeping", "device area"),
    "indirect_unlogged": ("data", "read data"),
    "last_byte": ("data", "read data"),
    "publish_unflushed": ("completion", "used descriptor"),
    "ring_marked_early": ("completion", "used descriptor"),
    "second_seg_unlogged": ("completion", "status of"),
    "status_unlogged": ("completion", "status of"),
    "used_entry_unlogged": ("completion", "used descriptor"),
    "used_flag_ignored": ("completion", "used descriptor"),
    "used_gpa_ignored": ("completion", "used descriptor"),
    "wrap_unlogged": ("completion", "used descriptor"),
}
PACKED_ERRORS = {
    "base_before_drain": r"GET_VRING_BASE .* answered before all requests were finished",
    "packed_flags_first": r"used entry \d+: the device does not hold|wrong answer|no completion",
}
# Sought in more scenarios than the covering subset has.
PACKED_ALL = {"ring_marked_early"}
# Missed with one log address only.
AMBIGUOUS = {"packed_descs_at_log_addr"}

# Which of the covering subset's scenarios have to see it, without the others: what is of a
# migration's order of messages, and what only load shows. One fault is sought in all of them, so
# that what is blamed is looked at in each mode.
PARTS = {
    "data_unlogged": "*",
    "early_mark": "shadow/*",
    "iommu_first_gpa_only": "iommu/*",
    "iommu_first_mapping_only": "iommu/*",
    "iommu_iova_logged": "iommu/*",
    "iommu_miss_unsent": "iommu/*",
    "iommu_ring_iova_logged": "iommu/*",
    "iommu_ring_kept": "iommu/moved/*",
    "inflight_toggle": "shadow/*",
    "log_all_ignored_after_toggle": "migration/*",
    "log_swap_lost": "migration/*",
    "mark_after_replace": "shadow/*",
    "ring_marked_early": "shadow/*",
    "mark_one_in_100_lost": "shadow/*",
    "new_region_unlogged": "migration/*",
}
PART = "snapshot/*"

# What only a harvest in the right nanoseconds shows; the scenario ends as soon as it does.
AIMED = {"test_first_no_fence"}

# Faults of what the backend does: a pattern of the reason.
ERRORS = {
    "base_before_drain": r"GET_VRING_BASE .* answered before all requests were finished",
    "die_before_publish,inflight_cleared_early": r"used entry \d+: the device does not hold",
    "die_on_request": r"died of signal \d+",
    "hang_on_flush": r"no completion within \d+ ms on queue \d+ for #\d+ flush",
    "iommu_miss_unsent": r"no completion within \d+ ms on queue \d+",
    "iommu_ring_kept": r"the backend (reported an error|changed guest memory that it may not)"
                       r"|no completion within",
    "inflight_not_resubmitted": r"no completion within \d+ ms",
    "wrong_data": r"wrong answer to #\d+ read .*: byte \d+ of the data",
}

# Deaths: the successor makes up for them, so nothing is wrong.
HARMLESS = {"die_after_publish", "die_before_publish"}

# Faults that only restarts show: which ones.
RESTARTS = {
    "die_after_publish": "restart/*",
    "die_after_publish,restart_ring_unmarked": "restart/*",
    "die_before_publish": "restart/*",
    "die_before_publish,inflight_cleared_early": "restart/busy/*",
    "inflight_not_resubmitted": "restart/busy/*",
}

# Seen by the tests of lib/log, lib/virtq and silt blk. A completion that is not marked, or a
# request that is settled too early, shows only if the backend dies right then: together with a
# death, above. The order in which requests are finished is the device's affair, and one that is
# done again, and succeeds, marks all that it stores. No driver takes a mapping away that is in use.
# silt blk leaves no mark pending where logs are replaced.
ELSEWHERE = {
    "chain_unbounded",
    "inflight_cleared_early",
    "inflight_order",
    "iommu_use_unawaited",
    "log_replace_drops_pending",
    "pending_dropped_on_replace",
    "restart_ring_unmarked",
    "resubmit_unmarked",
    "ring_unrestricted",
    "sandbox_escape",
    "sandbox_escape_abi",
    "sandbox_escape_enter",
    "sandbox_escape_ring",
    "sandbox_escape_sqe",
}

# What the network backend must be seen to do: a class and what lies there, or a reason. The faults
# of the library are those whose marks come another way than in a block backend.
NET = {
    "batch_first_only": ("data", "received frame"),
    "data_first_page_only": ("data", "received frame"),
    "data_last_page": ("data", "received frame"),
    "data_unlogged": ("data", "received frame"),
    "event_unlogged": ("bookkeeping", "event field"),
    "flags_unlogged": ("bookkeeping", "used ring flags"),
    "gpa_as_offset": ("data", "received frame"),
    "held_marks_dropped": ("data", "received frame"),
    "indirect_unlogged": ("data", "received frame"),
    "last_byte": ("data", "received frame"),
    "log_all_ignored_after_toggle": ("data", "received frame"),
    "log_offset_ignored": ("completion", "used index"),
    "log_range_loses_tail": ("data", "received frame"),
    "log_swap_lost": ("data", "received frame"),
    "mark_one_in_100_lost": ("data", "receive"),
    "net_answer_unlogged": ("data", "received frame"),
    "net_data_unlogged": ("data", "received frame"),
    "net_early_mark": ("data", "receive"),
    "net_header_unlogged": ("data", "receive header, bytes 0-"),
    "net_last_buffer_unlogged": ("data", "received frame"),
    "net_num_buffers_unlogged": ("data", "receive header, bytes 10-11"),
    "net_num_buffers_wrong": r"wrong answer to #\d+ receive buffer.*: num_buffers is 0",
    "net_second_buffer_unlogged": ("data", "received frame"),
    "net_second_pair_unlogged": ("data", "received frame"),
    "net_small_unlogged": ("data", "received frame"),
    "net_wrong_data": r"wrong answer to #\d+ receive buffer.*: byte 100 ",
    "new_region_unlogged": ("data", "received frame"),
    "page_shift": ("data", "received frame"),
    "publish_unflushed": ("completion", "used index"),
    "second_seg_unlogged": ("data", "received frame"),
    "stop_unflushed": ("bookkeeping", "event field"),
    "straddle2": ("data", "received frame"),
    "used_entry_unlogged": ("completion", "used entry"),
    "used_flag_ignored": ("completion", "used index"),
    "used_gpa_ignored": ("completion", "used index"),
    "used_index_unlogged": ("completion", "used index"),
    "wrap_unlogged": ("completion", "used entry"),
}
NET_PARTS = {
    "log_all_ignored_after_toggle": "migration/*",
    "log_swap_lost": "migration/*",
    "mark_one_in_100_lost": "shadow/*",
    "net_early_mark": "shadow/*",
}
NET_ANSWERS = {"net_answer_unlogged": "icmp"}

for net_kind, net_want in NET.items():
    (ERRORS if isinstance(net_want, str) else MISSES)[f"{net_kind}-net"] = net_want

# More than is needed is no failure: it is counted.
EXTRA = {"over_log"}


def kinds_in(*rooms):
    """SILT_FAULT(kind) in the sources of rooms."""
    return {kind for room in rooms for path in room.rglob("*.[ch]") if path.name != "mutant.h"
            for kind in re.findall(r"SILT_FAULT\((\w+)\)", path.read_text())}


def kinds(source):
    """Those in the sources of what a backend is made of, and those that go together."""
    rooms = ("lib/base", "lib/log", "lib/virtq", "lib/vhost", "blk")
    found = kinds_in(*(source / room for room in rooms))
    net = kinds_in(source / "tests" / "backends")
    packed = {*PACKED_MISSES, *PACKED_ERRORS, *AMBIGUOUS}
    return sorted({fault for fault in found if not fault.startswith("packed_")} |
                  {fault for fault in RESTARTS if set(fault.split(",")) <= found} |
                  {f"{kind}@packed" for kind in packed & found} |
                  {f"{kind}-net" for kind in net | (found & set(NET))})


def in_net(backend, kind):
    return ["--device=net", "--quick", f"--only={NET_PARTS.get(kind, PART)}", "--", backend,
            "--socket-path={socket}", "--pairs=2", f"--answer={NET_ANSWERS.get(kind, 'reflect')}"]


def check(silt, net, fault, seed, directory):
    fault, _, ring = fault.partition("@")
    env = {**os.environ, "SILT_FAULT": fault.removesuffix("-net")}
    command = [silt, "check", "--keep", "--timeout=2s", f"--seed={seed}", "--json=report.json"]
    if fault.endswith("-net"):
        command += in_net(net, fault.removesuffix("-net"))
    elif fault in RESTARTS:
        # In its sandbox no process can kill itself.
        command += [f"--only={RESTARTS[fault]}", "--", silt, "blk", "--sandbox=off",
                    "--socket-path={socket}", "--blk-file={image}", "--num-queues=2"]
    elif fault in AIMED:
        command += ["--self-test", "--only=shadow/aimed/*", "--time=5s"]
    else:
        command += ["--self-test", "--quick", f"--only={PARTS.get(fault, PART)}{ring}"]
        if ring:
            command[-1] += "*"
        if ring and fault in PACKED_ALL:
            command.remove("--quick")
    done = subprocess.run(command, cwd=directory, env=env, text=True, capture_output=True,
                          timeout=300, check=False)
    report = json.loads((directory / "report.json").read_text())
    return done.returncode, report, done.stdout + done.stderr


def changed_pages(before, gpa):
    """Of one region: files hold the pages that changed, and holes."""
    with open(before, "rb") as old, \
            open(before.with_name(f"memory-{gpa:#x}-after"), "rb") as new:
        at, end = 0, os.fstat(old.fileno()).st_size
        while at < end:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA) // PAGE * PAGE
            except OSError:
                return
            if os.pread(old.fileno(), PAGE, at) != os.pread(new.fileno(), PAGE, at):
                yield (gpa + at) // PAGE
            at += PAGE


def wrong_pages(directory, scenario):
    """Pages that changed in a span whose log has no bit for them: by the files, not the report."""
    wrong = set()
    for span in (directory / "silt-check-keep" / scenario).glob("span-*"):
        log = (span / "log").read_bytes()
        for before in span.glob("memory-*-before"):
            for page in changed_pages(before, int(before.name.split("-")[1], 16)):
                if not log[page // 8] >> page % 8 & 1:
                    wrong.add(page)
    return wrong


def ring_is_logged_elsewhere(page):
    return "logged from" in page["what"]


def blamed_pages_are_wrong(directory, report):
    for scenario in report["scenarios"]:
        wrong = wrong_pages(directory, scenario["name"])
        for page in scenario["pages"]:
            gpa = page["gpa"] if isinstance(page["gpa"], int) else int(page["gpa"], 0)
            if not ring_is_logged_elsewhere(page) and gpa // PAGE not in wrong:
                sys.exit(f"{scenario['name']}: page {gpa:#x} ({page['what']}) is blamed, but it did "
                         "not change, or is logged")


def strips_agree(report):
    """The strip of each scenario with misses has all pages that are counted, and blames the same."""
    states = ("logged", "missed", "stale", "extra", "ignored")
    for scenario in report["scenarios"]:
        strip = scenario["strip"]
        pages = {int(stretch["gpa"], 0) + i * PAGE: stretch["state"]
                 for stretch in strip for i in range(stretch["pages"])}
        blamed = {int(page["gpa"], 0) for page in scenario["pages"]}
        wrong = {gpa for gpa, state in pages.items() if state in ("missed", "stale")}
        counts = {state: list(pages.values()).count(state) for state in states}
        if wrong != blamed or (blamed and counts != {state: scenario[state] for state in states}):
            sys.exit(f"{scenario['name']}: the strip has {counts}, and blames {wrong} "
                     f"in place of {blamed}")


def sees_miss(report, want):
    return any(page["class"] == want[0] and page["what"].startswith(want[1])
               for scenario in report["scenarios"] for page in scenario["pages"])


def sees_error(report, want):
    return any(scenario["result"] == "error" and re.search(want, scenario["reason"])
               for scenario in report["scenarios"])


def marks_too_much(report):
    """Without a fault, fewer than a tenth of the pages are marked for nothing. But a backend that
    was started again marks whatever the one before may have written."""
    scenarios = [s for s in report["scenarios"] if s["mode"] != "restart"]
    return sum(s["extra"] for s in scenarios) > sum(s["changed"] for s in scenarios) / 4


def ambiguous_pages(report):
    return sum(scenario["ambiguous"] for scenario in report["scenarios"])


def seen_packed(fault, status, report):
    if fault in PACKED_MISSES:
        return status == 1 and sees_miss(report, PACKED_MISSES[fault])
    if fault in PACKED_ERRORS:
        return status == 1 and sees_error(report, PACKED_ERRORS[fault])
    return status == 0 and ambiguous_pages(report) > 0


def seen(fault, status, report):
    if fault.endswith("@packed"):
        return seen_packed(fault.removesuffix("@packed"), status, report)
    if fault in HARMLESS:
        return status == 0
    if fault in MISSES:
        return status == 1 and sees_miss(report, MISSES[fault])
    if fault in ERRORS:
        return status == 1 and sees_error(report, ERRORS[fault])
    return status == 0 and marks_too_much(report)


def run(silt, net, source, fault):
    if fault not in kinds(source):
        sys.exit(f"{fault}: no such fault in the sources")
    if fault in ELSEWHERE:
        return
    if not fault.endswith("@packed") and \
            not any(fault in known for known in (MISSES, ERRORS, EXTRA, HARMLESS)):
        sys.exit(f"{fault}: this test does not say what silt check must find")
    for seed in range(1, TRIES + 1):
        with tempfile.TemporaryDirectory() as place:
            directory = pathlib.Path(place)
            status, report, output = check(silt, net, fault, seed, directory)
            blamed_pages_are_wrong(directory, report)
            strips_agree(report)
            if seen(fault, status, report):
                print(f"{fault}: seen with seed {seed}")
                return
    sys.exit(f"{fault}: not seen in {TRIES} runs\n{output}")


def clean(silt, net, runs):
    # A seed says what runs, not how long: that load shows nothing where nothing is wrong, the soak
    # proves.
    quick = [silt, "check", "--quick", "--time=20ms"]
    for seed in range(1, runs + 1):
        answers = ("reflect",) if seed % 2 else ("arp", "icmp", "dhcp")
        for backend in (["--self-test"], ["--device=net", "--", net, "--socket-path={socket}",
                                          "--pairs=2", *(f"--answer={a}" for a in answers)]):
            done = subprocess.run([*quick, f"--seed={seed}", *backend], text=True,
                                  capture_output=True, timeout=300, check=False)
            if done.returncode:
                sys.exit(f"seed {seed}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{runs} runs passed")


def main():
    what, *arguments = sys.argv[1:]
    if what == "list":
        print("\n".join(kinds(pathlib.Path(arguments[0]))))
    elif what == "sync":
        print("\n".join(sorted(kinds_in(pathlib.Path(arguments[0], "lib", "sync")))))
    elif what == "run":
        run(*map(os.path.abspath, arguments[:2]), pathlib.Path(arguments[2]), arguments[3])
    elif what == "clean":
        clean(*map(os.path.abspath, arguments[:2]), int(arguments[2]))


main()
