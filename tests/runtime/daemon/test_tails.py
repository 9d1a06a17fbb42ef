"""From the queues of tails to clients: bounded rounds, clients that do not read, and ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aos_runtime.bus.envelope import Envelope
from aos_runtime.daemon.tails import MAX_TAILS_PER_CLIENT, PATIENCE_S, ROUND_EVENTS, Live, Tails
from aos_runtime.kernel.tail import MAX_QUEUED_EVENTS, Tail
from aos_runtime.wire.methods import WORKING_PERIOD_S
from tests.support.kernels import Bench


class Reader:
    """A client; `is_busy` while it does not read."""

    def __init__(self, owner: str = "o1") -> None:
        self.owner = owner
        self.is_busy = False
        self.got: list[Any] = []
        self.patience_s = 0.0

    def be_patient(self, patience_s: float) -> None:
        self.patience_s = patience_s

    def send(self, body: bytes) -> None:
        self.got.append(json.loads(body))

    def statuses(self) -> list[str]:
        return [reply["status"] for reply in self.got]


class Watch:
    """Tails whose thread never starts: the test turns the rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aos_runtime.daemon.tails.threading.Thread.start", lambda self: None)
        self.now = 0.0
        self.bench = Bench()
        self.faults: list[Exception] = []
        self.tails = Tails(self.bench.kernel, on_fault=self.faults.append, clock=lambda: self.now)

    def live(self, reader: Reader, corr: str = "c1", left: int | None = None, render: Any = None) -> Live:
        return Live(
            tail=Tail(pattern="t.*", principal=None),
            watcher=reader,
            corr=corr,
            render=render or (lambda envelope, targets: {"topic": envelope.topic}),
            left=left,
            working_at=WORKING_PERIOD_S,
        )


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_events_come_in_order_and_a_limit_ends_it(watch: Watch) -> None:
    reader = Reader()
    assert watch.tails.start(watch.live(reader, left=2)) is None
    for number in range(4):
        watch.bench.publish(f"t.{number}")
    watch.tails.round()
    assert reader.got == [
        {"status": "Tailing", "data": {"corr": "c1"}},
        {"status": "Event", "data": {"topic": "t.0"}},
        {"status": "Event", "data": {"topic": "t.1"}},
        {"status": "Success", "data": {"sent": 2, "dropped": 0}},
    ]
    watch.bench.publish("t.9")
    watch.tails.round()
    assert len(reader.got) == 4


def test_one_that_does_not_read_loses_events_with_a_count_and_holds_up_nobody(watch: Watch) -> None:
    slow, quick = Reader("slow"), Reader("quick")
    slow.is_busy = True
    watch.tails.start(watch.live(slow))
    watch.tails.start(watch.live(quick))
    for number in range(MAX_QUEUED_EVENTS + 5):
        watch.bench.publish(f"t.{number}")
        watch.tails.round()
    assert slow.statuses() == ["Tailing"]
    assert slow.patience_s == PATIENCE_S, "it may read later: what waits for it is bounded"
    assert quick.statuses().count("Event") == MAX_QUEUED_EVENTS + 5
    slow.is_busy = False
    while watch.tails.round():
        pass
    assert slow.statuses().count("Event") == MAX_QUEUED_EVENTS
    assert {"status": "Dropped", "data": {"count": 5}} in slow.got
    watch.tails.stop("slow", "c1")
    assert slow.got[-1] == {"status": "Success", "data": {"sent": MAX_QUEUED_EVENTS, "dropped": 5}}


def test_a_round_is_bounded(watch: Watch) -> None:
    reader = Reader()
    watch.tails.start(watch.live(reader))
    for _ in range(ROUND_EVENTS * 2):
        watch.bench.publish("t.x")
    assert watch.tails.round()
    assert reader.statuses().count("Event") == ROUND_EVENTS


def test_a_silent_bus_says_that_the_daemon_lives(watch: Watch) -> None:
    reader = Reader()
    watch.tails.start(watch.live(reader))
    watch.now = WORKING_PERIOD_S
    watch.tails.round()
    watch.tails.round()
    assert reader.statuses() == ["Tailing", "Working"]


def test_a_client_that_left_is_sent_nothing(watch: Watch) -> None:
    reader = Reader()
    watch.tails.start(watch.live(reader))
    watch.tails.start(watch.live(reader, "c2"))
    assert watch.tails.stop("o1", None)
    assert not watch.tails.stop("o1", None)
    watch.bench.publish("t.x")
    watch.tails.round()
    assert reader.statuses() == ["Tailing", "Tailing"]


def test_only_so_many_a_client(watch: Watch) -> None:
    reader = Reader()
    started = [watch.tails.start(watch.live(reader, f"c{n}")) for n in range(MAX_TAILS_PER_CLIENT + 1)]
    assert started == [None] * MAX_TAILS_PER_CLIENT + ["too many tails (4 a client, 16 in all)"]


def test_what_breaks_while_it_is_rendered_ends_that_tail_alone(watch: Watch) -> None:
    def broken(envelope: Envelope, targets: tuple[str, ...]) -> dict[str, object]:
        raise KeyError("bug")

    bad, good = Reader("bad"), Reader("good")
    watch.tails.start(watch.live(bad, render=broken))
    watch.tails.start(watch.live(good))
    watch.bench.publish("t.x")
    watch.tails.round()
    assert [type(fault) for fault in watch.faults] == [KeyError]
    assert bad.statuses() == ["Tailing", "Success"]
    assert good.statuses() == ["Tailing", "Event"]
