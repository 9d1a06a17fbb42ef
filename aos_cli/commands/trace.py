"""`aos trace`: one tool call as a waterfall, from what the daemon remembers."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.commands.events import EVERYBODY_HELP, OF_HELP, PAYLOADS_HELP, whose
from aos_cli.console import get_console
from aos_cli.render.events import render_call
from aos_cli.watch.door import ask, open_events

LAST = "last"


def trace(
    call_id: Annotated[str, typer.Argument(metavar="CALL_ID", help="The id of a call, or `last`.")] = LAST,
    of: Annotated[str | None, typer.Option("--of", metavar="PRINCIPAL", help=OF_HELP)] = None,
    everybody: Annotated[bool, typer.Option("--all-principals", help=EVERYBODY_HELP)] = False,
    payloads: Annotated[bool, typer.Option("--payloads", help=PAYLOADS_HELP)] = False,
) -> None:
    """Show one tool call step by step: door, router, tool, host calls, answer, with times.

    Refused publishes and dropped messages are steps as well. The daemon remembers the last few hundred calls
    and nothing of them on disk. It needs self:audit:read. JSON: {call_id, tool, principal, time, duration_us,
    outcome, steps, omitted}; times of steps are microseconds from the call's start.

    Examples:
      aos trace last
      aos trace 8b1f0c66c1c9a74a6a1d1f8e5d0c2b3a --payloads
      aos trace last --json
    """
    console = get_console()
    params: dict[str, object] = {
        "call_id": None if call_id == LAST else call_id,
        "principal": whose(of, everybody=everybody),
        "payloads": payloads,
    }
    with open_events() as daemon:
        call = ask(daemon, "trace", params)
    if console.is_json:
        console.json(call)
    else:
        console.data(render_call(call))
