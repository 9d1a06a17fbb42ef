"""The six rules of the sticky leader, each by name, on real threads with a fake source."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from aos_runtime.kernel.leader import Leader

WAIT_S = 5.0


class FakeSource:
    """A source fed by hand: each event is a function that `handle` calls."""

    def __init__(self) -> None:
        self.events: deque[Callable[[], None]] = deque()
        self.wakes = threading.Semaphore(0)
        self.pollers = 0
        self.most_pollers = 0
        self.lock = threading.Lock()

    def push(self, event: Callable[[], None]) -> None:
        self.events.append(event)
        self.wakes.release()

    def poll(self) -> list[tuple[int, int]]:
        with self.lock:
            self.pollers += 1
            self.most_pollers = max(self.most_pollers, self.pollers)
        self.wakes.acquire(timeout=WAIT_S)
        with self.lock:
            self.pollers -= 1
        return [(0, 0)]

    def handle(self, fd: int, events: int) -> None:
        if self.events:
            self.events.popleft()()

    def wake(self) -> None:
        self.wakes.release()


class Steps:
    """A runnable of some functions, run one at a time."""

    def __init__(self, *steps: Callable[[], None]) -> None:
        self.steps = deque(steps)
        self.recovered: list[Exception] = []

    def run_one(self) -> bool:
        self.steps.popleft()()
        return bool(self.steps)

    def recover(self, error: Exception) -> bool:
        self.recovered.append(error)
        return bool(self.steps)


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def leader(source: FakeSource) -> Iterator[Leader]:
    made = Leader(source, slow_s=0.001)
    made.start()
    yield made
    assert made.stop(WAIT_S)


def finish(event: threading.Event) -> None:
    assert event.wait(WAIT_S)


def test_rule_1_a_ready_runnable_runs_exactly_once_per_piece(leader: Leader, source: FakeSource) -> None:
    ran: list[int] = []
    done = threading.Event()
    work = Steps(*(lambda n=n: ran.append(n) for n in range(50)), done.set)  # type: ignore[misc]
    source.push(lambda: leader.ready(work))
    finish(done)
    assert ran == list(range(50))


def test_rule_1_work_from_a_foreign_thread_runs_on_a_worker(leader: Leader) -> None:
    ran_on: list[str] = []
    done = threading.Event()
    leader.ready(Steps(lambda: ran_on.append(threading.current_thread().name), done.set))
    finish(done)
    assert ran_on[0].startswith("aos-worker-")


def test_rule_2_what_a_piece_makes_ready_runs_after_it_on_the_same_thread(
    leader: Leader, source: FakeSource
) -> None:
    order: list[tuple[str, int]] = []
    done = threading.Event()

    def note(what: str) -> None:
        order.append((what, threading.get_ident()))

    def first() -> None:
        note("first begins")
        leader.ready(Steps(lambda: note("second"), done.set))
        note("first ends")

    source.push(lambda: leader.ready(Steps(first)))
    finish(done)
    assert [what for what, _ in order] == ["first begins", "first ends", "second"]
    assert len({thread for _, thread in order}) == 1


def test_rule_2_runnables_take_turns(leader: Leader, source: FakeSource) -> None:
    order: list[str] = []
    done = threading.Event()

    def both() -> None:
        leader.ready(Steps(*[lambda: order.append("a")] * 3))
        leader.ready(Steps(*[lambda: order.append("b")] * 3, done.set))

    source.push(both)
    finish(done)
    assert "".join(order) == "ababab"


def test_rule_3_before_block_gives_the_poller_and_the_ready_work_away(
    leader: Leader, source: FakeSource
) -> None:
    gate, neighbour, client, done = (threading.Event() for _ in range(4))

    def blocks() -> None:
        leader.ready(Steps(neighbour.set))
        leader.before_block()
        finish(gate)
        done.set()

    source.push(lambda: leader.ready(Steps(blocks)))
    finish(neighbour)  # ready work of the blocked thread runs elsewhere
    source.push(client.set)
    finish(client)  # and so does the socket
    assert not done.is_set()
    gate.set()
    finish(done)
    assert source.most_pollers == 1


def test_rule_3_before_block_on_a_foreign_thread_is_nothing(leader: Leader) -> None:
    leader.before_block()
    assert leader.threads <= 1


def test_rule_4_a_slow_batch_loses_the_poller(source: FakeSource) -> None:
    now = 100.0
    leader = Leader(source, slow_s=0.005, clock=lambda: now)
    leader.start()
    started, gate, client = (threading.Event() for _ in range(3))

    def spins() -> None:
        started.set()
        finish(gate)

    source.push(lambda: leader.ready(Steps(spins)))
    finish(started)
    source.push(client.set)
    now += 0.004
    assert leader.relieve()
    assert not client.is_set()
    now += 0.002
    assert leader.relieve()
    finish(client)
    gate.set()
    assert leader.stop(WAIT_S)
    assert source.most_pollers == 1


def test_rule_4_the_clock_starts_with_the_batch_not_with_the_call(source: FakeSource) -> None:
    """A runnable that feeds itself with short pieces is one batch."""
    now = 100.0
    leader = Leader(source, slow_s=0.005, clock=lambda: now)
    leader.start()
    paused, gate, client = (threading.Event() for _ in range(3))

    def step() -> None:
        nonlocal now
        now += 0.001

    def pause() -> None:
        paused.set()
        finish(gate)

    source.push(lambda: leader.ready(Steps(*[step] * 6, pause)))
    finish(paused)
    source.push(client.set)
    leader.relieve()
    finish(client)
    gate.set()
    assert leader.stop(WAIT_S)


def test_rule_5_there_is_never_more_than_one_poller(leader: Leader, source: FakeSource) -> None:
    """Hand-overs from both sides at once: the lead is passed on once."""
    done = threading.Semaphore(0)

    def hands_over() -> None:
        leader.before_block()
        leader.before_block()
        done.release()

    for _ in range(50):
        source.push(lambda: leader.ready(Steps(hands_over)))
    for _ in range(50):
        leader.relieve()
        assert done.acquire(timeout=WAIT_S)
    assert source.most_pollers == 1


def test_rule_6_beyond_the_cap_work_waits_and_is_counted(source: FakeSource) -> None:
    leader = Leader(source, max_threads=3)
    leader.start()
    gate, late = threading.Event(), threading.Event()
    blocked = threading.Semaphore(0)

    def blocks() -> None:
        leader.before_block()
        blocked.release()
        finish(gate)

    for _ in range(2):
        leader.ready(Steps(blocks))
        assert blocked.acquire(timeout=WAIT_S)
    assert leader.threads == 3
    leader.ready(Steps(late.set))
    assert leader.saturations == 1
    assert not late.is_set()
    gate.set()
    finish(late)
    assert leader.threads == 3
    assert leader.stop(WAIT_S)


def test_rule_6_polling_goes_on_while_every_thread_is_taken(source: FakeSource) -> None:
    leader = Leader(source, max_threads=2)
    leader.start()
    gate, blocked, heard, late = (
        threading.Event(),
        threading.Semaphore(0),
        threading.Event(),
        threading.Event(),
    )

    def block() -> None:
        leader.before_block()
        blocked.release()
        gate.wait(WAIT_S)

    for _ in range(2):
        source.push(lambda: leader.ready(Steps(block)))
    for _ in range(2):
        assert blocked.acquire(timeout=WAIT_S)
    source.push(lambda: (heard.set(), leader.ready(Steps(late.set))))
    finish(heard)
    assert leader.threads == 2
    assert not late.is_set()
    gate.set()
    finish(late)
    again = threading.Event()
    source.push(lambda: leader.ready(Steps(again.set)))
    finish(again)
    assert leader.stop(WAIT_S)


def test_a_bug_in_a_runnable_ends_neither_its_rest_nor_the_thread(leader: Leader, source: FakeSource) -> None:
    faults: list[Exception] = []
    leader._on_fault = faults.append
    done = threading.Event()

    def breaks() -> None:
        raise ValueError("boom")

    work = Steps(breaks, done.set)
    source.push(lambda: leader.ready(work))
    finish(done)
    assert [str(fault) for fault in faults] == ["boom"] == [str(error) for error in work.recovered]


def test_a_bug_in_the_source_does_not_lose_the_lead(leader: Leader, source: FakeSource) -> None:
    faults: list[Exception] = []
    leader._on_fault = faults.append
    done = threading.Event()

    def breaks() -> None:
        raise ValueError("odd socket")

    source.push(breaks)
    source.push(done.set)
    finish(done)
    assert [str(fault) for fault in faults] == ["odd socket"]


def test_stop_says_when_a_thread_is_stuck(source: FakeSource) -> None:
    leader = Leader(source)
    leader.start()
    started, gate = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        finish(gate)

    leader.ready(Steps(stuck))
    finish(started)
    assert not leader.stop(0.0)
    gate.set()
