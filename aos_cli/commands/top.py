"""`aos top`: what every capsule does now, from two readings of the daemon's counters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from aos_cli.client import Connection
from aos_cli.console import Console, get_console
from aos_cli.render.top import render_top
from aos_cli.watch.door import ask, open_events
from aos_cli.watch.rates import Row, compare
from aos_runtime.errors import Denied

CLEAR = "\x1b[H\x1b[2J"


def top(
    once: Annotated[bool, typer.Option("--once", help="One table, and end.")] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.1, max=60, help="Time between two readings."),
    ] = 2.0,
) -> None:
    """Show calls a second, errors, latency, queue and memory of every capsule, busiest first.

    Refreshed until Ctrl-C on a terminal; one table with --once or where the output goes elsewhere. Latency
    is that of the interval where anything was called in it, else since the capsule was loaded. Everybody's
    capsules need system:status; else only your own are shown. JSON: {interval_s, process, capsules}.

    Examples:
      aos top
      aos top --once --interval 5
      aos top --json
    """
    console = get_console()
    is_single = once or console.is_json or not console.stdout_is_terminal
    with open_events() as daemon:
        everybody, before = _first(daemon)
        if not everybody:
            console.note("Only your own capsules: the others need system:status.")
        while True:
            time.sleep(interval)
            after = ask(daemon, "top", {"everybody": everybody})
            _show(console, compare(before, after), before, after, refresh=not is_single)
            if is_single:
                return
            before = after


def _first(daemon: Connection) -> tuple[bool, dict[str, Any]]:
    try:
        return True, ask(daemon, "top", {"everybody": True})
    except Denied:
        return False, ask(daemon, "top", {"everybody": False})


def _show(
    console: Console, rows: list[Row], before: Mapping[str, Any], after: Mapping[str, Any], *, refresh: bool
) -> None:
    process = after.get("process")
    shown = process if isinstance(process, dict) else {}
    if console.is_json:
        took_s = (after.get("monotonic_ns", 0) - before.get("monotonic_ns", 0)) / 1e9
        console.json(
            {"interval_s": round(took_s, 3), "process": shown, "capsules": [row.to_json() for row in rows]}
        )
        return
    console.data((CLEAR if refresh else "") + render_top(rows, shown, width=console.width))
