"""The `.capsule` container: a GNU tar in one gzip member or one zstd frame.

The door to `archive_reader` and `archive_writer`, and the checks that need manifest and archive
together.  Where members go is the store's business.
Source: build-install.md 2.11, 5.4; docs/formats/capsule.md.
"""

from __future__ import annotations

from aos_runtime.capsule.archive_reader import DEFAULT_LIMITS, iter_member_pieces, iter_members, scan_archive
from aos_runtime.capsule.archive_stream import Compression, Limits
from aos_runtime.capsule.archive_values import ArchiveEntry, Inventory, Member
from aos_runtime.capsule.archive_writer import entry_of, write_archive

__all__ = [
    "DEFAULT_LIMITS",
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
