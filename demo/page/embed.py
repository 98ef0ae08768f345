#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Put the page, its script, its style and the plotting library into a C file: all but the data.

    embed.py PAGE_DIR OUTPUT
"""
import pathlib
import sys


def c_array(name, text):
    data = text.encode()
    lines = [", ".join(str(byte) for byte in data[at:at + 24]) for at in range(0, len(data), 24)]
    return f"const char {name}[] = {{\n" + ",\n".join(lines) + ",\n0};\n"


def main(directory, output):
    page = pathlib.Path(directory)
    parts = {
        "STYLE": (page / "uplot" / "uPlot.min.css").read_text() + (page / "page.css").read_text(),
        "LICENSE": (page / "uplot" / "LICENSE").read_text(),
        "LIBRARY": (page / "uplot" / "uPlot.iife.min.js").read_text(),
        "SCRIPT": (page / "page.js").read_text(),
    }
    text = (page / "page.html").read_text()
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    head, tail = text.split("@DATA@")
    pathlib.Path(output).write_text(
        '#include "demo/page.h"\n' + c_array("page_head", head) + c_array("page_tail", tail))


main(*sys.argv[1:])
