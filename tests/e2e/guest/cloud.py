# SPDX-License-Identifier: BSD-3-Clause
"""What the guest boots: a cloud kernel from Debian, and an initramfs of busybox, the kernel's virtio
modules, and the programs given."""
import pathlib
import shutil
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "support"))

from debian import BUSYBOX, Unavailable, depends, locked_cache, unpacked, write_initramfs

META_PACKAGE = "linux-image-cloud-amd64"


def kernel():
    """The directory that a kernel's package is unpacked in."""
    with locked_cache() as cache:
        # What was fetched once is good for ever: a newer kernel proves nothing more.
        for kept in sorted(cache.glob("linux-image-*-cloud-*-unsigned")):
            return kept
        # As it was built: the signed package adds nothing that a guest needs.
        package = depends(META_PACKAGE)[0] + "-unsigned"
        with unpacked([package]) as tree:
            tree.rename(cache / package)
        return cache / package


def boot_files(directory, programs):
    """The kernel, and an initramfs made in @directory. @programs: names in the guest's root
    directory, and the files they come from."""
    for program in ("qemu-system-x86_64", BUSYBOX):
        if not shutil.which(program):
            raise Unavailable(f"{program} is not installed")
    tree = kernel()
    modules = {f"modules/{module.name}": module for module in tree.rglob("virtio*.ko")}
    write_initramfs(directory / "initramfs", {"bin/busybox": BUSYBOX, **modules, **programs})
    return next(tree.glob("boot/vmlinuz-*")), directory / "initramfs"
