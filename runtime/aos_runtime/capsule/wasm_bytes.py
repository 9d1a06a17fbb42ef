"""Reading the binary format of WebAssembly piece by piece, never past an end and never beyond a bound."""

from __future__ import annotations

from collections.abc import Iterator

from aos_runtime.errors import Corrupt

CORE_HEADER = b"\0asm\x01\0\0\0"
COMPONENT_HEADER = b"\0asm\x0d\0\x01\0"
MAX_NAME_BYTES = 4096
_U32_BYTES = 5
_S64_BYTES = 10


class Cursor:
    """A place in `data` that moves forward up to `end`; beyond it is Corrupt `wasm-malformed`."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.at

    def byte(self) -> int:
        self.skip(1)
        return self.data[self.at - 1]

    def skip(self, size_bytes: int) -> None:
        if size_bytes > self.left:
            raise malformed(f"something is cut off at byte {self.at}")
        self.at += size_bytes

    def unsigned(self) -> int:
        """An unsigned LEB128 number of at most 32 bits."""
        value = 0
        for shift in range(0, 7 * _U32_BYTES, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise malformed(f"the number before byte {self.at} is too large")

    def skip_number(self) -> None:
        """Any LEB128 number of at most 64 bits."""
        for _ in range(_S64_BYTES):
            if self.byte() < 0x80:
                return
        raise malformed(f"the number before byte {self.at} is too long")

    def count(self) -> int:
        """The length of a list, each item of which takes at least a byte."""
        count = self.unsigned()
        if count > self.left:
            raise malformed(f"the list before byte {self.at} is longer than its section")
        return count

    def inner(self, size_bytes: int) -> Cursor:
        """A cursor over the next bytes; this one steps over them."""
        start = self.at
        self.skip(size_bytes)
        return Cursor(self.data, start, self.at)

    def rest(self) -> bytes:
        """All bytes up to the end."""
        return self.data[self.at : self.end]

    def text(self) -> str:
        """A name: a length and so many bytes of UTF-8."""
        size_bytes = self.unsigned()
        if size_bytes > MAX_NAME_BYTES:
            raise malformed(f"the name before byte {self.at} is longer than {MAX_NAME_BYTES} bytes")
        data = self.inner(size_bytes).rest()
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise malformed(f"the name before byte {self.at} is not UTF-8") from error


def read_sections(data: bytes, header: bytes) -> Iterator[tuple[int, Cursor]]:
    """The sections of a binary that starts with `header`: id and content.  Corrupt `wasm-malformed`."""
    if not data.startswith(header):
        raise malformed(f"it is not a {'component' if header == COMPONENT_HEADER else 'core module'}")
    cursor = Cursor(data, len(header))
    while cursor.left:
        kind = cursor.byte()
        yield kind, cursor.inner(cursor.unsigned())


def malformed(what: str) -> Corrupt:
    """The one error of this parser."""
    return Corrupt(
        "wasm-malformed",
        f"malformed WebAssembly: {what}",
        hint="build the capsule again with `aos capsule build`",
    )
