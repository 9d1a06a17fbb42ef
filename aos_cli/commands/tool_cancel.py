"""`aos tool calls` and `aos tool cancel`: what runs now, and ending one of it."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.console import get_console, safe
from aos_cli.render.tools import render_calls
from aos_cli.render.units import plural
from aos_cli.tools.door import cancel_call, list_calls, open_door
from aos_runtime.errors import NotFound


def calls() -> None:
    """List the tool calls that run now, the oldest first: those of every client of this principal.

    Starts nothing: fails where no daemon runs. JSON: an array of {call_id, tool, capsule, running_ms,
    timeout_s}.

    Examples:
      aos tool calls
      aos tool calls --json
    """
    console = get_console()
    with open_door(start=False) as door:
        rows = list_calls(door)
    if console.is_json:
        console.json(rows)
    elif rows:
        console.data(render_calls(rows, width=console.width))
        console.detail(plural(len(rows), "call"))
    else:
        console.note("No tool call runs.")


def cancel(
    call_id: Annotated[
        str, typer.Argument(metavar="CALL_ID", help="Id of the call, as `aos tool calls` shows it.")
    ],
) -> None:
    """Cancel a tool call, whichever client of this principal made it.

    Its caller gets an error at once. A capsule that computes for this call is stopped; other calls, of the
    same capsule too, go on. JSON: {call_id, cancelled}.

    Examples:
      aos tool cancel 5f0c2a9be1d34c6f8a7b6c5d4e3f2a1b
    """
    console = get_console()
    with open_door(start=False) as door:
        was_cancelled = cancel_call(door, call_id)
    if not was_cancelled:
        raise NotFound(
            "tool-call-unknown",
            f"no tool call with the id {safe(call_id[:160])!r} runs",
            hint="it may have ended; `aos tool calls` lists what runs",
            call_id=call_id[:160],
        )
    if console.is_json:
        console.json({"call_id": call_id, "cancelled": True})
    else:
        console.success(f"Cancelled the call {safe(call_id)}.")
