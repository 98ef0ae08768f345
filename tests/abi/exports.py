#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The shared library exports the functions that the headers declare SILT_API, and nothing else.

Each stands in the version map by its full name: a version, once released, is then a list that does
not grow by itself, and what a later version adds is added to that one.
"""
import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DECLARATION = re.compile(r"\bSILT_API\b[^;{}]*?\b(silt_\w+)\s*\(")
VERSION = re.compile(r"(\w[\w.]*)\s*\{\s*global:(.*?)(?:local:.*?)?\}", re.DOTALL)


def declared(headers):
    text = "".join(COMMENT.sub("", p.read_text()) for p in sorted(headers.glob("*.h")))
    names = DECLARATION.findall(text)
    assert len(names) == len(re.findall(r"\bSILT_API\b(?!\s+__attribute__)", text)), \
        "a SILT_API that declares no function"
    return set(names)


def mapped(version_map):
    """Name to version."""
    text = COMMENT.sub("", version_map.read_text())
    return {name.strip(): version for version, names in VERSION.findall(text)
            for name in names.split(";") if name.strip()}


def exported(library):
    """Name to version; the versions themselves are absolute symbols."""
    out = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                         check=True, capture_output=True, text=True).stdout
    symbols = [line.split()[2] for line in out.splitlines() if line.split()[1] != "A"]
    return dict(re.fullmatch(r"(\w+)(?:@@?(.*))?", symbol).groups() for symbol in symbols)


def main(library, headers, version_map):
    want, have = declared(pathlib.Path(headers)), exported(library)
    listed = mapped(pathlib.Path(version_map))
    bad = [f"declared in a header, not exported: {name}" for name in want - set(have)]
    bad += [f"exported, in no header: {name}" for name in set(have) - want]
    bad += [f"in a header, not in {version_map}: {name}" for name in want - set(listed)]
    bad += [f"in {version_map}, in no header: {name}" for name in set(listed) - want]
    bad += [f"{name} has version {have[name]}, not {listed[name]}"
            for name in set(have) & set(listed) if have[name] != listed[name]]
    for line in sorted(bad):
        print(line)
    print(f"{len(want)} declared, {len(have)} exported")
    return bool(bad) or not want


sys.exit(main(*sys.argv[1:]))
