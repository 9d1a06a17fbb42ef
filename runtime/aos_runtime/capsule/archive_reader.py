"""Reading an archive in two passes: validate everything, then hand out contents.

Nothing of an entry is kept in the first pass but its name, size and digest; nothing is handed out in the
second that the first did not see.  This room writes no file.
Source: build-install.md 2.11, 5.4; cases ARC-* and INS-28.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from blake3 import blake3

from aos_runtime.capsule.archive_limits import DEFAULT_LIMITS, Limits, check_entries
from aos_runtime.capsule.archive_names import MANIFEST_FILE, NameWall, decode_path
from aos_runtime.capsule.archive_stream import UnpackedReader
from aos_runtime.capsule.archive_values import ArchiveEntry, Inventory, Member, no_manifest
from aos_runtime.capsule.manifest_text import MAX_MANIFEST_BYTES
from aos_runtime.capsule.paths import MAX_PATH_BYTES
from aos_runtime.capsule.provenance import (
    MAX_PROVENANCE_BYTES,
    PROVENANCE_FILE,
    content_digest,
    parse_provenance,
    verify_provenance,
)
from aos_runtime.capsule.tar_blocks import BLOCK_BYTES, Header, damaged, decode_header, padding_bytes
from aos_runtime.errors import Corrupt, InvalidInput, LimitExceeded
from aos_runtime.names import Digest

_KEPT_FILES = {MANIFEST_FILE: MAX_MANIFEST_BYTES, PROVENANCE_FILE: MAX_PROVENANCE_BYTES}
"""The files whose bytes the first pass keeps, with the most that it keeps of each."""


def scan_archive(file: BinaryIO, *, limits: Limits = DEFAULT_LIMITS) -> Inventory:
    """Validate a whole archive, in small memory, and say what it holds.

    `file` can seek.  Corrupt for damaged bytes (`archive-damaged`, `provenance-*`), LimitExceeded for what is
    too large, InvalidInput `archive-*` for what an archive may not hold.
    """
    reader = UnpackedReader(file, limits)
    try:
        return _scan(reader, limits)
    except InvalidInput:
        _check_rest(reader)
        raise


def iter_member_pieces(
    file: BinaryIO, inventory: Inventory, *, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[ArchiveEntry, Iterator[bytes]]]:
    """The second pass: each entry with its bytes in pieces, which are good until the next entry.

    Corrupt `archive-changed` as soon as anything differs from the inventory: a digest at the end of its
    entry, so what was written is to be dropped then.
    """
    reader = UnpackedReader(file, limits)
    expected = iter(inventory.entries)
    for path, header in _walk(reader, limits):
        if header.kind == "folder":
            continue
        entry = next(expected, None)
        if entry is None or (entry.path, entry.size_bytes) != (path, header.size_bytes):
            raise _changed(path)
        pieces = _checked_pieces(reader, entry)
        yield entry, pieces
        for _ in pieces:  # what the caller left is checked all the same
            pass
    missing = next(expected, None)
    if missing is not None:
        raise _changed(missing.path)


def iter_members(
    file: BinaryIO, inventory: Inventory, *, limits: Limits = DEFAULT_LIMITS
) -> Iterator[Member]:
    """The second pass, a whole member at a time.  Corrupt `archive-changed` where it differs."""
    for entry, pieces in iter_member_pieces(file, inventory, limits=limits):
        yield Member(path=entry.path, data=b"".join(pieces), executable=entry.executable)


def _scan(reader: UnpackedReader, limits: Limits) -> Inventory:
    wall = NameWall(limits.entries)
    entries: list[ArchiveEntry] = []
    directories: list[str] = []
    kept: dict[str, bytes] = {}
    for path, header in _walk(reader, limits):
        if header.kind == "folder":
            if path:
                wall.admit(path, "folder")
                directories.append(path)
            continue
        wall.admit(path, "file")
        entries.append(_read_entry(reader, path, header, kept))
    if MANIFEST_FILE not in kept:
        raise no_manifest(tuple(entry.path for entry in entries))
    digest = content_digest(entries)
    provenance = parse_provenance(kept[PROVENANCE_FILE]) if PROVENANCE_FILE in kept else None
    if provenance is not None:
        verify_provenance(provenance, digest)
    return Inventory(
        entries=tuple(entries),
        directories=tuple(directories),
        content_digest=digest,
        manifest=kept[MANIFEST_FILE],
        provenance=provenance,
        compression=reader.compression,
        size_bytes=reader.size_bytes,
    )


def _walk(reader: UnpackedReader, limits: Limits) -> Iterator[tuple[str, Header]]:
    """Each file and folder; the caller reads a file's bytes before it goes on."""
    count = 0
    while (found := _next_header(reader)) is not None:
        count += 1
        check_entries(count, limits)
        path, header = found
        yield path, header
        _skip_zeros(reader, padding_bytes(header.size_bytes), f"the padding of {path}")
    _check_end(reader)


