from __future__ import annotations

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aos_runtime.bus.mailbox import MAILBOX_DEPTH, Mailbox, Offer


def test_the_depth_is_the_published_one() -> None:
    assert MAILBOX_DEPTH == Mailbox[int]().depth == 64


def test_the_first_offer_wakes_and_later_ones_queue() -> None:
    box: Mailbox[str] = Mailbox()
    assert (box.busy, box.drops, box.peak, box.has_room()) == (False, 0, 0, True)
    assert (box.offer("a"), box.peak) == (Offer.WOKE, 1)
    assert (box.offer("b"), box.peak) == (Offer.QUEUED, 2)
    assert [box.take(), box.take(), box.take()] == ["a", "b", None]
    assert box.offer("c") is Offer.WOKE


def test_an_offer_during_the_last_message_does_not_wake_a_second_runner() -> None:
    box: Mailbox[str] = Mailbox()
    box.offer("a")
    assert box.take() == "a"
    assert len(box) == 0
    assert box.busy
    assert box.offer("b") is Offer.QUEUED


def test_a_full_queue_drops_the_newest_and_counts_it() -> None:
    box: Mailbox[int] = Mailbox(depth=2)
    assert [box.offer(number) for number in range(4)] == [Offer.WOKE, Offer.QUEUED, Offer.FULL, Offer.FULL]
    assert (box.drops, box.peak, len(box), box.has_room()) == (2, 2, 2, False)
    assert [box.take(), box.take(), box.take()] == [0, 1, None]
    assert box.has_room()


def test_bus_10_order_is_the_order_of_publishing() -> None:
    box: Mailbox[int] = Mailbox(depth=64)
    received, waiting = [], deque(range(1, 1001))
    while waiting or len(box):
        while waiting and box.has_room():
            assert box.offer(waiting.popleft()) is not Offer.FULL
        received.append(box.take())
    assert received == list(range(1, 1001))
    assert (box.drops, box.peak) == (0, 64)


def test_closing_gives_back_what_nobody_runs() -> None:
    box: Mailbox[str] = Mailbox()
    for message in "abc":
        box.offer(message)
    box.take()
    assert box.close() == ("b", "c")
    assert box.offer("d") is Offer.CLOSED
    assert not box.has_room()
    assert box.busy
    assert box.take() is None
    assert not box.busy
    assert (box.close(), box.drops) == ((), 0)


class Interleavings(RuleBasedStateMachine):
    """Publishers and runners in any order: nothing lost, repeated or reordered, and one runner at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.box: Mailbox[int] = Mailbox(depth=3)
        self.model: deque[int] = deque()
        self.runners = 0
        self.published = 0
        self.dropped = 0

    @rule()
    def publish(self) -> None:
        self.published += 1
        was_idle = self.runners == 0
        offer = self.box.offer(self.published)
        if len(self.model) == 3:
            assert offer is Offer.FULL
            self.dropped += 1
            return
        self.model.append(self.published)
        assert offer is (Offer.WOKE if was_idle else Offer.QUEUED)
        self.runners += offer is Offer.WOKE

    @precondition(lambda self: self.runners)
    @rule(times=st.integers(1, 5))
    def run(self, times: int) -> None:
        for _ in range(times):
            taken = self.box.take()
            assert taken == (self.model.popleft() if self.model else None)
            if taken is None:
                self.runners -= 1
                return

    @invariant()
    def exactly_one_runner_where_there_is_work(self) -> None:
        assert self.runners == int(self.box.busy)
        assert self.runners == 1 or not self.model
        assert (len(self.box), self.box.drops) == (len(self.model), self.dropped)


TestInterleavings = Interleavings.TestCase


def test_what_is_removed_is_gone_and_the_others_keep_their_order() -> None:
    box: Mailbox[int] = Mailbox()
    for number in range(6):
        box.offer(number)
    assert box.remove(lambda number: number % 2 == 0) == (0, 2, 4)
    assert box.remove(lambda number: number > 9) == ()
    assert [box.take() for _ in range(4)] == [1, 3, 5, None]
    assert box.offer(7) is Offer.WOKE
