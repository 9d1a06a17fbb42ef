"""How long handlers take, in fixed buckets, and what `top` is told."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aos_runtime.kernel import actor
from aos_runtime.kernel.gauges import gauges
from aos_runtime.kernel.meter import LATENCY_BOUNDS_NS
from aos_runtime.names import CapsuleName
from tests.support.kernels import ALICE, Bench


@pytest.mark.parametrize(
    ("duration_ns", "bucket"), [(0, 0), (1_000, 0), (1_001, 1), (2_500, 2), (10**15, len(LATENCY_BOUNDS_NS))]
)
def test_each_duration_has_one_bucket(duration_ns: int, bucket: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([5, 5 + duration_ns])
    monkeypatch.setattr(actor, "perf_counter_ns", lambda: next(clock))
    bench = Bench()
    bench.capsule("a", subscribe={"t.x": "go"})
    meter = bench.lifecycle.load_all(ALICE).residents[CapsuleName("a")].actor.meter
    bench.publish("t.x")
    bench.run()
    assert meter.latency == [int(place == bucket) for place in range(len(LATENCY_BOUNDS_NS) + 1)]


def test_the_bounds_rise() -> None:
    assert list(LATENCY_BOUNDS_NS) == sorted(set(LATENCY_BOUNDS_NS))


def test_the_gauges_of_a_capsule() -> None:
    bench = Bench()
    bench.capsule("a", subscribe={"t.x": "go"})
    bench.capsule("b", subscribe={"t.y": "go"})
    view = bench.lifecycle.load_all(ALICE)
    for _ in range(3):
        bench.publish("t.x")
    bench.run()
    reading = gauges([view], {"pid": 7}, 42)
    first, second = cast("list[dict[str, Any]]", reading["capsules"])
    assert sum(first.pop("latency")) == 3
    assert first == {
        "principal": "alice",
        "capsule": "a",
        "calls": 3,
        "errors": 0,
        "denied": 0,
        "is_busy": False,
        "queue_depth": 0,
        "queue_peak": 3,
        "drops": 0,
        "memory_bytes": 65536,
        "handles": 0,
        "handles_leaked": 0,
    }
    assert (second["capsule"], second["calls"], second["memory_bytes"]) == ("b", 0, None)
    assert (reading["process"], reading["monotonic_ns"]) == ({"pid": 7}, 42)
    assert reading["latency_bounds_us"] == [bound // 1000 for bound in LATENCY_BOUNDS_NS]
