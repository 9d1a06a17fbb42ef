"""The daemon's status as lines and documents.  Pure.

The JSON shape of the published client stays: `{"state": ..., "daemon": {...}}`; everything else is additive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aos_cli.console import safe
from aos_cli.render.table import Column, render_table
from aos_cli.render.units import UNKNOWN, plural, render_duration

_CAPSULES = (
    Column(title="CAPSULE"),
    Column(title="VERSION"),
    Column(title="STATE"),
    Column(title="CALLS", align_right=True),
    Column(title="ERRORS", align_right=True),
    Column(title="QUEUE", align_right=True),
    Column(title="DROPS", align_right=True),
)
_HEALTHY = frozenset({"ready", "idle", "running"})


def capsule_rows(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The daemon's capsules by name; a daemon that lists names only gives rows of names."""
    rows = status.get("capsules")
    if isinstance(rows, list):
        found = [row for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str)]
    else:
        found = [
            {"name": name, "state": "ready"}
            for name in status.get("loaded_capsules") or ()
            if isinstance(name, str)
        ]
    return sorted(found, key=lambda row: (str(row["name"]), str(row.get("principal", ""))))


def is_unhealthy(row: Mapping[str, Any]) -> bool:
    """Whether a capsule is in a state in which it does not serve."""
    return str(row.get("state", "ready")) not in _HEALTHY


def is_healthy(status: Mapping[str, Any]) -> bool:
    """Whether the daemon works without trouble and every capsule serves."""
    return not status.get("trouble") and not any(map(is_unhealthy, capsule_rows(status)))


def problems(status: Mapping[str, Any]) -> list[str]:
    """One line per thing that is not as it should be."""
    trouble = status.get("trouble")
    found = [f"the daemon: {safe(trouble)}"] if isinstance(trouble, str) and trouble else []
    for row in capsule_rows(status):
        name = safe(str(row["name"]))
        if is_unhealthy(row):
            reason = row.get("reason")
            tail = f": {safe(reason)}" if isinstance(reason, str) and reason else ""
            found.append(f"{name} is {safe(str(row.get('state')))}{tail}")
        found += [f"{name}: {safe(text)}" for text in row.get("warnings") or () if isinstance(text, str)]
        found += [f"{name}: {_shadow(item)}" for item in row.get("shadowed") or ()]
    return found


def _shadow(item: object) -> str:
    if isinstance(item, Mapping):
        topic, winner = (
            item.get("topic", "a topic"),
            item.get("winner") or item.get("by") or "another capsule",
        )
        return f"{safe(str(topic))} is shadowed by {safe(str(winner))}"
    return f"shadowed: {safe(str(item))}"


def _count(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return str(value) if isinstance(value, int) else UNKNOWN


def render_capsules(rows: Sequence[Mapping[str, Any]], *, width: int | None) -> str:
    """The table of running capsules with their counters."""
    cells = [
        [
            safe(str(row["name"])),
            safe(str(row.get("version") or UNKNOWN)),
            safe(str(row.get("state") or UNKNOWN)),
            *(_count(row, key) for key in ("calls", "errors", "queue_depth", "drops")),
        ]
        for row in rows
    ]
    return render_table(_CAPSULES, cells, width=width)


def render_status(status: Mapping[str, Any], *, width: int | None) -> str:
    """The page of `aos status` for a running daemon."""
    head = f"aos daemon is running (pid {status.get('pid', UNKNOWN)}, up {_uptime(status)})"
    lines = [head]
    version = status.get("aos_version") or UNKNOWN
    lines.append(f"  Version:    {safe(str(version))} (contract {safe(str(status.get('version', UNKNOWN)))})")
    lines.append(f"  Mode:       {'ephemeral' if status.get('ephemeral') else 'persistent'}")
    workspace = status.get("workspace")
    if isinstance(workspace, str):
        lines.append(f"  Workspace:  {safe(workspace)}")
    lines.append(f"  Clients:    {_clients(status)}")
    rows = capsule_rows(status)
    lines.append(f"  Capsules:   {plural(len(rows), 'capsule')}{_unhealthy_note(rows)}")
    if rows:
        lines += ["", render_capsules(rows, width=width)]
    found = problems(status)
    if found:
        lines += ["", *(f"! {problem}" for problem in found)]
    return "\n".join(lines)


def _unhealthy_note(rows: Sequence[Mapping[str, Any]]) -> str:
    bad = sum(1 for row in rows if is_unhealthy(row))
    return f", {bad} not serving" if bad else ""


def _uptime(status: Mapping[str, Any]) -> str:
    seconds = status.get("uptime_secs")
    return render_duration(seconds) if isinstance(seconds, (int, float)) else UNKNOWN


def _clients(status: Mapping[str, Any]) -> str:
    total = status.get("connected_clients")
    text = str(total) if isinstance(total, int) else UNKNOWN
    by = status.get("connections_by_principal")
    named = [
        f"{safe(str(item.get('principal')))}: {item.get('count')}"
        for item in (by if isinstance(by, list) else ())
        if isinstance(item, dict)
    ]
    return f"{text} ({', '.join(named)})" if named else text


def version_skew(status: Mapping[str, Any], installed_version: str) -> str | None:
    """A sentence where the daemon is not of the installed version (case DMN-17)."""
    running = status.get("aos_version")
    if not isinstance(running, str) or running == installed_version:
        return None
    return f"aos {installed_version} is installed, but the running daemon is {safe(running)}"
