"""The values of an archive: what is packed, what is found, and the errors that both directions share."""

from __future__ import annotations

from dataclasses import dataclass

from aos_runtime.capsule.archive_names import MANIFEST_FILE
from aos_runtime.capsule.archive_stream import Compression
from aos_runtime.capsule.provenance import Provenance
from aos_runtime.errors import InvalidInput
from aos_runtime.names import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file to pack, or one that was unpacked.  `executable` is the only mode that is kept."""

    path: str
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """A file of an archive; `digest` is the BLAKE3 of its bytes."""

    path: str
    size_bytes: int
    digest: Digest
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a validated archive holds.  Entries and folders keep the archive's order."""

    entries: tuple[ArchiveEntry, ...]
    directories: tuple[str, ...]
    content_digest: Digest
    manifest: bytes
    provenance: Provenance | None
    compression: Compression
    size_bytes: int


def no_manifest(paths: tuple[str, ...]) -> InvalidInput:
    """The error for an archive without a manifest."""
    return InvalidInput(
        "archive-no-manifest",
        f"the archive has no {MANIFEST_FILE} at its root",
        hint="build the archive with `aos capsule build`",
        entries=list(paths[:20]),
    )
