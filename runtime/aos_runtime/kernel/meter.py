"""What is counted for each capsule of a principal.

Counters are written by the one thread that runs the capsule and read by anybody: a reader may be one call
behind, never wrong for good.  What a full queue dropped is counted by the mailbox.
"""

from __future__ import annotations


class Meter:
    """Counters since the capsule was loaded; they survive a reload."""

    __slots__ = ("calls", "denied", "errors")

    def __init__(self) -> None:
        self.calls = 0
        """Handler invocations begun."""
        self.errors = 0
        """Invocations that trapped, ran out of fuel or time, or could not be started."""
        self.denied = 0
        """Invocations that the capsule answered with deny or abort."""

    def to_json(self) -> dict[str, int]:
        return {"calls": self.calls, "errors": self.errors, "denied": self.denied}
