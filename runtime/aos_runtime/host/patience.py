"""How long one instance's running call may go on: its deadline, its cancellation, and its sleeps.

Asked at every tick of the engine's clock, on the thread that is inside the guest.  It decides and waits; it
touches neither the guest nor its store.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from aos_runtime.host.context import GuestContext
from aos_runtime.host.traps import GuestTrap, TrapReason

STOP_GRACE_S = 0.5
"""What a run loop that is asked to stop has left to return by itself, and a guest whose call is cancelled
while it holds what outlives its calls: it would be lost with the instance.
"""


class Clock(Protocol):
    """The part of the engine that is needed here."""

    @property
    def interruptions(self) -> int: ...

    def pause(self, duration_s: float, is_cut: Callable[[], bool]) -> bool: ...


class Patience:
    """One instance's; `begin` starts a call."""

    __slots__ = (
        "_clock",
        "_context",
        "_ends",
        "_has_grace",
        "_interruptions",
        "_spared_until",
        "_timeout_s",
        "is_stopping",
    )

    def __init__(self, clock: Clock, context: GuestContext, timeout_s: float) -> None:
        self._clock = clock
        self._context = context
        self._timeout_s = timeout_s
        self._has_grace = False
        self.is_stopping: Callable[[], bool] | None = None
        """Asked of a run loop: once true, it has `STOP_GRACE_S` left, whatever it does."""
        if context.sleep is None:
            context.sleep = self.sleep
        context.is_over = self.is_over
        self.begin(None)

    def begin(self, timeout_s: float | None) -> None:
        """A call begins that may take `timeout_s` seconds, None: as long as any."""
        self._interruptions = self._clock.interruptions
        self._spared_until: float | None = None
        self._ends = monotonic() + (self._timeout_s if timeout_s is None else timeout_s)

    def renew(self, timeout_s: float) -> None:
        """The running call may take so much longer from now on; what interrupts it still does."""
        self._ends = monotonic() + timeout_s

    def verdict(self) -> GuestTrap | None:
        """Why the running call must end now, None where it may go on."""
        if self._context.is_cancelled and not self._is_spared():
            return GuestTrap(TrapReason.CANCELLED, "its call was cancelled")
        if not self._has_grace and self._is_stopping():
            self._ends = min(self._ends, monotonic() + STOP_GRACE_S)
            self._has_grace = True
        if self._clock.interruptions != self._interruptions or monotonic() >= self._ends:
            if self._has_grace:
                return GuestTrap(TrapReason.CANCELLED, "it went on after it was told to stop")
            return GuestTrap(TrapReason.DEADLINE, "it ran longer than one call may")
        return None

    def sleep(self, duration_s: float) -> bool:
        """Wait inside the call, no longer than it may take; False when it was cut short.

        A run loop may wait as long as it likes: it renews its deadline afterwards.
        """
        left_s = duration_s if self._context.is_loop else max(0.0, self._ends - monotonic())
        return self._clock.pause(min(duration_s, left_s), self._is_cut) and duration_s <= left_s

    def is_over(self) -> bool:
        """Whether a wait inside the call must come back now.

        As for `sleep`, a run loop's window does not end its waits; that it is being stopped does.
        """
        if self._is_cut() or self._is_stopping():
            return True
        return not self._context.is_loop and monotonic() >= self._ends

    def _is_spared(self) -> bool:
        """Whether a cancelled guest may still come back by itself; its waits end at once either way."""
        context = self._context
        if context.is_loop or not context.keeps_resources or not context.resources.live:
            return False
        if self._spared_until is None:
            self._spared_until = monotonic() + STOP_GRACE_S
        return monotonic() < self._spared_until

    def _is_stopping(self) -> bool:
        return self.is_stopping is not None and self.is_stopping()

    def _is_cut(self) -> bool:
        return self._context.is_cancelled or self._clock.interruptions != self._interruptions
