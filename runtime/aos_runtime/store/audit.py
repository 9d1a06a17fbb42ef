"""The audit trail on disk, and its only writer: `var/audit.db`, one row a batch of lines.

A batch is one transaction with one signature and one sync, so it is there whole or not at all: what a kill
tears is the batch that was being written.  Batches are chained and signed; lines are chained per (session,
principal).  Old batches go a segment at a time, and a signed receipt says where what is left begins.  Any
number of processes may write, each under a session of its own.  Reading is `audit_reader`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nacl.signing import SigningKey

from aos_runtime.errors import AosError, Conflict, Corrupt, Unavailable
from aos_runtime.store.audit_entry import (
    FIRST_DIGEST,
    GENESIS,
    ChainHead,
    ChainKey,
    Draft,
    Entry,
    Head,
    PruneReceipt,
    Session,
    batch_digest,
    decode_link,
    decode_receipt,
    encode_entry,
    encode_receipt,
    line_hash,
    sign_digest,
    sign_receipt,
)
from aos_runtime.store.files import explained, make_private_folder

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0
SEGMENT_ENTRIES = 8192
SEGMENT_BYTES = 8 * 1024 * 1024
"""A segment is sealed when it holds either; the unit of retention and of the check at boot."""

CAP_ENTRIES = 1_000_000
CAP_BYTES = 1024 * 1024 * 1024
WAL_PAGES = 1000
LINES_AT_A_TIME = 32
"""Lines made before others get a turn: a batch of a busy 50 ms has hundreds."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
  number INTEGER PRIMARY KEY, segment INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL,
  previous BLOB NOT NULL, digest BLOB NOT NULL, signature BLOB NOT NULL, lines BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS batches_by_segment ON batches (segment);
