"""`aos start`, `stop` and `restart`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from aos_cli.client import STATUS_TIMEOUT_S, connect
from aos_cli.console import get_console
from aos_cli.control.start import Started, daemon_environment, serve_command, start_daemon
from aos_cli.control.stop import Ending, Stopped, stop_daemon
from aos_cli.control.workspace import find_workspace, parse_workspace
from aos_cli.invocation import get_invocation
from aos_runtime.errors import Conflict, Unavailable
from aos_runtime.home import Home
from aos_runtime.store.run import Liveness, observe

_WORKSPACE_HELP = "What cwd:// means for callers that stand in no project (default: the project here)."


def start(
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="End when the last client has gone.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run it in this terminal until Ctrl-C, for service managers.")
    ] = False,
    workspace: Annotated[str | None, typer.Option("--workspace", metavar="DIR", help=_WORKSPACE_HELP)] = None,
) -> None:
    """Start the daemon and return when it is ready. A daemon that already runs is no error.

    JSON: {state: "running", pid, was_running}.

    Examples:
      aos start
      aos start --workspace ~/project
      aos start --foreground
    """
    invocation = get_invocation()
    home = invocation.home
    folder = _choose_workspace(workspace, home)
    if foreground:
        _run_in_foreground(ephemeral=ephemeral, workspace=folder)
    started = start_daemon(home, invocation.environ, ephemeral=ephemeral, workspace=folder)
    if started.was_running and not ephemeral and _yields(home):
        stop_daemon(home, invocation.principal)
        started = start_daemon(home, invocation.environ, workspace=folder)
    _say_started(started)


def _yields(home: Home) -> bool:
    """Whether the daemon that runs is an ephemeral one that nobody else uses: it would end right after us."""
    try:
        with connect(home, get_invocation().principal) as daemon:
            found = daemon.kernel_request("GetStatus", inactivity_s=STATUS_TIMEOUT_S)
    except Unavailable as error:
        return error.code in ("daemon-not-running", "daemon-lost")
    if not isinstance(found, dict) or not found.get("ephemeral"):
        return False
    if found.get("connected_clients", 1) > 1:
        get_console().warn("the daemon that runs is ephemeral: it ends when its last client has gone")
        get_console().hint("run `aos start` again then")
        return False
    return True


def _choose_workspace(text: str | None, home: Home) -> Path | None:
    """What --workspace names, else the project that the caller stands in, else none."""
    environ = get_invocation().environ
    if text is None:
        return find_workspace(Path.cwd(), home, environ)
    return parse_workspace(text, Path.cwd(), home, environ)


def _run_in_foreground(*, ephemeral: bool, workspace: Path | None) -> None:
    """Become the daemon.  Conflict `daemon-running` where one already runs."""
    invocation = get_invocation()
    home = invocation.home
    seen = observe(home)
    if seen.liveness in (Liveness.RUNNING, Liveness.STARTING):
        pid = None if seen.process is None else seen.process.pid
        raise Conflict(
            "daemon-running",
            f"a daemon already runs on this home (pid {pid})",
            hint="stop it with `aos stop`",
            pid=pid,
        )
    get_console().note("The daemon runs here; end it with Ctrl-C.")
    command = [*serve_command(ephemeral=ephemeral, workspace=workspace), "--foreground"]
    os.execve(sys.executable, command, daemon_environment(home, invocation.environ))


def _say_started(started: Started) -> None:
    console = get_console()
    if console.is_json:
        console.json({"state": "running", "pid": started.pid, "was_running": started.was_running})
    elif started.was_running:
        console.success(f"The daemon is already running (pid {started.pid}).")
    else:
        console.success(f"The daemon is running (pid {started.pid}).")


def stop() -> None:
    """Stop the daemon, and return when its process is gone. No daemon is no error.

    Where it does not end by itself it is ended by signal, which is said. JSON: {state: "stopped", pid,
    ending}.

    Examples:
      aos stop
    """
    invocation = get_invocation()
    _say_stopped(stop_daemon(invocation.home, invocation.principal))


def _say_stopped(stopped: Stopped) -> None:
    console = get_console()
    if console.is_json:
        console.json({"state": "stopped", "pid": stopped.pid, "ending": stopped.ending.value})
        return
    words = {
        Ending.NOT_RUNNING: "The daemon is not running.",
        Ending.ASKED: f"The daemon has stopped (pid {stopped.pid}).",
        Ending.TERMINATED: f"The daemon was ended with SIGTERM (pid {stopped.pid}).",
        Ending.KILLED: f"The daemon was ended with SIGKILL (pid {stopped.pid}).",
    }
    console.success(words[stopped.ending])


def restart(
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="End when the last client has gone.")
    ] = False,
    workspace: Annotated[str | None, typer.Option("--workspace", metavar="DIR", help=_WORKSPACE_HELP)] = None,
) -> None:
    """Stop the daemon if one runs, and start it again: after an upgrade, or when it does not answer.

    JSON: {state: "running", pid, was_running: false}.

    Examples:
      aos restart
    """
    invocation = get_invocation()
    home = invocation.home
    folder = _choose_workspace(workspace, home)
    stopped = stop_daemon(home, invocation.principal)
    if stopped.ending is not Ending.NOT_RUNNING:
        get_console().note(f"Stopped the daemon (pid {stopped.pid}).")
    _say_started(start_daemon(home, invocation.environ, ephemeral=ephemeral, workspace=folder))
