"""The content store: WebAssembly binaries and WIT files under the BLAKE3 of their bytes.

A name is never trusted: reuse re-hashes what is there and repairs it, reading verifies.  Nothing here knows
which capsule uses a blob: who does says what may go.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import Corrupt
from aos_runtime.home import Home
from aos_runtime.names import Digest
from aos_runtime.store.files import (
    list_folder,
    make_private_folder,
    read_optional,
    sweep_temporaries,
    write_atomic,
)

MAX_BLOB_BYTES = 512 * 1024 * 1024
MAX_WIT_BYTES = 1024 * 1024
MIN_AGE_S = 3600.0
"""How long what nothing names is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What `put_blob` did.  `repaired`: another file stood under this name and was replaced."""

    digest: Digest
    repaired: bool


def put_blob(home: Home, data: bytes) -> Stored:
    """Store a WebAssembly binary, durably; a stored file that does not match its name is replaced."""
    digest = bytes_digest(data)
    return Stored(digest=digest, repaired=_put(home.blob(digest), data, digest, MAX_BLOB_BYTES))


def read_blob(home: Home, digest: Digest) -> bytes:
    """The bytes whose BLAKE3 is `digest`.  Corrupt `blob-missing` or `blob-damaged` otherwise."""
    data = read_optional(home.blob(digest), MAX_BLOB_BYTES)
    if data is None:
        raise Corrupt(
            "blob-missing",
            f"the WebAssembly binary {digest} is not in this home",
            hint="install the capsule again from its archive",
            digest=digest,
        )
    if bytes_digest(data) != digest:
        what = "is empty" if not data else "does not match its digest"
        raise Corrupt(
            "blob-damaged",
            f"the stored WebAssembly binary {digest} {what}",
            hint="install the capsule again from its archive; that replaces the damaged file",
            digest=digest,
        )
    return data


def put_wit(home: Home, data: bytes) -> Digest:
    """Store a WIT file as `wit/store/<blake3>.wit`, as `put_blob`."""
    digest = bytes_digest(data)
    _put(home.wit_store / f"{digest}.wit", data, digest, MAX_WIT_BYTES)
    return digest


def read_wit(home: Home, digest: str) -> bytes | None:
    """The WIT file whose BLAKE3 is `digest`; None where it is not stored, or damaged."""
    try:
        data = read_optional(home.wit_store / f"{digest}.wit", MAX_WIT_BYTES)
    except Corrupt:
        return None
    return data if data is not None and bytes_digest(data) == digest else None


def sweep_content(home: Home) -> None:
    """Remove what killed writers left among the blobs and WIT files."""
    sweep_temporaries(home.blobs)
    sweep_temporaries(home.wit_store)


def collect_content(home: Home, live: Container[str], now_s: float) -> int:
    """Remove what no digest in `live` names and nobody has stored for an hour; how many files went.

    The hour is for an install that has stored its files and has not named them yet.
    """
    gone = 0
    for path in (*list_folder(home.blobs), *list_folder(home.wit_store)):
        with contextlib.suppress(OSError):
            if path.stem not in live and now_s - path.lstat().st_mtime > MIN_AGE_S:
                path.unlink()
                gone += 1
    return gone


def _put(path: Path, data: bytes, digest: Digest, limit_bytes: int) -> bool:
    """Write unless the right bytes are there; whether wrong ones were replaced."""
    make_private_folder(path.parent)
    wrong = False
    try:
        present = read_optional(path, limit_bytes)
        wrong = present is not None and bytes_digest(present) != digest
        if present is not None and not wrong:
            os.utime(path)  # stored again just now
            return False
    except Corrupt:
        wrong = True
    write_atomic(path, data)
    return wrong
