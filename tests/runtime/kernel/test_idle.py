"""Instances that nobody calls go, and nobody notices."""

from __future__ import annotations

import pytest

from aos_runtime.kernel.idle import IDLE_PERIOD_S, IdleSweep
from aos_runtime.kernel.loading import Loaded
from tests.support.kernels import ALICE, Bench, Call


def sweep_twice(idle: IdleSweep, start: float = 0.0) -> None:
    idle.sweep(start)
    idle.sweep(start + IDLE_PERIOD_S)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def idle_of(bench: Bench) -> IdleSweep:
    return IdleSweep(bench.kernel.order, lambda: bench.lifecycle.views)


def test_an_instance_goes_after_a_quiet_while_and_comes_back(bench: Bench) -> None:
    bench.capsule("one", subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    idle = idle_of(bench)
    bench.publish("n.v1")
    bench.run()
    idle.sweep(0.0)
    bench.publish("n.v1")
    bench.run()
    idle.sweep(IDLE_PERIOD_S)
    assert [one.closed for one in bench.instances] == [False], "it was called meanwhile"
    idle.sweep(IDLE_PERIOD_S + 1)
    idle.sweep(IDLE_PERIOD_S * 2)
    assert ([one.closed for one in bench.instances], idle.evicted) == ([True], 1)
    bench.publish("n.v1")
    bench.run()
    assert [one.closed for one in bench.instances] == [True, False]


def test_bus_09_a_hundred_calls_right_after_an_eviction_are_all_answered(bench: Bench) -> None:
    seen: list[bytes] = []
    bench.capsule("one", lambda call: seen.append(call.payload), subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    idle = idle_of(bench)
    for round_ in range(5):
        bench.publish("n.v1", b"0")
        bench.run()
        sweep_twice(idle, round_ * 1000.0)
        assert idle.evicted == round_ + 1
        seen.clear()
        for number in range(100):
            bench.publish("n.v1", str(number).encode())
            if number % 50 == 49:
                bench.run()
        bench.run()
        assert seen == [str(number).encode() for number in range(100)]


def test_one_that_is_busy_is_left_alone(bench: Bench) -> None:
    idle = idle_of(bench)

    def guest(call: Call) -> None:
        sweep_twice(idle)
        sweep_twice(idle, 1000.0)

    bench.capsule("one", guest, subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("n.v1")
    bench.run()
    assert ([one.closed for one in bench.instances], idle.evicted) == ([False], 0)


def test_one_whose_handles_outlive_a_call_keeps_its_instance(bench: Bench) -> None:
    loaded = bench.capsule("one", subscribe={"n.v1": "go"})
    assert isinstance(loaded, Loaded)
    loaded.generation.context.keeps_resources = True
    bench.lifecycle.load_all(ALICE)
    bench.publish("n.v1")
    bench.run()
    sweep_twice(idle_of(bench))
    assert [one.closed for one in bench.instances] == [False]
