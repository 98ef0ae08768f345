#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A peer of tests/peers/ under silt check: does it fail only as docs/peers.md says?

    known.py SILT PEER PATTERN [OPTION OF silt check ...]

PATTERN says which scenarios may fail, as their names go. That the peer is mended is no failure.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SKIPPED = 77


def main():
    silt, peer, pattern, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "report.json")
        done = subprocess.run([peer, f"--json={report}", *options], text=True, capture_output=True,
                              env={**os.environ, "SILT": os.path.abspath(silt)}, check=False)
        if done.returncode == SKIPPED and not os.path.exists(report):
            print(done.stderr)
            sys.exit(SKIPPED)
        if done.returncode not in (0, 1):
            sys.exit(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        with open(report, encoding="utf-8") as file:
            scenarios = json.load(file)["scenarios"]
    wrong = [s for s in scenarios if s["result"] in ("fail", "error")]
    unknown = [f"{s['name']}: {s['reason']}" for s in wrong if not re.search(pattern, s["name"])]
    if unknown:
        sys.exit("\n".join(unknown))
    passed = sum(s["result"] == "pass" for s in scenarios)
    print(f"{passed} scenarios passed, {len(wrong)} failed as it is known")
    sys.exit(0 if passed else "nothing passed")


main()
