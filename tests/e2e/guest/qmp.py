# SPDX-License-Identifier: BSD-3-Clause
"""QEMU's machine protocol: commands and events, one JSON object a line."""
import json
import time


class QmpError(Exception):
    pass


class Qmp:
    def __init__(self, sock, patience):
        """@patience: seconds that any one answer or event may take."""
        self.sock = sock
        self.patience = patience
        self.lines = sock.makefile("rb")
        self.events = []
        self._receive(time.monotonic() + patience)  # the greeting
        self.command("qmp_capabilities")

    def _receive(self, deadline):
        self.sock.settimeout(max(deadline - time.monotonic(), 0.001))
        line = self.lines.readline()
        if not line:
            raise QmpError("QEMU closed its monitor")
        return json.loads(line)

    def command(self, name, **arguments):
        message = {"execute": name, "arguments": {k.replace("_", "-"): v
                                                  for k, v in arguments.items()}}
        deadline = time.monotonic() + self.patience
        self.sock.settimeout(self.patience)
        self.sock.sendall(json.dumps(message).encode() + b"\n")
        while True:
            answer = self._receive(deadline)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise QmpError(f"{name}: {answer['error']['desc']}")
            else:
                return answer["return"]

    def wait_event(self, *names):
        """The next event of these @names, as a pair of name and data."""
        deadline = time.monotonic() + self.patience
        while True:
            event = self.events.pop(0) if self.events else self._receive(deadline)
            if event["event"] in names:
                return event["event"], event.get("data", {})
