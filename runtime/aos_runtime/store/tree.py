"""A capsule's files on disk: unpacked from an archive, and compared with the list that was approved.

Binaries (`*.wasm`) never lie in the tree; they are kept under their digest, in a stage's folder first and in
the content store then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from blake3 import blake3

from aos_runtime.capsule.archive import ArchiveEntry
from aos_runtime.capsule.provenance import PROVENANCE_FILE, bytes_digest
from aos_runtime.errors import AosError, Corrupt
from aos_runtime.names import Digest
from aos_runtime.store.files import (
    explained,
    list_folder,
    make_private_folder,
    open_regular,
    sync_file,
    sync_folder,
    write_all,
)
from aos_runtime.store.metadata import META_FILE
from aos_runtime.store.receipts import ContentFile

BLOB_SUFFIX = ".wasm"
"""Files of an archive with this ending are kept in the content store, never in a generation."""

_PIECE_BYTES = 1024 * 1024
_FILE_MODE = 0o600
_EXECUTABLE_MODE = 0o700


def is_binary(path: str) -> bool:
    """Whether an archive's entry is kept as a blob."""
    return path.endswith(BLOB_SUFFIX)


def blob_name(digest: Digest) -> str:
    """The file name of a blob."""
    return f"{digest}{BLOB_SUFFIX}"


def unpack(members: Iterable[tuple[ArchiveEntry, Iterable[bytes]]], tree: Path, blobs: Path) -> None:
    """Write every member but the signature; `members` raises where a digest is not the scanned one.

    Nothing is synced here: what is never committed need not survive.
    """
    make_private_folder(tree)
    make_private_folder(blobs)
    for entry, pieces in members:
        if entry.path == PROVENANCE_FILE:
            deque(pieces, maxlen=0)
        elif is_binary(entry.path):
            _write(blobs / blob_name(entry.digest), pieces, _FILE_MODE, exclusive=False)
        else:
            path = _inside(tree, entry.path)
            make_private_folder(path.parent)
            _write(path, pieces, _EXECUTABLE_MODE if entry.executable else _FILE_MODE, exclusive=True)


def first_difference(
    tree: Path, entries: Iterable[ContentFile], read_binary: Callable[[Digest], bytes]
) -> str | None:
    """How the files on disk differ from `entries`: a clause that names the first one, None where they do not.

    Every byte is read and hashed; a file that is not listed is a difference too, `meta.json` apart.
    """
    expected = set()
    for entry in entries:
        expected.add(entry.path)
        problem = _file_problem(tree, entry, read_binary)
        if problem is not None:
            return problem
    for name, _ in walk_files(tree):
        if name not in expected and name != META_FILE:
            return f"`{name}` is not part of what was approved"
    return None


def walk_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every entry below `folder` that is not a folder: its path from there with `/`, and where it is."""
    stack = [(folder, "")]
    while stack:
        level, prefix = stack.pop()
        for path in list_folder(level):
            if path.is_dir() and not path.is_symlink():
                stack.append((path, f"{prefix}{path.name}/"))
            else:
                yield f"{prefix}{path.name}", path


def sync_tree(folder: Path) -> None:
    """Make every file and name below `folder` durable."""
    folders = {folder}
    for _, path in walk_files(folder):
        sync_file(path)
        folders.update(parent for parent in path.parents if parent.is_relative_to(folder))
    for level in sorted(folders, reverse=True):
        sync_folder(level)


def _file_problem(tree: Path, entry: ContentFile, read_binary: Callable[[Digest], bytes]) -> str | None:
    try:
        if is_binary(entry.path):
            data = read_binary(entry.digest)
            found = (len(data), bytes_digest(data))
        else:
            found = hash_file(tree / entry.path)
    except FileNotFoundError:
        return f"`{entry.path}` is missing"
    except AosError as error:
        return f"`{entry.path}`: {error.message}"
    if found != (entry.size_bytes, entry.digest):
        return f"`{entry.path}` was changed after it was approved"
    return None


def hash_file(path: Path) -> tuple[int, Digest]:
    """Size and BLAKE3 of a regular file, in small memory.  FileNotFoundError, Corrupt `file-not-regular`."""
    hasher = blake3()
    size_bytes = 0
    with open_regular(path) as file, explained(path):
        while piece := file.read(_PIECE_BYTES):
            size_bytes += len(piece)
            hasher.update(piece)
    return size_bytes, Digest(hasher.hexdigest())


def _inside(tree: Path, name: str) -> Path:
    """`tree/name`.  The scan has refused every name that leads out; this is the second lock on that door."""
    parts = name.split("/")
    if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise _changed(name)
    return tree.joinpath(*parts)


def _write(path: Path, pieces: Iterable[bytes], mode: int, *, exclusive: bool) -> None:
    with explained(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_EXCL if exclusive else os.O_TRUNC
        handle = os.open(path, flags, mode)
        try:
            for piece in pieces:
                write_all(handle, piece)
        finally:
            os.close(handle)


def _changed(name: str) -> Corrupt:
    return Corrupt(
        "stage-damaged",
        f"the staged archive changed while it was read, at {name[:200]!r}",
        hint="run the install again",
        path=name[:200],
    )
