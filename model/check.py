#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Search all states of a model.

    check.py holds MODEL [NAME[=VALUE]...]            no property is broken, in any state
    check.py finds PROPERTY MODEL [NAME[=VALUE]...]   exactly that property is

The names are defined for the model. Exits with 77 where spin or a C compiler is missing.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

DEPTH = 100000
MEMORY_MIB = 2048
# What the report of a search that saw everything has, and has not.
COMPLETE = [r"^Full statespace search for:", r"^\s+assertion violations\s+\+",
            r"^\s+invalid end states\s+\+"]
CUT_SHORT = re.compile(r"max search depth too small|Search not completed|MEMLIM|out of memory",
                       re.IGNORECASE)
UNREACHED = re.compile(r'^\t\S+:\d+, state \d+, "(?!-end-").*$', re.MULTILINE)
VIOLATED = re.compile(r"^pan:\d+: (.*?) \(at depth", re.MULTILINE)


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.returncode, done.stdout


def must(command, cwd):
    status, said = run(command, cwd)
    if status:
        print(f"{shlex.join(command)}: status {status}\n{said}")
        sys.exit(1)


def flags(wanted, model):
    """A step inside an unless depends on what may end it: then no order of steps is left out."""
    chosen = ["-O0" if wanted else "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}"]
    return chosen + (["-DNOREDUCE"] if re.search(r"\bunless\b", model.read_text()) else [])


def search(wanted, model, names, cc, cwd):
    must(["spin", "-a"] + [f"-D{name}" for name in names] + [str(model)], cwd)
    must(cc + flags(wanted, model) + ["-o", "pan", "pan.c"], cwd)
    status, said = run(["./pan", f"-m{DEPTH}"], cwd)
    errors = re.search(r"errors: (\d+)", said)
    if status or not errors:
        return said, [f"the search ended with status {status}"]
    return said, VIOLATED.findall(said)


def incomplete(said):
    wrong = [f"not in the report: {line}" for line in COMPLETE if not re.search(line, said, re.M)]
    wrong += [f"cut short: {match}" for match in CUT_SHORT.findall(said)]
    # A property that holds because the model never gets that far says nothing.
    return wrong + [f"never reached:{line}" for line in UNREACHED.findall(said)]


def replay(model, names, cwd):
    trail = cwd / f"{model.name}.trail"
    if trail.exists():
        defined = [f"-D{name}" for name in names]
        print(run(["spin", "-k", trail.name, "-p", "-g"] + defined + [str(model)], cwd)[1])


def check(wanted, model, names, cc, cwd):
    """What is wrong, line by line. @wanted is the property to be broken, or None."""
    said, violated = search(wanted, model, names, cc, cwd)
    if wanted:
        expected = rf"assertion violated\s+!\({wanted}\)"
        found = len(violated) == 1 and re.fullmatch(expected, violated[0])
        wrong = [] if found else [f"not {wanted} was broken, but {violated or 'nothing'}"]
    else:
        wrong = [f"broken: {what}" for what in violated] or incomplete(said)
        replay(model, names, cwd)
    if wrong:
        print(said)
    return wrong


def main(verb, *args):
    cc = shlex.split(os.environ.get("CC", "cc"))
    for program in ["spin", cc[0]]:
        if not shutil.which(program):
            print(f"{program} is missing")
            return 77
    wanted, args = (None, args) if verb == "holds" else (args[0], args[1:])
    model, names = pathlib.Path(args[0]).resolve(), args[1:]
    with tempfile.TemporaryDirectory(prefix="silt-model-") as scratch:
        wrong = check(wanted, model, names, cc, pathlib.Path(scratch))
    print("\n".join(wrong) or "as expected")
    return bool(wrong)


if len(sys.argv) < 3 + (sys.argv[1:2] == ["finds"]) or sys.argv[1] not in ("holds", "finds"):
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
