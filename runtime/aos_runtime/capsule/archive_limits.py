"""What an archive may weigh, for whoever reads one and whoever writes one.

Source: cases ARC-* and INS-28.
"""

from __future__ import annotations

from dataclasses import dataclass

from aos_runtime.errors import LimitExceeded

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of an archive."""

    packed_bytes: int = 50 * MIB
    unpacked_bytes: int = 512 * MIB
    entries: int = 10_000
    ratio: int = 100
    """Unpacked over packed bytes, once more than `ratio_free_bytes` are unpacked."""
    ratio_free_bytes: int = MIB
    window_bytes: int = 8 * MIB


DEFAULT_LIMITS = Limits()


def check_packed(size_bytes: int, limits: Limits) -> None:
    """Check the size of the file.  LimitExceeded `archive-too-large`."""
    if size_bytes > limits.packed_bytes:
        raise LimitExceeded(
            "archive-too-large",
            f"the archive is larger than {limits.packed_bytes // MIB} MiB",
            hint="ship less in assets/",
            size_bytes=size_bytes,
        )


def check_unpacked(unpacked_bytes: int, packed_bytes: int, limits: Limits) -> None:
    """Check what has been unpacked so far.  LimitExceeded `archive-unpacked-too-large` or `archive-bomb`."""
    if unpacked_bytes > limits.unpacked_bytes:
        raise LimitExceeded(
            "archive-unpacked-too-large",
            f"the archive unpacks to more than {limits.unpacked_bytes // MIB} MiB",
            hint="ship less in assets/",
            limit_bytes=limits.unpacked_bytes,
        )
    if unpacked_bytes > max(limits.ratio_free_bytes, limits.ratio * packed_bytes):
        raise LimitExceeded(
            "archive-bomb",
            f"the archive unpacks to more than {limits.ratio} times its size",
            hint="do not install it; if it is yours, make what repeats in assets/ when the capsule runs",
            packed_bytes=packed_bytes,
        )


def check_entries(count: int, limits: Limits) -> None:
    """Check the number of files and folders with an entry.  LimitExceeded `archive-too-many-entries`."""
    if count > limits.entries:
        raise LimitExceeded(
            "archive-too-many-entries",
            f"the archive has more than {limits.entries} entries",
            hint="ship fewer files in assets/",
            limit=limits.entries,
        )
