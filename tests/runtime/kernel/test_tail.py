"""A watcher's queue: what it takes, its bounds, and what it costs the others: nothing."""

from __future__ import annotations

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.kernel.tail import MAX_QUEUED_BYTES, MAX_QUEUED_EVENTS, Tail
from tests.support.kernels import ALICE, Bench, Call, cause


def event(topic: str = "a.b", body: bytes = b"{}", principal: str = ALICE) -> Envelope:
    return msgspec.structs.replace(cause(principal), topic=topic, body=body)


def topics(tail: Tail) -> list[str]:
    found = []
    while (seen := tail.take()) is not None:
        found.append(seen[0].topic)
    return found


def test_it_takes_what_its_pattern_covers() -> None:
    tail, every = Tail(pattern="a.*", principal=None), Tail(pattern=None, principal=None)
    for one in (tail, every):
        for topic in ("a.b.c", "b.a", "a.b.c"):
            one.see(event(topic), ("x",))
    assert [topics(tail), topics(every)] == [["a.b.c", "a.b.c"], ["a.b.c", "b.a", "a.b.c"]]


def test_it_takes_its_principals_events_alone() -> None:
    own, all_of_them = Tail(pattern=None, principal=ALICE), Tail(pattern=None, principal=None)
    for tail in (own, all_of_them):
        tail.see(event(principal="bob"), ())
    assert own.take() is None
    assert all_of_them.take() is not None


def test_a_full_queue_loses_the_newest_and_counts_them_once() -> None:
    tail = Tail(pattern=None, principal=None)
    for number in range(MAX_QUEUED_EVENTS + 7):
        tail.see(event(f"t.{number}"), ())
    first = tail.take()
    assert first is not None and first[0].topic == "t.0"
    assert (tail.take_lost(), tail.take_lost()) == (7, 0)


def test_the_queue_is_bounded_in_bytes_and_frees_them() -> None:
    tail = Tail(pattern=None, principal=None)
    large = event(body=b"x" * (MAX_QUEUED_BYTES // 4))
    for _ in range(6):
        tail.see(large, ())
    assert tail.take_lost() == 2
    assert tail.take() == (large, ())
    tail.see(large, ())
    assert tail.take_lost() == 0


def test_it_wakes_its_reader_once_for_many() -> None:
    woken: list[int] = []
    tail = Tail(pattern=None, principal=None, wake=lambda: woken.append(1))
    for _ in range(5):
        tail.see(event(), ())
    assert woken == [1]
    while tail.take() is not None:
        pass
    tail.see(event(), ())
    assert woken == [1, 1]


def test_nothing_of_a_tail_is_left_on_the_bus_when_it_is_gone() -> None:
    bench = Bench()
    tail = Tail(pattern=None, principal=None)
    bench.kernel.trace.watch(tail.see)
    bench.publish("a.b")
    bench.kernel.trace.unwatch(tail.see)
    bench.publish("a.b")
    assert tail.take() is not None and tail.take() is None
    assert len(bench.heard) == 2


def test_it_knows_who_received_a_message_also_when_that_subscription_is_gone() -> None:
    bench, tail = Bench(), Tail(pattern="a.*", principal=None)
    bench.kernel.trace.watch(tail.see)

    def listen(call: Call) -> None:
        if call.action == "never":
            return
        subscription = call.listen("a.v1.answer")
        assert not isinstance(subscription, str)
        bench.publish("a.v1.answer")
        subscription.close()

    bench.capsule("asker", listen, subscribe={"go.v1": "go", "a.*": "never"})
    bench.capsule("handler", subscribe={"a.v1.*": "hear"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("go.v1")
    bench.run()
    bench.kernel.submit(event("a.v1.answer"))
    seen = [tail.take(), tail.take(), tail.take()]
    assert [one and (one[0].topic, one[1]) for one in seen] == [
        ("a.v1.answer", ("handler", "asker")),
        ("a.v1.answer", ("handler",)),
        None,
    ]
    assert seen[0] and seen[1] and seen[0][0].seq < seen[1][0].seq
