"""Put first on PYTHONPATH by a test: every Python process then writes down what it does with the network.

A line `armed PID` shows that a process was watched; any other line is a use of the network that must not
happen.  Unix sockets are not the network.
"""

from __future__ import annotations

import os
import sys

_RECORD = os.environ["AOS_TEST_NETWORK_RECORD"]
_ADDRESSED = ("socket.connect", "socket.bind", "socket.sendto")
_WATCHED = (*_ADDRESSED, "socket.getaddrinfo", "socket.gethostbyname")


def _write(line: str) -> None:
    with open(_RECORD, "a", encoding="utf-8") as record:  # noqa: PTH123 - imports as little as it can
        record.write(line + "\n")


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _WATCHED:
        return
    address = arguments[1] if event in _ADDRESSED else arguments[0]
    if event in _ADDRESSED and isinstance(address, str | bytes):
        return  # a Unix socket
    _write(f"{event} {address!r} by {os.getpid()} {sys.argv}")
    raise OSError(f"the network is forbidden in this test: {event} {address!r}")


sys.addaudithook(_watch)
_write(f"armed {os.getpid()}")
