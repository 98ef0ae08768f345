# SPDX-License-Identifier: BSD-3-Clause
"""silt bench sync measures all steps of all ways on a small guest, its JSON file says so, and no
figure is told of ways that come to other bitmaps: with a faulty engine it fails.

    sync.py SILT            with a guest, where there can be one
    sync.py SILT FAULT ...  in a build that has these faults
"""

import json
import os
import subprocess
import sys
import tempfile

silt = os.path.abspath(sys.argv[1])
KEYS = {"topology", "pattern", "step", "silt_ms", "limit_ms", "merged_ms", "per_page_ms", "clears",
        "merged_clears", "per_page_clears", "longest_ioctl_us"}
STEPS = {"get", "merge", "log", "misaligned", "clear", "lazy_clear", "total"}
KERNELS = {"kernel-merge", "kernel-misaligned", "kernel-log"}
PATTERNS = {"random", "runs", "sparse", "clean"}
FIRMWARE = 480 + 4 * 32 + 16


def bench(*arguments, **environment):
    return subprocess.run([silt, "bench", "sync", *arguments], capture_output=True, text=True,
                          timeout=100, check=False, env=dict(os.environ, **environment))


def measure(path, *arguments):
    done = bench("--seconds=1", f"--json={path}", *arguments)
    assert done.returncode == 0, done.stderr
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    assert result["schema"] == 1 and result["result"] == "pass" and result["silt"], result
    assert result["benchmark"] == "sync"
    rows = {(row["pattern"], row["step"]): row for row in result["rows"]}
    assert len(rows) == len(result["rows"]), "a row comes twice"
    for row in rows.values():
        assert KEYS <= set(row), KEYS - set(row)
    return result, rows, done.stdout


def whole(path):
    """Clears in a sync: none of silt's, one for each slot, one for each page of each slot."""
    result, rows, said = measure(path, "--topology=tiny", "--threads=2")
    assert set(rows) == {(p, s) for p in PATTERNS for s in STEPS | KERNELS}, set(rows)
    for (pattern, step), row in rows.items():
        assert row["topology"] == "tiny" and (step == "lazy_clear" or row["silt_ms"] >= 0), row
        if step in ("clear", "total"):
            clears = row["clears"], row["merged_clears"], row["per_page_clears"]
            assert clears == ((0, 0, 0) if pattern == "clean" else (0, 12, 2 * FIRMWARE)), row
    dirty = result["dirty_pages"]
    assert dirty["clean"] == 0 < FIRMWARE < dirty["sparse"] < dirty["random"], dirty
    assert {c["pattern"] for c in result["chunking"]} == PATTERNS - {"clean"}, result["chunking"]
    assert [s["threads"] for s in result["scaling"]] == [1, 2], result["scaling"]
    for pattern in PATTERNS:
        assert f"\n{pattern}: {dirty[pattern]} dirty pages" in said, said


def odd(path):
    """Where all blocks go page by page, the old way clears each of KVM's pages at once."""
    result, rows, _ = measure(path, "--topology=tiny-odd", "--pattern=random")
    assert {p for p, _ in rows} == {"random"}
    total, lazy = rows["random", "total"], rows["random", "lazy_clear"]
    dirty = result["dirty_pages"]["random"]
    assert total["clears"] == 0 and total["merged_clears"] == 12 + 5, total
    assert 2 * FIRMWARE < total["per_page_clears"] <= dirty + FIRMWARE, total
    assert lazy["merged_ms"] is None and lazy["silt_ms"] > 0, lazy


def refused():
    for word in ("--topology=none", "--pattern=none", "--threads=0", "--seconds=0", "--json=",
                 "word"):
        assert bench(word).returncode == 2, word
    unwritable = bench("--topology=tiny", "--json=/nonexistent/x")
    assert unwritable.returncode == 3 and "/nonexistent/x" in unwritable.stderr, unwritable.stderr


def faulty(fault):
    done = bench("--seconds=1", "--topology=tiny-odd", "--pattern=random", SILT_FAULT=fault)
    assert done.returncode == 1 and not done.stdout, (fault, done)
    assert "dirty pages, the " in done.stderr or "bitmap differs from" in done.stderr, done.stderr


for name in sys.argv[2:]:
    faulty(name)
if not sys.argv[2:]:
    with tempfile.TemporaryDirectory() as directory:
        whole(os.path.join(directory, "result.json"))
        odd(os.path.join(directory, "result.json"))
        refused()
