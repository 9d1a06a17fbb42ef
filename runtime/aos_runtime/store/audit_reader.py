"""Reading the audit trail straight from disk, beside a running writer or without one.  It never writes.

What it gives out is what is stored; whether that is what was recorded is `audit_verify`'s to say.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from aos_runtime.errors import Corrupt
from aos_runtime.store.audit import (
    CAP_BYTES,
    CAP_ENTRIES,
    SCHEMA_VERSION,
    Retention,
    newer,
    opening,
)
from aos_runtime.store.audit_entry import ChainHead, Entry, PruneReceipt, decode_entry, decode_receipt

READ_TIMEOUT_S = 5.0
_BATCH = "SELECT number, segment, first, count, previous, digest, signature, lines FROM batches"
_FROM_ENTRY = f"{_BATCH} WHERE number >= (SELECT coalesce(max(number), 0) FROM batches WHERE first <= ?)"


class Batch(NamedTuple):
    """One row as it is stored."""

    number: int
    segment: int
    first: int
    entries: int
    previous: bytes
    digest: bytes
    signature: bytes
    lines: bytes


class Record(NamedTuple):
    """One entry with its place: its number counts all entries of the home, from 1."""

    number: int
    batch: int
    entry: Entry


class SignedReceipt(NamedTuple):
    """The prune receipt, its bytes and their signature."""

    receipt: PruneReceipt
    body: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How much there is.  Bytes are those of the lines."""

    entries: int = 0
    size_bytes: int = 0
    segments: int = 0
    sealed_segments: int = 0
    eligible_segments: int = 0
    omitted_entries: int = 0
    cap_entries: int = CAP_ENTRIES
    cap_bytes: int = CAP_BYTES

    def to_json(self) -> dict[str, object]:
        """The published keys of `AuditStats` (daemon-kernel.md 5.3), and `omitted_count`."""
        return {
            "total_count": self.entries,
            "total_bytes": self.size_bytes,
            "sealed_segments": self.sealed_segments,
            "segments": self.segments,
            "eligible_segments": self.eligible_segments,
            "cap_entries": self.cap_entries,
            "cap_bytes": self.cap_bytes,
            "omitted_count": self.omitted_entries,
        }


class AuditReader:
    """One consistent view of the trail; made by `read_audit`.  Corrupt `audit-damaged` where bytes do not
    fit.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self._database = database

    def stats(self, retention: Retention | None = None) -> Stats:
        """Counts, from the table of segments: no entry is read."""
        kept = retention or Retention()
        with opening(self.path):
            rows = self._database.execute("SELECT count, bytes FROM segments ORDER BY segment").fetchall()
        receipt = self.receipt()
        return Stats(
            entries=sum(row[0] for row in rows),
            size_bytes=sum(row[1] for row in rows),
            segments=len(rows),
            sealed_segments=max(0, len(rows) - 1),
            eligible_segments=max(0, len(rows) - 1),
            omitted_entries=receipt.receipt.omitted_entries if receipt else 0,
            cap_entries=kept.entries,
            cap_bytes=kept.size_bytes,
        )

    def heads(self) -> list[ChainHead]:
        """Where each chain stands, by session and principal."""
        with opening(self.path):
            rows = self._database.execute("SELECT session, principal, count, head FROM chains ORDER BY name")
            return [ChainHead(*row) for row in rows]

    def tail(self) -> tuple[int, bytes] | None:
        """Number and digest of the newest batch, as the writer noted it; None where there is none."""
        with opening(self.path):
            row = self._database.execute("SELECT number, digest FROM tail").fetchone()
        return None if row is None else (row[0], row[1])

    def receipt(self) -> SignedReceipt | None:
        """What says where the trail begins; None where nothing was pruned."""
        with opening(self.path):
            row = self._database.execute("SELECT body, signature FROM receipt").fetchone()
        if row is None:
            return None
        try:
            return SignedReceipt(decode_receipt(row[0]), row[0], row[1])
        except msgspec.DecodeError as error:
            raise self._damaged("its prune receipt cannot be read") from error

    def last_segment(self) -> int:
        """The newest segment, 0 where there is none."""
        with opening(self.path):
            row = self._database.execute("SELECT max(segment) FROM batches").fetchone()
        return int(row[0] or 0)

    def batches(self, *, from_segment: int = 0) -> Iterator[Batch]:
        """The rows in order."""
        with opening(self.path):
            rows = self._database.execute(f"{_BATCH} WHERE segment >= ? ORDER BY number", (from_segment,))
            for row in rows:
                yield Batch(*row)

    def records(self, *, from_entry: int = 1) -> Iterator[Record]:
        """The entries in order, from a number on.  Corrupt where a line cannot be read."""
        with opening(self.path):
            for row in self._database.execute(f"{_FROM_ENTRY} ORDER BY number", (from_entry,)):
                yield from (one for one in self._split(Batch(*row)) if one.number >= from_entry)

    def backwards(self) -> Iterator[Record]:
        """The entries, the newest first."""
        with opening(self.path):
            for row in self._database.execute(f"{_BATCH} ORDER BY number DESC"):
                yield from reversed(list(self._split(Batch(*row))))

    def _split(self, batch: Batch) -> Iterator[Record]:
        for index, line in enumerate(batch.lines.split(b"\n")):
            try:
                entry = decode_entry(line)
            except (msgspec.DecodeError, UnicodeError) as error:
                raise self._damaged(f"entry {batch.first + index} cannot be read") from error
            yield Record(batch.first + index, batch.number, entry)

    def _damaged(self, what: str) -> Corrupt:
        return Corrupt(
            "audit-damaged",
            f"the audit trail {self.path} is damaged: {what}",
            hint="`aos audit verify` names every entry that is not as it was recorded",
            path=str(self.path),
        )


@contextmanager
def read_audit(path: Path) -> Iterator[AuditReader | None]:
    """A reader of the trail at `path`, None where there is none yet.

    Conflict `audit-newer`, Unavailable `audit-unavailable`, Corrupt `audit-damaged`.
    """
    if not path.exists() or not path.stat().st_size:
        yield None
        return
    with opening(path):
        # Where no writer left a log behind, nothing needs to be made beside the file to read it.
        has_log = path.with_name(f"{path.name}-wal").exists()
        mode = "mode=ro" if has_log else "mode=ro&immutable=1"
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=READ_TIMEOUT_S, isolation_level=None
        )
    try:
        with opening(path):
            version = database.execute("PRAGMA user_version").fetchone()[0]
            database.execute("BEGIN")
        if version > SCHEMA_VERSION:
            raise newer(path, version)
        if version < SCHEMA_VERSION:  # a writer is making it just now
            yield None
            return
        yield AuditReader(path, database)
    finally:
        database.close()
