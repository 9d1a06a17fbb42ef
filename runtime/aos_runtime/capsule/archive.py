"""The `.capsule` container: a GNU tar in one gzip member or one zstd frame.

The door to `archive_reader` and `archive_writer`, and the checks that need manifest and archive
together.  Where members go is the store's business.
Source: build-install.md 2.11, 5.4; docs/formats/capsule.md.
"""

from __future__ import annotations

import hashlib

from aos_runtime.capsule.archive_reader import DEFAULT_LIMITS, iter_member_pieces, iter_members, scan_archive
from aos_runtime.capsule.archive_stream import Compression, Limits
from aos_runtime.capsule.archive_values import ArchiveEntry, Inventory, Member
from aos_runtime.capsule.archive_writer import entry_of, write_archive
from aos_runtime.capsule.manifest import Manifest
from aos_runtime.capsule.manifest_reader import nearest_name
from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import Corrupt, InvalidInput

__all__ = [
    "DEFAULT_LIMITS",
    "ArchiveEntry",
    "Compression",
    "Inventory",
    "Limits",
    "Member",
    "check_component_files",
    "check_component_hash",
    "entry_of",
    "iter_member_pieces",
    "iter_members",
    "scan_archive",
    "write_archive",
]


def check_component_files(manifest: Manifest, inventory: Inventory) -> None:
    """Check that each component file that the manifest names is in the archive (cases MAN-10, INS-27).

    InvalidInput `archive-component-missing` with the name that was probably meant.
    """
    present = tuple(entry.path for entry in inventory.entries)
    for component in manifest.components:
        if component.file in present:
            continue
        near = nearest_name(
            component.file.rpartition("/")[2], [path for path in present if path.endswith(".wasm")]
        )
        raise InvalidInput(
            "archive-component-missing",
            f"the manifest names the component {component.file}, which is not in the archive",
            hint=f"did you mean {near}?" if near else "build the archive with `aos capsule build`",
            component=component.file,
        )


def check_component_hash(expected: str | None, data: bytes) -> None:
    """Check a component's bytes against the manifest's `hash`, where there is one.

    Corrupt `archive-component-hash` otherwise.
    """
    if expected is None:
        return
    kind, _, digest = expected.partition(":")
    found = hashlib.sha256(data).hexdigest() if kind == "sha256" else bytes_digest(data)
    if found != digest:
        raise Corrupt(
            "archive-component-hash",
            "the component is not the one whose hash the manifest names",
            hint="build the capsule again, which brings the hash up to date",
            expected=expected,
            found=f"{kind}:{found}",
        )
