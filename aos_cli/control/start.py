"""Start the daemon of a home and wait until it is ready.

The child gets nothing of the caller: its descriptors 0 to 2 are the null device or its own boot log, no
other descriptor is inherited, its folder is `/` and it has its own session (case DMN-10).  A start that
fails shows the end of what the daemon wrote.  Source: daemon-kernel.md 1.7.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aos_cli.console import get_console
from aos_cli.control.fence import hold_fence
from aos_cli.render.errors import signal_name
from aos_runtime.config import load_settings
from aos_runtime.errors import Unavailable
from aos_runtime.home import HOME_VARIABLE, Home
from aos_runtime.store.files import is_locked
from aos_runtime.store.layout import open_home
from aos_runtime.store.run import Liveness, liveness, observe

_PAUSE_S = 0.01
_TAIL_BYTES = 4096
_TAIL_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A daemon that is ready.  `was_running`: it was there before, and nothing was started."""

    pid: int | None
    was_running: bool


def serve_command(*, ephemeral: bool, workspace: Path | None) -> list[str]:
    """The command line of the daemon process.  `-P`: the folder it stands in is not on its import path."""
    command = [sys.executable, "-P", "-m", "aos_runtime.daemon", "serve"]
    if ephemeral:
        command.append("--ephemeral")
    if workspace is not None:
        command += ["--workspace", str(workspace)]
    return command


def daemon_environment(home: Home, environ: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: the caller's, with the home spelt out."""
    return {**environ, HOME_VARIABLE: str(home.root)}


def start_daemon(
    home: Home, environ: Mapping[str, str], *, ephemeral: bool = False, workspace: Path | None = None
) -> Started:
    """Start a daemon where none runs, and return when it answers.

    Two starters at once start one daemon.  Unavailable `daemon-start-failed` with the end of its log, or
    `daemon-start-timeout` after `daemon_ready_s` seconds; the child of a timeout is left running, not killed.
    """
    open_home(home, create=False)
    timeout_s = load_settings(home).daemon_ready_s
    with hold_fence(home, timeout_s=timeout_s):
        running = _already_there(home, timeout_s)
        if running is not None:
            return running
        with get_console().progress("Starting the daemon"), _BootLog() as boot_log:
            child = _spawn(serve_command(ephemeral=ephemeral, workspace=workspace), home, environ, boot_log)
            _wait_ready(home, child, boot_log, timeout_s)
    return Started(pid=child.pid, was_running=False)


def _already_there(home: Home, timeout_s: float) -> Started | None:
    """The daemon that runs or is coming up; None where one may be started.

    Unavailable `daemon-start-timeout` where one holds the lock and does not get ready, or is ending and
    does not.
    """
    end = time.monotonic() + timeout_s
    while True:
        seen = observe(home)
        pid = None if seen.process is None else seen.process.pid
        if seen.liveness is Liveness.RUNNING:
            return Started(pid=pid, was_running=True)
        if not is_locked(home.lock_file) and (seen.process is None or seen.liveness is Liveness.STOPPED):
            return None
        if time.monotonic() >= end:
            raise _not_ready(home, pid, timeout_s)
        time.sleep(_PAUSE_S)


def _not_ready(home: Home, pid: int | None, timeout_s: float) -> Unavailable:
    return Unavailable(
        "daemon-start-timeout",
        f"the daemon (pid {pid}) was not ready within {timeout_s:g} s",
        hint=f"it may still come up: look at `aos status` and at {home.daemon_log}, or run `aos restart`",
        pid=pid,
    )


class _BootLog:
    """Where the child's stderr goes until it logs by itself; removed when the start succeeded."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="aos-daemon-boot-", suffix=".log")
        self.handle = handle
        self.path = Path(name)

    def __enter__(self) -> _BootLog:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self.handle)
        self.path.unlink(missing_ok=True)

    def tail(self) -> list[str]:
        return _tail(self.path)


def _spawn(
    command: Sequence[str], home: Home, environ: Mapping[str, str], boot_log: _BootLog
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=boot_log.handle,
        cwd="/",
        env=daemon_environment(home, environ),
        close_fds=True,
        start_new_session=True,
    )


def _wait_ready(home: Home, child: subprocess.Popen[bytes], boot_log: _BootLog, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while True:
        if child.poll() is not None:
            raise _exited(home, child.returncode, boot_log)
        if liveness(home) is Liveness.RUNNING:
            # ours: Popen complains about a child that outlives it, and this one is meant to
            child.returncode = 0
            return
        if time.monotonic() >= end:
            child.returncode = 0
            raise _not_ready(home, child.pid, timeout_s)
        time.sleep(_PAUSE_S)


def _exited(home: Home, code: int, boot_log: _BootLog) -> Unavailable:
    how = f"was ended by {signal_name(-code)}" if code < 0 else f"exited with status {code}"
    words = boot_log.tail() or _tail(home.daemon_log)
    return Unavailable(
        "daemon-start-failed",
        f"the daemon {how} while it was starting",
        hint=f"look at {home.daemon_log}",
        status=code,
        log_tail=words,
    )


def _tail(path: Path) -> list[str]:
    """The last lines of a log file; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[-_TAIL_LINES:]
