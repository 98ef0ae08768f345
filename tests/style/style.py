#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The rules of CONTRIBUTING.md that a program can check, on every tracked file."""
import pathlib
import re
import subprocess
import sys

MAX_LINES = 700
# What goes to the Linux kernel goes there as one file.
LONGER = {"kernel/selftest/vhost_dirty_log.c"}
# Of files that write or read the Test Anything Protocol, in which a word of these is a directive.
TAP = {"check/report_tap.c", "tests/unit/report/formats.py", "tests/unit/report/sample.c"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SLEEP = re.compile(r"\b(u|nano)?sleep\s*\(|^\s*sleep\s+\d")


def tracked(root):
    out = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    if out.returncode:
        print("not a git checkout: there is no list of files")
        sys.exit(77)
    paths = [pathlib.Path(root, name.decode()) for name in out.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def is_script(path):
    return path.read_bytes()[:2] == b"#!"


def is_source(path):
    return (path.suffix in (".c", ".h", ".py", ".sh", ".bash") or path.name == "meson.build" or
            is_script(path))


def check_text(path, name):
    lines = path.read_text(encoding="utf-8").splitlines()
    if not any("SPDX-License-Identifier: " in line for line in lines[:2]):
        yield f"{name}:1: no SPDX line"
    if len(lines) > MAX_LINES and name not in LONGER:
        yield f"{name}: {len(lines)} lines, at most {MAX_LINES}"
    for number, line in enumerate(lines, 1):
        if path.name != "style.py" and name not in TAP and UNFINISHED.search(line):
            yield f"{name}:{number}: announces unfinished work"
        if line != line.rstrip():
            yield f"{name}:{number}: trailing blanks"
        if name.startswith(("tests/", "scripts/", "fuzz/")) and SLEEP.search(line):
            yield f"{name}:{number}: sleeps; wait for the event instead"


def run(command, paths):
    """Lines that a checker prints about @paths, if it is not content."""
    if not paths:
        return []
    done = subprocess.run(command + [str(path) for path in paths], capture_output=True, text=True,
                          check=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    return (said or [f"{command[0]}: status {done.returncode}"]) if done.returncode else []


def unformatted(paths):
    said = run(["clang-format", "--dry-run", "-Werror"], paths)
    names = [re.match(r"(.+?):\d+:\d+: error: ", line) for line in said]
    return [f"{name}: not as clang-format makes it" for name in sorted({m[1] for m in names if m})]


def main(root):
    files = tracked(root)
    wrong = []
    for path in filter(is_source, files):
        wrong += check_text(path, str(path.relative_to(root)))
    wrong += unformatted([p for p in files if p.suffix in (".c", ".h")])
    wrong += run(["shellcheck"],
                 [p for p in files if (is_script(p) or p.suffix == ".bash") and
                  b"python" not in p.read_bytes()[:40]])
    wrong += run(["mandoc", "-T", "lint", "-W", "warning"],
                 [p for p in files if p.parent.name == "man" and p.suffix in (".1", ".3", ".7")])
    print("\n".join(wrong))
    print(f"{len(files)} files, {len(wrong)} complaints")
    return bool(wrong)


sys.exit(main(sys.argv[1]))
