"""What the audit requests are answered with: counts, health, heads, and pages of entries.

Each reads the trail from disk anew, as the toolchain does, so it never waits for the writer.  Shapes are
those of daemon-kernel.md 5.3 and of the recorded transcript; what is ours is additive.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from aos_runtime.kernel.requests import Answer, Caller, Handler
from aos_runtime.store.audit import Retention
from aos_runtime.store.audit_reader import Record, Stats, read_audit

Params = Mapping[str, object]


class AuditAnswers:
    """The four requests.  `health()` is the writer's; `public_key` the runtime's."""

    def __init__(
        self, path: Path, health: Callable[[], dict[str, object]], public_key: bytes, retention: Retention
    ) -> None:
        self._path = path
        self._health = health
        self._key = public_key
        self._retention = retention

    def handlers(self) -> dict[str, Handler]:
        """By the names of the methods."""
        handlers: dict[str, Handler] = {
            "AuditStats": Handler(run=self.stats, is_slow=True),
            "AuditHealth": Handler(run=self.health),
            "AuditHeads": Handler(run=self.heads, is_slow=True),
            "AuditExport": Handler(run=self.export, is_slow=True),
        }
        return handlers

    def stats(self, caller: Caller, params: Params) -> Answer:
        """How much there is, and whether more can be written."""
        with read_audit(self._path) as reader:
            empty = Stats(cap_entries=self._retention.entries, cap_bytes=self._retention.size_bytes)
            stats = empty if reader is None else reader.stats(self._retention)
        health = self._health()
        data = stats.to_json()
        data |= {key: health[key] for key in ("degraded", "last_error") if key in health}
        return Answer(status="AuditStats", data=data)

    def health(self, caller: Caller, params: Params) -> Answer:
        """How the writer is."""
        return Answer(status="AuditHealth", data=self._health())

    def heads(self, caller: Caller, params: Params) -> Answer:
        """Where every chain stands, and the head of the whole trail, to be kept somewhere else."""
        with read_audit(self._path) as reader:
            chains = [] if reader is None else reader.heads()
            tail = None if reader is None else reader.tail()
        data = {
            "snapshot_ns": time.time_ns(),
            "chain_count": len(chains),
            "chains": [
                {
                    "session": one.session,
                    "principal": one.principal,
                    "count": one.count,
                    "head_hash": one.head,
                }
                for one in chains
            ],
            "batch": None if tail is None else tail[0],
            "head": None if tail is None else tail[1].hex(),
        }
        return Answer(status="AuditHeads", data=data)

    def export(self, caller: Caller, params: Params) -> Answer:
        """A page of one session's entries after the number `from`; `cursor` continues where a page ended."""
        limit = params["limit"]
        assert isinstance(limit, int)
        with read_audit(self._path) as reader:
            records = iter(()) if reader is None else reader.records(from_entry=_start(params))
            chosen = list(islice(_of(records, params["session"], params["principal"]), limit + 1))
        more = len(chosen) > limit
        page = [export_row(record, self._key) for record in chosen[:limit]]
        cursor = str(chosen[limit - 1].number) if more else None
        return Answer(status="AuditExport", data={"entries": page, "next_cursor": cursor})


def export_row(record: Record, public_key: bytes) -> dict[str, object]:
    """One entry as it is stored, with its place and the key that signed its batch (padded base64)."""
    row: dict[str, object] = msgspec.to_builtins(record.entry)
    key = base64.b64encode(public_key).decode()
    return {**row, "runtime_key": key, "number": record.number, "batch": record.batch}


def _start(params: Params) -> int:
    cursor, first = params["cursor"], params["from"]
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit():
        first = int(cursor[:18])
    assert isinstance(first, int)
    return first + 1


def _of(records: Iterator[Record], session: object, principal: object) -> Iterator[Record]:
    for record in records:
        if record.entry.session_id == session and principal in (None, record.entry.principal):
            yield record
