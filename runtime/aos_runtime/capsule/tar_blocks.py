"""Tar headers, block by block: strict reading and byte-exact GNU writing.

Reading accepts regular files, folders and GNU long names, and refuses everything else by name; it follows no
link and no extension.  Writing is the published form (build-install.md 2.11), measured on archives of the
published builder.  This room knows no archive as a whole; limits on counts and sizes are `archive`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from aos_runtime.errors import AosError, Corrupt, InvalidInput

BLOCK_BYTES = 512
NAME_BYTES = 100
FIXED_MTIME_S = 1153704088
"""The one modification time of every entry, so that no clock reaches the bytes."""

GNU_MAGIC = b"ustar  \0"
USTAR_MAGIC = b"ustar\x0000"

Kind = Literal["file", "folder", "long-name"]

_KINDS: dict[bytes, Kind] = {b"0": "file", b"\0": "file", b"5": "folder", b"L": "long-name"}
_TYPE_FLAGS: dict[Kind, bytes] = {"file": b"0", "folder": b"5", "long-name": b"L"}
_LONG_NAME_ENTRY = b"././@LongLink"
_OCTAL = re.compile(rb" *([0-7]+)[ \0]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One header block.  `name` is undecoded; `size_bytes` counts the data after it without padding."""

    kind: Kind
    name: bytes
    size_bytes: int
    executable: bool


def padding_bytes(size_bytes: int) -> int:
    """How many zero bytes follow data of this size."""
    return -size_bytes % BLOCK_BYTES


def decode_header(block: bytes, offset: int) -> Header:
    """Read a header block that stands at `offset` of the unpacked archive.

    Corrupt `archive-damaged` for a broken block; InvalidInput `archive-link`, `archive-special`,
    `archive-sparse`, `archive-pax` or `archive-header` for what an archive may not hold.
    """
    _check_sum(block, offset)
    magic = block[257:265]
    if magic not in (GNU_MAGIC, USTAR_MAGIC):
        raise _unsupported(f"the header at byte {offset} is neither GNU nor ustar")
    name = _until_zeros(block[0:100], offset)
    if magic == USTAR_MAGIC and (prefix := _until_zeros(block[345:500], offset)):
        name = prefix + b"/" + name
    elif any(block[345:500]):
        raise _unsupported(f"the header at byte {offset} holds GNU extension fields")
    kind = _KINDS.get(block[156:157])
    if kind is None:
        raise _refused_type(block[156:157], name)
    size_bytes = _octal(block[124:136], "size", offset)
    executable = kind == "file" and bool(_octal(block[100:108], "mode", offset) & 0o111)
    return Header(kind=kind, name=name, size_bytes=size_bytes, executable=executable)


def encode_entry(name: bytes, *, kind: Literal["file", "folder"], size_bytes: int, mode: int) -> bytes:
    """The header of an entry, with the GNU long-name entry before it where the name needs one."""
    header = _encode_header(name[:NAME_BYTES], kind, size_bytes, mode, FIXED_MTIME_S)
    if len(name) <= NAME_BYTES:
        return header
    data = name + b"\0"
    long_name = _encode_header(_LONG_NAME_ENTRY, "long-name", len(data), 0o644, 0)
    return long_name + data + bytes(padding_bytes(len(data))) + header


def _encode_header(name: bytes, kind: Kind, size_bytes: int, mode: int, mtime_s: int) -> bytes:
    block = bytearray(BLOCK_BYTES)
    block[0 : len(name)] = name
    block[100:108] = b"%07o\0" % mode
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % size_bytes
    block[136:148] = b"%011o\0" % mtime_s
    block[156:157] = _TYPE_FLAGS[kind]
    block[257:265] = GNU_MAGIC
    block[148:156] = b"%07o\0" % (sum(block) + 8 * ord(" "))
    return bytes(block)


def _check_sum(block: bytes, offset: int) -> None:
    stated = _octal(block[148:156], "checksum", offset)
    if stated != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise damaged(f"the header at byte {offset} does not match its checksum", offset=offset)


def _octal(field: bytes, what: str, offset: int) -> int:
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise damaged(f"the {what} in the header at byte {offset} is not a plain octal number", offset=offset)
    return int(match[1], 8)


def _until_zeros(field: bytes, offset: int) -> bytes:
    text = field.rstrip(b"\0")
    if b"\0" in text:
        raise InvalidInput(
            "archive-path",
            f"the name in the header at byte {offset} has a NUL inside",
            hint="the archive is hostile or broken: do not install it",
            entry=ascii(text),
        )
    return text


def _refused_type(flag: bytes, name: bytes) -> AosError:
    shown = ascii(name.decode("utf-8", "backslashreplace"))
    if flag in (b"1", b"2", b"K"):
        return InvalidInput(
            "archive-link",
            f"the archive's entry {shown} is a link",
            hint="a capsule holds files and folders only: pack the file itself",
            entry=shown,
        )
    if flag in (b"x", b"g", b"X"):
        return InvalidInput(
            "archive-pax",
            f"the archive's entry {shown} is a pax record, which can override what a header says",
            hint="build the archive with `aos capsule build`",
            entry=shown,
        )
    if flag == b"S":
        return InvalidInput(
            "archive-sparse",
            f"the archive's entry {shown} is a sparse file",
            hint="build the archive with `aos capsule build`",
            entry=shown,
        )
    return InvalidInput(
        "archive-special",
        f"the archive's entry {shown} is neither a file nor a folder",
        hint="a capsule holds files and folders only",
        entry=shown,
    )


def _unsupported(what: str) -> InvalidInput:
    return InvalidInput("archive-header", what, hint="build the archive with `aos capsule build`")


def damaged(what: str, **context: object) -> Corrupt:
    """The one error for bytes that are cut off or changed."""
    return Corrupt(
        "archive-damaged",
        f"truncated or corrupt archive: {what}",
        hint="get the archive again, or build it again with `aos capsule build`",
        **context,
    )
