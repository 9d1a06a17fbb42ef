"""What is counted for each capsule of a principal.

Counters are written by the one thread that runs the capsule and read by anybody: a reader may be one call
behind, never wrong for good.  What a full queue dropped is counted by the mailbox.
"""

from __future__ import annotations

from collections.abc import Iterable

LATENCY_BOUNDS_NS = tuple(
    step * 10**power
    for power in range(3, 11)
    for step in (1, 2, 3, 5, 7)  # 1 us to 70 s
)
"""Upper bounds of the buckets of how long a handler ran, in nanoseconds; one more bucket holds the rest.

A duration belongs to the bucket at `bisect_left`; the actor counts it itself, which is half as dear.
"""

MEMORY_SAMPLE_CALLS = 64
"""The size of a capsule's memory is looked at in every so many calls: its own thread alone may look."""


class Meter:
    """Counters since the capsule was loaded; they survive a reload."""

    __slots__ = ("calls", "denied", "errors", "fuel", "latency", "memory_bytes", "memory_peak_bytes")

    def __init__(self) -> None:
        self.calls = 0
        """Handler invocations begun."""
        self.errors = 0
        """Invocations that trapped, ran out of fuel or time, or could not be started."""
        self.denied = 0
        """Invocations that the capsule answered with deny or abort."""
        self.latency = [0] * (len(LATENCY_BOUNDS_NS) + 1)
        """Invocations that ended, by how long they took (LATENCY_BOUNDS_NS)."""
        self.memory_bytes: int | None = None
        """The guest's memory when it was last looked at."""
        self.memory_peak_bytes = 0
        self.fuel = 0
        """What its calls used."""

    def note_memory(self, size_bytes: int) -> None:
        """The guest's memory was looked at."""
        self.memory_bytes = size_bytes
        self.memory_peak_bytes = max(self.memory_peak_bytes, size_bytes)

    def to_json(self) -> dict[str, int]:
        return {"calls": self.calls, "errors": self.errors, "denied": self.denied}


def use_of(meters: Iterable[Meter]) -> tuple[int, int, int]:
    """Memory now and at most, and fuel, of all of them together."""
    rows = [(one.memory_bytes or 0, one.memory_peak_bytes, one.fuel) for one in meters]
    return sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)
