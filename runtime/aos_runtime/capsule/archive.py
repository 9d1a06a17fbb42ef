"""The `.capsule` container: a GNU tar in one gzip member or one zstd frame.

The door to `archive_reader`, `archive_writer` and their values; it has no code of its own.  Where members go,
and whether they are what the manifest names, is the store's business.
Source: build-install.md 2.11, 5.4; docs/formats/capsule.md.
"""

from __future__ import annotations

from aos_runtime.capsule.archive_limits import Limits
from aos_runtime.capsule.archive_reader import iter_member_pieces, iter_members, scan_archive
from aos_runtime.capsule.archive_stream import Compression
from aos_runtime.capsule.archive_values import ArchiveEntry, Inventory, Member
from aos_runtime.capsule.archive_writer import entry_of, write_archive

__all__ = [
    "ArchiveEntry",
    "Compression",
    "Inventory",
    "Limits",
    "Member",
    "entry_of",
    "iter_member_pieces",
    "iter_members",
    "scan_archive",
    "write_archive",
]
