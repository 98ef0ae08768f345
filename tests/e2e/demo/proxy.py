# SPDX-License-Identifier: BSD-3-Clause
"""A TCP proxy between source and destination of silt demo that acts once, at a chosen byte."""
import socket
import struct
import threading

# struct link_hello and struct link_answer go before the migration.
HELLO, ANSWER = 64, 256
HEADER = struct.Struct("<IHHII3Q")
MAGIC = 0x544C4953
LOAD, START, LOADED, STARTED = 5, 6, 10, 11


class Frames:
    """Where frames of the migration begin in one direction of a stream."""

    def __init__(self, before):
        self.skip = before
        self.head = b""

    def scan(self, chunk):
        """Yield (offset in the chunk, negative if in an earlier one; type) of each frame."""
        at = 0
        while at < len(chunk):
            if self.skip:
                step = min(self.skip, len(chunk) - at)
                self.skip -= step
                at += step
                continue
            step = min(HEADER.size - len(self.head), len(chunk) - at)
            self.head += chunk[at:at + step]
            at += step
            if len(self.head) == HEADER.size:
                magic, _, kind, length, *_ = HEADER.unpack(self.head)
                self.head = b""
                if magic != MAGIC or kind in (START, STARTED):
                    self.skip = 1 << 62  # what follows is no part of the migration
                if magic == MAGIC:
                    yield at - HEADER.size, kind
                    self.skip = self.skip or length


class Trigger:
    """When to act: after so many bytes of a direction, or inside a frame of one type."""

    def __init__(self, direction, at, frame=None):
        self.direction, self.at, self.frame = direction, at, frame

    def __str__(self):
        where = f" of frame {self.frame}" if self.frame else ""
        return f"{self.direction}, byte {self.at}{where}"


class Proxy:
    """Of connections to @listener, the first is acted upon, when the trigger says so."""

    def __init__(self):
        self.listener = None
        self.port = 0
        self.trigger = self.action = None
        self.target = 0
        self.bytes = {"forward": 0, "backward": 0}
        self.seen = set()  # types of frames
        self.fired = threading.Event()
        self.lock = threading.Lock()

    def up(self, target):
        """Connections go to this port from now on."""
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def down(self):
        """Nobody listens: connections are refused."""
        if self.listener:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        self.listener = None

    def serve(self, listener):
        while True:
            try:
                source, _ = listener.accept()
            except OSError:
                return
            try:
                destination = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                source.close()
                continue
            trigger, self.trigger = self.trigger, None
            pair = (source, destination)
            for direction, ends, before in (("forward", pair, HELLO),
                                            ("backward", pair[::-1], ANSWER)):
                mine = trigger if trigger and trigger.direction == direction else None
                threading.Thread(target=self.pump, daemon=True,
                                 args=(direction, *ends, before, mine)).start()

    def pump(self, direction, read, write, before, trigger):
        frames, passed = Frames(before), 0
        try:
            while chunk := read.recv(1 << 16):
                cut = self.find(trigger, frames, chunk, passed)
                if cut is not None:
                    write.sendall(chunk[:cut])
                    self.bytes[direction] = passed + cut
                    trigger = None
                    if self.act(read, write):
                        return
                    write.sendall(chunk[cut:])
                else:
                    write.sendall(chunk)
                passed += len(chunk)
                self.bytes[direction] = passed
        except OSError:
            pass
        self.shut(read, write)

    @staticmethod
    def shut(*ends):
        """Whoever is reading there sees the end; close() alone would leave it waiting."""
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def find(self, trigger, frames, chunk, passed):
        """Behind how many bytes of the chunk to act, or None."""
        began = list(frames.scan(chunk))
        self.seen |= {kind for _, kind in began}
        if not trigger:
            return None
        if not trigger.frame:
            return max(trigger.at - passed, 0) if passed + len(chunk) > trigger.at else None
        for offset, kind in began:
            if kind == trigger.frame:
                return max(0, min(offset + trigger.at, len(chunk)))
        return None

    def act(self, read, write):
        """Return: is the connection cut?"""
        cut = self.action is None
        if cut:
            self.shut(read, write)
        else:
            self.action()
        self.fired.set()
        return cut