CREATE TABLE IF NOT EXISTS segments (
  segment INTEGER PRIMARY KEY, first_batch INTEGER NOT NULL, count INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chains (
  session TEXT NOT NULL, principal TEXT, name TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL,
  head TEXT NOT NULL, last_batch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tail (
  one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS receipt (
  one INTEGER PRIMARY KEY CHECK (one = 1), body BLOB NOT NULL, signature BLOB NOT NULL);
"""
_LAST = "SELECT number, first + count, digest FROM batches ORDER BY number DESC LIMIT 1"
_LAST_OF = "SELECT number, first + count, digest FROM batches WHERE segment = ? ORDER BY number DESC LIMIT 1"
_SEGMENT = "SELECT segment, count, bytes FROM segments ORDER BY segment DESC LIMIT 1"
_RECEIPT = "SELECT body FROM receipt"
_ADD = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_GROW = (
    "INSERT INTO segments VALUES (?, ?, ?, ?) ON CONFLICT (segment)"
    " DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes"
)
_CHAIN = (
    "INSERT INTO chains VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET count = excluded.count, head = excluded.head, last_batch = excluded.last_batch"
)
_TAIL = "INSERT OR REPLACE INTO tail VALUES (1, ?, ?)"
_OLD = "SELECT lines FROM batches WHERE segment <= ? ORDER BY number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept; what is over it goes, a segment at a time, never the newest."""

    entries: int = CAP_ENTRIES
    size_bytes: int = CAP_BYTES


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the next batch goes."""

    number: int
    first: int
    previous: bytes


class AuditStore:
    """The open trail of one process.  Used from one thread at a time."""

    def __init__(
        self,
        path: Path,
        seed: bytes,
        retention: Retention | None = None,
        segment_entries: int | None = None,
    ) -> None:
        """Open or create.  Corrupt `audit-damaged`, Conflict `audit-newer`, Unavailable."""
        self.path = path
        self.session = Session()
        self._segment_entries = segment_entries or SEGMENT_ENTRIES
        self._key = SigningKey(seed)
        self._retention = retention or Retention()
        self._heads: dict[str | None, Head] = {}
        make_private_folder(path.parent)
        with explained(path):
            path.touch(0o600, exist_ok=True)
        with opening(path):
            self._database = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._database.close()

    def append(self, drafts: Sequence[Draft]) -> None:
        """Put `drafts` on record: when this returns, they are on disk and signed.

        Unavailable `audit-unwritable` where they are not; then nothing of them is there.
        """
        if not drafts:
            return
        heads = dict(self._heads)
        lines: list[bytes] = []
        for start in range(0, len(drafts), LINES_AT_A_TIME):
            if start:
                time.sleep(0)  # whoever serves calls meanwhile gets the interpreter
            lines += self._lines(drafts[start : start + LINES_AT_A_TIME], heads)
        body = b"\n".join(lines)
        with self._transaction():
            place = self._place()
            digest = batch_digest(place.number, place.previous, place.first, len(lines), body)
            signature = sign_digest(self._key, digest)
            segment = self._segment()
            run = self._database.execute
            run(
                _ADD,
                (place.number, segment, place.first, len(lines), place.previous, digest, signature, body),
            )
            run(_GROW, (segment, place.number, len(lines), len(body)))
            self._database.executemany(
                _CHAIN,
                [self._chain_row(principal, heads[principal], place) for principal in _principals(drafts)],
            )
            run(_TAIL, (place.number, digest))
        self._heads = heads

    def prune(self) -> int:
        """Drop the oldest segments that are over the retention; how many entries went.

        Unavailable `audit-unwritable`; then everything is still there.
        """
        if not self._is_over():
            return 0
        with self._transaction():
            through, entries, size_bytes = self._choose()
            if through is not None:
                self._cut(through, entries, size_bytes)
        return entries

    # appending

    def _lines(self, drafts: Sequence[Draft], heads: dict[str | None, Head]) -> list[bytes]:
        """The lines of these entries, each with its place in its chain; moves the heads."""
        session, lines = self.session, []
        for draft in drafts:
            principal = draft.principal
            count, previous = heads.get(principal) or Head(0, GENESIS)
            line = encode_entry(
                Entry(
                    session.next_id(),
                    session.timestamp(draft.at_ns),
                    session.id,
                    draft.action,  # type: ignore[arg-type]  # encoded as it is
                    draft.authorization,  # type: ignore[arg-type]
                    draft.outcome,  # type: ignore[arg-type]
                    previous,
                    principal,
                )
            )
            heads[principal] = Head(count + 1, line_hash(line))
            lines.append(line)
        return lines

    def _place(self) -> _Place:
        row = self._database.execute(_LAST).fetchone()
        if row is not None:
            return _Place(row[0] + 1, row[1], row[2])
        receipt = self._receipt()
        if receipt is None:
            return _Place(1, 1, FIRST_DIGEST)
        return _Place(receipt.through_batch + 1, receipt.next_entry, bytes.fromhex(receipt.through_digest))

    def _segment(self) -> int:
        row = self._database.execute(_SEGMENT).fetchone()
        if row is None:
            return 1
        is_sealed = row[1] >= self._segment_entries or row[2] >= SEGMENT_BYTES
        return int(row[0]) + int(is_sealed)

    def _chain_row(self, principal: str | None, head: Head, place: _Place) -> tuple[object, ...]:
        key = ChainKey(self.session.id, principal)
        return (*key, chain_name(key), head.length, head.hash, place.number)

    # pruning

    def _is_over(self) -> bool:
        entries, size_bytes = self._totals()
        return entries > self._retention.entries or size_bytes > self._retention.size_bytes

    def _totals(self) -> tuple[int, int]:
        row = self._database.execute("SELECT sum(count), sum(bytes) FROM segments").fetchone()
        return row[0] or 0, row[1] or 0

    def _choose(self) -> tuple[int | None, int, int]:
        """The last segment that must go, with the entries and bytes up to it."""
        entries, size_bytes = self._totals()
        through, gone, gone_bytes = None, 0, 0
        rows = self._database.execute(
            "SELECT segment, count, bytes FROM segments ORDER BY segment"
        ).fetchall()
        for segment, count, used in rows[:-1]:
            over = (
                entries - gone - self._retention.entries,
                size_bytes - gone_bytes - self._retention.size_bytes,
            )
            if max(over) <= 0:
                break
            through, gone, gone_bytes = segment, gone + count, gone_bytes + used
        return through, gone, gone_bytes

    def _cut(self, through: int, entries: int, size_bytes: int) -> None:
        run = self._database.execute
        number, next_entry, digest = run(_LAST_OF, (through,)).fetchone()
        before = self._receipt()
        receipt = PruneReceipt(
            through_batch=number,
            through_digest=digest.hex(),
            next_entry=next_entry,
            omitted_entries=entries + (before.omitted_entries if before else 0),
            omitted_bytes=size_bytes + (before.omitted_bytes if before else 0),
            at=datetime.now(UTC).isoformat(),
            chains=self._heads_at(through, number, before),
        )
        body = encode_receipt(receipt)
        run("INSERT OR REPLACE INTO receipt VALUES (1, ?, ?)", (body, sign_receipt(self._key, body)))
        run("DELETE FROM batches WHERE segment <= ?", (through,))
        run("DELETE FROM segments WHERE segment <= ?", (through,))
        run("DELETE FROM chains WHERE last_batch <= ? AND session <> ?", (number, self.session.id))

    def _heads_at(self, through: int, number: int, before: PruneReceipt | None) -> list[ChainHead]:
        """Where each chain that goes on beyond the cut stands there."""
        heads = {
            ChainKey(one.session, one.principal): Head(one.count, one.head)
            for one in (before.chains if before else ())
        }
        for (lines,) in self._database.execute(_OLD, (through,)):
            for line in lines.split(b"\n"):
                link = decode_link(line)
                key = ChainKey(link.session_id, link.principal)
                heads[key] = Head((heads[key].length if key in heads else 0) + 1, line_hash(line))
        living = self._database.execute(
            "SELECT session, principal FROM chains WHERE last_batch > ? OR session = ?",
            (number, self.session.id),
        ).fetchall()
        keys = sorted((ChainKey(*row) for row in living), key=chain_name)
        return [ChainHead(*key, *heads[key]) for key in keys if key in heads]

    def _receipt(self) -> PruneReceipt | None:
        row = self._database.execute(_RECEIPT).fetchone()
        return None if row is None else decode_receipt(row[0])

    # the file

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One synced transaction; what fails is undone and told as Unavailable."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise Unavailable(
                "audit-unwritable",
                f"the audit trail {self.path} cannot be written: {error}",
                hint="free some space on its disk, or check that this user may write it",
                path=str(self.path),
            ) from error

    def _prepare(self) -> None:
        run = self._database.execute
        version = run("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise newer(self.path, version)
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        if version < SCHEMA_VERSION:
            self._database.executescript(_SCHEMA)
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")


def chain_name(key: ChainKey) -> str:
    """A chain in one text; a principal's name holds no blank."""
    return key.session if key.principal is None else f"{key.session} {key.principal}"


def _principals(drafts: Sequence[Draft]) -> set[str | None]:
    return {draft.principal for draft in drafts}


def newer(path: Path, version: int) -> Conflict:
    """The trail of a later aos."""
    return Conflict(
        "audit-newer",
        f"{path} was written by a newer aos (schema {version})",
        hint="install the newer aos again, or use another AOS_HOME",
        path=str(path),
    )


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """What SQLite says on opening or reading the trail, in words."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.DatabaseError) -> AosError:
    if isinstance(error, sqlite3.OperationalError):
        return Unavailable(
            "audit-unavailable",
            f"cannot open the audit trail {path}: {error}",
            hint="free some space on its disk, and check that this user may write the folder",
            path=str(path),
        )
    return Corrupt(
        "audit-damaged",
        f"the audit trail {path} is damaged: {error}",
        hint="keep a copy of the file and move it away; a new trail is begun at the next start",
        path=str(path),
    )
