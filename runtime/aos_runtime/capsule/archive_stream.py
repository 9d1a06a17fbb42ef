"""The packed side of an archive: one gzip member or one zstd frame, bounded on both ends.

Unpacks as it is read, in pieces; checks every checksum; and refuses a second member, bytes after the end, a
large window and a bomb.  It knows nothing of what is inside.
Source: cases ARC-12, ARC-13 and INS-28.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal

import zstandard

from aos_runtime.capsule.archive_limits import MIB, Limits, check_packed, check_unpacked
from aos_runtime.capsule.tar_blocks import damaged
from aos_runtime.errors import InvalidInput, LimitExceeded

Compression = Literal["gzip", "zstd"]

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""No name, no time, no flag, system unknown: the header that the published builder writes."""

GZIP_LEVEL = 6
ZSTD_LEVEL = 12

_CHUNK_BYTES = 64 * 1024
_MAX_GZIP_HEADER_BYTES = 64 * 1024
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT, _RESERVED = 0x02, 0x04, 0x08, 0x10, 0xE0


class UnpackedReader:
    """Reads an archive's unpacked bytes front to back.  `offset` is how many were read."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self.size_bytes = file.seek(0, 2)
        check_packed(self.size_bytes, limits)
        file.seek(0)
        self.compression = _sniff(file.read(8))
        self.offset = 0
        self._limits = limits
        self._chunk = b""
        self._at = 0
        self._chunks = _CHUNKS[self.compression](file, self.size_bytes, limits)

    def read(self, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes, at most a piece at a time; empty at the end of a whole archive."""
        if self._at == len(self._chunk):
            self._chunk, self._at = next(self._chunks, b""), 0
        data = self._chunk[self._at : self._at + size_bytes]
        self._at += len(data)
        self.offset += len(data)
        check_unpacked(self.offset, self.size_bytes, self._limits)
        return data

    def read_exactly(self, size_bytes: int, inside: str) -> bytes:
        """Exactly `size_bytes` bytes of `inside`.  Corrupt `archive-damaged` where it ends before."""
        return b"".join(self.pieces(size_bytes, inside))

    def pieces(self, size_bytes: int, inside: str) -> Iterator[bytes]:
        """The same in pieces."""
        while size_bytes:
            data = self.read(size_bytes)
            if not data:
                raise damaged(f"it ends at byte {self.offset}, inside {inside}", offset=self.offset)
            size_bytes -= len(data)
            yield data


def pack(data: bytes, compression: Compression) -> bytes:
    """Pack a whole tar.  The same bytes for the same library version, whoever packs."""
    if compression == "gzip":
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
        return GZIP_HEADER + packer.compress(data) + packer.flush() + trailer
    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL, window_log=21, write_checksum=True, write_content_size=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _sniff(start: bytes) -> Compression:
    if not start:
        raise damaged("the file is empty", offset=0)
    if start.startswith(GZIP_MAGIC):
        return "gzip"
    if start.startswith(ZSTD_MAGIC):
        return "zstd"
    shown = start[:5].decode("latin-1")
    seen = f"`{shown}`" if shown.isascii() and shown.isprintable() else start[:5].hex(" ")
    web_page = start[:1] == b"<" or start.startswith(b"Not F")
    raise InvalidInput(
        "archive-not-gzip",
        f"not a gzip archive; starts with {seen}",
        hint="a saved web page: download the file itself"
        if web_page
        else "build it with `aos capsule build`",
        starts_with=seen,
    )


def _gzip_chunks(file: BinaryIO, size_bytes: int, limits: Limits) -> Iterator[bytes]:
    file.seek(0)
    waiting = _skip_gzip_header(file)
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    check, length = 0, 0
    while not unpacker.eof:
        waiting = waiting or file.read(_CHUNK_BYTES)
        if not waiting:
            raise damaged(
                f"the file ends at byte {size_bytes}, before its gzip stream does", offset=size_bytes
            )
        try:
            data = unpacker.decompress(waiting, _CHUNK_BYTES)
        except zlib.error as error:
            at = file.tell() - len(waiting)
            raise damaged(f"the gzip stream is broken after byte {at} of the file", offset=at) from error
        waiting = unpacker.unconsumed_tail
        check, length = zlib.crc32(data, check), length + len(data)
        if data:
            yield data
    _check_gzip_end(unpacker.unused_data + file.read(8), check, length, size_bytes)


