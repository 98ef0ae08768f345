#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Nothing of the deliberate faults is in what is released: no symbol, no name, no variable."""
import pathlib
import sys

TRACES = (b"silt_mutant", b"SILT_FAULT")


def main(files):
    bad = 0
    for name in files:
        content = pathlib.Path(name).read_bytes()
        for trace in TRACES:
            if trace in content:
                print(f"{trace.decode()} in {name}")
                bad += 1
    print(f"{len(files)} files read")
    return bad != 0 or not files


sys.exit(main(sys.argv[1:]))
