"""How long a cancelled guest may go on: not at all, but for one that holds what others would lose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aos_runtime.host import GuestTrap, TrapReason
from aos_runtime.host import patience as module
from aos_runtime.host.context import GuestContext
from aos_runtime.host.patience import STOP_GRACE_S, Patience
from tests.support.guests import FakeInflow, Recorder, envelope_from


class Clock:
    """Time that a test turns."""

    interruptions = 0
    now = 100.0

    def pause(self, duration_s: float, is_cut: Callable[[], bool]) -> bool:
        return not is_cut()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "monotonic", lambda: made.now)
    return made


def cancelled(clock: Clock, *, holds: int = 0, **changes: object) -> tuple[Patience, GuestContext]:
    context = Recorder().context(current=envelope_from("a"), **changes)
    for _ in range(holds):
        context.resources.add("process-handle", FakeInflow())
    patience = Patience(clock, context, 300.0)
    patience.begin(None)
    context.cancelled = context.current
    return patience, context


def reason(verdict: GuestTrap | None) -> TrapReason | None:
    return None if verdict is None else verdict.reason


def test_a_cancelled_guest_ends_at_once(clock: Clock) -> None:
    for patience, _ in (
        cancelled(clock),
        cancelled(clock, keeps_resources=True),
        cancelled(clock, holds=1),
        cancelled(clock, holds=1, keeps_resources=True, is_loop=True),
    ):
        assert reason(patience.verdict()) is TrapReason.CANCELLED


def test_one_that_holds_handles_of_other_calls_has_a_moment(clock: Clock) -> None:
    patience, context = cancelled(clock, holds=1, keeps_resources=True)
    clock.now += 10.0  # in a host function, whose wait ended at once
    assert context.is_over()
    assert patience.verdict() is None
    clock.now += STOP_GRACE_S - 0.1
    assert patience.verdict() is None
    clock.now += 0.2
    assert reason(patience.verdict()) is TrapReason.CANCELLED
    patience.begin(None)
    assert patience.verdict() is None, "each call has its own"


def test_a_deadline_spares_nobody(clock: Clock) -> None:
    patience, _ = cancelled(clock, holds=1, keeps_resources=True)
    clock.now += 301.0
    assert reason(patience.verdict()) is TrapReason.DEADLINE
