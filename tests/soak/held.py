"""What a daemon holds while nobody is there, and what of it must not grow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from aos_runtime.home import Home
from tests.support.installation import wait_until
from tests.support.sockets import Daemon, connected

MEMORY_SHARE = 0.05
SLACK = 4
"""Descriptors and threads that come and go: a spare worker, a log that is packed.  A leak of one with each
connection is many times that after the first slice, one with each slice is more after a few."""
CURVE_POINTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process holds, and how many processes there are below it."""

    resident_bytes: int
    descriptors: int
    threads: int
    children: int


def held_by(pid: int) -> Held:
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text(encoding="ascii").split()[1])
    return Held(
        resident_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        descriptors=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        children=len(children_of(pid)),
    )


def children_of(pid: int) -> list[int]:
    """The processes that it or a thread of it started, those that have ended and wait among them."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def least(held: Sequence[Held]) -> Held:
    """The least of each: an instance that is open for a while lies above it, a leak raises it."""
    return Held(**{one.name: min(getattr(each, one.name) for each in held) for one in fields(Held)})


def leaks(before: Held, after: Held) -> list[str]:
    """What grew that must not."""
    found = []
    if after.resident_bytes >= before.resident_bytes * (1 + MEMORY_SHARE):
        found.append(
            f"memory grew from {before.resident_bytes / 1e6:.1f} to {after.resident_bytes / 1e6:.1f} MB"
        )
    if after.descriptors > before.descriptors + SLACK:
        found.append(f"descriptors grew from {before.descriptors} to {after.descriptors}")
    if after.threads > before.threads + SLACK:
        found.append(f"threads grew from {before.threads} to {after.threads}")
    if after.children > before.children:
        found.append(f"children grew from {before.children} to {after.children}")
    return found


def at_rest(home: Home, daemon: Daemon) -> Held:
    """What the daemon holds once everybody has left."""
    with connected(home) as client:
        wait_until(
            lambda: client.request("GetStatus")["data"]["connected_clients"] == 1,
            "the daemon knows that everybody has left",
        )
        return held_by(daemon.process.pid)


def tell(held: list[Held]) -> None:
    """The curve of what was held."""
    sizes_mb = [f"{one.resident_bytes / 1e6:.1f}" for one in held[:: -(-len(held) // CURVE_POINTS)]]
    last = held[-1]
    print(f"resident MB: {' '.join(sizes_mb)}, {last.resident_bytes / 1e6:.1f} at the end")
    print(f"{last.descriptors} descriptors, {last.threads} threads, {last.children} children")
