# SPDX-License-Identifier: BSD-3-Clause
"""What a guest boots: kernels from Debian's packages, unpacked into a cache and never installed, and
an initramfs in the format that the kernel unpacks."""
import contextlib
import fcntl
import os
import pathlib
import re
import subprocess
import tempfile

BUSYBOX = "/bin/busybox"


class Unavailable(Exception):
    """The guest cannot be had on this machine."""


def cache():
    """The directory that packages stay unpacked in."""
    named = os.environ.get("SILT_CACHE")
    return pathlib.Path(named or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache",
                                              "silt"))


def run(*command, **more):
    try:
        return subprocess.run(command, check=True, text=True, capture_output=True,
                              env={**os.environ, "LC_ALL": "C"}, **more).stdout
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"status {error.returncode}"]
        raise Unavailable(f"{' '.join(command)}: {said[-1]}") from error


@contextlib.contextmanager
def locked_cache():
    """The cache, while nobody else fetches into it."""
    try:
        cache().mkdir(parents=True, exist_ok=True)
        lock = open(cache() / "lock", "w", encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"no cache for the kernel: {error}; SILT_CACHE names another") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache()


def depends(package):
    """The packages that @package depends on first, as the distribution has it now."""
    found = re.findall(r"^ *\|?Depends: (\S+)", run("apt-cache", "depends", package), re.M)
    if not found:
        raise Unavailable(f"{package} names no other package")
    return found


@contextlib.contextmanager
def unpacked(packages):
    """A directory with what is in @packages, each NAME or NAME=VERSION. It lies in the cache, so that
    renaming makes what is kept appear whole or not at all."""
    with tempfile.TemporaryDirectory(dir=cache()) as place:
        run("apt-get", "download", *packages, cwd=place)
        tree = pathlib.Path(place, "unpacked")
        for archive in pathlib.Path(place).glob("*.deb"):
            run("dpkg-deb", "-x", str(archive), str(tree))
        yield tree


def entry(name, mode, data=b""):
    """One file of a cpio archive in the kernel's "newc" format."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4)


def write_initramfs(path, files):
    """@files: names in the guest's root directory, and what is in them: bytes, or a file's path."""
    directories = {str(parent) for name in files for parent in pathlib.PurePath(name).parents}
    with open(path, "wb") as archive:
        for directory in sorted(directories - {"."} | {"dev"}):
            archive.write(entry(directory, 0o40755))
        for name, source in files.items():
            data = source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()
            archive.write(entry(name, 0o100755, data))
        archive.write(entry("TRAILER!!!", 0))
