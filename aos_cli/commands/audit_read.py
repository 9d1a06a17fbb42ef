"""`aos audit tail` and `aos audit export`: the entries, read from disk, with no daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from aos_cli.console import Console, get_console
from aos_cli.invocation import get_invocation
from aos_cli.render.audit import entry_document, is_failure, render_entry
from aos_runtime.names import parse_principal_name
from aos_runtime.store.audit_reader import Record, read_audit

_POLL_S = 0.2


def tail(
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is recorded from now on.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many entries at the end to show.")
    ] = 20,
    of: Annotated[
        str | None, typer.Option("--of", metavar="PRINCIPAL", help="Only what this principal did.")
    ] = None,
    capsule: Annotated[
        str | None, typer.Option("--capsule", metavar="NAME", help="Only what this capsule did.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what was refused or went wrong.")] = False,
) -> None:
    """Show the newest entries, the oldest of them first.

    JSON: one entry a line, with its number and batch.

    Examples:
      aos audit tail
      aos audit tail -n 100 --capsule my-capsule
      aos audit tail -f --failed
    """
    console, path = get_console(), get_invocation().home.audit_db
    wanted = _Wanted(of=None if of is None else parse_principal_name(of), capsule=capsule, failed=failed)
    last = _show_newest(console, path, wanted, lines)
    while following:
        time.sleep(_POLL_S)
        last = _show_since(console, path, wanted, last)


class _Wanted:
    """Which entries to show."""

    def __init__(self, *, of: str | None, capsule: str | None, failed: bool) -> None:
        self._of = of
        self._capsule = capsule
        self._failed = failed

    def __call__(self, record: Record) -> bool:
        entry = record.entry
        return (
            self._of in (None, entry.principal)
            and self._capsule in (None, entry.action.get("capsule_id"))
            and (not self._failed or is_failure(entry))
        )


def _show_newest(console: Console, path: Path, wanted: _Wanted, lines: int) -> int:
    """Show the last entries; the number of the newest there is."""
    with read_audit(path) as reader:
        if reader is None:
            console.note("Nothing is on record yet.")
            return 0
        newest = next(reader.backwards(), None)
        chosen = list(islice(filter(wanted, reader.backwards()), lines))
    for record in reversed(chosen):
        _show(console, record)
    return 0 if newest is None else newest.number


def _show_since(console: Console, path: Path, wanted: _Wanted, last: int) -> int:
    with read_audit(path) as reader:
        for record in () if reader is None else reader.records(from_entry=last + 1):
            last = record.number
            if wanted(record):
                _show(console, record)
    return last


def _show(console: Console, record: Record) -> None:
    if console.is_json:
        console.json(entry_document(record), compact=True)
    else:
        console.data(render_entry(record))


def export(
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Only of this session: one run of the daemon."),
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="PRINCIPAL", help="Only what this principal did.")
    ] = None,
    first: Annotated[
        int, typer.Option("--from", metavar="NUMBER", min=1, help="From the entry with this number on.")
    ] = 1,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many entries.")
    ] = None,
) -> None:
    """Print entries as JSON, one a line, in the order in which they were recorded.

    Each is {id, timestamp, session_id, action, authorization, outcome, previous_hash, principal, number,
    batch}, also without --json. The hash of an entry, which the next one of its chain names, is the BLAKE3
    of its line without number and batch.

    Examples:
      aos audit export > audit.jsonl
      aos audit export --session 2f1c0a6e-5b1d-4f7e-9c53-d1a2b3c4d5e6 --from 1000 --limit 500
    """
    console, path = get_console(), get_invocation().home.audit_db
    principal = None if of is None else parse_principal_name(of)
    with read_audit(path) as reader:
        if reader is None:
            console.note("Nothing is on record yet.")
            return
        chosen = _chosen(reader.records(from_entry=first), session, principal)
        for record in islice(chosen, limit):
            console.json(entry_document(record), compact=True)


def _chosen(records: Iterator[Record], session: str | None, principal: str | None) -> Iterator[Record]:
    for record in records:
        entry = record.entry
        if session in (None, entry.session_id) and principal in (None, entry.principal):
            yield record
