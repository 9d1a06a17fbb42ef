"""Waiting for a socket: until it is ready, the time is up, or the call that waits must come back."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic

from aos_runtime.network.faults import Fault, NetworkFault

SLICE_S = 0.02
"""How long a wait goes on before it asks whether it may."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One allowance of time: until `ends` (`monotonic`), and no longer than `is_over` is false."""

    ends: float
    is_over: Callable[[], bool] = _never

    @classmethod
    def of(cls, seconds: float, is_over: Callable[[], bool] = _never) -> Wait:
        return cls(ends=monotonic() + seconds, is_over=is_over)

    def at_most(self, seconds: float) -> Wait:
        """This wait, or `seconds` from now if that is sooner."""
        return replace(self, ends=min(self.ends, monotonic() + seconds))

    def left_s(self) -> float:
        return max(0.0, self.ends - monotonic())

    def check(self) -> None:
        """NetworkFault TIMEOUT or CUT where nothing may be waited for any more."""
        if self.is_over():
            raise NetworkFault(Fault.CUT, "the wait was cut short")
        if monotonic() >= self.ends:
            raise NetworkFault(Fault.TIMEOUT, "the time is up")

    def for_socket(self, descriptor: int, events: int) -> None:
        """Return once the descriptor is ready for `events` (of `select.poll`); faults as `check`."""
        poller = select.poll()
        poller.register(descriptor, events)
        while not poller.poll(min(SLICE_S, self.left_s()) * 1000):
            self.check()
