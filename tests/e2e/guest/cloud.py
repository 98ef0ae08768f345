# SPDX-License-Identifier: BSD-3-Clause
"""What the guest boots: a cloud kernel from Debian, unpacked into a cache and never installed, and
an initramfs of busybox, the kernel's virtio modules, and the programs given."""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

CACHE = pathlib.Path(os.environ.get("SILT_CACHE", "/var/cache/silt"))
META_PACKAGE = "linux-image-cloud-amd64"
BUSYBOX = "/bin/busybox"


class Unavailable(Exception):
    """The guest cannot be had on this machine."""


def run(*command, **more):
    try:
        return subprocess.run(command, check=True, text=True, capture_output=True,
                              env={**os.environ, "LC_ALL": "C"}, **more).stdout
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"status {error.returncode}"]
        raise Unavailable(f"{' '.join(command)}: {said[-1]}") from error


def package_name():
    """The package that the distribution's current cloud kernel is in, as it was built."""
    found = re.search(r"Depends: (\S+)", run("apt-cache", "depends", META_PACKAGE))
    if not found:
        raise Unavailable(f"{META_PACKAGE} names no kernel")
    return found[1] + "-unsigned"


def download(package, target):
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        run("apt-get", "download", package, cwd=place)
        unpacked = pathlib.Path(place, "unpacked")
        run("dpkg-deb", "-x", str(next(pathlib.Path(place).glob("*.deb"))), str(unpacked))
        unpacked.rename(target)


def kernel():
    """The directory that a kernel's package is unpacked in."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        lock = open(CACHE / "lock", "w", encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"no cache for the kernel: {error}; SILT_CACHE names another") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # What was fetched once is good for ever: a newer kernel proves nothing more.
        for unpacked in sorted(CACHE.glob("linux-image-*-unsigned")):
            return unpacked
        package = package_name()
        download(package, CACHE / package)
        return CACHE / package


def entry(name, mode, data=b""):
    """One file of a cpio archive in the kernel's "newc" format."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4)


def build_initramfs(path, unpacked, programs):
    """@programs: names in the guest's root directory, and the files they come from."""
    files = {"bin/busybox": BUSYBOX, **programs}
    for module in unpacked.rglob("virtio*.ko"):
        files[f"modules/{module.name}"] = module
    with open(path, "wb") as archive:
        for directory in ("bin", "dev", "modules"):
            archive.write(entry(directory, 0o40755))
        for name, source in files.items():
            archive.write(entry(name, 0o100755, pathlib.Path(source).read_bytes()))
        archive.write(entry("TRAILER!!!", 0))


def boot_files(directory, programs):
    """The kernel, and an initramfs made in @directory."""
    for program in ("qemu-system-x86_64", BUSYBOX):
        if not shutil.which(program):
            raise Unavailable(f"{program} is not installed")
    unpacked = kernel()
    initramfs = directory / "initramfs"
    build_initramfs(initramfs, unpacked, programs)
    return next(unpacked.glob("boot/vmlinuz-*")), initramfs
