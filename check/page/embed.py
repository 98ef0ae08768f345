#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Put a page, its script, its style and the plotting library into a C file: all but the data.

    embed.py PAGE_DIR NAME OUTPUT       NAME: of the struct page that the file defines
"""
import pathlib
import sys

UPLOT = pathlib.Path(__file__).parent / "uplot"


def c_array(name, text):
    data = text.encode()
    lines = [", ".join(str(byte) for byte in data[at:at + 24]) for at in range(0, len(data), 24)]
    return f"static const char {name}[] = {{\n" + ",\n".join(lines) + ",\n0};\n"


def main(directory, name, output):
    page = pathlib.Path(directory)
    parts = {
        "STYLE": (UPLOT / "uPlot.min.css").read_text() + (page / "page.css").read_text(),
        "LICENSE": (UPLOT / "LICENSE").read_text(),
        "LIBRARY": (UPLOT / "uPlot.iife.min.js").read_text(),
        "SCRIPT": (page / "page.js").read_text(),
    }
    text = (page / "page.html").read_text()
    for mark, part in parts.items():
        text = text.replace(f"@{mark}@", part)
    head, tail = text.split("@DATA@")
    pathlib.Path(output).write_text(
        '#include "check/page.h"\n'
        f"extern const struct page {name};\n" + c_array("head", head) + c_array("tail", tail)
        + f"const struct page {name} = {{head, tail}};\n")


main(*sys.argv[1:])
