"""What stands behind the events door, put together: what it reads, and the daemon in numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

from aos_runtime.daemon.events import EventsDoor, Sources
from aos_runtime.daemon.options import Options
from aos_runtime.daemon.sessions import Sessions
from aos_runtime.daemon.showing import Showing
from aos_runtime.daemon.tails import Tails
from aos_runtime.daemon.tools import ToolsDoor
from aos_runtime.home import Home
from aos_runtime.kernel.answers import Process
from aos_runtime.kernel.kernel import Kernel
from aos_runtime.kernel.leader import Leader
from aos_runtime.kernel.requests import Account, RequestRouter
from aos_runtime.kernel.views import View
from aos_runtime.names import PrincipalName
from aos_runtime.store.env import read_secrets
from aos_runtime.store.installed import list_names
from aos_runtime.store.processes import resident_bytes


class Views(Protocol):
    """The part of `lifecycle.Lifecycle` that is seen."""

    @property
    def views(self) -> Mapping[PrincipalName, View]: ...


def make_events_door(
    *,
    home: Home,
    kernel: Kernel,
    lifecycle: Views,
    requests: RequestRouter,
    leader: Leader,
    account: Account,
    tails: Tails,
    process: Callable[[], Mapping[str, object]],
) -> EventsDoor:
    """The door over one daemon."""
    showing = Showing(
        boot_id=kernel.boot_id,
        views=lambda: lifecycle.views,
        secrets_of=lambda principal: held_secrets(home, principal),
    )
    sources = Sources(
        denial=requests.denial,
        views=lambda: lifecycle.views,
        process=process,
        ready=leader.ready,
        before_block=leader.before_block,
        account=account,
    )
    return EventsDoor(kernel, sources, showing, tails)


def held_secrets(home: Home, principal: PrincipalName) -> tuple[str, ...]:
    """Every secret that a capsule of `principal` holds: what nobody may be shown."""
    names = list_names(home, principal)
    return tuple(value for name in names for value in read_secrets(home, principal, name).values())


def process_facts(
    options: Options, started: float, sessions: Sessions, troubles: Callable[[], tuple[str | None, ...]]
) -> Callable[[], Process]:
    """A function that gives the process as the status shows it.  `started` is monotonic."""
    started_at = datetime.now(UTC) - timedelta(seconds=time.monotonic() - started)

    def read() -> Process:
        return Process(
            pid=os.getpid(),
            started_at=started_at.isoformat(),
            uptime_s=int(time.monotonic() - started),
            workspace=None if options.workspace is None else str(options.workspace),
            ephemeral=options.ephemeral,
            clients=sessions.counts(),
            trouble="; ".join(filter(None, troubles())) or None,
        )

    return read


def process_gauges(
    started: float, leader: Leader, door: ToolsDoor, sessions: Sessions
) -> Callable[[], dict[str, object]]:
    """A function that gives the process in numbers: bytes, threads, seconds.  `started` is monotonic."""

    def read() -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "uptime_s": int(time.monotonic() - started),
            "cpu_s": round(time.process_time(), 3),
            "memory_bytes": resident_bytes(),
            "threads": leader.threads,
            "saturations": leader.saturations,
            "calls_in_flight": door.calls_in_flight,
            "clients": sum(sessions.counts().values()),
        }

    return read
