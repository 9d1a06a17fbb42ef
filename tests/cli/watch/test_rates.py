"""From two readings to rates and quantiles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_cli.watch.rates import compare, quantile

BOUNDS = [1.0, 10.0, 100.0]


def reading(at_s: float, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"monotonic_ns": int(at_s * 1e9), "latency_bounds_us": [1, 10, 100], "capsules": list(rows)}


def row(calls: int, latency: list[int], capsule: str = "a", **more: Any) -> dict[str, Any]:
    return {"principal": "p", "capsule": capsule, "calls": calls, "errors": 0, "latency": latency, **more}


def test_rates_and_latency_of_the_interval() -> None:
    before = reading(10, row(5, [5, 0, 0, 0]))
    (found,) = compare(before, reading(12, row(25, [5, 10, 10, 0], errors=4, memory_bytes=7)))
    assert found.to_json() == {
        "principal": "p",
        "capsule": "a",
        "calls": 25,
        "calls_per_s": 10.0,
        "errors": 4,
        "errors_per_s": 2.0,
        "denied": 0,
        "queue_depth": 0,
        "drops": 0,
        "memory_bytes": 7,
        "p50_us": 10.0,
        "p95_us": 91.0,
        "is_of_interval": True,
    }


def test_an_idle_capsule_shows_its_latency_since_it_was_loaded() -> None:
    still = row(4, [4, 0, 0, 0])
    (found,) = compare(reading(1, still), reading(2, still))
    assert (found.calls_per_s, found.p50_us, found.is_of_interval) == (0.0, 0.5, False)


def test_a_capsule_that_never_ran_has_no_latency() -> None:
    (found,) = compare(reading(1), reading(2, row(0, [0, 0, 0, 0])))
    assert (found.p50_us, found.p95_us, found.memory_bytes) == (None, None, None)


def test_the_busiest_comes_first_and_a_reloaded_one_counts_from_nothing() -> None:
    before = reading(1, row(100, [100, 0, 0, 0]), row(0, [0, 0, 0, 0], "b"))
    found = compare(before, reading(2, row(3, [3, 0, 0, 0]), row(9, [9, 0, 0, 0], "b")))
    assert [(one.capsule, one.calls_per_s) for one in found] == [("b", 9.0), ("a", 0.0)]


@pytest.mark.parametrize(
    ("counts", "part", "value"),
    [
        ([], 0.5, None),
        ([0, 0, 0, 0], 0.5, None),
        ([2, 0, 0, 0], 0.5, 0.5),
        ([1, 1, 0, 0], 0.5, 1.0),
        ([1, 1, 2, 0], 0.75, 55.0),
        ([0, 0, 0, 3], 0.5, 100.0),
    ],
)
def test_quantiles(counts: list[int], part: float, value: float | None) -> None:
    assert quantile(counts, BOUNDS, part) == value


@given(counts=st.lists(st.integers(0, 50), min_size=4, max_size=4), part=st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_its_rank(counts: list[int], part: float) -> None:
    found = quantile(counts, BOUNDS, part)
    if found is None:
        assert sum(counts) == 0
        return
    below = [0.0, *BOUNDS]
    rank, seen = sum(counts) * part, 0
    for place, count in enumerate(counts[:3]):
        if rank <= seen + count:
            assert below[place] <= found <= BOUNDS[place] + 1e-9
            return
        seen += count
    assert found == BOUNDS[-1]
