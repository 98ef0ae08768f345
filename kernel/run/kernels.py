# SPDX-License-Identifier: GPL-2.0-only
"""Debian's kernels, each with the headers and the source it was built from: fetched once, kept in a
cache, never installed. And modules built for them."""
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/support"))

from debian import Unavailable, depends, locked_cache, run, unpacked

META_PACKAGES = {"6.1": ("linux-image-amd64", "linux-headers-amd64"),
                 "6.12": ("linux-image-6.12-amd64", "linux-headers-6.12-amd64")}
SERIES = tuple(META_PACKAGES)
MODULE = re.compile(r"\.ko(\.xz)?$")
# The compiler that Debian 12's kernels are built by, which the headers ask for.
COMPILER = "gcc-12"
# What unpacks an image, by how it begins.
UNPACKERS = {b"\xfd7zX": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Kernel:
    """One kernel: its release, as uname says, and the directory its packages are unpacked in."""

    def __init__(self, series):
        self.series = series
        self.root = tree(series)
        self.release = next(self.root.glob("boot/vmlinuz-*")).name.removeprefix("vmlinuz-")
        self.image = unpacked_image(self.root / "boot" / f"vmlinuz-{self.release}")
        self.headers = self.root / "usr/src" / f"linux-headers-{self.release}"
        self.modules = {module_name(path): path
                        for path in (self.root / "lib/modules").rglob("*.ko*")}
        builtin = self.root / "lib/modules" / self.release / "modules.builtin"
        self.builtin = {module_name(pathlib.PurePath(line))
                        for line in builtin.read_text(encoding="ascii").splitlines()}

    def source(self):
        """drivers/vhost of the source that this kernel was built from."""
        version = (self.root / "version").read_text(encoding="ascii")
        package = f"linux-source-{self.series}"
        with locked_cache() as cache:
            kept = cache / f"{package}_{version}"
            if not kept.exists():
                with unpacked([f"{package}={version}"]) as fetched:
                    archive = fetched / "usr/src" / f"{package}.tar.xz"
                    run("tar", "-C", str(fetched), "-xf", str(archive), f"{package}/drivers/vhost")
                    (fetched / package).rename(kept)
        return kept / "drivers/vhost"


def packed_image(data):
    """What unpacks itself when a bzImage boots: see the kernel's x86 boot protocol."""
    setup_sectors = data[0x1f1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    begin = (setup_sectors + 1) * 512 + offset
    # The size of what is in it follows it.
    return data[begin:begin + length - 4]


def unpacked_image(image):
    """The same as an ELF file, which boots in half the time where the CPU is emulated. Made at the
    first use, and kept beside it."""
    kept = image.with_name(image.name.replace("vmlinuz", "vmlinux"))
    with locked_cache() as cache:
        if kept.exists():
            return kept
        packed = packed_image(image.read_bytes())
        program = UNPACKERS.get(packed[:4])
        if not program or not shutil.which(program):
            raise Unavailable(f"nothing unpacks {image}: {program or 'unknown format'}")
        data = subprocess.run([program, "-dc"], input=packed, stdout=subprocess.PIPE,
                              check=True).stdout
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as made:
            made.write(data)
        pathlib.Path(made.name).rename(kept)
    return kept


def module_name(path):
    return MODULE.sub("", path.name).replace("-", "_")


def module_data(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def module_depends(data):
    """Names of the modules that the module with this @data needs, as modpost left them."""
    found = re.search(rb"\0depends=([a-zA-Z0-9_,-]*)\0", data)
    return found[1].decode().replace("-", "_").split(",") if found and found[1] else []


def tree(series):
    """The directory with the image and the headers of one kernel: the newest at first, and later
    the same, since what was fetched once is good for ever."""
    with locked_cache() as cache:
        for kept in sorted(cache.glob(f"linux-{series}.[0-9]*-amd64")):
            return kept
        image, headers = [depends(package)[0] for package in META_PACKAGES[series]]
        # As it was built: the signed package adds nothing that a guest needs.
        image += "-unsigned"
        version = re.search(r"^Version: (\S+)", run("apt-cache", "show", image), re.M)[1]
        needed = [name for name in depends(headers)
                  if name.startswith(("linux-headers-", "linux-kbuild-"))]
        with unpacked([f"{name}={version}" for name in [image, headers, *needed]]) as fetched:
            kept = cache / headers.replace("linux-headers-", "linux-")
            (fetched / "version").write_text(version, encoding="ascii")
            makefile = fetched / "usr/src" / headers / "Makefile"
            makefile.write_text(makefile.read_text().replace("/usr/src/", f"{kept}/usr/src/"))
            fetched.rename(kept)
        return kept


def build(kernel, sources, place, variables=()):
    """Build the external modules that lie in the directory @sources, in a copy of it: @place. What
    earlier builds left there is used again. The modules' paths."""
    if not shutil.which(COMPILER):
        raise Unavailable(f"{COMPILER} is not installed")
    shutil.copytree(sources, place, dirs_exist_ok=True)
    # Type information would need a tool of its own, and nobody asks these modules for it.
    done = subprocess.run(
        ["make", "-s", "-C", str(kernel.headers), f"M={place}", "modules",
         "CONFIG_DEBUG_INFO_BTF_MODULES=", *variables],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise SystemExit(f"{sources} does not build for {kernel.release}:\n{done.stdout}")
    return sorted(pathlib.Path(place).glob("*.ko"))
