"""Writing an archive: the published container, with nothing in it of the machine that wrote it.

Order, modes, owner and time are fixed, so equal members give an equal tar for any user, folder and clock.
Source: build-install.md 2.11, measured on archives of the published builder; case ARC-09.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aos_runtime.capsule.archive_limits import DEFAULT_LIMITS, check_entries, check_packed, check_unpacked
from aos_runtime.capsule.archive_names import MANIFEST_FILE, NameWall, decode_path
from aos_runtime.capsule.archive_stream import Compression, pack
from aos_runtime.capsule.archive_values import ArchiveEntry, Member, no_manifest
from aos_runtime.capsule.provenance import PROVENANCE_FILE, bytes_digest
from aos_runtime.capsule.tar_blocks import BLOCK_BYTES, encode_entry, padding_bytes
from aos_runtime.errors import InvalidInput

_EXECUTABLE_MAGICS = (
    b"#!",
    b"\x7fELF",
    b"MZ",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\xca\xfe\xba\xbf",
    b"\xbe\xba\xfe\xca",
    b"\xbf\xba\xfe\xca",
)


def entry_of(member: Member) -> ArchiveEntry:
    """The entry that packing `member` gives."""
    return ArchiveEntry(
        path=member.path,
        size_bytes=len(member.data),
        digest=bytes_digest(member.data),
        executable=_is_executable(member),
    )


def write_archive(
    members: Iterable[Member], *, compression: Compression = "gzip", directories: Iterable[str] = ()
) -> bytes:
    """Pack members into an archive, in the published order whatever the order they come in.

    Every folder below `wit/` gets an entry, and so does each of `directories`.  InvalidInput and
    LimitExceeded as `scan_archive` for what could not be read back.
    """
    directories = tuple(directories)
    files = {member.path: member for member in _admitted(members, directories)}
    if MANIFEST_FILE not in files:
        raise no_manifest(tuple(files))
    folders = {*directories, *(folder for path in files for folder in _wit_folders(path))}
    paths = sorted({*files, *folders}, key=_place)
    check_entries(len(paths), DEFAULT_LIMITS)
    parts = []
    for path in paths:
        member = files.get(path)
        if member is None:
            parts.append(encode_entry(path.encode("utf-8"), kind="folder", size_bytes=0, mode=0o755))
            continue
        mode = 0o755 if _is_executable(member) else 0o644
        size_bytes = len(member.data)
        parts.append(encode_entry(path.encode("utf-8"), kind="file", size_bytes=size_bytes, mode=mode))
        parts += (member.data, bytes(padding_bytes(size_bytes)))
    parts.append(bytes(2 * BLOCK_BYTES))
    unpacked = b"".join(parts)
    data = pack(unpacked, compression)
    check_packed(len(data), DEFAULT_LIMITS)
    check_unpacked(len(unpacked), len(data), DEFAULT_LIMITS)
    return data


def _admitted(members: Iterable[Member], directories: tuple[str, ...]) -> Iterator[Member]:
    """The members, once all names have passed the wall that reading has."""
    wall = NameWall()
    for member in members:
        wall.admit(_own_path(member.path), "file")
        yield member
    for directory in directories:
        wall.admit(_own_path(directory), "folder")


def _own_path(path: str) -> str:
    if decode_path(path.encode("utf-8", "surrogateescape")) != path:
        raise InvalidInput(
            "archive-path",
            f"the path {path!a} is not in its plain form",
            hint="write paths without `.` segments",
            entry=path,
        )
    return path


def _place(path: str) -> tuple[int, tuple[str, ...]]:
    """The published order: manifest, root wasm, other files, `wit`, provenance; then by path segments."""
    segments = tuple(path.split("/"))
    if path == MANIFEST_FILE:
        rank = 0
    elif path == PROVENANCE_FILE:
        rank = 4
    elif len(segments) == 1 and path.endswith(".wasm"):
        rank = 1
    else:
        rank = 3 if segments[0] == "wit" else 2
    return rank, segments


def _wit_folders(path: str) -> Iterator[str]:
    segments = path.split("/")
    if segments[0] == "wit":
        for depth in range(1, len(segments)):
            yield "/".join(segments[:depth])


def _is_executable(member: Member) -> bool:
    if member.path == MANIFEST_FILE:
        return False
    return member.executable or member.data.startswith(_EXECUTABLE_MAGICS)
