# SPDX-License-Identifier: BSD-3-Clause
"""silt bench blk measures silt alone, and its JSON file says so in the common envelope."""

import json
import os
import subprocess
import sys
import tempfile

silt = sys.argv[1]

with tempfile.TemporaryDirectory() as where:
    path = os.path.join(where, "result.json")
    subprocess.run(
        [silt, "bench", "blk", "--peer=", "--seconds=1", "--rounds=2", "--log", f"--dir={where}",
         f"--json={path}"],
        check=True, timeout=60)
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    assert os.listdir(where) == ["result.json"], os.listdir(where)

assert result["schema"] == 1 and result["result"] == "pass", result
assert result["silt"] and result["logging"] is True
loads = {(r["depth"], r["bytes"], r["op"]) for r in result["rows"]}
assert loads == {(d, b, o) for d in (1, 32) for b in (4096, 65536) for o in ("read", "write")}
for row in result["rows"]:
    assert [b["backend"] for b in row["backends"]] == ["silt"], row
    assert "peer" not in row and "ratio" not in row, row
    figure = row["backends"][0]
    assert len(figure["rounds"]) == 2, row
    assert 0 < figure["iops_min"] <= figure["iops"] <= figure["iops_max"], row
