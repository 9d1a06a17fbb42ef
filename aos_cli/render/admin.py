"""Principals, groups, capabilities and quotas as tables.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aos_cli.console import safe
from aos_cli.render.table import Column, render_table
from aos_cli.render.units import UNKNOWN, render_duration, render_size

Row = Mapping[str, Any]
UNLIMITED = 2**63 - 1


def render_agents(rows: Iterable[Row], *, width: int | None) -> str:
    columns = (Column(title="AGENT"), Column(title="STATE"), Column(title="GROUPS", flexible=True))
    cells = [
        [safe(str(row["principal"])), "enabled" if row.get("enabled") else "disabled", _names(row["groups"])]
        for row in rows
    ]
    return render_table(columns, cells, width=width)


def render_agent(row: Row) -> str:
    """One principal as labelled lines."""
    lines = [
        f"Agent {safe(str(row['principal']))}",
        f"  State:     {'enabled' if row.get('enabled') else 'disabled'}",
        f"  Uid:       {safe(str(row.get('owner_uid') or UNKNOWN))}",
        f"  Groups:    {_names(row['groups'])}",
        f"  Grants:    {_names(row['grants'])}",
        f"  Revokes:   {_names(row['revokes'])}",
        f"  Capsules:  {_names(row.get('capsules') or ())}",
    ]
    return "\n".join(lines)


def render_groups(rows: Iterable[Row], *, width: int | None) -> str:
    columns = (Column(title="GROUP"), Column(title="TYPE"), Column(title="CAPABILITIES", flexible=True))
    cells = [
        [
            safe(str(row["name"])),
            "built-in" if row.get("builtin") else "custom",
            _names(row["capabilities"]),
        ]
        for row in rows
    ]
    return render_table(columns, cells, width=width)


def render_group(row: Row) -> str:
    lines = [
        f"Group {safe(str(row['name']))}",
        f"  Type:          {'built-in' if row.get('builtin') else 'custom'}",
        f"  Description:   {safe(str(row.get('description') or UNKNOWN))}",
        f"  Unsafe admin:  {'yes' if row.get('unsafe_admin') else 'no'}",
        f"  Capabilities:  {_names(row['capabilities'])}",
    ]
    return "\n".join(lines)


def render_capabilities(rows: Sequence[tuple[str, str, str]], *, width: int | None) -> str:
    """Rows of capability, source, status."""
    columns = (Column(title="CAPABILITY", flexible=True), Column(title="SOURCE"), Column(title="STATUS"))
    return render_table(columns, [[safe(cell) for cell in row] for row in rows], width=width)


def render_reasons(data: Row, *, allowing: Sequence[str]) -> str:
    """Why a principal may or may not do something; `allowing` are the commands that would allow it."""
    who, what = safe(str(data["principal"])), safe(str(data["capability"]))
    if data["allowed"]:
        lines = [f"{who} may: {what}"]
    else:
        lines = [f"{who} may not: {what}", f"  why:          {safe(str(data['denial']))}"]
    lines += [f"  given by:     {_source(source)}" for source in data["given_by"]]
    if not data["given_by"]:
        lines.append("  given by:     nothing")
    lines += [f"  taken by:     {_source(source)}" for source in data["revoked_by"]]
    lines += [f"  would allow:  {command}" for command in allowing]
    return "\n".join(lines)


def render_quotas(principal: str, quotas: Row, usage: Row) -> str:
    """The quotas, then what was used of them."""
    rate = quotas["max_cpu_fuel_per_sec"]
    exempt = bool(usage.get("exempt"))
    rows = [
        (f"Quotas for {safe(principal)}", ""),
        ("  memory", f"{render_size(quotas['max_memory_bytes'])} an instance"),
        ("  timeout", f"{render_duration(quotas['max_timeout_secs'])} a call"),
        ("  storage", _size(quotas["max_storage_bytes"])),
        ("  processes", str(quotas["max_background_processes"])),
        ("  ipc-rate", f"{render_size(quotas['max_ipc_throughput_bytes'])}/s"),
        ("  cpu-rate", f"{rate} fuel/s"),
        ("  in-flight", f"{quotas['max_in_flight_calls']} calls share the cpu-rate"),
        ("Usage vs budget", ""),
        ("  cpu consumed", f"{usage['cpu_fuel_consumed_total']} fuel"),
        ("  cpu rate limit", f"{usage['cpu_fuel_per_sec_limit']} fuel/s"),
        ("  exempt", "yes: measured, held to no rate" if exempt else "no"),
        ("  memory current", _size(usage.get("memory_bytes_current_total"))),
        ("  memory peak", _size(usage.get("memory_bytes_peak_total"))),
        ("  memory limit", f"{render_size(usage['memory_bytes_limit_per_instance'])} an instance"),
        ("  stored", _size(usage.get("storage_bytes"))),
    ]
    return "\n".join(f"{label:<16}  {value}".rstrip() for label, value in rows)


def render_keypairs(rows: Iterable[Row], *, created: Mapping[str, str], width: int | None) -> str:
    columns = (
        Column(title="NAME"),
        Column(title="FINGERPRINT"),
        Column(title="CREATED"),
        Column(title="BOUND PRINCIPAL", flexible=True),
    )
    cells = [
        [
            str(row["name"]),
            str(row["fingerprint"]),
            created[str(row["name"])],
            str(row["bound_principal"] or UNKNOWN),
        ]
        for row in rows
    ]
    return render_table(columns, cells, width=width)


def _size(value: object) -> str:
    if not isinstance(value, int):
        return UNKNOWN
    return "unlimited" if value >= UNLIMITED else render_size(value)


def _source(source: Row) -> str:
    return f"{safe(str(source['origin']))} ({safe(str(source['pattern']))})"


def _names(items: Iterable[object]) -> str:
    return ", ".join(safe(str(item)) for item in items) or UNKNOWN
