"""The caller's side of the door for tools: open it, list, find, call, cancel.

`open_door` starts an ephemeral daemon where none runs (only `aos tool ...` does that) and says so in one
line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aos_cli.client import Connection, OnEvent, connect, new_correlation, reply_error
from aos_cli.console import get_console, safe
from aos_cli.control.workspace import find_workspace
from aos_cli.invocation import get_invocation
from aos_cli.suggest import did_you_mean, nearest_names
from aos_runtime.errors import NotFound, PeerFault, Unavailable
from aos_runtime.wire.client import Event, Reply, decode_event, tools_exchange

NO_START_HELP = "Fail where no daemon runs, instead of starting an ephemeral one."
TOOL_HELP = "Name of the tool, as `aos tool list` shows it."
_GRACE_S = 10.0
_CANCEL_S = 3.0


def open_door(*, start: bool) -> Connection:
    """A connection bound to the caller's principal and workspace; starts an ephemeral daemon with `start`."""
    invocation = get_invocation()
    home, principal = invocation.home, invocation.principal
    workspace = find_workspace(Path.cwd(), home, invocation.environ)
    try:
        return connect(home, principal, workspace=workspace)
    except Unavailable as error:
        if error.code not in ("daemon-not-running", "daemon-starting") or not start:
            raise
    from aos_cli.control.start import start_daemon

    started = start_daemon(home, invocation.environ, ephemeral=True, workspace=workspace)
    if not started.was_running:
        get_console().note(f"Started an ephemeral daemon (pid {started.pid}); it stops when nobody uses it.")
    return connect(home, principal, workspace=workspace)


def list_all(door: Connection) -> list[Mapping[str, Any]]:
    """Every tool that the caller's principal can call, by name."""
    reply = door.request(tools_exchange("list", None, new_correlation()))
    if reply.is_error:
        raise reply_error(reply)
    if not isinstance(reply.data, list):
        raise malformed_answer()
    tools = [tool for tool in reply.data if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    return sorted(tools, key=lambda tool: str(tool["name"]))


def malformed_answer() -> PeerFault:
    """The daemon answered with something that this version does not know."""
    return PeerFault(
        "answer-malformed",
        "the daemon's answer is not what this version of aos expects",
        hint="run `aos restart`, so that both are of one version",
    )


def find_tool(tools: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """The tool of that name.  NotFound `tool-unknown` with the nearest names."""
    for tool in tools:
        if tool["name"] == name:
            return tool
    known = [str(tool["name"]) for tool in tools]
    near = nearest_names(name, known)
    raise NotFound(
        "tool-unknown",
        f"no tool is called {safe(name[:160])!r}",
        hint=did_you_mean(near) or "run `aos tool list` to see what there is",
        name=name[:160],
        nearest=list(near),
    )


def call_tool(
    door: Connection,
    name: str,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float,
    on_event: OnEvent | None = None,
) -> Reply:
    """Call a tool and wait for its answer.  Ctrl-C and a daemon that stays silent cancel the call."""
    correlation = new_correlation()
    params: dict[str, object] = {"name": name, "arguments": dict(arguments), "timeout_s": timeout_s}
    exchange = tools_exchange("call", params, correlation)
    door.send(exchange)
    try:
        return door.wait_reply(exchange, total_s=timeout_s + _GRACE_S, on_event=on_event)
    except BaseException as error:
        if isinstance(error, Unavailable) and error.code == "daemon-lost":
            raise
        _cancel(door, correlation)
        raise


def wait_event(door: Connection, total_s: float, is_enough: Callable[[Event], bool]) -> None:
    """Hand events to `is_enough` until it says so, at most `total_s` seconds."""

    def find(body: bytes) -> bool | None:
        event = decode_event(body)
        return True if event is not None and is_enough(event) else None

    door.wait_for(find, total_s=total_s)


def list_calls(door: Connection) -> list[Mapping[str, Any]]:
    """The tool calls of the caller's principal that run now, oldest first."""
    reply = door.request(tools_exchange("calls", None, new_correlation()))
    if reply.is_error:
        raise reply_error(reply)
    if not isinstance(reply.data, list):
        raise malformed_answer()
    return [row for row in reply.data if isinstance(row, dict) and isinstance(row.get("call_id"), str)]


def cancel_call(door: Connection, call_id: str) -> bool:
    """Cancel a call of the caller's principal; False where none with that id runs."""
    reply = door.request(tools_exchange("cancel", {"call_id": call_id}, new_correlation()))
    if reply.is_error:
        raise reply_error(reply)
    if not isinstance(reply.data, dict):
        raise malformed_answer()
    return reply.data.get("cancelled") is True


def _cancel(door: Connection, correlation: str) -> None:
    """Tell the daemon that nobody waits any more.  Best effort: closing the connection cancels as well."""
    try:
        exchange = tools_exchange("cancel", {"corr": correlation}, new_correlation())
        door.send(exchange)
        door.wait_reply(exchange, inactivity_s=_CANCEL_S, total_s=_CANCEL_S)
    except (Unavailable, PeerFault):
        return
