# SPDX-License-Identifier: BSD-3-Clause
"""silt bench blk measures silt alone and with a peer, and its JSON file says so in the common
envelope."""

import json
import os
import signal
import subprocess
import sys
import tempfile

silt = os.path.abspath(sys.argv[1])
LOADS = {(d, b, o) for d in (1, 32) for b in (4096, 65536) for o in ("read", "write")}

# silt blk, called like qemu-storage-daemon where there is no io_uring.
PEER = f"""#!/bin/sh
for word; do
	case $word in
	*aio=io_uring*) exit 1 ;;
	*filename=*) file=${{word#*filename=}} ;;
	esac
done
exec '{silt}' blk --fd=3 --blk-file="${{file%%,*}}"
"""


def bench(*arguments):
    return subprocess.run([silt, "bench", "blk", *arguments], capture_output=True, text=True,
                          timeout=60, check=False)


def measure(where, *arguments):
    path = os.path.join(where, "result.json")
    done = bench("--seconds=1", "--log", f"--dir={where}", f"--json={path}", *arguments)
    assert done.returncode == 0, done.stderr
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    os.remove(path)
    assert os.listdir(where) == [], os.listdir(where)
    assert result["schema"] == 1 and result["result"] == "pass", result
    assert result["silt"] and result["logging"] is True
    assert {(r["depth"], r["bytes"], r["op"]) for r in result["rows"]} == LOADS
    return result["rows"], done.stderr


def alone(where):
    for row in measure(where, "--peer=", "--rounds=2")[0]:
        assert [b["backend"] for b in row["backends"]] == ["silt"], row
        assert "peer" not in row and "ratio" not in row, row
        figure = row["backends"][0]
        assert len(figure["rounds"]) == 2, row
        assert 0 < figure["iops_min"] <= figure["iops"] <= figure["iops_max"], row


def cost_of_logging(where):
    """Of silt alone, with so few pairs that no bound can be told, and with enough."""
    for rounds in (2, 6):
        path = os.path.join(where, "result.json")
        done = bench("--seconds=1", "--log-cost", "--only=write-", f"--rounds={rounds}", "--peer=",
                     f"--dir={where}", f"--json={path}")
        assert done.returncode == 0, done.stderr
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
        os.remove(path)
        assert result["log_cost"] is True
        assert ([(r["depth"], r["bytes"]) for r in result["rows"]] ==
                [(1, 4096), (1, 65536), (32, 4096), (32, 65536)]), result
        for row in result["rows"]:
            assert row["op"] == "write", row
            figure, = row["backends"]
            ratios = sorted(off / on for off, on in figure["pairs"])
            assert len(ratios) == rounds and ratios[0] <= figure["ratio"] <= ratios[-1], row
            if rounds == 2:
                assert "bound" not in figure, row
            else:  # below the greatest of six with 98 %, below the next with 89
                assert abs(figure["bound"] - ratios[5]) < 1e-9, row


def with_a_peer(where):
    with tempfile.TemporaryDirectory() as elsewhere:
        peer = os.path.join(elsewhere, "peer")
        with open(peer, "w", encoding="utf-8") as f:
            f.write(PEER)
        os.chmod(peer, 0o755)
        rows, said = measure(where, f"--peer={peer}", "--rounds=1")
    assert "it is left out" in said, said
    for row in rows:
        assert row["peer"] == "qsd-threads" and row["ratio"] > 0, row


def interrupted(where):
    """With the image made, or while it is made: there is a directory."""
    with subprocess.Popen([silt, "bench", "blk", "--peer=", f"--dir={where}"],
                          stdout=subprocess.DEVNULL) as process:
        while not os.listdir(where):
            assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=60) == -signal.SIGTERM
    assert os.listdir(where) == [], os.listdir(where)


def refused(where):
    unwritable = bench(f"--dir={where}", "--json=/nonexistent/x")
    assert unwritable.returncode == 3 and "/nonexistent/x" in unwritable.stderr, unwritable.stderr
    for words in (["--aio=none"], ["--only=trim"], ["--dir="], ["--json="], ["--log", "--log-cost"]):
        assert bench(*words).returncode == 2, words
    long = bench(f"--dir={where}".ljust(200, "/"))
    assert long.returncode == 3 and "too long" in long.stderr, long.stderr
    assert os.path.isdir(where)


with tempfile.TemporaryDirectory() as directory:
    alone(directory)
    cost_of_logging(directory)
    with_a_peer(directory)
    interrupted(directory)
    refused(directory)
