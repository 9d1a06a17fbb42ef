"""A watcher's queue: what it takes, its bounds, and what it costs the others: nothing."""

from __future__ import annotations

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.kernel.tail import MAX_QUEUED_BYTES, MAX_QUEUED_EVENTS, Tail
from tests.support.kernels import ALICE, Bench, cause


def event(topic: str = "a.b", body: bytes = b"{}", principal: str = ALICE) -> Envelope:
    return msgspec.structs.replace(cause(principal), topic=topic, body=body)


def test_it_takes_what_its_pattern_covers() -> None:
    tail = Tail(pattern="a.*", principal=None)
    assert tail.wants("a.b.c") and not tail.wants("b.a")
    assert Tail(pattern=None, principal=None).wants("anything")


def test_it_takes_its_principals_events_alone() -> None:
    own, all_of_them = Tail(pattern=None, principal=ALICE), Tail(pattern=None, principal=None)
    for tail in (own, all_of_them):
        tail.receive(event(principal="bob"))
    assert own.take() is None
    assert all_of_them.take() is not None


def test_a_full_queue_loses_the_newest_and_counts_them_once() -> None:
    tail = Tail(pattern=None, principal=None)
    for number in range(MAX_QUEUED_EVENTS + 7):
        tail.receive(event(f"t.{number}"))
    first = tail.take()
    assert first is not None and first.topic == "t.0"
    assert (tail.take_lost(), tail.take_lost()) == (7, 0)


def test_the_queue_is_bounded_in_bytes_and_frees_them() -> None:
    tail = Tail(pattern=None, principal=None)
    large = event(body=b"x" * (MAX_QUEUED_BYTES // 4))
    for _ in range(6):
        tail.receive(large)
    assert tail.take_lost() == 2
    assert tail.take() is large
    tail.receive(large)
    assert tail.take_lost() == 0


def test_it_wakes_its_reader_once_for_many() -> None:
    woken: list[int] = []
    tail = Tail(pattern=None, principal=None, wake=lambda: woken.append(1))
    for _ in range(5):
        tail.receive(event())
    assert woken == [1]
    while tail.take() is not None:
        pass
    tail.receive(event())
    assert woken == [1, 1]


def test_nothing_of_a_tail_is_left_on_the_bus_when_it_is_gone() -> None:
    bench = Bench()
    tail = Tail(pattern=None, principal=None)
    bench.kernel.on(tail.wants, tail.receive)
    bench.publish("a.b")
    bench.kernel.off(tail.receive)
    bench.publish("a.b")
    assert tail.take() is not None and tail.take() is None
    assert len(bench.heard) == 2
