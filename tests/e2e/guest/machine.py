# SPDX-License-Identifier: BSD-3-Clause
"""Programs of one scenario: block backends, and virtual machines with the guest's console."""
import mmap
import os
import re
import socket
import subprocess
import threading
import time

from qmp import Qmp

PAGE = 4096

# No multiple of 64 pages: where a RAM block is one, QEMU 7.2 takes TCG's dirty bits by whole words
# and does not tell the vCPUs' TLBs, so that pages which the guest's own CPUs write go missing.
MEMORY = (192 << 20) + (128 << 10)

# Whatever becomes of the test, what it started ends with it.
TETHER = ["setpriv", "--pdeathsig", "KILL", "--"]


class Failure(Exception):
    """What a scenario found."""


def tail(path):
    return path.read_text(encoding="utf-8", errors="replace")[-2000:]


class Backend:
    def __init__(self, directory, name, command, patience):
        """@command gets --fd= and a socket that listens from now on, so that nobody has to wait
        until the backend has started."""
        self.name = name
        self.patience = patience
        self.path = str(directory / f"{name}.socket")
        self.stderr = directory / f"{name}.stderr"
        with socket.socket(socket.AF_UNIX) as listener, open(self.stderr, "wb") as stderr:
            listener.bind(self.path)
            listener.listen()
            self.process = subprocess.Popen(
                TETHER + command + [f"--fd={listener.fileno()}"], stderr=stderr,
                stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()])

    def stop(self):
        self.process.terminate()
        status = self.process.wait(self.patience)
        # That a machine has no io_uring is no failure.
        said = re.sub(r".*; going on with plain system calls\n", "", tail(self.stderr))
        if status or said:
            raise Failure(f"{self.name}: the backend ended with status {status} and said: {said!r}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def outputs(self):
        return {f"{self.name} stderr": self.stderr}


class Machine:
    """One QEMU. The guest's serial line is its standard input and output."""

    def __init__(self, directory, name, boot, workload, disk, patience, incoming=False,
                 packed=False):
        self.name = name
        self.patience = patience
        self.serial = directory / f"{name}.serial"
        self.stderr = directory / f"{name}.stderr"
        self.lines = []
        self.arrived = threading.Condition()
        self.ended = False
        self.monitor, theirs = socket.socketpair()
        with theirs, open(self.stderr, "wb") as stderr:
            self.process = subprocess.Popen(
                TETHER + self._command(boot, workload, disk, theirs.fileno(), incoming, packed),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                pass_fds=[theirs.fileno()])
        threading.Thread(target=self._drain, daemon=True).start()

    def connect(self):
        self.qmp = Qmp(self.monitor, self.patience)
        self.qmp.command("migrate-set-capabilities",
                         capabilities=[{"capability": "events", "state": True}])

    @staticmethod
    def _command(boot, workload, disk, qmp_fd, incoming, packed):
        kernel, initramfs = boot
        command = [
            "qemu-system-x86_64", "-accel", "tcg", "-machine", "q35,memory-backend=mem",
            "-m", f"{MEMORY >> 10}K", "-smp", "2", "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot",
            "-object", f"memory-backend-memfd,id=mem,size={MEMORY},share=on",
            "-chardev", f"socket,id=disk,path={disk}",
            "-device", f"vhost-user-blk-pci,chardev=disk,packed={'on' if packed else 'off'}",
            "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
            "-chardev", f"socket,id=monitor,fd={qmp_fd}", "-mon", "monitor,mode=control",
            "-kernel", str(kernel), "-initrd", str(initramfs),
            "-append", f"console=ttyS0 loglevel=1 panic=-1 rdinit=/init -- {workload}"]
        # It stays paused once it has come, so that nothing changes before memory is compared.
        return command + (["-incoming", "defer", "-S"] if incoming else [])

    def _drain(self):
        """A serial line that nobody reads stops the guest."""
        with open(self.serial, "wb", buffering=0) as copy:
            for line in self.process.stdout:
                copy.write(line)
                with self.arrived:
                    self.lines.append(line.decode(errors="replace").strip())
                    self.arrived.notify()
        with self.arrived:
            self.ended = True
            self.arrived.notify()

    def hear(self, pattern):
        """The match of the guest's next line that begins with @pattern."""
        deadline = time.monotonic() + self.patience
        with self.arrived:
            while True:
                while self.lines:
                    said = re.search(r"guest: (.*)", self.lines.pop(0))
                    match = said and re.match(pattern, said[1])
                    if match:
                        return match
                    if said and said[1].startswith("failed"):
                        raise Failure(f"{self.name}: {said[0]}")
                if self.ended:
                    raise Failure(f"{self.name} ended while '{pattern}' was awaited")
                if not self.arrived.wait(deadline - time.monotonic()):
                    raise Failure(f"{self.name}: no '{pattern}' within {self.patience} s")

    def tell(self, command):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, command, answer):
        self.tell(command)
        return self.hear(answer)

    def memory(self):
        """A read-only mapping of the guest's memory."""
        fds = f"/proc/{self.process.pid}/fd"
        for fd in os.listdir(fds):
            if "memory-backend-memfd" in os.readlink(f"{fds}/{fd}"):
                file = os.open(f"{fds}/{fd}", os.O_RDONLY)
                try:
                    return mmap.mmap(file, MEMORY, prot=mmap.PROT_READ)
                finally:
                    os.close(file)
        raise Failure(f"{self.name}: no memory among its files")

    def quit(self):
        self.qmp.command("quit")
        status = self.process.wait(self.patience)
        if status:
            raise Failure(f"{self.name}: QEMU ended with status {status}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def outputs(self):
        return {f"{self.name} serial": self.serial, f"{self.name} stderr": self.stderr}


def stale_pages(source, target):
    """Guest addresses of the pages in which two machines' memories differ."""
    with source.memory() as a, target.memory() as b:
        return [gpa for gpa in range(0, MEMORY, PAGE) if a[gpa:gpa + PAGE] != b[gpa:gpa + PAGE]]
