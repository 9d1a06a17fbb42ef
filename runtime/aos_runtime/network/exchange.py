"""One HTTP/1.1 request and its response on a connection of their own.

h11 speaks the protocol, `Link` moves the bytes; here is only their loop.  The connection ends with the
exchange: none is used twice, so what one server left behind never answers another request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import h11

from aos_runtime.network.faults import Fault, NetworkFault, NothingYet
from aos_runtime.network.links import Link
from aos_runtime.network.waits import Wait

Headers: TypeAlias = tuple[tuple[str, str], ...]

MAX_HEAD_BYTES = 64 * 1024
HEAD_PART_BYTES = 16 * 1024
"""Read at a time while the head comes: it is judged before more is read."""
RECEIVE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a response begins.  A header whose value is not UTF-8 is left out."""

    status: int
    headers: Headers

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a header, by its name in lower case."""
        return tuple(value for key, value in self.headers if key == name)

    @property
    def announced_bytes(self) -> int | None:
        """The length that the server announced for its body, where it did."""
        values = self.values("content-length")
        return int(values[0]) if values and values[0].isdecimal() else None


class Exchange:
    """In order: `send_head`, `send_body` any number of times, `end_body`, `receive_head`, then `read`.

    `wait` is the allowance of every step; None: a step that would wait raises NothingYet.
    """

    def __init__(self, link: Link, wait: Wait | None) -> None:
        self.link = link
        self.wait = wait
        self.received_bytes = 0
        """Of the body, before anything is undone."""
        self.trailers: Headers | None = None
        """What came behind the body; known at its end, None where nothing did."""
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._out = bytearray()
        self._has_head = False
        self._is_ended = False

    def send_head(self, method: str, target: str, headers: Sequence[tuple[str, str]]) -> None:
        """Send the request line and the headers, which must hold `Host` and the framing of the body."""
        self._send(h11.Request(method=method, target=target, headers=list(headers)))

    def send_body(self, data: bytes) -> None:
        """Send the next bytes of the body."""
        self._send(h11.Data(data=data))

    def end_body(self) -> None:
        """Say that there are no more bytes of the body."""
        self._send(h11.EndOfMessage())

    def push(self) -> bool:
        """Without waiting: send what is left to be sent.  Whether all of it is on its way."""
        while self._out:
            try:
                sent = self.link.send_now(bytes(self._out[:RECEIVE_BYTES]))
            except NothingYet:
                return False
            del self._out[:sent]
        return True

    def receive_head(self) -> Head:
        """Wait for the response to begin; interim ones (1xx) are skipped."""
        while True:
            event = self._next_event()
            if isinstance(event, h11.Response):
                self._has_head = True
                return Head(status=event.status_code, headers=tuple(_readable(event.headers)))
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise NetworkFault(Fault.PROTOCOL, "the server did not answer the request")

    def read(self) -> bytes:
        """The next bytes of the body as they came; empty at its end."""
        while not self._is_ended:
            event = self._next_event()
            if isinstance(event, h11.Data):
                data = bytes(event.data)
                self.received_bytes += len(data)
                if data:
                    return data
            elif isinstance(event, h11.EndOfMessage):
                self._is_ended = True
                self.trailers = tuple(_readable(event.headers)) or None
            else:
                raise NetworkFault(Fault.PROTOCOL, "the server broke off its answer")
        return b""

    def close(self) -> None:
        """End it, wherever it is."""
        self.link.close()

    def _send(self, event: h11.Event) -> None:
        try:
            data = self._protocol.send(event)
        except h11.LocalProtocolError as error:
            raise NetworkFault(Fault.INVALID, "the request cannot be written as HTTP") from error
        if self.wait is None:
            self._out += data or b""
            return
        self.wait.check()
        if self._out:
            self.link.send_all(bytes(self._out), self.wait)
            self._out.clear()
        self.link.send_all(data or b"", self.wait)

    def _next_event(self) -> h11.Event:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(self._receive())
        except h11.RemoteProtocolError as error:
            raise NetworkFault(Fault.PROTOCOL, "the server does not speak HTTP/1.1 as it should") from error
        if event is h11.PAUSED:
            raise NetworkFault(Fault.PROTOCOL, "the server changed the protocol")
        assert not isinstance(event, type)  # the two sentinels are handled
        return event

    def _receive(self) -> bytes:
        size = RECEIVE_BYTES if self._has_head else HEAD_PART_BYTES
        if self.wait is None:
            return self.link.receive_now(size)
        self.wait.check()  # a server that never pauses is no reason to go on
        return self.link.receive(size, self.wait)


def _readable(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    kept = []
    for name, value in headers:
        try:
            kept.append((name.decode("ascii"), value.decode()))
        except UnicodeDecodeError:
            continue
    return kept
