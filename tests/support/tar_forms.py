"""Tar archives of every bad form, made block by block for the archive tests."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib

MANIFEST = b'[package]\nname = "a"\nversion = "0.1.0"\n'


def block(
    name: bytes,
    *,
    size: int = 0,
    flag: bytes = b"0",
    mode: int = 0o644,
    link: bytes = b"",
    magic: bytes = b"ustar  \0",
    prefix: bytes = b"",
) -> bytes:
    """One header with a right checksum, whatever it says."""
    head = bytearray(512)
    head[0 : len(name)] = name
    head[100:108] = b"%07o\0" % mode
    head[108:124] = b"0000000\0" * 2
    head[124:136] = b"%011o\0" % size
    head[136:148] = b"%011o\0" % 0
    head[156:157] = flag
    head[157 : 157 + len(link)] = link
    head[257:265] = magic
    head[345 : 345 + len(prefix)] = prefix
    return with_sum(head)


def with_sum(head: bytes | bytearray) -> bytes:
    """The header with its checksum made right."""
    head = bytearray(head)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def entry(name: bytes, data: bytes = b"", **fields: object) -> bytes:
    """A header with its data and padding."""
    return block(name, size=len(data), **fields) + data + bytes(-len(data) % 512)  # type: ignore[arg-type]


def long_entry(name: bytes, data: bytes = b"") -> bytes:
    """An entry with a GNU long name."""
    return entry(b"././@LongLink", name + b"\0", flag=b"L") + entry(name[:100], data)


def tar(*parts: bytes, manifest: bool = True) -> bytes:
    """A tar of these parts behind a good manifest."""
    return b"".join((entry(b"Capsule.toml", MANIFEST) if manifest else b"", *parts, bytes(1024)))


def packed(data: bytes) -> io.BytesIO:
    """A gzip file around these bytes."""
    return io.BytesIO(gzip.compress(data, 6, mtime=0))


def capsule(*parts: bytes, manifest: bool = True) -> io.BytesIO:
    """A gzip file around a tar of these parts behind a good manifest."""
    return packed(tar(*parts, manifest=manifest))


def gzip_with_fields(data: bytes, *, name: bytes = b"", comment: bytes = b"", extra: bytes = b"") -> bytes:
    """A gzip member with optional header fields and a header checksum."""
    flags = 0x02 | (0x04 if extra else 0) | (0x08 if name else 0) | (0x10 if comment else 0)
    head = struct.pack("<2sBBIBB", b"\x1f\x8b", 8, flags, 1234, 0, 3)
    head += struct.pack("<H", len(extra)) + extra if extra else b""
    head += (name + b"\0" if name else b"") + (comment + b"\0" if comment else b"")
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    body = zlib.compressobj(6, zlib.DEFLATED, -15)
    return head + body.compress(data) + body.flush() + struct.pack("<II", zlib.crc32(data), len(data))


def by_tarfile(format_number: int, *names: str) -> io.BytesIO:
    """What Python's own writer makes of a manifest and some files, in one of its formats."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=format_number) as writer:
        for name in ("Capsule.toml", *names):
            info = tarfile.TarInfo(name)
            info.size = len(MANIFEST)
            info.uname = "somebody"
            info.mtime = 1700000000
            writer.addfile(info, io.BytesIO(MANIFEST))
    out.seek(0)
    return out
