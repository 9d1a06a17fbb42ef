"""The interfaces that a guest sees at `home://wit`: the WIT files of its principal's installed capsules.

A flat folder, as published, so that `tool.wit` is where one looks for it; the bytes are those of the content
store.  Brought up to date after each install and removal, and when a daemon loads a principal's capsules.
What stands there and came from no install is left alone.  Source: build-install.md 5.10 and 7.2.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.bundled import read_catalogue
from aos_runtime.store.content import MAX_WIT_BYTES, read_wit
from aos_runtime.store.files import (
    FileLock,
    list_folder,
    make_private_folder,
    read_optional,
    remove_file,
    write_atomic,
)
from aos_runtime.store.installed import list_names, read_pointer
from aos_runtime.store.metadata import MAX_META_BYTES, META_FILE, parse_meta

MAX_FILES = 1024
LOCK_WAIT_S = 5.0
_STUB = b"package astrid:capsule-stub"
"""What a builder puts where an author wrote no interface."""
MAX_NAME_LENGTH = 200
_NAME = re.compile(r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*\.wit")


class Brought(NamedTuple):
    """The WIT files of one installed capsule: path below `wit/`, and digest."""

    capsule: str
    is_bundled: bool
    files: Mapping[str, str]


def show_wit(home: Home, principal: PrincipalName) -> None:
    """Bring `home://wit` of `principal` up to date.  Conflict `busy`; Unavailable on a full disk."""
    folder = home.shown_wit(principal)
    lock = FileLock(home.shown_wit_lock(principal))
    make_private_folder(lock.path.parent)
    lock.acquire(LOCK_WAIT_S)
    with lock:
        brought = tuple(_list_brought(home, principal))
        stored = {digest for one in brought for digest in one.files.values()}
        wanted = dict(choose_names(brought, {digest for digest in stored if _is_written(home, digest)}))
        present = {path.name: _digest_at(home, principal, path.name) for path in list_folder(folder)}
        for name, digest in wanted.items():
            data = read_wit(home, digest) if present.get(name) != digest else None
            if data is not None:
                make_private_folder(folder)
                write_atomic(folder / name, data, sync=False)
        for name, found in present.items():
            if found is not None and name not in wanted and read_wit(home, found) is not None:
                remove_file(folder / name)


def choose_names(brought: Iterable[Brought], written: Container[str]) -> Iterator[tuple[str, str]]:
    """The name and the digest of each file to show, each content once, and only what is in `written`.

    A file keeps its own name; where two contents have the same, it is the one of a bundled capsule, else of
    the capsule that comes first, and the other's is `<name>@<capsule>.wit`, which is read after it.
    """
    taken: set[str] = set()
    shown: set[str] = set()
    for one in sorted(brought, key=lambda one: (not one.is_bundled, one.capsule)):
        for path, digest in sorted(one.files.items()):
            if digest in shown or digest not in written or len(shown) >= MAX_FILES:
                continue
            name = next((name for name in _names(one.capsule, path) if name.lower() not in taken), None)
            if name is not None:
                taken.add(name.lower())
                shown.add(digest)
                yield name, digest


def _names(capsule: str, path: str) -> tuple[str, ...]:
    """Under which names a file may be shown, the best first."""
    folder, _, own = path.rpartition("/")
    if not _NAME.fullmatch(own):
        return ()
    other = f"{own.removesuffix('.wit')}@{capsule}"
    names = (own, f"{other}.wit", f"{other}.{folder.replace('/', '.')}.wit")
    return tuple(one for one in names if len(one) <= MAX_NAME_LENGTH)


def _list_brought(home: Home, principal: PrincipalName) -> Iterator[Brought]:
    """From what the installs noted alone: no manifest is read, since a start does this for every capsule."""
    bundled = {row.content_digest for row in read_catalogue()}
    for name in list_names(home, principal):
        try:
            pointer = read_pointer(home, principal, name)
            data = None if pointer is None else read_optional(pointer.folder / META_FILE, MAX_META_BYTES)
            if pointer is not None and data is not None:
                yield Brought(name, pointer.content in bundled, parse_meta(data).wit_files)
        except AosError:
            continue  # what is damaged brings nothing; whoever loads it says so


def _is_written(home: Home, digest: str) -> bool:
    """Whether a stored file says something."""
    data = read_wit(home, digest)
    return data is not None and not data.startswith(_STUB)


def _digest_at(home: Home, principal: PrincipalName, name: str) -> str | None:
    """The digest of a file that is shown; None for what is no such file."""
    try:
        data = read_optional(home.shown_wit(principal) / name, MAX_WIT_BYTES)
    except AosError:
        return None
    return None if data is None else bytes_digest(data)