def _check_gzip_end(end: bytes, check: int, length: int, size_bytes: int) -> None:
    if len(end) < 8:
        raise damaged(f"the file ends at byte {size_bytes}, inside its gzip trailer", offset=size_bytes)
    if struct.unpack("<II", end[:8]) != (check, length & 0xFFFFFFFF):
        raise damaged("its contents do not match the gzip checksum and length", offset=size_bytes)
    if end[8:].startswith(GZIP_MAGIC):
        raise InvalidInput(
            "archive-several-members",
            "the archive is more than one gzip member",
            hint="build the archive with `aos capsule build`",
        )
    if len(end) > 8:
        raise _trailing()


def _skip_gzip_header(file: BinaryIO) -> bytes:
    """Step over the header; gives what was read beyond it."""
    data = file.read(_MAX_GZIP_HEADER_BYTES)
    if len(data) < len(GZIP_HEADER):
        raise damaged(f"the file ends at byte {len(data)}, inside its gzip header", offset=len(data))
    flags = data[3]
    if data[2] != 8 or flags & _RESERVED:
        raise damaged("the gzip header names an unknown method or flag", offset=2)
    at = len(GZIP_HEADER)
    if flags & _FEXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            at = data.find(b"\0", at) + 1 or len(data) + 1
    if flags & _FHCRC:
        if data[at : at + 2] != (zlib.crc32(data[:at]) & 0xFFFF).to_bytes(2, "little"):
            raise damaged("the gzip header does not match its checksum", offset=at)
        at += 2
    if at > len(data):
        raise damaged("the gzip header does not end", offset=len(data))
    return data[at:]


def _zstd_chunks(file: BinaryIO, size_bytes: int, limits: Limits) -> Iterator[bytes]:
    _check_zstd_frame(file, size_bytes, limits)
    file.seek(0)
    unpacker = zstandard.ZstdDecompressor(max_window_size=limits.window_bytes)
    with unpacker.stream_reader(file, closefd=False) as reader:
        while True:
            try:
                data = reader.read(_CHUNK_BYTES)
            except zstandard.ZstdError as error:
                raise damaged("its contents do not match the zstd frame or its checksum") from error
            if not data:
                return
            yield data


def _check_zstd_frame(file: BinaryIO, size_bytes: int, limits: Limits) -> None:
    """Walk the one frame: the library would stop quietly at a cut, and not look at what follows."""
    file.seek(0)
    start = file.read(18)
    try:
        frame = zstandard.get_frame_parameters(start)
        at = zstandard.frame_header_size(start)
    except zstandard.ZstdError as error:
        raise damaged("the zstd frame header is broken", offset=0) from error
    if frame.window_size > limits.window_bytes:
        raise LimitExceeded(
            "archive-window",
            f"the zstd window is larger than {limits.window_bytes // MIB} MiB",
            hint="build the archive with `aos capsule build --compression zstd`",
            window_bytes=frame.window_size,
        )
    if not frame.has_checksum or frame.dict_id:
        raise InvalidInput(
            "archive-zstd-frame",
            "the zstd frame has no content checksum, or needs a dictionary",
            hint="build the archive with `aos capsule build --compression zstd`",
        )
    end = _zstd_blocks_end(file, at) + 4
    if end > size_bytes:
        raise damaged(f"the file ends at byte {size_bytes}, before its zstd frame does", offset=size_bytes)
    if end < size_bytes:
        raise _trailing()


def _zstd_blocks_end(file: BinaryIO, at: int) -> int:
    """Where the last block of the frame whose first block is at `at` ends."""
    while True:
        file.seek(at)
        head = file.read(3)
        if len(head) < 3:
            raise damaged(f"the file ends at byte {at + len(head)}, inside its zstd frame", offset=at)
        word = int.from_bytes(head, "little")
        last, kind, size_bytes = word & 1, word >> 1 & 3, word >> 3
        at += 3 + (1 if kind == 1 else size_bytes)
        if last:
            return at


def _trailing() -> InvalidInput:
    return InvalidInput(
        "archive-trailing",
        "the archive has bytes after its end",
        hint="build the archive with `aos capsule build`",
    )


_CHUNKS = {"gzip": _gzip_chunks, "zstd": _zstd_chunks}
