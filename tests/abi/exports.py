#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The shared library exports the functions that the headers declare SILT_API, and nothing else."""
import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DECLARATION = re.compile(r"\bSILT_API\b[^;{}]*?\b(silt_\w+)\s*\(")


def declared(headers):
    text = "".join(COMMENT.sub("", p.read_text()) for p in sorted(headers.glob("*.h")))
    names = DECLARATION.findall(text)
    assert len(names) == len(re.findall(r"\bSILT_API\b(?!\s+__attribute__)", text)), \
        "a SILT_API that declares no function"
    return set(names)


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout
    symbols = {line.split()[2].split("@")[0] for line in out.splitlines()
               if line.split()[1] != "A"}
    return symbols


def main(library, headers):
    want, have = declared(pathlib.Path(headers)), exported(library)
    for name in sorted(want - have):
        print(f"declared in a header, not exported: {name}")
    for name in sorted(have - want):
        print(f"exported, in no header: {name}")
    print(f"{len(want)} declared, {len(have)} exported")
    return want != have or not want


sys.exit(main(*sys.argv[1:]))
