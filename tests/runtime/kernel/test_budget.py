"""A budget: who is held up, who is denied, in the published words, and what is counted for whom."""

from __future__ import annotations

import threading

import pytest

from aos_runtime.errors import LimitExceeded
from aos_runtime.kernel.budget import Budget
from aos_runtime.policy.quotas import Quotas

RATE = Quotas(
    max_cpu_fuel_per_sec=100, max_in_flight_calls=2, max_ipc_throughput_bytes=1000, max_timeout_secs=10
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def budget_of(clock: Clock, *, is_exempt: bool = False, quotas: Quotas = RATE) -> Budget:
    return Budget("bob", quotas, is_exempt=is_exempt, fuel_ceiling=1000, clock=clock)


def do_nothing() -> None:
    return None


def test_who_is_exempt_is_measured_and_held_to_nothing() -> None:
    budget = budget_of(Clock(), is_exempt=True)
    for _ in range(5):
        assert budget.reserve(0.0, do_nothing) == 1000
    assert all(budget.admit(10**9) for _ in range(3))


def test_a_used_up_rate_denies_at_once() -> None:
    budget = budget_of(Clock(), quotas=Quotas(max_cpu_fuel_per_sec=100, max_in_flight_calls=1))
    budget.settle(budget.reserve(0.0, do_nothing), 100)
    with pytest.raises(LimitExceeded) as raised:
        budget.reserve(60.0, lambda: pytest.fail("it waits"))
    assert raised.value.message == "principal 'bob' exceeded CPU budget of 100 fuel/sec"


def test_a_call_waits_for_what_others_have_reserved() -> None:
    budget, blocked = budget_of(Clock()), threading.Event()
    first = [budget.reserve(0.0, do_nothing) for _ in range(2)]
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(budget.reserve(60.0, blocked.set)))
    waiter.start()
    assert blocked.wait(5)
    budget.settle(first[0], 0)
    waiter.join(5)
    assert got == [50]


def test_the_wait_ends_with_the_time_of_the_call() -> None:
    clock = Clock()
    budget = budget_of(clock)
    for _ in range(2):
        budget.reserve(0.0, do_nothing)
    with pytest.raises(LimitExceeded, match="exceeded CPU budget"):
        budget.reserve(0.0, do_nothing)


def test_time_in_the_queue_is_time_of_the_call() -> None:
    clock = Clock()
    budget = budget_of(clock)
    assert budget.time_left(clock.now - 0.5) == 10.0
    assert budget.time_left(clock.now - 4.0) == 6.0
    with pytest.raises(LimitExceeded) as raised:
        budget.time_left(clock.now - 10.0)
    assert raised.value.message == "invocation deadline expired waiting for capsule instance"


def test_bytes_on_the_bus_are_counted_in_a_second() -> None:
    clock = Clock()
    budget = budget_of(clock)
    assert [budget.admit(600), budget.admit(600), budget.admit(400)] == [True, False, True]
    clock.now += 1.0
    assert budget.admit(1000)


def test_new_limits_hold_at_once_and_an_exemption_leaves_no_reservation_behind() -> None:
    budget = budget_of(Clock())
    held = budget.reserve(0.0, do_nothing)
    budget.limit(RATE, is_exempt=True)
    budget.settle(held, 10)
    budget.limit(RATE, is_exempt=False)
    assert [budget.reserve(0.0, do_nothing) for _ in range(2)] == [50, 50]
