# SPDX-License-Identifier: BSD-3-Clause
"""silt bench precopy has its rows in its JSON file, and refuses wrong options. That memory arrives
it checks itself.

    precopy.py SILT
"""

import json
import os
import subprocess
import sys
import tempfile

silt = os.path.abspath(sys.argv[1])


def bench(*arguments):
    return subprocess.run([silt, "bench", "precopy", *arguments], capture_output=True, text=True,
                          timeout=100, check=False)


def measures(where):
    path = os.path.join(where, "result.json")
    done = bench("--seconds=1", "--size=8", f"--json={path}")
    assert done.returncode == 0, done.stderr
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    assert result["silt"] and result["schema"] == 1 and result["result"] == "pass", result
    assert result["benchmark"] == "precopy" and result["memory_mib"] == 8, result
    assert [row["memory"] for row in result["rows"]] == ["random", "zero"], result
    for row in result["rows"]:
        assert row["memory"] in done.stdout and row["rounds"] >= 5 and row["ratio"] > 0, row
        for way in ("silt_mb_s", "plain_mb_s"):
            assert 0 < row[way]["min"] <= row[way]["median"] <= row[way]["max"], row
    assert result["peak_bytes"] < 64 << 20, result


def refused():
    unwritable = bench("--json=/nonexistent/x")
    assert unwritable.returncode == 3 and "/nonexistent/x" in unwritable.stderr, unwritable.stderr
    for word in ("--size=0", "--json=", "--seconds=0", "--rounds=1", "more"):
        assert bench(word).returncode == 2, word


with tempfile.TemporaryDirectory() as directory:
    measures(directory)
refused()
