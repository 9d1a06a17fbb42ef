"""Bodies of responses, inflated in small steps: a pull from one layer to the next, each step bounded.

Whatever a server sends, one `read` gives at most `CHUNK_BYTES`, so a bomb costs what was read of it and no
more (case ABI-16).  NothingYet passes through every layer and loses nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import IO, Protocol, cast

import zstandard

from aos_runtime.network.faults import Fault, NetworkFault

CHUNK_BYTES = 64 * 1024
MAX_LAYERS = 3
MAX_WINDOW_BYTES = 8 * 1024 * 1024
ACCEPTED = "gzip, deflate, zstd"
_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate", "zstd"})
_GZIP, _RAW = 16 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_GZIP_MAGIC = 0x1F


class Body(Protocol):
    """Bytes of a body in order."""

    def read(self) -> bytes:
        """The next bytes; empty at the end.  NothingYet, NetworkFault."""
        ...


def encodings_of(values: Sequence[str]) -> tuple[str, ...] | None:
    """The encodings of a `Content-Encoding`, outermost last; None where one is not ours to undo.

    NetworkFault PROTOCOL for more layers than anybody needs.
    """
    names = [name.strip().lower() for value in values for name in value.split(",")]
    layers = tuple(name for name in names if name not in ("", "identity"))
    if not set(layers) <= _ENCODINGS:
        return None
    if len(layers) > MAX_LAYERS:
        raise NetworkFault(Fault.PROTOCOL, "the body is encoded more than three times")
    return layers


def decoded(body: Body, encodings: Sequence[str]) -> Body:
    """`body` with these encodings undone."""
    for name in reversed(encodings):
        body = Unzstd(body) if name == "zstd" else Inflated(body, is_gzip="gzip" in name)
    return body


class Inflated:
    """gzip (of any number of members) or deflate (with or without zlib's frame), undone."""

    __slots__ = ("_body", "_inflater", "_is_first", "_is_gzip", "_left")

    def __init__(self, body: Body, *, is_gzip: bool) -> None:
        self._body = body
        self._is_gzip = is_gzip
        self._is_first = True
        self._inflater: zlib._Decompress | None = None
        self._left = b""

    def read(self) -> bytes:
        while True:
            if not self._left:
                self._left = self._body.read()
                if not self._left:
                    return self._ended()
            inflater = self._inflater or self._begin()
            if inflater is None:
                continue
            try:
                data = inflater.decompress(self._left, CHUNK_BYTES)
            except zlib.error as error:
                raise _not_encoded("gzip" if self._is_gzip else "deflate") from error
            self._left = inflater.unconsumed_tail
            if inflater.eof:
                self._left, self._inflater, self._is_first = inflater.unused_data, None, False
            if data:
                return data

    def _begin(self) -> zlib._Decompress | None:
        """The inflater of the member that begins here; None where what comes is padding, which is dropped."""
        if not self._is_first and not (self._is_gzip and self._left[0] == _GZIP_MAGIC):
            self._left, self._body = b"", _Drained(self._body)
            return None
        if not self._is_gzip and len(self._left) == 1:
            self._left += self._body.read()
        self._inflater = zlib.decompressobj(_GZIP if self._is_gzip else _deflate_window(self._left))
        return self._inflater

    def _ended(self) -> bytes:
        inflater = self._inflater
        if inflater is None:
            return b""
        rest = inflater.flush()
        if not inflater.eof:
            raise NetworkFault(Fault.PROTOCOL, "the body ended in the middle of its encoding")
        self._inflater = None
        return rest


def _deflate_window(start: bytes) -> int:
    """Whether deflate comes in zlib's frame, as it should, or bare, as some servers send it."""
    has_frame = len(start) > 1 and start[0] & 0x0F == 8 and (start[0] << 8 | start[1]) % 31 == 0
    return zlib.MAX_WBITS if has_frame else _RAW


class _Drained:
    """A body whose rest is read and forgotten."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def read(self) -> bytes:
        while self._body.read():
            pass
        return b""


class Unzstd:
    """Zstandard, undone; windows over 8 MiB are refused."""

    __slots__ = ("_reader",)

    def __init__(self, body: Body) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        source = cast(IO[bytes], _AsFile(body))  # its `read` is all that is used
        self._reader = decompressor.stream_reader(source, read_across_frames=True)

    def read(self) -> bytes:
        try:
            return self._reader.read1(CHUNK_BYTES)
        except zstandard.ZstdError as error:
            raise _not_encoded("zstd") from error


class _AsFile:
    """A body as the library wants it; what `read` raises comes out of the library unchanged."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def read(self, _size: int = -1) -> bytes:
        return self._body.read()


def _not_encoded(name: str) -> NetworkFault:
    return NetworkFault(Fault.PROTOCOL, f"the body is not {name}, as its headers say")
