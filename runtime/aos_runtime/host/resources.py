"""The resources that one instance holds: a bounded table from the guest's handles to host objects.

A handle is a small number that means nothing outside of its instance, so a guest can name what it was given
and nothing else.  `own` and `borrow` of the canonical ABI are both such numbers: a borrowed one is looked up
(`get`), an owned one that the guest passes away is taken out (`take`), one that it drops is closed.  A call
never runs two guests at once, so a borrow needs no release and cannot be forgotten (case CMP-21).

Every object is closed exactly once: when the guest drops it, when the table is cleared (after each hook of a
capsule whose handles do not outlive a call, and with the instance), never later.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from aos_runtime.host.door import AbiViolation

MAX_HANDLES = 1024
"""Live handles of one instance, of all kinds; each interface has its own, lower limits beside it."""


class Resource(Protocol):
    """What a handle stands for."""

    def close(self) -> None:
        """Free it; called once."""
        ...


class ResourceTable:
    """Handles of one instance.  `opened` and `closed` count over its life; `live` is their difference."""

    __slots__ = ("_entries", "_free", "_next", "closed", "leaked", "limit", "opened")

    def __init__(self, limit: int = MAX_HANDLES) -> None:
        self.limit = limit
        self.opened = 0
        self.closed = 0
        self.leaked = 0
        """Closed because a hook ended whose guest had not dropped them."""
        self._entries: dict[int, tuple[str, Resource]] = {}
        self._free: deque[int] = deque()
        """Handles given back, the longest unused first: one that was just dropped is not soon another."""
        self._next = 1

    @property
    def live(self) -> int:
        return len(self._entries)

    def count(self, kind: str) -> int:
        """How many live handles stand for a resource of `kind` (its WIT name)."""
        return sum(1 for other, _ in self._entries.values() if other == kind)

    def add(self, kind: str, resource: Resource) -> int | None:
        """A new owned handle; None where the table is full, and `resource` stays the caller's to close."""
        if len(self._entries) >= self.limit:
            return None
        if len(self._free) >= self.limit // 2 or (self._free and self._next > self.limit):
            handle = self._free.popleft()
        else:
            handle, self._next = self._next, self._next + 1
        self._entries[handle] = (kind, resource)
        self.opened += 1
        return handle

    def kind_of(self, handle: int) -> str:
        """The WIT name of what a live handle stands for.  KeyError where there is none."""
        return self._entries[handle][0]

    def get(self, kind: str, handle: int) -> Resource | None:
        """What a borrowed handle stands for; None where the guest has no such handle any more.

        AbiViolation where it is of another kind, which only a guest that lies can say.
        """
        entry = self._entries.get(handle)
        if entry is None:
            return None
        if entry[0] != kind:
            raise AbiViolation(f"the guest passed a handle of a {entry[0]} for a {kind}")
        return entry[1]

    def take(self, kind: str, handle: int) -> Resource | None:
        """What an owned handle stands for, which is the caller's from now on; None and AbiViolation as in
        `get`.
        """
        resource = self.get(kind, handle)
        if resource is not None:
            self._forget(handle)
        return resource

    def drop(self, kind: str, handle: int) -> None:
        """The guest lets go of a handle.  One that was cleared before is ignored."""
        resource = self.take(kind, handle)
        if resource is not None:
            resource.close()

    def sweep(self) -> None:
        """A hook has ended: close what its guest has not dropped, and count that."""
        self.leaked += len(self._entries)
        self.clear()

    def clear(self) -> None:
        """Close everything that is left."""
        while self._entries:
            handle, (_, resource) = next(iter(self._entries.items()))
            self._forget(handle)
            resource.close()

    def _forget(self, handle: int) -> None:
        del self._entries[handle]
        self._free.append(handle)
        self.closed += 1
