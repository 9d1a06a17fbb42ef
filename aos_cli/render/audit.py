"""The audit trail as lines for a person and documents for a program.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from aos_cli.console import safe
from aos_cli.render.logs import local_time
from aos_cli.render.units import plural
from aos_runtime.store.audit_entry import Entry
from aos_runtime.store.audit_reader import Record, Stats
from aos_runtime.store.audit_verify import MAX_FINDINGS, Verification

MIB = 1024 * 1024


def entry_document(record: Record) -> dict[str, object]:
    """One entry as it is stored, with its place."""
    row: dict[str, object] = msgspec.to_builtins(record.entry)
    return {**row, "number": record.number, "batch": record.batch}


def is_failure(entry: Entry) -> bool:
    """Whether it was refused or went wrong."""
    return entry.outcome.get("status") != "success"


def render_entry(record: Record) -> str:
    """One entry on one line, safe for a terminal: number, time, principal, what, and how it ended."""
    entry = record.entry
    who = safe(entry.principal or "-")
    return f"{record.number:>7}  {_time(entry)}  {who:<10}  {_outcome(entry)}  {_sentence(entry.action)}"


def _time(entry: Entry) -> str:
    try:
        return local_time(datetime.fromisoformat(entry.timestamp).timestamp())
    except ValueError:
        return safe(entry.timestamp)


def _outcome(entry: Entry) -> str:
    if not is_failure(entry):
        details = entry.outcome.get("details")
        return f"{safe(str(details)):<8}" if details else f"{'ok':<8}"
    return f"failed ({safe(str(entry.outcome.get('error', 'no reason')))})"


def _sentence(action: Mapping[str, Any]) -> str:
    def word(key: str) -> str:
        return safe(str(action.get(key, "?")))

    times = f", {word('count')} times" if action.get("count", 1) != 1 else ""
    match action.get("type"):
        case "capsule_tool_call":
            return f"tool {word('tool')} of {word('capsule_id')}"
        case "capsule_command_run":
            return f"command {word('command')} of {word('capsule_id')}"
        case "host_call_run":
            resource = f" {word('resource')}" if "resource" in action else ""
            return f"{word('call')}{resource} by {word('capsule_id')}{times}"
        case "approval_granted" | "approval_denied" as kind:
            asked = f"{word('action')} {word('resource')} by {word('capsule_id')}"
            return f"{kind.replace('_', ' ')} ({word('decision')}): {asked}"
        case "process_spawned":
            return f"{word('call')} {word('command')} by {word('capsule_id')}"
        case "admin_request":
            return f"request {word('method')}{_params(action.get('params'))}{times}"
        case "capsule_loaded" | "capsule_unloaded" | "capsule_activated" as kind:
            return f"{kind.replace('_', ' ')}: {word('capsule_id')} {word('version')}"
        case kind:
            return safe(str(kind).replace("_", " "))


def _params(params: object) -> str:
    if not isinstance(params, Mapping):
        return ""
    return "".join(f" {safe(str(name))}={safe(str(value))}" for name, value in params.items())


def render_stats(stats: Stats, head: str | None, health: Mapping[str, Any] | None) -> str:
    """The page of `aos audit stats`."""
    lines = [
        "Audit totals",
        f"  Entries:    {stats.entries} of {stats.cap_entries}",
        f"  Size:       {stats.size_bytes / MIB:.1f} of {stats.cap_bytes / MIB:.0f} MiB",
        f"  Segments:   {stats.segments}, {stats.sealed_segments} of them sealed",
        f"  Dropped:    {_entries(stats.omitted_entries)}, the oldest",
        f"  Head:       {head or '-'}",
    ]
    if health is None:
        return "\n".join(lines)
    state = "degraded" if health.get("degraded") else "working"
    lines += [
        "",
        "Audit ingestion",
        f"  State:      {state}",
        f"  Recorded:   {health.get('persisted')} of {health.get('accepted')}",
        f"  Waiting:    {health.get('queue_depth')}",
        f"  Lost:       {health.get('queue_full')}",
    ]
    if health.get("last_error"):
        lines.append(f"! {safe(str(health['last_error']))}")
    return "\n".join(lines)


def render_verification(result: Verification) -> str:
    """The page of `aos audit verify`."""
    size = f"{_entries(result.entries)} in {_batches(result.batches)}, {plural(result.chains, 'chain')}"
    pruned = (
        f"; {result.pruned_entries} older ones were dropped, with a receipt" if result.pruned_entries else ""
    )
    if not result.findings:
        lines = [f"The audit trail is as it was recorded: {size}{pruned}."]
        return "\n".join([*lines, f"Head: {result.head}"] if result.head else lines)
    lines = [f"The audit trail is NOT as it was recorded ({size}{pruned}):"]
    for finding in result.findings:
        identity = f" (id {safe(finding.id)})" if finding.id else ""
        lines.append(f"  - {safe(finding.sentence)}{identity}")
    if len(result.findings) == MAX_FINDINGS:
        lines.append("  - and maybe more: these are the first")
    return "\n".join(lines)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _batches(count: int) -> str:
    return f"{count} {'batch' if count == 1 else 'batches'}"
