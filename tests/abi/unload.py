#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The library stays when the plugin that brought it is unloaded: the kernel knows its handlers."""
import _ctypes
import ctypes
import os
import sys

PATH = os.path.realpath(sys.argv[1])


def is_mapped():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return PATH in maps.read()


library = ctypes.CDLL(PATH)
assert library.silt_access_take_signals() == 0
assert is_mapped()
_ctypes.dlclose(library._handle)  # pylint: disable=protected-access
assert is_mapped()
