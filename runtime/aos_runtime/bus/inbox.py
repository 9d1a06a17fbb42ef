"""What waits for one subscription: a first-in-first-out queue per principal under one budget of bytes.

Source: daemon-kernel.md 3.4 (routes).  Principals take turns, a message each, within rounds of a deficit
round robin: in a round each gets at most a quantum of bytes, so neither many small nor few large messages of
one can hold another's back.  An overflow evicts the oldest message of the principal that holds most, so a
flood displaces itself.  This room has no lock: every call is made under the kernel's order lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

ROUTE_BUDGET_BYTES = 1024 * 1024
MIN_QUANTUM_BYTES = 4 * 1024
MAX_PRINCIPAL_MESSAGES = 16_384

Message = TypeVar("Message")


class Scope(Struct, frozen=True):
    """Whose messages a subscription receives: one principal's, and the system's where `with_system`."""

    principal: str | None
    with_system: bool

    def admits(self, principal: str | None) -> bool:
        """Whether a message of `principal` (None: the system's) is for this subscription."""
        return self.with_system if principal is None else principal == self.principal


class Admission(Enum):
    """What became of a message that was offered."""

    TAKEN = "taken"
    TOO_LARGE = "too-large"
    """It alone is larger than the budget; nothing was evicted for it."""


class _Lane(Generic[Message]):
    """One principal's queue: (size, message), its bytes, and what it may still take in this round."""

    __slots__ = ("deficit_bytes", "queue", "used_bytes")

    deficit_bytes: int

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Message]] = deque()
        self.used_bytes = 0


class Inbox(Generic[Message]):
    """The queues of one subscription.

    `evicted` counts messages lost to a newer one, `rejected` those larger than the whole budget.
    """

    __slots__ = ("_lanes", "_turns", "budget_bytes", "evicted", "rejected", "used_bytes")

    def __init__(self, budget_bytes: int = ROUTE_BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.evicted = 0
        self.rejected = 0
        self._lanes: dict[str | None, _Lane[Message]] = {}
        self._turns: deque[str | None] = deque()
        """The principals that have messages, whose turn is next first."""

    def __len__(self) -> int:
        return sum(len(lane.queue) for lane in self._lanes.values())

    @property
    def active_principals(self) -> int:
        return len(self._lanes)

    @property
    def quantum_bytes(self) -> int:
        """What one principal may take in a round."""
        return max(MIN_QUANTUM_BYTES, self.budget_bytes // max(1, len(self._lanes)))

    def offer(self, principal: str | None, size_bytes: int, message: Message) -> Admission:
        """Queue one message of `principal`, evicting older ones where it does not fit beside them."""
        if size_bytes > self.budget_bytes:
            self.rejected += 1
            return Admission.TOO_LARGE
        lane = self._lanes.get(principal)
        if lane is not None and len(lane.queue) >= MAX_PRINCIPAL_MESSAGES:
            self._evict(principal, lane)
        while self.used_bytes + size_bytes > self.budget_bytes:
            fullest = max(self._lanes, key=lambda one: self._lanes[one].used_bytes)
            self._evict(fullest, self._lanes[fullest])
        lane = self._lanes.get(principal)
        if lane is None:
            lane = self._lanes[principal] = _Lane()
            lane.deficit_bytes = self.quantum_bytes
            self._turns.append(principal)
        lane.queue.append((size_bytes, message))
        lane.used_bytes += size_bytes
        self.used_bytes += size_bytes
        return Admission.TAKEN

    def take(self) -> Message | None:
        """The next message by the rule of this module; None where nothing waits."""
        turns = self._turns
        while turns:
            for _ in range(len(turns)):
                principal = turns[0]
                lane = self._lanes[principal]
                turns.rotate(-1)
                if lane.queue[0][0] <= lane.deficit_bytes:
                    return self._pop(principal, lane)
            quantum = self.quantum_bytes
            for lane in self._lanes.values():
                lane.deficit_bytes += quantum
        return None

    def remove(self, is_meant: Callable[[Message], bool]) -> int:
        """Forget what is meant, wherever it waits; how many messages that were."""
        removed = 0
        for principal, lane in tuple(self._lanes.items()):
            meant = [pair for pair in lane.queue if is_meant(pair[1])]
            for pair in meant:
                lane.queue.remove(pair)
                self._free(principal, lane, pair[0])
            removed += len(meant)
        return removed

    def drain(self) -> list[Message]:
        """Everything that waits, each principal's in order; the inbox is empty afterwards."""
        left = [message for lane in self._lanes.values() for _, message in lane.queue]
        self._lanes.clear()
        self._turns.clear()
        self.used_bytes = 0
        return left

    def _pop(self, principal: str | None, lane: _Lane[Message]) -> Message:
        size_bytes, message = lane.queue.popleft()
        lane.deficit_bytes -= size_bytes
        self._free(principal, lane, size_bytes)
        return message

    def _evict(self, principal: str | None, lane: _Lane[Message]) -> None:
        size_bytes, _ = lane.queue.popleft()
        self.evicted += 1
        self._free(principal, lane, size_bytes)

    def _free(self, principal: str | None, lane: _Lane[Message], size_bytes: int) -> None:
        lane.used_bytes -= size_bytes
        self.used_bytes -= size_bytes
        if not lane.queue:
            del self._lanes[principal]
            self._turns.remove(principal)
