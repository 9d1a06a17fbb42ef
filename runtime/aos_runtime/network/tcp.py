"""TCP and Unix connections as a guest holds them: frames, bytes and options.

A frame is its length in four bytes, most significant first, then so many bytes.  One that came in part waits
here for its rest.  Source: host-abi.md 1.7.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

from aos_runtime.network.faults import Fault, NetworkFault, NothingYet, fault_of
from aos_runtime.network.links import READABLE, WRITABLE, Link, SocketSource
from aos_runtime.network.socket_options import SocketOptions
from aos_runtime.network.waits import Wait

MAX_BYTES = 10 * 1024 * 1024
"""Of one frame, and of one read or write."""
PENDING_S = 0.05
FRAME_S = 5.0
FRAME_S_PER_BYTE = 0.001 / 1024
CONNECT_S = 10.0
IDLE_S = 3600.0
"""A read without a timeout of its own; the call that it is part of ends before."""
PART_BYTES = 64 * 1024
_LENGTH = struct.Struct(">I")


class TcpStream:
    """A connected stream; `release` is called once, when it is closed.

    `owner` and `principal` are whose connection it is, for one that was accepted from a client of this home
    and proved who it is; None for every other.
    """

    def __init__(
        self,
        link: Link,
        release: Callable[[], None],
        *,
        owner: str | None = None,
        principal: str | None = None,
    ) -> None:
        self._link = link
        self._release = release
        self._inbox = bytearray()
        self._outbox = bytearray()
        """What was taken as a stream and is not sent yet; it goes before anything else."""
        self.read_timeout_ms: int | None = None
        self.write_timeout_ms: int | None = None
        is_unix = link.socket.family == socket.AF_UNIX
        self._peer, self._local = ("", "") if is_unix else _names(link.socket)
        self._is_deaf = False
        self.owner = owner
        self.principal = principal

    # frames

    def read_frame(self, is_over: Callable[[], bool]) -> bytes | None:
        """The next frame; None where the peer has ended.  NothingYet where none begins within 50 ms."""
        header = self._gather(_LENGTH.size, Wait.of(PENDING_S, is_over), is_start=True)
        if header is None:
            return None
        (size,) = _LENGTH.unpack_from(header)
        if size > MAX_BYTES:
            raise NetworkFault(Fault.OTHER, f"a frame of {size} bytes is over the limit of {MAX_BYTES}")
        whole = _LENGTH.size + size
        if self._gather(whole, Wait.of(_frame_time(size), is_over)) is None:
            return None
        frame = bytes(self._inbox[_LENGTH.size : whole])
        del self._inbox[:whole]
        return frame

    def write_frame(self, data: bytes, is_over: Callable[[], bool]) -> None:
        """Send one frame."""
        _check_size(len(data))
        wait = Wait.of(_frame_time(len(data)), is_over)
        self._send_outbox(wait)
        self._link.send_all(_LENGTH.pack(len(data)) + data, wait)

    def _gather(self, size: int, wait: Wait, *, is_start: bool = False) -> bytearray | None:
        """Wait until so many bytes are in the inbox; None where the peer ends before."""
        inbox = self._inbox
        while len(inbox) < size:
            try:
                part = self._link.receive(min(size - len(inbox), PART_BYTES), wait)
            except NetworkFault as fault:
                if is_start and fault.fault is Fault.TIMEOUT:
                    raise NothingYet from None
                raise
            if not part:
                return None
            inbox += part
        return inbox

    # bytes

    def read_bytes(self, size: int, is_over: Callable[[], bool]) -> bytes | None:
        """Up to so many bytes, empty where none come within the read timeout; None at the peer's end."""
        _check_size(size)
        if self._inbox:
            part = bytes(self._inbox[:size])
            del self._inbox[:size]
            return part
        if self._is_deaf:
            return None
        try:
            return self._link.receive(size, self._read_wait(is_over)) or None if size else b""
        except NetworkFault as fault:
            if fault.fault is Fault.TIMEOUT:
                return b""
            raise

    def peek(self, size: int, is_over: Callable[[], bool]) -> bytes:
        """As `read_bytes`, and the bytes stay; empty at the end, too."""
        self._check_tcp()
        _check_size(size)
        if self._inbox:
            return bytes(self._inbox[:size])
        try:
            return self._link.peek(size, self._read_wait(is_over)) if size else b""
        except NetworkFault as fault:
            if fault.fault is Fault.TIMEOUT:
                return b""
            raise

    def write_bytes(self, data: bytes, is_over: Callable[[], bool]) -> int:
        """Send some of the bytes; how many.  NetworkFault TIMEOUT where none are taken in time."""
        _check_size(len(data))
        timeout_ms = self.write_timeout_ms
        wait = Wait.of(IDLE_S if timeout_ms is None else timeout_ms / 1000, is_over)
        self._send_outbox(wait)
        return self._link.send(data, wait) if data else 0

    def _send_outbox(self, wait: Wait) -> None:
        self._link.send_all(bytes(self._outbox), wait)
        self._outbox.clear()

    def _read_wait(self, is_over: Callable[[], bool]) -> Wait:
        timeout_ms = self.read_timeout_ms
        return Wait.of(IDLE_S if timeout_ms is None else timeout_ms / 1000, is_over)

    # the ends of astrid:io

    def read(self, size_bytes: int) -> bytes | None:
        """`host.streams.InputEnd`."""
        if self._inbox or self._is_deaf:
            return self.read_bytes(size_bytes, bool)
        try:
            return self._link.receive_now(size_bytes) or None
        except NothingYet:
            return b""

    def permit(self) -> int | None:
        """`host.streams.OutputEnd`."""
        if self._link.is_closed:
            return None
        return PART_BYTES if self.flush() and self._link.has_room() else 0

    def write(self, data: bytes) -> None:
        self._outbox += data
        self.flush()

    def flush(self) -> bool:
        outbox = self._outbox
        while outbox:
            try:
                sent = self._link.send_now(bytes(outbox[:PART_BYTES]))
            except NothingYet:
                return False
            del outbox[:sent]
        return True

    def source(self) -> TcpStream:
        """Ready where a read would give bytes or the end."""
        return self

    def writable(self) -> SocketSource:
        """Ready where the socket takes bytes."""
        return SocketSource(self._link, WRITABLE)

    def is_ready(self) -> bool:
        return bool(self._inbox) or self._is_deaf or self._link.has_bytes()

    def descriptor(self) -> tuple[int, int] | None:
        return None if self._link.is_closed else (self._link.fileno(), READABLE)

    # lifecycle and names

    @property
    def options(self) -> SocketOptions:
        """NetworkFault NOT_TCP for a Unix connection."""
        self._check_tcp()
        return SocketOptions(self._link.socket)

    def shutdown(self, how: str) -> None:
        """`receive`, `send` or `both`."""
        self._check_tcp()
        numbers = {"receive": socket.SHUT_RD, "send": socket.SHUT_WR, "both": socket.SHUT_RDWR}
        self._is_deaf = self._is_deaf or how != "send"
        self._link.shutdown(numbers[how])

    def peer_address(self) -> str:
        self._check_tcp()
        return self._peer

    def local_address(self) -> str:
        self._check_tcp()
        return self._local

    def close(self) -> None:
        self._link.close()
        self._release()

    def _check_tcp(self) -> None:
        if self._link.socket.family == socket.AF_UNIX:
            raise NetworkFault(Fault.NOT_TCP, "it is a connection of this machine, not TCP")


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise NetworkFault(Fault.OTHER, f"{size} bytes are over the limit of {MAX_BYTES}")


def _frame_time(size: int) -> float:
    return FRAME_S + size * FRAME_S_PER_BYTE


def _names(connected: socket.socket) -> tuple[str, str]:
    """Peer and local address of a TCP connection, as they are when it begins."""
    try:
        return address_text(connected.getpeername()), address_text(connected.getsockname())
    except OSError as error:
        raise fault_of(error) from error


def address_text(name: Any) -> str:
    """`ip:port` of a socket's own form of an address."""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
