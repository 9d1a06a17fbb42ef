"""Length-prefixed frames: cut a byte stream into bodies and back.

Source: daemon-kernel.md 2.1.  A frame is four bytes of big-endian length, then that many bytes of JSON.
This module does not look inside a body.
"""

from __future__ import annotations

from aos_runtime.errors import LimitExceeded, PeerFault

MAX_FRAME_BYTES = 2 * 1024 * 1024
"""Largest body that the daemon reads; a longer prefix closes the connection before the body is read."""

MAX_PAYLOAD_BYTES = 1024 * 1024
"""Largest serialised payload on the bus."""

MAX_HANDSHAKE_BYTES = 4096
FRAME_TIMEOUT_S = 10.0
"""How long a peer may take from the first byte of a frame to its last; ours."""

CLIENT_MAX_FRAME_BYTES = 50 * 1024 * 1024

_PREFIX_BYTES = 4
_MAX_PREFIX = 0xFFFF_FFFF


def encode_frame(body: bytes) -> bytes:
    """One frame around `body`.  LimitExceeded `frame-unsayable` where the prefix cannot say its length."""
    if len(body) > _MAX_PREFIX:
        raise LimitExceeded(
            "frame-unsayable",
            f"a frame of {len(body)} bytes is over the limit of {_MAX_PREFIX} bytes",
            hint="send less in one message",
            size_bytes=len(body),
            limit_bytes=_MAX_PREFIX,
        )
    return len(body).to_bytes(_PREFIX_BYTES, "big") + body


class FrameDecoder:
    """Cuts received bytes into frame bodies, whatever the chunks were.

    Bounded: it never holds more than one unfinished frame and the chunk that was pushed last.  After a
    PeerFault it stays failed, since the stream has lost its place.
    """

    __slots__ = ("_buffer", "_fault", "max_bytes")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        """Largest body; may be raised between frames (the handshake has a smaller one)."""
        self._buffer = bytearray()
        self._fault: PeerFault | None = None

    @property
    def fault(self) -> PeerFault | None:
        """Why the stream is lost; set by a too large prefix even where `feed` had frames to return."""
        return self._fault

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; the bodies that are now whole, in order.  PeerFault `frame-too-large`.

        Frames that were whole before a too large prefix are returned; then `fault` is set and the next
        call raises.
        """
        if not self._buffer and self._is_one_frame(data):
            return [data[_PREFIX_BYTES:]]
        self.push(data)
        bodies: list[bytes] = []
        try:
            while (body := self.next_frame()) is not None:
                bodies.append(body)
        except PeerFault:
            if not bodies:
                raise
        return bodies

    def push(self, data: bytes) -> None:
        """Add received bytes without cutting them yet."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The oldest whole body, or None until more bytes came.  PeerFault `frame-too-large`."""
        if self._fault is not None:
            raise self._fault
        buffer = self._buffer
        if len(buffer) < _PREFIX_BYTES:
            return None
        size = int.from_bytes(buffer[:_PREFIX_BYTES], "big")
        if size > self.max_bytes:
            self._fault = _too_large(size, self.max_bytes)
            buffer.clear()
            raise self._fault
        end = _PREFIX_BYTES + size
        if len(buffer) < end:
            return None
        body = bytes(buffer[_PREFIX_BYTES:end])
        del buffer[:end]
        return body

    def finish(self) -> None:
        """The stream ended.  PeerFault `frame-truncated` where it ended inside a frame."""
        if self._buffer and self._fault is None:
            raise PeerFault(
                "frame-truncated",
                f"the connection ended inside a frame, after {len(self._buffer)} bytes of it",
                hint="the other side stopped; try again, and look at `aos status`",
                size_bytes=len(self._buffer),
            )

    def _is_one_frame(self, data: bytes) -> bool:
        """The usual case: a chunk that is exactly one frame, which needs no buffer."""
        size = len(data) - _PREFIX_BYTES
        return (
            0 <= size <= self.max_bytes
            and int.from_bytes(data[:_PREFIX_BYTES], "big") == size
            and self._fault is None
        )


def _too_large(size: int, limit: int) -> PeerFault:
    return PeerFault(
        "frame-too-large",
        f"a frame of {size} bytes is over the limit of {limit} bytes",
        hint=f"keep each message under {limit} bytes",
        size_bytes=size,
        limit_bytes=limit,
    )
