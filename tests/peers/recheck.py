#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Look at what `silt check --keep` wrote, without silt: which pages changed and have no bit?

    recheck.py silt-check-keep/SCENARIO

Prints, for each such page, its guest address, the bytes that changed, and how they begin. A used
ring that was logged elsewhere (axis ring_log) is not known here, and its pages are printed too.
"""
import pathlib
import sys

PAGE = 4096


def pages(before):
    """Guest address, old and new contents of each page of one region of memory."""
    base = int(before.name.split("-")[1], 16)
    old = before.read_bytes()
    new = before.with_name(before.name.replace("before", "after")).read_bytes()
    for at in range(0, len(old), PAGE):
        if old[at:at + PAGE] != new[at:at + PAGE]:
            yield base + at, old[at:at + PAGE], new[at:at + PAGE]


def logged(log, gpa):
    byte, bit = divmod(gpa // PAGE, 8)
    return byte < len(log) and log[byte] >> bit & 1


def main():
    for span in sorted(pathlib.Path(sys.argv[1]).glob("span-*")):
        log = (span / "log").read_bytes()
        for before in sorted(span.glob("memory-*-before")):
            for gpa, old, new in pages(before):
                if logged(log, gpa):
                    continue
                changed = [i for i in range(len(old)) if old[i] != new[i]]
                first = changed[0]
                print(f"{span.name} {gpa:#x}: bytes {first:#x}-{changed[-1]:#x}, "
                      f"{old[first:first + 4].hex()} -> {new[first:first + 4].hex()}")


main()
