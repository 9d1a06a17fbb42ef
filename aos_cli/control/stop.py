"""Stop the daemon of a home, and say so only when it is gone.

Asked over the socket first; where it does not end in time, by signal, and only a process that is proven
to be the one that was recorded (case DMN-06, DMN-07).  Source: daemon-kernel.md 1.7.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from enum import Enum

from aos_cli.client import connect
from aos_cli.console import get_console
from aos_cli.control.fence import hold_fence
from aos_runtime.config import Settings, load_settings
from aos_runtime.errors import AosError, Conflict, InvalidInput, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.files import is_locked
from aos_runtime.store.processes import Identity, ProcessRecord, identify, send_signal
from aos_runtime.store.run import read_process, sweep_stale

_PAUSE_S = 0.02
_SIGNAL_GRACE_S = 3.0
_REQUEST_TIMEOUT_S = 10.0


class Ending(Enum):
    """How the daemon came to be gone."""

    NOT_RUNNING = "not-running"
    ASKED = "stopped"
    TERMINATED = "terminated"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The daemon is gone and its lock is free."""

    ending: Ending
    pid: int | None


def stop_daemon(home: Home, principal: PrincipalName) -> Stopped:
    """Stop the daemon and wait until its process is gone and its lock is free.

    Conflict `daemon-unidentified` where something holds the lock that cannot be proven to be our daemon:
    nothing is signalled.  Unavailable `daemon-still-alive` where even SIGKILL did not end it.
    """
    timeout_s = _shutdown_timeout_s(home)
    with hold_fence(home, timeout_s=timeout_s):
        record = read_process(home)
        if _is_gone(home, record):
            sweep_stale(home)
            return Stopped(ending=Ending.NOT_RUNNING, pid=None)
        with get_console().progress("Stopping the daemon"):
            ending = _stop(home, principal, record, timeout_s)
        return Stopped(ending=ending, pid=None if record is None else record.pid)


def _shutdown_timeout_s(home: Home) -> float:
    """How long a stop may take; a mistake in the configuration must not keep the daemon from stopping."""
    try:
        return load_settings(home).daemon_shutdown_s
    except InvalidInput as error:
        get_console().warn(f"{error.message}; using the defaults")
        return Settings().daemon_shutdown_s


def _stop(home: Home, principal: PrincipalName, record: ProcessRecord | None, timeout_s: float) -> Ending:
    asked = _ask(home, principal)
    if _wait_gone(home, record, timeout_s if asked is None else 0.0):
        return Ending.ASKED
    if record is None or identify(record) is not Identity.OURS:
        raise _unidentified(home, asked)
    get_console().warn(
        f"the daemon (pid {record.pid}) did not end within {timeout_s:g} s of being asked"
        if asked is None
        else f"the daemon (pid {record.pid}) cannot be asked to stop: {asked.message}"
    )
    for number, ending in ((signal.SIGTERM, Ending.TERMINATED), (signal.SIGKILL, Ending.KILLED)):
        get_console().note(f"Sending {number.name} to process {record.pid}.")
        send_signal(record, number)
        if _wait_gone(home, record, _SIGNAL_GRACE_S):
            sweep_stale(home)
            return ending
    raise Unavailable(
        "daemon-still-alive",
        f"the daemon (pid {record.pid}) is still there after SIGKILL",
        hint="its process may hang in the kernel: look at `ps`, or restart the machine",
        pid=record.pid,
    )


def _ask(home: Home, principal: PrincipalName) -> AosError | None:
    """Request the shutdown; None where it was taken, else why not.  Denied without the right to ask."""
    try:
        with connect(home, principal) as daemon:
            daemon.kernel_request("Shutdown", {"reason": "aos stop"}, inactivity_s=_REQUEST_TIMEOUT_S)
    except AosError as error:
        if error.code in ("permission-denied", "principal-key-missing"):
            raise
        return None if error.code == "daemon-lost" else error
    return None


def _is_gone(home: Home, record: ProcessRecord | None) -> bool:
    """Whether nothing holds the lock and the recorded process has ended (or its id is another's now)."""
    if is_locked(home.lock_file):
        return False
    return record is None or identify(record) in (Identity.GONE, Identity.FOREIGN)


def _wait_gone(home: Home, record: ProcessRecord | None, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not _is_gone(home, record):
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE_S)
    return True


def _unidentified(home: Home, asked: AosError | None) -> AosError:
    if asked is not None and asked.code not in ("daemon-not-running", "daemon-timeout"):
        return asked
    return Conflict(
        "daemon-unidentified",
        "something holds this home, but it cannot be proven to be its daemon, so it was not signalled",
        hint=f"see who has {home.lock_file} open, and end it yourself",
    )
