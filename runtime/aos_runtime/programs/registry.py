"""The children that outlive the instance that started them: who may name one, and when one has to go.

An id is 256 random bits; with it alone nothing is reached, the caller must be the capsule and principal that
it was given to.  Everything else is "no such process", whatever the reason.  Source: host-abi.md 1.9.
"""

from __future__ import annotations

import base64
import secrets
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic

from aos_runtime.policy.process_rules import (
    GRACE_S,
    MAX_RETAINED,
    MAX_RETAINED_IN_ALL,
    ProcessCase,
    ProcessRefused,
    Spawn,
)
from aos_runtime.programs.child import Child, Owner
from aos_runtime.programs.children import Children

EVENTS = "astrid.process.v1"
SELF_EXIT, KILLED, EXPIRED, SHUT_DOWN = "self-exit", "killed", "reaped-ttl", "reaped-shutdown"
Publish = Callable[[str, str, Mapping[str, object]], None]
"""`(principal, topic, payload)`: for whoever subscribes to it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Kept:
    """One persistent child.  `suffix`: where its events go, None: nowhere."""

    id: str
    owner: Owner
    child: Child
    spawn: Spawn
    touched_at: float = field(default_factory=monotonic)
    suffix: str | None = None
    reason: str = SELF_EXIT
    """What ended it, or will."""


class Registry:
    """All persistent children of one daemon; safe from any thread."""

    def __init__(self, children: Children, publish: Publish) -> None:
        self._children = children
        self._publish = publish
        self._kept: dict[str, Kept] = {}
        self._reserved: dict[str, Owner] = {}
        self._lock = threading.Lock()
        children.on_over = self._note_over
        children.on_output = self._note_output
        children.on_sweep = self.sweep

    def reserve(self, owner: Owner) -> str:
        """A new id with a place; `fill` or `forget` it.  ProcessRefused REGISTRY_FULL."""
        made = base64.b32encode(secrets.token_bytes(32)).decode().lower().rstrip("=")
        with self._lock:
            owners = [*(one.owner for one in self._kept.values()), *self._reserved.values()]
            held = sum(one.principal == owner.principal for one in owners)
            if held >= MAX_RETAINED or len(owners) >= MAX_RETAINED_IN_ALL:
                raise ProcessRefused(ProcessCase.REGISTRY_FULL, f"{held} persistent processes are kept")
            self._reserved[made] = owner
        return made

    def fill(self, reserved: str, child: Child, spawn: Spawn) -> Kept:
        """The child that a place was reserved for."""
        with self._lock:
            owner = self._reserved.pop(reserved)
            kept = self._kept[reserved] = Kept(id=reserved, owner=owner, child=child, spawn=spawn)
        return kept

    def forget(self, name: str) -> None:
        """Give a place back, whether anything is in it or not."""
        with self._lock:
            self._reserved.pop(name, None)
            self._kept.pop(name, None)

    def find(self, owner: Owner, name: str) -> Kept:
        """The child with this id, which counts as used now.  ProcessRefused NO_SUCH_PROCESS."""
        kept = self._kept.get(name)
        if kept is None or kept.owner != owner:
            raise ProcessRefused(ProcessCase.NO_SUCH_PROCESS)
        return self.touch(kept)

    def touch(self, kept: Kept) -> Kept:
        """It is used now."""
        kept.touched_at = monotonic()
        return kept

    def watch(self, kept: Kept, suffix: str) -> None:
        """Tell from now on what happens to it, and at once what has happened: no end is missed."""
        is_new, kept.suffix = kept.suffix != suffix, suffix
        if is_new and kept.child.is_over:
            self._note_over(kept.child)

    def of(self, owner: Owner) -> list[Kept]:
        """Those of a capsule and principal, the oldest first."""
        with self._lock:
            return [one for one in self._kept.values() if one.owner == owner]

    def retain(self, principal: str, capsules: Collection[str]) -> None:
        """Of a principal only these capsules are left: the children of others end."""
        with self._lock:
            gone = [
                one
                for one in self._kept.values()
                if one.owner.principal == principal and one.owner.capsule not in capsules
            ]
        for kept in gone:
            kept.reason = SHUT_DOWN
            kept.child.kill()
            self.forget(kept.id)

    def shut_down(self) -> None:
        """The daemon stops: every child ends, of any kind."""
        for kept in tuple(self._kept.values()):
            kept.reason = SHUT_DOWN
        self._children.kill_all()

    def sweep(self, now: float) -> None:
        """End what has lived too long or nobody asks for, and forget what ended a while ago."""
        for kept in tuple(self._kept.values()):
            child, spawn = kept.child, kept.spawn
            if child.ended_at is not None:
                if now - child.ended_at >= spawn.retention_s:
                    self.forget(kept.id)
            elif now - child.started_at >= spawn.lifetime_s or now - kept.touched_at >= spawn.idle_s:
                kept.reason = EXPIRED
                child.interrupt(GRACE_S, signal.SIGTERM)

    def announce(self, kept: Kept, event: str, **details: object) -> None:
        """Tell whoever watches a child."""
        if kept.suffix is not None:
            payload = {"id": kept.id, "label": kept.spawn.label, **details}
            self._publish(kept.owner.principal, f"{EVENTS}.{event}.{kept.suffix}", payload)

    def _note_over(self, child: Child) -> None:
        kept = self._kept_of(child)
        if kept is not None and child.exit is not None:
            code, number = child.exit
            self.announce(kept, "exited", reason=kept.reason, exit_code=code, signal=number)

    def _note_output(self, child: Child) -> None:
        kept = self._kept_of(child)
        if kept is not None:
            self.announce(kept, "log-ready")

    def _kept_of(self, child: Child) -> Kept | None:
        if not child.launch.is_background:
            return None
        return next((one for one in tuple(self._kept.values()) if one.child is child), None)
