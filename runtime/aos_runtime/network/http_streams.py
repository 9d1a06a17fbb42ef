"""What a guest holds while a response or a request body is on its way: the resources of astrid:http."""

from __future__ import annotations

import hashlib
import select
from collections.abc import Callable

from aos_runtime.network.client import (
    Limits,
    Options,
    Response,
    check_integrity,
    finish_upload,
)
from aos_runtime.network.door import NetworkDoor
from aos_runtime.network.exchange import Exchange, Headers
from aos_runtime.network.faults import Fault, NetworkFault, NothingYet
from aos_runtime.network.waits import Wait
from aos_runtime.policy.http_rules import HttpRequest

SINK_BYTES = 64 * 1024
"""What a sink takes at a time."""


class HttpStream:
    """A response whose body the guest reads in parts; `release` is called once, when it is closed.

    `ends` is the moment of the whole request's deadline.  It is its own source and its own input end.
    """

    def __init__(
        self, response: Response, options: Options, ends: float, release: Callable[[], None]
    ) -> None:
        self.status = response.status
        self.headers: Headers = response.headers
        self._response = response
        self._options = options
        self._ends = ends
        self._release = release
        self._limits = Limits(options, response, None)
        self._hash = None if options.integrity is None else hashlib.new(options.integrity.algorithm)
        self._ahead: bytes | NetworkFault | None = None
        """What a look for readiness has read; an empty part is the end."""
        self.is_closed = False

    @property
    def trailers(self) -> Headers | None:
        """What came behind the body; None before its end, and where nothing did."""
        return self._response.exchange.trailers

    def read_chunk(self, is_over: Callable[[], bool]) -> bytes:
        """The next part; empty at the end.  NetworkFault; CLOSED once it is closed."""
        if self.is_closed:
            raise NetworkFault(Fault.CLOSED, "the stream is closed")
        if self._ahead is None:
            wait = Wait(ends=self._ends, is_over=is_over).at_most(self._options.between_s)
            self._response.exchange.wait = wait
            self._ahead = self._read()
        return self._take()

    def read(self, size_bytes: int) -> bytes | None:
        """`host.streams.InputEnd`."""
        if self.is_closed:
            return None
        if not self.is_ready():
            return b""
        part = self._take()
        if len(part) > size_bytes:
            self._ahead, part = part[size_bytes:], part[:size_bytes]
        return part or None

    def source(self) -> HttpStream:
        return self

    def is_ready(self) -> bool:
        """Whether a part, the end or a fault is there."""
        if self._ahead is None and not self.is_closed:
            self._response.exchange.wait = None
            try:
                self._ahead = self._read()
            except NothingYet:
                return False
            except NetworkFault as fault:
                self._ahead = fault
        return True

    def descriptor(self) -> tuple[int, int] | None:
        if self.is_closed or self._ahead is not None:
            return None
        return self._response.exchange.link.fileno(), select.POLLIN

    def close(self) -> None:
        self.is_closed = True
        self._response.close()
        self._release()

    def _take(self) -> bytes:
        part = self._ahead
        if isinstance(part, NetworkFault):
            self.close()
            raise part
        assert part is not None
        self._ahead = None if part else b""  # the end stays the end
        return part

    def _read(self) -> bytes:
        part = self._response.body.read()
        self._limits.count(part)
        if self._hash is not None and self._options.integrity is not None:
            self._hash.update(part)
            if not part:
                check_integrity(self._options.integrity, self._hash.digest())
        return part


class HttpUpload:
    """A request whose body the guest writes in parts; it becomes a stream by `finish`.

    It is its own output end, and the source of being writable.
    """

    def __init__(
        self,
        door: NetworkDoor,
        exchange: Exchange,
        request: HttpRequest,
        options: Options,
        ends: float,
        release: Callable[[], None],
    ) -> None:
        self._door = door
        self._exchange = exchange
        self._request = request
        self._options = options
        self._ends = ends
        self._release = release
        self.is_closed = False

    def finish(self, is_over: Callable[[], bool]) -> HttpStream:
        """Seal the body and wait for the response's head.  NetworkFault; CLOSED the second time."""
        if self.is_closed:
            raise NetworkFault(Fault.CLOSED, "the upload is over")
        self.is_closed = True
        wait = Wait(ends=self._ends, is_over=is_over)
        try:
            response = finish_upload(self._door, self._exchange, self._request, self._options, wait)
            return HttpStream(response, self._options, self._ends, self._release)
        except BaseException:
            self._exchange.close()
            self._release()
            raise

    def permit(self) -> int | None:
        """`host.streams.OutputEnd`."""
        if self.is_closed or self._exchange.link.is_closed:
            return None
        return SINK_BYTES if self.flush() and self._exchange.link.has_room() else 0

    def write(self, data: bytes) -> None:
        if data:
            self._exchange.send_body(data)
        self.flush()

    def flush(self) -> bool:
        return self._exchange.push()

    def source(self) -> HttpUpload:
        return self

    def is_ready(self) -> bool:
        try:
            return self.permit() != 0
        except NetworkFault:
            return True  # whoever writes next is told

    def descriptor(self) -> tuple[int, int] | None:
        return None if self.is_closed else (self._exchange.link.fileno(), select.POLLOUT)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._exchange.close()
            self._release()
