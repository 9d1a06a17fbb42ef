"""Closed-loop clients over a Unix socket: each sends its next frame when the reply to the last one is
checked.

All clients live in this process, on one thread and one poller, so that the load costs as little as it can
on a machine that the server shares.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

RECEIVE_BYTES = 1 << 18
REPLY_TIMEOUT_S = 10.0

MakeFrame = Callable[[int], bytes]
"""Number of a call -> its whole frame, length prefix included."""
CheckReply = Callable[[int, bytes], bool]
"""Number of a call, body of a frame -> whether this is its answer.  False means not yet (`Working`); a
wrong answer raises `WrongReply`."""


class WrongReply(Exception):
    """A server answered a call with something else than its answer: the figures are worth nothing."""


@dataclass(slots=True, kw_only=True)
class _Client:
    connection: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    number: int = 0
    sent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one run gave.  Latencies in seconds, sorted."""

    latencies_s: tuple[float, ...]
    elapsed_s: float

    @property
    def rate(self) -> float:
        return len(self.latencies_s) / self.elapsed_s

    def quantile_s(self, share: float) -> float:
        return self.latencies_s[min(len(self.latencies_s) - 1, int(len(self.latencies_s) * share))]


def run_load(
    connections: list[socket.socket], make: MakeFrame, check: CheckReply, *, warm_s: float, for_s: float
) -> Load:
    """Drive every connection for `for_s` after `warm_s`, check each reply, and time those after the
    warm-up."""
    poller = select.poll()
    clients = {connection.fileno(): _Client(connection=connection) for connection in connections}
    for fd in clients:
        poller.register(fd, select.POLLIN)
    clock, sent, latencies = time.perf_counter, 0, []
    started = clock()
    counted_from, end = started + warm_s, started + warm_s + for_s
    for client in clients.values():
        sent += 1
        _send(client, sent, make, clock())
    now = started
    while now < end:
        events = poller.poll(REPLY_TIMEOUT_S * 1000)
        if not events:
            raise WrongReply(f"no reply in {REPLY_TIMEOUT_S:.0f} s")
        for fd, _ in events:
            client = clients[fd]
            if not _receive(client, check):
                continue
            now = clock()
            if client.sent_s >= counted_from:
                latencies.append(now - client.sent_s)
            sent += 1
            _send(client, sent, make, now)
    _drain(clients, poller, check)
    return Load(latencies_s=tuple(sorted(latencies)), elapsed_s=now - counted_from)


def _send(client: _Client, number: int, make: MakeFrame, now_s: float) -> None:
    client.number, client.sent_s = number, now_s
    client.connection.sendall(make(number))


def _receive(client: _Client, check: CheckReply) -> bool:
    """Take what came; whether it held the answer to the client's call."""
    data = client.connection.recv(RECEIVE_BYTES)
    if not data:
        raise WrongReply("the server closed the connection")
    buffer = client.buffer
    buffer += data
    answered = False
    while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "big")):
        answered = check(client.number, bytes(buffer[4:end])) or answered
        del buffer[:end]
    return answered


def _drain(clients: dict[int, _Client], poller: select.poll, check: CheckReply) -> None:
    """Take the replies that are still under way, so that the connections can be used again."""
    open_calls = set(clients)
    while open_calls:
        events = poller.poll(REPLY_TIMEOUT_S * 1000)
        if not events:
            raise WrongReply(f"no reply in {REPLY_TIMEOUT_S:.0f} s")
        for fd, _ in events:
            if _receive(clients[fd], check):
                open_calls.discard(fd)
