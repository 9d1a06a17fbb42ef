"""Audit trails made by hand, the ways in which somebody may tamper with one, and one that is no trail."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from nacl.signing import SigningKey

from aos_runtime.errors import Unavailable
from aos_runtime.kernel.audit import HostCall
from aos_runtime.store.audit import AuditStore, Retention
from aos_runtime.store.audit_entry import NOT_REQUIRED, SUCCESS, Draft
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.audit_verify import Verification, verify, verify_tail

SEED = bytes(range(32))
PUBLIC_KEY = bytes(SigningKey(SEED).verify_key)
AT_NS = 1_785_578_400_000_000_000


def draft(number: int, principal: str | None = "default") -> Draft:
    """A small entry whose action tells its number."""
    return Draft(AT_NS + number * 1_000_000, principal, {"type": "test", "n": number}, NOT_REQUIRED, SUCCESS)


def write_trail(path: Path, *batches: int, retention: Retention | None = None) -> None:
    """A trail of one session with batches of these sizes; principals alice, bob and nobody take turns."""
    store = AuditStore(path, SEED, retention)
    number = 0
    for size in batches:
        store.append(
            [draft(number + index, ("alice", "bob", None)[(number + index) % 3]) for index in range(size)]
        )
        number += size
    store.close()


@contextmanager
def tampering(path: Path) -> Iterator[sqlite3.Connection]:
    """The database in somebody else's hands."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        yield database
    finally:
        database.close()


def lines_of(database: sqlite3.Connection, batch: int) -> list[bytes]:
    row = database.execute("SELECT lines FROM batches WHERE number = ?", (batch,)).fetchone()
    return bytes(row[0]).split(b"\n")


def put_lines(database: sqlite3.Connection, batch: int, lines: list[bytes]) -> None:
    database.execute("UPDATE batches SET lines = ? WHERE number = ?", (b"\n".join(lines), batch))


def check(path: Path, expected_head: str | None = None) -> Verification:
    with read_audit(path) as reader:
        assert reader is not None
        return verify(reader, PUBLIC_KEY, expected_head=expected_head)


def check_tail(path: Path) -> Verification:
    with read_audit(path) as reader:
        assert reader is not None
        return verify_tail(reader, PUBLIC_KEY)


def sentences(path: Path) -> list[str]:
    return [finding.sentence for finding in check(path).findings]


class FakeTrail:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str | None, Mapping[str, object], Mapping[str, object]]] = []
        self.authorizations: list[Mapping[str, object]] = []
        self.calls: list[HostCall] = []
        self.is_full = False

    def record(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object] = SUCCESS,
        authorization: Mapping[str, object] = NOT_REQUIRED,
    ) -> None:
        self.entries.append(("record", principal, action, outcome))
        self.authorizations.append(authorization)

    def take(self, draft: Draft) -> None:
        action = msgspec.to_builtins(draft.action)
        self.record(draft.principal, action, draft.outcome, draft.authorization)

    def require(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object] = SUCCESS,
        authorization: Mapping[str, object] = NOT_REQUIRED,
    ) -> None:
        if self.is_full:
            raise Unavailable("audit-unavailable", "nothing was done", hint="free some space")
        self.entries.append(("require", principal, action, outcome))
        self.authorizations.append(authorization)

    def record_folded(
        self,
        key: tuple[str | None, ...],
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object],
        authorization: Mapping[str, object] = NOT_REQUIRED,
    ) -> None:
        self.entries.append(("folded", principal, action, outcome))
        self.authorizations.append(authorization)

    def host_call(self, call: HostCall) -> None:
        self.calls.append(call)
