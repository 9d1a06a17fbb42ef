"""Fuel in a window: shares are reserved, use is settled, and no order of calls uses more than the rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.fuel import FuelLedger, NoFuel, fuel_share


def test_the_share_of_one_call() -> None:
    assert fuel_share(2_000_000_000, 4, 10_000_000_000) == 500_000_000
    assert fuel_share(100_000_000_000, 1, 10_000_000_000) == 10_000_000_000
    assert fuel_share(2, 64, 10) == 1


def test_calls_at_once_share_the_rate() -> None:
    ledger = FuelLedger(100, 40)
    assert [ledger.reserve(0.0) for _ in range(3)] == [40, 40, NoFuel.RESERVED]
    ledger.settle(40, 10)
    assert ledger.reserve(0.1) == 40


def test_a_used_up_window_lets_nobody_in_until_the_next() -> None:
    ledger = FuelLedger(100, 100)
    assert ledger.reserve(5.0) == 100
    ledger.settle(100, 100)
    assert ledger.reserve(5.5) is NoFuel.EXHAUSTED
    assert ledger.window_ends_in(5.5) == 0.5
    assert ledger.reserve(6.0) == 100


def test_before_the_first_call_the_budget_is_whole() -> None:
    ledger = FuelLedger(100, 100)
    assert ledger.window_ends_in(0.0) == 0.0
    ledger.reserve(0.0)
    assert (ledger.window_ends_in(0.25), ledger.window_ends_in(2.0)) == (0.75, 0.0)


def test_a_share_that_just_fits_is_given_and_no_settlement_gives_more_than_was_reserved() -> None:
    ledger = FuelLedger(100, 50)
    assert [ledger.reserve(0.0), ledger.reserve(0.0), ledger.reserve(0.0)] == [50, 50, NoFuel.RESERVED]
    ledger.settle(50, 50)
    ledger.settle(500, 0)
    assert [ledger.reserve(0.0), ledger.reserve(0.0)] == [50, NoFuel.RESERVED]


def test_a_call_that_spans_windows_is_charged_where_it_ends() -> None:
    ledger = FuelLedger(100, 60)
    ledger.reserve(0.0)
    assert ledger.reserve(1.5) is NoFuel.RESERVED
    ledger.settle(60, 60)
    assert ledger.reserve(1.6) is NoFuel.RESERVED
    assert ledger.reserve(2.5) == 60


def test_other_limits_hold_from_the_next_call_on() -> None:
    ledger = FuelLedger(100, 50)
    ledger.limit(10, 50)
    assert ledger.reserve(0.0) == 10


@given(st.lists(st.tuples(st.sampled_from(["reserve", "settle"]), st.integers(0, 25)), max_size=60))
def test_no_more_than_the_rate_is_ever_used_in_a_window(steps: list[tuple[str, int]]) -> None:
    ledger, open_calls, used = FuelLedger(100, 25), [], 0
    for what, amount in steps:
        if what == "reserve":
            got = ledger.reserve(0.0)
            if isinstance(got, int):
                open_calls.append(got)
        elif open_calls:
            given_fuel = open_calls.pop()
            ledger.settle(given_fuel, min(amount, given_fuel))
            used += min(amount, given_fuel)
        assert used + sum(open_calls) <= 100