def _next_header(reader: UnpackedReader) -> tuple[str, Header] | None:
    """The next file or folder with its whole name; None at the end block."""
    header = _read_header(reader)
    if header is None:
        return None
    name = header.name
    if header.kind == "long-name":
        name = _read_long_name(reader, header)
        follower = _read_header(reader)
        if follower is None or follower.kind == "long-name":
            raise damaged(f"no entry follows the long name {name!a}", offset=reader.offset)
        header = follower
    if header.kind == "folder":
        if header.size_bytes:
            raise damaged(f"the folder {name!a} has contents", offset=reader.offset)
        name = name.removesuffix(b"/")
    path = decode_path(name)
    if not path and header.kind == "file":
        raise damaged("a file has the name of the archive's root", offset=reader.offset)
    return path, header


def _read_header(reader: UnpackedReader) -> Header | None:
    offset = reader.offset
    block = reader.read_exactly(BLOCK_BYTES, f"the header at byte {offset}")
    return decode_header(block, offset) if any(block) else None


def _read_long_name(reader: UnpackedReader, header: Header) -> bytes:
    size_bytes = header.size_bytes
    if not 1 < size_bytes <= MAX_PATH_BYTES + 1:
        start = reader.read_exactly(min(size_bytes, 64), "a long name").decode("utf-8", "backslashreplace")
        raise InvalidInput(
            "archive-path",
            f"the archive has an entry with an empty or overlong name, starting {start!a}",
            hint="an archive holds plain relative paths only: do not install this one",
            size_bytes=size_bytes,
        )
    name = reader.read_exactly(size_bytes, "a long name")
    _skip_zeros(reader, padding_bytes(size_bytes), "the padding of a long name")
    if name[-1] or b"\0" in name[:-1]:
        raise damaged("a long name does not end in its only NUL", offset=reader.offset)
    return name[:-1]


def _read_entry(reader: UnpackedReader, path: str, header: Header, kept: dict[str, bytes]) -> ArchiveEntry:
    keep_bytes = _KEPT_FILES.get(path)
    if keep_bytes is not None and header.size_bytes > keep_bytes:
        raise LimitExceeded(
            "archive-file-too-large",
            f"the archive's {path} is larger than {keep_bytes // 1024} KiB",
            hint="build the archive with `aos capsule build`",
            size_bytes=header.size_bytes,
        )
    hasher = blake3()
    pieces = []
    for piece in reader.pieces(header.size_bytes, path):
        hasher.update(piece)
        if keep_bytes is not None:
            pieces.append(piece)
    if keep_bytes is not None:
        kept[path] = b"".join(pieces)
    return ArchiveEntry(
        path=path,
        size_bytes=header.size_bytes,
        digest=Digest(hasher.hexdigest()),
        executable=header.executable,
    )


def _checked_pieces(reader: UnpackedReader, entry: ArchiveEntry) -> Iterator[bytes]:
    hasher = blake3()
    for piece in reader.pieces(entry.size_bytes, entry.path):
        hasher.update(piece)
        yield piece
    if hasher.hexdigest() != entry.digest:
        raise _changed(entry.path)


def _check_rest(reader: UnpackedReader) -> None:
    """Read to the end, so that damage which makes an honest entry look hostile is told as damage.

    Corrupt `archive-damaged` where a checksum fails; nothing else is raised.
    """
    try:
        while reader.read(BLOCK_BYTES * 128):
            pass
    except (InvalidInput, LimitExceeded):
        return


def _check_end(reader: UnpackedReader) -> None:
    """After the first end block: a second one, and nothing but zeros to the end of the stream."""
    _skip_zeros(reader, BLOCK_BYTES, "the end of the archive")
    while data := reader.read(BLOCK_BYTES * 128):
        if any(data):
            raise InvalidInput(
                "archive-trailing-entries",
                "the archive has bytes after its end block",
                hint="build the archive with `aos capsule build`",
            )


def _skip_zeros(reader: UnpackedReader, size_bytes: int, inside: str) -> None:
    if any(reader.read_exactly(size_bytes, inside)):
        raise damaged(f"{inside} is not zeros", offset=reader.offset)


def _changed(path: str) -> Corrupt:
    return Corrupt(
        "archive-changed",
        f"the archive was changed while it was read, at {path!a}",
        hint="install it again when nothing else writes to it",
        entry=path,
    )
