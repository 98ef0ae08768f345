# SPDX-License-Identifier: BSD-3-Clause
"""The way of a migration from one QEMU to another, with a gate in it."""
import socket
import threading


class Stream:
    def __init__(self, path, target, limit):
        """Listens at @path and carries what comes to @target. After @limit bytes it holds the rest
        back until it is opened: so long the migration cannot end, and the guest runs."""
        self.path = path
        self.target = target
        self.limit = limit
        self.held = threading.Event()
        self.opened = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self._carry, daemon=True).start()

    def open(self):
        self.opened.set()

    def _carry(self):
        source, _ = self.listener.accept()
        carried = 0
        with source, self.listener, socket.socket(socket.AF_UNIX) as sink:
            sink.connect(self.target)
            try:
                while data := source.recv(1 << 20):
                    sink.sendall(data)
                    carried += len(data)
                    if carried >= self.limit:
                        self.held.set()
                        self.opened.wait()
            except OSError:
                pass  # one of them has ended: closing both ends tells the other
