"""The CPU budget of one principal as a decision: fuel in a window of one second, across its capsules.

Source: daemon-kernel.md 7.  What a call may use is reserved before it starts and settled to what it used, so
that many calls at once cannot use more than the rate.  Time is passed in as seconds of any monotonic clock;
the lock belongs to the caller.
"""

from __future__ import annotations

from enum import Enum

FUEL_WINDOW_S = 1.0


class NoFuel(Enum):
    """Why a call may not start now."""

    EXHAUSTED = "exhausted"
    """The window's budget is used up."""
    RESERVED = "reserved"
    """Calls in progress may still use what is left: it may be free later."""


def fuel_share(rate_per_s: int, in_flight: int, ceiling: int) -> int:
    """What one call may use: a share of the rate, at least 1, at most `ceiling`."""
    return min(ceiling, max(1, rate_per_s // in_flight))


class FuelLedger:
    """Reservations and use in the current window.  A call that spans windows is charged where it ends."""

    __slots__ = ("_rate", "_reserved", "_share", "_started_s", "_used")

    def __init__(self, rate_per_s: int, share: int) -> None:
        self._started_s = float("-inf")
        self._used = 0
        self._reserved = 0
        self.limit(rate_per_s, share)

    def limit(self, rate_per_s: int, share: int) -> None:
        """Hold calls to other numbers from now on; what is reserved stays reserved."""
        self._rate, self._share = rate_per_s, min(share, rate_per_s)

    def reserve(self, now_s: float) -> int | NoFuel:
        """The fuel that a call may use, reserved until `settle`; or why there is none."""
        if now_s - self._started_s >= FUEL_WINDOW_S:
            self._started_s, self._used = now_s, 0
        if self._used >= self._rate:
            return NoFuel.EXHAUSTED
        if self._used + self._reserved + self._share > self._rate:
            return NoFuel.RESERVED
        self._reserved += self._share
        return self._share

    def settle(self, reserved: int, used: int) -> None:
        """A call has ended: `reserved` is what `reserve` gave it."""
        self._reserved = max(0, self._reserved - reserved)
        self._used += used

    def window_ends_in(self, now_s: float) -> float:
        """Seconds until the budget is whole again."""
        return max(0.0, self._started_s + FUEL_WINDOW_S - now_s)
