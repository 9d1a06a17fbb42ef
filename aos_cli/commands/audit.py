"""`aos audit stats` and `aos audit verify`: read from disk, with no daemon."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from aos_cli.client import STATUS_TIMEOUT_S, connect, new_correlation, reply_error
from aos_cli.console import Console, get_console
from aos_cli.invocation import get_invocation
from aos_cli.render.audit import render_stats, render_verification
from aos_runtime.config import load_settings
from aos_runtime.errors import AosError, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.audit import Retention
from aos_runtime.store.audit_reader import Stats, read_audit
from aos_runtime.store.audit_verify import Verification
from aos_runtime.store.audit_verify import verify as check
from aos_runtime.store.keys import load_runtime_seed, public_hex
from aos_runtime.wire.client import admin_exchange

DEGRADED = 2
_HEAD = re.compile(r"[0-9a-f]{64}")


def stats() -> int:
    """Say how much is on record, and, where the daemon runs, how recording goes.

    Exit status 2 where the daemon cannot record as it should. JSON: {total_count, total_bytes, segments,
    sealed_segments, eligible_segments, cap_entries, cap_bytes, omitted_count, head, health}; health is null
    where no daemon runs.

    Examples:
      aos audit stats
      aos audit stats --json
    """
    console, invocation = get_console(), get_invocation()
    home = invocation.home
    settings = load_settings(home)
    retention = Retention(entries=settings.audit_entries, size_bytes=settings.audit_bytes)
    with read_audit(home.audit_db) as reader:
        found = Stats(cap_entries=retention.entries, cap_bytes=retention.size_bytes)
        found = found if reader is None else reader.stats(retention)
        tail = None if reader is None else reader.tail()
    head = None if tail is None else tail[1].hex()
    health = _ask_health(home, invocation.principal, console)
    if console.is_json:
        console.json({**found.to_json(), "head": head, "health": health})
    else:
        console.data(render_stats(found, head, health))
    return DEGRADED if health is not None and health.get("degraded") else 0


def _ask_health(home: Home, principal: PrincipalName, console: Console) -> dict[str, Any] | None:
    """What the running daemon says of its recording; None where none runs or it does not say."""
    try:
        with connect(home, principal) as daemon:
            reply = daemon.request(
                admin_exchange("AuditHealth", None, new_correlation()), inactivity_s=STATUS_TIMEOUT_S
            )
        if reply.is_error:
            raise reply_error(reply)
    except Unavailable as error:
        if error.code != "daemon-not-running":
            console.warn(f"the daemon did not say how recording goes: {error.message}")
        return None
    except AosError as error:
        console.warn(f"the daemon did not say how recording goes: {error.message}")
        return None
    return reply.data if isinstance(reply.data, dict) else None


def verify(
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="DIGEST",
            help="A head that was noted earlier, which must still be there.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Check every signature, digest and chain, and name each entry that is not as it was recorded.

    Exit status 1 where something was changed, cut, reordered or is missing. An old copy of the whole trail
    is only noticed with --head: note the head that `aos audit stats` shows in another place. JSON: {intact,
    entries, batches, chains, pruned_entries, head, findings: [{sentence, batch, entry, id}]}.

    Examples:
      aos audit verify
      aos audit verify --head "$(cat noted-head)"
    """
    console, home = get_console(), get_invocation().home
    if head is not None and not _HEAD.fullmatch(head):
        raise typer.BadParameter("a head is 64 hexadecimal digits in lower case", param_hint="--head")
    with read_audit(home.audit_db) as reader:
        if reader is None and head is None:
            result = Verification()
        elif reader is None:
            raise Unavailable(
                "audit-missing",
                f"there is no audit trail at {home.audit_db}, so the head cannot be found in it",
                hint="check AOS_HOME; if the trail was there before, it was removed",
            )
        else:
            key = bytes.fromhex(public_hex(load_runtime_seed(home, create=False)))
            result = check(reader, key, expected_head=head)
    if console.is_json:
        console.json(_document(result))
    else:
        console.data(render_verification(result))
    return 0 if result.is_intact else 1


def _document(result: Verification) -> dict[str, object]:
    return {
        "intact": result.is_intact,
        "entries": result.entries,
        "batches": result.batches,
        "chains": result.chains,
        "pruned_entries": result.pruned_entries,
        "head": result.head,
        "findings": [finding.to_json() for finding in result.findings],
    }
