"""The queue of one (capsule, principal) and who must run it, as a decision.

Source: seed tools-as-an-ipc-convention ("Bus-Level Delivery Mechanics") and rule 1 of the scheduler: a
mailbox is a queue and a busy flag under one lock, and whoever turns it from idle to busy must run it or
pass it on, exactly once. The lock is the kernel's: every call here must be made under it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

MAILBOX_DEPTH = 64

Message = TypeVar("Message")


class Offer(Enum):
    """What became of a message that was offered."""

    QUEUED = "queued"
    """Taken; somebody runs this mailbox already."""
    WOKE = "woke"
    """Taken, and the caller must now run the mailbox or hand it to a thread that does."""
    FULL = "full"
    """Dropped: the queue is full, the newest is lost and counted."""
    CLOSED = "closed"
    """Dropped: the capsule is being unloaded."""


_QUEUED, _WOKE, _FULL, _CLOSED = Offer.QUEUED, Offer.WOKE, Offer.FULL, Offer.CLOSED


class Mailbox(Generic[Message]):
    """First in, first out; one runner at a time.

    `busy` is True from the offer that woke it until `take` finds it empty.  `drops` counts messages lost
    to a full queue, `peak` is the longest queue so far.
    """

    __slots__ = ("_queue", "busy", "closed", "depth", "drops", "peak")

    def __init__(self, depth: int = MAILBOX_DEPTH) -> None:
        self._queue: deque[Message] = deque()
        self.depth = depth
        self.busy = False
        self.closed = False
        self.drops = 0
        self.peak = 0

    def __len__(self) -> int:
        return len(self._queue)

    def has_room(self) -> bool:
        """Whether an offer would be taken now; a client's publish waits until it is."""
        return len(self._queue) < self.depth and not self.closed

    def offer(self, message: Message) -> Offer:
        """Queue a message unless the queue is full or closed.  On WOKE the caller owes a run."""
        queue = self._queue
        waiting = len(queue)
        if self.closed:
            return _CLOSED
        if waiting >= self.depth:
            self.drops += 1
            return _FULL
        queue.append(message)
        if waiting >= self.peak:
            self.peak = waiting + 1
        if self.busy:
            return _QUEUED
        self.busy = True
        return _WOKE

    def take(self) -> Message | None:
        """The oldest message for the one who runs this mailbox; None turns it idle and ends the run."""
        if self._queue:
            return self._queue.popleft()
        self.busy = False
        return None

    def remove(self, is_meant: Callable[[Message], bool]) -> tuple[Message, ...]:
        """Take out what `is_meant` picks, oldest first; the others keep their order."""
        meant = tuple(message for message in self._queue if is_meant(message))
        if meant:
            left = [message for message in self._queue if not any(message is one for one in meant)]
            self._queue.clear()
            self._queue.extend(left)
        return meant

    def close(self) -> tuple[Message, ...]:
        """Take no more; gives back what nobody will run, oldest first.

        A run in progress ends at its next `take`.
        """
        self.closed = True
        left = tuple(self._queue)
        self._queue.clear()
        return left
