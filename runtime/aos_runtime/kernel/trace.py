"""What the kernel did lately: a bounded ring of steps, written on every call, read when somebody asks.

Always on, so that `aos trace last` can tell of a call that nobody meant to look at.  A step is one tuple in
a ring, about 0.3 us with all that belongs to it; nothing is computed for it (`waterfall` does that for the
reader).  Of each payload `KEPT_BODY_BYTES` are kept, so the ring is bounded in bytes as well.  Nothing here
reaches a disk, a log or a client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from time import perf_counter_ns

import msgspec

from aos_runtime.bus.envelope import Envelope

RING_STEPS = 8192
"""About 800 small tool calls."""

KEPT_BODY_BYTES = 1024
"""Of each payload; what is longer is cut, its size is kept."""


class Kind(IntEnum):
    """What a step says; its other fields by kind are in `Recorder`."""

    PUBLISHED = 0
    HANDLED = 1
    CALLED = 2
    REFUSED = 3
    DROPPED = 4
    BEGAN = 5
    ENDED = 6


PUBLISHED, HANDLED, CALLED = Kind.PUBLISHED, Kind.HANDLED, Kind.CALLED

Step = tuple[object, ...]
"""`(kind, perf_counter_ns, seq of the message that it belongs to, ...)`.

A HANDLED, which its actor adds itself, goes on with: end, principal, capsule, action, outcome.
"""


See = Callable[[Envelope, tuple[str, ...]], None]
"""`(message, capsules that it goes to)`: told of each message in its order, under the bus's order lock."""


class Recorder:
    """The ring.  Safe from any thread: an append is one step of the interpreter."""

    __slots__ = ("_ring", "_watchers", "add")

    def __init__(self, steps: int = RING_STEPS) -> None:
        self._ring: deque[Step] = deque(maxlen=steps)
        self._watchers: tuple[See, ...] = ()
        self.add: Callable[[Step], None] = self._ring.append

    def watch(self, see: See) -> None:
        """Let `see` hear of every message from now on; one change of watchers at a time."""
        self._watchers = (*self._watchers, see)

    def unwatch(self, see: See) -> None:
        """The last that `see` hears may still come."""
        self._watchers = tuple(one for one in self._watchers if one != see)

    def published(self, envelope: Envelope, cause_seq: int, targets: tuple[str, ...]) -> None:
        """(order) A message got its place on the bus; `targets` are the capsules that it goes to."""
        for see in self._watchers:
            see(envelope, targets)
        size = len(envelope.body)
        if size > KEPT_BODY_BYTES:
            envelope = msgspec.structs.replace(envelope, body=envelope.body[:KEPT_BODY_BYTES])
        self.add((PUBLISHED, perf_counter_ns(), envelope.seq, cause_seq, envelope, size, targets))

    def called(
        self, started: int, seq: int, principal: str, capsule: str, name: str, refusal: str | None
    ) -> None:
        """A guest called a host function; `refusal` is the case of its error arm."""
        self.add((CALLED, started, seq, perf_counter_ns(), principal, capsule, name, refusal))

    def refused(self, seq: int, principal: str, capsule: str, topic: str, reason: str) -> None:
        """A guest's publish on `topic` was refused."""
        self.add((Kind.REFUSED, perf_counter_ns(), seq, principal, capsule, topic, reason))

    def dropped(self, seq: int, principal: str, capsule: str, topic: str, reason: str) -> None:
        """A message did not reach `capsule`."""
        self.add((Kind.DROPPED, perf_counter_ns(), seq, principal, capsule, topic, reason))

    def began(self, principal: str, call_id: str, tool: str) -> None:
        """A client's tool call came through the door."""
        self.add((Kind.BEGAN, perf_counter_ns(), 0, principal, call_id, tool))

    def ended(self, principal: str, call_id: str, outcome: str) -> None:
        """The door answered it: `ok`, `error`, or why it gave up."""
        self.add((Kind.ENDED, perf_counter_ns(), 0, principal, call_id, outcome))

    def steps(self) -> tuple[Step, ...]:
        """All that is remembered, in the order in which it was written."""
        return tuple(self._ring.copy())
