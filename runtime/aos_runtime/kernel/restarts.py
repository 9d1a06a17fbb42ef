"""How often a run loop that fails is started again, and after how long: a decision, with no clock.

Source: daemon-kernel.md 6.8; case CMP-13.  Two seconds, doubled each time, up to two minutes; after the fifth
restart has failed as well, never.  Only an observed recovery clears the count: a loop that came back and
stayed up, not one that merely came back.
"""

from __future__ import annotations

MAX_RESTARTS = 5
FIRST_DELAY_S = 2.0
MAX_DELAY_S = 120.0
RECOVERED_AFTER_S = 60.0
"""A loop that has been up for this long has recovered."""


class Restarts:
    """The record of one loop.  `count` is the number of restarts since it was last known to be well."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def failed(self, up_s: float) -> float | None:
        """It ended after having been ready for `up_s` seconds: the seconds until the next start, or None."""
        if up_s >= RECOVERED_AFTER_S:
            self.count = 0
        if self.count >= MAX_RESTARTS:
            return None
        self.count += 1
        return min(FIRST_DELAY_S * 2.0 ** (self.count - 1), MAX_DELAY_S)
