# SPDX-License-Identifier: BSD-3-Clause
"""A man in the middle of a vhost-user connection. He writes down what the frontend asks for, and,
if told so, hands the backend a log of his own: what is marked there is lost."""
import os
import socket
import struct
import threading

HEADER = struct.Struct("=III")  # request, flags, bytes of payload
MAX_FDS = 8
SET_FEATURES = 2
SET_LOG_BASE = 6
F_LOG_ALL = 1 << 26


def receive(sock):
    """One message: header and payload, and its fds; nothing at the end of the connection."""
    data, fds = b"", []
    while len(data) < HEADER.size or len(data) < HEADER.size + HEADER.unpack_from(data)[2]:
        want = HEADER.size if len(data) < HEADER.size else HEADER.size + HEADER.unpack_from(data)[2]
        more, new, _, _ = socket.recv_fds(sock, want - len(data), MAX_FDS)
        fds += new
        if not more:
            return b"", fds
        data += more
    return data, fds


def private_log(data):
    """A file like the one that SET_LOG_BASE describes, that only the backend will see."""
    size, offset = struct.unpack_from("=QQ", data, HEADER.size)
    fd = os.memfd_create("private log")
    os.ftruncate(fd, size + offset)
    return fd


class Relay:
    def __init__(self, path, backend, lose_log=False):
        """Listens at @path, and speaks to the backend that listens at @backend."""
        self.lose_log = lose_log
        self.backend = backend
        self.path = path
        self.logs = 0  # that were handed over
        self.features = 0  # acknowledged
        self.logging = []  # what LOG_ALL was set to, each time it changed
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            frontend, _ = self.listener.accept()
            backend = socket.socket(socket.AF_UNIX)
            backend.connect(self.backend)
            for ends in ((frontend, backend, self._look), (backend, frontend, None)):
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source, sink, look):
        while True:
            try:
                data, fds = receive(source)
                if data and look:
                    fds = look(data, fds)
                if data:
                    socket.send_fds(sink, [data], fds)
            except OSError:
                data, fds = b"", []
            for fd in fds:
                os.close(fd)
            if not data:
                break
        # The one who still speaks hears of it; the other direction's thread ends then too.
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _look(self, data, fds):
        request = HEADER.unpack_from(data)[0]
        if request == SET_FEATURES:
            self.features, = struct.unpack_from("=Q", data, HEADER.size)
            on = bool(self.features & F_LOG_ALL)
            if on != (self.logging[-1] if self.logging else False):
                self.logging.append(on)
        if request != SET_LOG_BASE:
            return fds
        self.logs += 1
        if not self.lose_log:
            return fds
        for fd in fds:
            os.close(fd)
        return [private_log(data)]
