"""The ticker relieves what runs too long, does its chores, and wakes from its doze when work starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

from aos_runtime.kernel import ticker as ticker_module
from aos_runtime.kernel.leader import Leader
from aos_runtime.kernel.ticker import Ticker


class FakeLeader:
    def __init__(self) -> None:
        self.dozing = False
        self.on_busy: Callable[[], None] = lambda: None
        self.busy = False
        self.relieved = threading.Semaphore(0)

    def relieve(self) -> bool:
        self.relieved.release()
        return self.busy


def make(leader: FakeLeader, faults: list[Exception]) -> Ticker:
    return Ticker(cast("Leader", leader), on_fault=faults.append)


def test_chores_are_done_and_a_broken_one_does_not_stop_the_others() -> None:
    leader, faults, done = FakeLeader(), [], threading.Event()

    def broken(now: float) -> None:
        raise ValueError("chore")

    ticker = make(leader, faults)
    ticker.every(broken)
    ticker.every(lambda now: done.set())
    ticker.start()
    assert done.wait(5.0)
    ticker.stop()
    assert str(faults[0]) == "chore"


def test_a_batch_that_starts_while_it_dozes_wakes_it(monkeypatch: object) -> None:
    leader, faults = FakeLeader(), list[Exception]()
    ticker = make(leader, faults)
    woken: list[bool] = []
    leader.on_busy()  # the worker asks: `dozing` was set, so it tells
    woken.append(ticker._doze())
    leader.busy = True
    woken.append(ticker._doze())  # or the worker had already started
    assert woken == [True, True]
    assert not leader.dozing
    assert faults == []
    assert ticker_module.DOZE_S < 1.0
