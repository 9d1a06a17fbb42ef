"""`aos status` and `aos ps`: what the daemon says of itself.  They never start one and never write
(LST-14, LST-15).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aos_cli.client import STATUS_TIMEOUT_S, connect
from aos_cli.console import Console, get_console, safe
from aos_cli.invocation import get_invocation
from aos_cli.render.status import (
    capsule_rows,
    is_healthy,
    is_unhealthy,
    render_capsules,
    render_status,
    version_skew,
)
from aos_runtime import AOS_VERSION
from aos_runtime.errors import Unavailable

_ABSENT = frozenset({"daemon-not-running", "daemon-starting"})


def _ask_daemon() -> dict[str, Any]:
    """GetStatus of the running daemon.  Unavailable `daemon-not-running` where there is none."""
    invocation = get_invocation()
    with connect(invocation.home, invocation.principal) as daemon:
        data = daemon.kernel_request("GetStatus", inactivity_s=STATUS_TIMEOUT_S)
    return data if isinstance(data, dict) else {}


def _absent_state() -> tuple[str, str]:
    """State and sentence where nothing answers: stopped, starting or unknown, from the run files."""
    from aos_runtime.store.run import Liveness, observe

    seen = observe(get_invocation().home)
    state = Liveness.STARTING if seen.liveness is Liveness.RUNNING else seen.liveness
    return state.value, seen.reason or ""


def status(
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 where the daemon is not running and healthy.")
    ] = False,
) -> int:
    """Say whether the daemon runs, and how it and its capsules are.

    Exit status 0 also where it is stopped, unless --check is given. JSON: {"state": "stopped"}, or
    {"state": "running", "daemon": {pid, uptime_secs, version, aos_version, connected_clients,
    loaded_capsules, capsules, ...}}.

    Examples:
      aos status
      aos status --json
      aos status --check && echo serving
    """
    console = get_console()
    try:
        found = _ask_daemon()
    except Unavailable as error:
        if error.code not in _ABSENT:
            raise
        return _show_absent(console, check=check)
    skew = version_skew(found, AOS_VERSION)
    if console.is_json:
        console.json({"state": "running", "daemon": found, "installed_version": AOS_VERSION})
    else:
        console.data(render_status(found, width=console.width))
        if any(map(is_unhealthy, capsule_rows(found))):
            console.hint("`aos capsule show NAME` says what to do about a capsule that does not serve")
    if skew is not None:
        console.warn(skew)
        console.hint("run `aos restart`")
    return 1 if check and not is_healthy(found) else 0


def _show_absent(console: Console, *, check: bool) -> int:
    state, reason = _absent_state()
    if console.is_json:
        console.json({"state": state, "reason": reason} if reason else {"state": state})
    else:
        words = {"stopped": "The daemon is not running.", "starting": "The daemon is starting."}
        console.data(words.get(state, f"The daemon's state is unknown: {safe(reason)}."))
        if state == "stopped":
            console.hint("start it with `aos start`")
    return 1 if check else 0


def ps() -> None:
    """List the capsules that the daemon runs, with their calls, errors, queue depth and drops.

    JSON: an array of {capsule, state, version, principal, calls, errors, denied, queue_depth, drops};
    empty where no daemon runs.

    Examples:
      aos ps
      aos ps --json
    """
    console = get_console()
    try:
        rows = capsule_rows(_ask_daemon())
    except Unavailable as error:
        if error.code not in _ABSENT:
            raise
        rows = []
        console.note("The daemon is not running, so no capsule is.")
    else:
        if not rows:
            console.note("The daemon runs no capsules.")
    if console.is_json:
        console.json([_ps_row(row) for row in rows])
    elif rows:
        console.data(render_capsules(rows, width=console.width))


_PS_KEYS = ("state", "version", "principal", "calls", "errors", "denied", "queue_depth", "drops")


def _ps_row(row: Any) -> dict[str, Any]:
    return {"capsule": row["name"], **{key: row.get(key) for key in _PS_KEYS}}
