"""The table of `aos top`.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aos_cli.console import safe
from aos_cli.render.table import Column, render_table
from aos_cli.render.units import UNKNOWN, plural, render_duration, render_size
from aos_cli.watch.rates import Row

_COLUMNS = (
    Column(title="PRINCIPAL"),
    Column(title="CAPSULE"),
    Column(title="CALLS/S", align_right=True),
    Column(title="ERRORS/S", align_right=True),
    Column(title="P50", align_right=True),
    Column(title="P95", align_right=True),
    Column(title="QUEUE", align_right=True),
    Column(title="DROPS", align_right=True),
    Column(title="MEMORY", align_right=True),
    Column(title="CALLS", align_right=True),
    Column(title="ERRORS", align_right=True),
)


def render_top(rows: Sequence[Row], process: Mapping[str, Any], *, width: int | None) -> str:
    """One line on the daemon where the caller may see it, then a line per capsule, busiest first."""
    cells = [
        [
            safe(row.principal),
            safe(row.capsule),
            f"{row.calls_per_s:.1f}",
            f"{row.errors_per_s:.1f}",
            _span(row.p50_us),
            _span(row.p95_us),
            str(row.queue_depth),
            str(row.drops),
            UNKNOWN if row.memory_bytes is None else render_size(row.memory_bytes),
            str(row.calls),
            str(row.errors),
        ]
        for row in rows
    ]
    table = render_table(_COLUMNS, cells, width=width)
    return f"{_head(process)}\n\n{table}" if process else table


def _head(process: Mapping[str, Any]) -> str:
    memory, uptime = process.get("memory_bytes"), process.get("uptime_s")
    parts = [
        f"up {render_duration(uptime) if isinstance(uptime, (int, float)) else UNKNOWN}",
        f"memory {render_size(memory) if isinstance(memory, int) else UNKNOWN}",
        _count(process, "clients", "client"),
        _count(process, "calls_in_flight", "tool call") + " in flight",
        _count(process, "threads", "worker"),
    ]
    return f"aos daemon (pid {process.get('pid', UNKNOWN)}): " + ", ".join(parts)


def _count(process: Mapping[str, Any], key: str, noun: str) -> str:
    value = process.get(key)
    return plural(value, noun) if isinstance(value, int) else f"{UNKNOWN} {noun}s"


def _span(microseconds: float | None) -> str:
    if microseconds is None:
        return UNKNOWN
    return f"{microseconds:.0f} us" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms"
