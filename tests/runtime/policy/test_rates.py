from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.rates import (
    DEFAULT_BYTES_PER_S,
    MAX_SINGLE_BYTES,
    MAX_TRACKED,
    RequestRates,
    Throughput,
)

TEXT = "Rate limited: max 2 ReloadCapsule requests per minute"


def test_a_window_slides() -> None:
    rates = RequestRates()
    given_at = [0.0, 30.0, 59.9, 60.0, 61.0, 90.0]
    answers = [rates.charge("bob", "ReloadCapsule", 2, now) for now in given_at]
    assert answers == [None, None, TEXT, None, TEXT, None]


def test_the_published_limits() -> None:
    assert (MAX_SINGLE_BYTES, DEFAULT_BYTES_PER_S, MAX_TRACKED) == (5_242_880, 10_485_760, 4096)


def test_another_rate_holds_from_now_on() -> None:
    throughput = Throughput(bytes_per_s=100)
    assert throughput.charge(100, 5.0)
    throughput.limit(150)
    assert [throughput.charge(51, 5.5), throughput.charge(50, 5.5)] == [False, True]


def test_no_limit_is_no_limit() -> None:
    rates = RequestRates()
    assert {rates.charge("bob", "GetStatus", None, 0.0) for _ in range(1000)} == {None}


def test_bus_22_a_flood_of_one_caller_does_not_touch_another() -> None:
    """The limit is per principal and method; an administrator is still served."""
    rates = RequestRates()
    flood = [rates.charge("bob", "ReloadCapsule", 2, 1.0) for _ in range(100)]
    assert flood == [None, None] + [TEXT] * 98
    assert rates.charge("admin", "Shutdown", 1, 1.0) is None
    assert rates.charge("admin", "ReloadCapsule", 2, 1.0) is None
    assert rates.charge("bob", "InstallCapsule", 10, 1.0) is None


@given(st.lists(st.floats(0.0, 10.0), max_size=40), st.integers(1, 5))
def test_never_more_than_the_limit_in_any_minute(gaps: list[float], limit: int) -> None:
    rates, now, served = RequestRates(), 0.0, []
    for gap in gaps:
        now += gap
        if rates.charge("bob", "M", limit, now) is None:
            served.append(now)
    assert all(late - early >= 60.0 for early, late in zip(served, served[limit:], strict=False))


def test_what_is_tracked_is_bounded_and_keeps_the_living() -> None:
    rates = RequestRates()
    for number in range(MAX_TRACKED):
        rates.charge(f"p{number}", "M", 1, 0.0)
    assert rates.charge("p0", "M", 1, 1.0) is not None
    rates.charge("late", "M", 1, 1.0)
    assert len(rates._charged) == MAX_TRACKED
    assert rates.charge(f"p{MAX_TRACKED - 1}", "M", 1, 1.0) is not None
    rates.charge("later", "M", 1, 60.5)
    assert set(rates._charged) == {("late", "M"), ("later", "M")}


def test_throughput_is_counted_by_the_second() -> None:
    throughput = Throughput(bytes_per_s=100)
    assert [throughput.charge(60, 0.0), throughput.charge(60, 0.5), throughput.charge(40, 0.9)] == [
        True,
        False,
        True,
    ]
    assert throughput.charge(100, 1.0)
    assert not throughput.charge(1, 1.9)


def test_one_payload_has_a_limit_of_its_own() -> None:
    throughput = Throughput()
    assert not throughput.charge(MAX_SINGLE_BYTES + 1, 0.0)
    assert throughput.charge(MAX_SINGLE_BYTES, 0.0)
    assert throughput.charge(MAX_SINGLE_BYTES, 0.0)
    assert not throughput.charge(1, 0.0)
