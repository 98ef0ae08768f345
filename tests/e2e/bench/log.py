# SPDX-License-Identifier: BSD-3-Clause
"""silt bench log has each case and variant in its JSON file; that they mark the right pages it
checks itself.

    log.py SILT all      all cases
    log.py SILT some     those that take little time; and wrong options
    log.py SILT FAULT    in a build with mutants: it sees that silt marks wrong pages
"""

import json
import os
import subprocess
import sys
import tempfile

silt = os.path.abspath(sys.argv[1])
VARIANTS = ["silt", "byte", "word", "cache", "range", "plain", "load", "none"]
SAFE = VARIANTS[1:5]
CASES = {f"{name}/{burst}" for burst in (1, 32) for name in (
    "hot-page", "line-64", "pages-1024", "stream", "random-64g", "random-1t", "64k-hot",
    "64k-stream", "64k-cross", "pair-page", "pair-line", "pair-64k", "harvested-1024",
    "harvested-64g", "desc-16", "desc-1024", "desc-256m", "desc-64g", "desc-1t", "desc-16-new",
    "desc-1024-new", "desc-64g-new", "desc-1t-new")}


def bench(*arguments, **env):
    return subprocess.run([silt, "bench", "log", *arguments], capture_output=True, text=True,
                          env={**os.environ, **env}, timeout=100, check=False)


def by_case(rows):
    cases = {}
    for row in rows:
        cases.setdefault(row["case"], []).append(row)
    return cases


def measures(where, only, *options):
    path = os.path.join(where, "result.json")
    done = bench("--seconds=1", f"--only={only}", f"--json={path}", *options)
    assert done.returncode == 0, done.stderr
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    assert result["silt"] and result["schema"] == 1 and result["result"] == "pass", result
    assert result["benchmark"] == "log", result
    assert result["replaced"] == ("--replaced" in options), result
    cases = by_case(result["rows"])
    assert set(cases) == {case for case in CASES if case.startswith(only)}, set(cases)
    for name, rows in cases.items():
        assert name in done.stdout, name
        assert [row["variant"] for row in rows] == VARIANTS, rows
        best = min((row for row in rows if row["variant"] in SAFE), key=lambda row: row["ns"])
        assert best["ratio"] == 1, best
        for row in rows:
            assert 0 < row["min_ns"] <= row["ns"] <= row["max_ns"], row
            assert row["ratio"] > 0 and row["rounds"] >= 3, row


def counts():
    done = bench("--count", "--only=hot-page")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hot-page/1 40960\nhot-page/32 40960\n", done.stdout


def refused():
    unwritable = bench("--json=/nonexistent/x")
    assert unwritable.returncode == 3 and "/nonexistent/x" in unwritable.stderr, unwritable.stderr
    for word in ("--only=nothing", "--json=", "--seconds=0", "--rounds=1", "more"):
        assert bench(word).returncode == 2, word


def sees(fault):
    done = bench("--seconds=1", "--only=64k-cross", SILT_FAULT=fault)
    assert done.returncode == 1, done.returncode
    assert "silt: page" in done.stderr and "not marked" in done.stderr, done.stderr


with tempfile.TemporaryDirectory() as directory:
    if sys.argv[2] == "all":
        measures(directory, "")
    elif sys.argv[2] == "some":
        for prefix in ("64k", "pair-l", "harvested-1024"):
            measures(directory, prefix)
        measures(directory, "desc-16", "--replaced")
        counts()
        refused()
    else:
        sees(sys.argv[2])
