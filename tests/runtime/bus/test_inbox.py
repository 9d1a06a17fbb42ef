"""One subscription's queues: bounds, order within a principal, and turns between principals."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.bus.inbox import (
    MAX_PRINCIPAL_MESSAGES,
    MIN_QUANTUM_BYTES,
    ROUTE_BUDGET_BYTES,
    Admission,
    Inbox,
    Scope,
)

PRINCIPALS = st.sampled_from(["alice", "bob", "carol", None])


def test_the_constants_are_the_published_ones() -> None:
    assert (ROUTE_BUDGET_BYTES, MIN_QUANTUM_BYTES, MAX_PRINCIPAL_MESSAGES) == (1_048_576, 4_096, 16_384)
    inbox: Inbox[int] = Inbox()
    assert inbox.quantum_bytes == 1_048_576
    for number in range(512):
        inbox.offer(f"p{number}", 1, number)
    assert inbox.quantum_bytes == 4_096


def test_scopes() -> None:
    assert [Scope("alice", False).admits(one) for one in ("alice", "bob", None)] == [True, False, False]
    assert [Scope("alice", True).admits(one) for one in ("alice", "bob", None)] == [True, False, True]


def test_bus_10_one_principal_is_first_in_first_out() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(1000):
        assert inbox.offer("alice", 10, number) is Admission.TAKEN
    assert [inbox.take() for _ in range(1001)] == [*range(1000), None]


def test_a_message_over_the_budget_is_rejected_and_evicts_nobody() -> None:
    inbox: Inbox[str] = Inbox(budget_bytes=100)
    inbox.offer("alice", 90, "kept")
    assert inbox.offer("alice", 101, "huge") is Admission.TOO_LARGE
    assert (inbox.rejected, inbox.evicted, inbox.take()) == (1, 0, "kept")


def test_a_message_as_large_as_the_budget_is_taken_and_displaces_everything() -> None:
    inbox: Inbox[str] = Inbox(budget_bytes=100)
    inbox.offer("alice", 1, "small")
    assert inbox.offer("alice", 100, "whole") is Admission.TAKEN
    assert (inbox.rejected, inbox.evicted, inbox.drain()) == (0, 1, ["whole"])


def test_who_holds_most_now_loses_not_who_held_most() -> None:
    inbox: Inbox[str] = Inbox(budget_bytes=100)
    for size in (50, 5, 5):
        inbox.offer("alice", size, f"alice {size}")
    assert inbox.take() == "alice 50"
    inbox.offer("bob", 40, "bob")
    inbox.offer("carol", 60, "carol")
    assert sorted(inbox.drain()) == ["alice 5", "alice 5", "carol"]


def test_an_overflow_evicts_the_oldest_and_counts_it() -> None:
    inbox: Inbox[int] = Inbox(budget_bytes=100)
    for number in range(12):
        inbox.offer("alice", 10, number)
    assert (inbox.evicted, inbox.used_bytes) == (2, 100)
    assert inbox.take() == 2


def test_a_flood_evicts_only_itself() -> None:
    inbox: Inbox[str] = Inbox(budget_bytes=1000)
    inbox.offer("bob", 100, "first of bob")
    inbox.offer("bob", 100, "second of bob")
    for number in range(5000):
        inbox.offer("alice", 10, f"flood {number}")
    taken = list(iter(inbox.take, None))
    assert [one for one in taken if "bob" in one] == ["first of bob", "second of bob"]
    assert inbox.evicted == 5000 - 80


def test_a_flood_of_one_delays_another_by_one_message() -> None:
    """However many wait, and however large: the other is served after at most one of the flood."""
    for size in (1, 500, 4_000, 100_000):
        inbox: Inbox[str] = Inbox()
        for _ in range(min(16_000, ROUTE_BUDGET_BYTES // size)):
            inbox.offer("alice", size, "flood")
        inbox.offer("bob", 50, "bob")
        assert "bob" in (inbox.take(), inbox.take())


def test_the_message_cap_of_a_principal() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(MAX_PRINCIPAL_MESSAGES + 5):
        inbox.offer("alice", 1, number)
    assert (len(inbox), inbox.evicted, inbox.take()) == (MAX_PRINCIPAL_MESSAGES, 5, 5)


@pytest.mark.parametrize(
    ("alice", "bob", "order"),
    [
        ([1000] * 4, [4000] * 2, "abaaab"),  # bob's second is over his quantum of 6000, so alice goes on
        ([4000] * 2, [1000] * 4, "ababbb"),  # who came when nobody waited has the whole budget for its round
        ([1000] * 2, [6000], "aba"),  # exactly a quantum fits
        ([1000] * 3, [4000, 4000], "abaab"),  # and the next round comes only when nobody may go on
    ],
)
def test_bus_rounds_of_a_budget_of_12_000_bytes(alice: list[int], bob: list[int], order: str) -> None:
    inbox: Inbox[str] = Inbox(budget_bytes=12_000)
    for principal, sizes in (("alice", alice), ("bob", bob)):
        for size in sizes:
            inbox.offer(principal, size, principal[0])
    assert "".join(inbox.drain()) == "a" * len(alice) + "b" * len(bob)
    for principal, sizes in (("alice", alice), ("bob", bob)):
        for size in sizes:
            inbox.offer(principal, size, principal[0])
    assert "".join(iter(inbox.take, None)) == order


def test_whose_turn_it_is_goes_round() -> None:
    inbox: Inbox[str] = Inbox()
    for word in ("a1", "b1", "c1", "a2", "b2", "c2"):
        inbox.offer(word[0], 1, word)
    assert list(iter(inbox.take, None)) == ["a1", "b1", "c1", "a2", "b2", "c2"]


def test_large_messages_get_no_more_bytes_than_small_ones() -> None:
    """Deficit round robin: while both wait, the bytes of two principals differ by about a quantum."""
    inbox: Inbox[tuple[str, int]] = Inbox()
    for _ in range(10):
        inbox.offer("large", 50_000, ("large", 50_000))
    for _ in range(5_000):
        inbox.offer("small", 100, ("small", 100))
    served = {"large": 0, "small": 0}
    while inbox.active_principals == 2:
        message = inbox.take()
        assert message is not None
        served[message[0]] += message[1]
    assert abs(served["large"] - served["small"]) <= inbox.budget_bytes // 2 + 50_000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("offer"), PRINCIPALS, st.integers(0, 130)),
            st.tuples(st.just("take"), st.none(), st.just(0)),
        ),
        max_size=200,
    )
)
def test_nothing_is_lost_uncounted_and_the_order_of_each_is_kept(
    steps: list[tuple[str, str | None, int]],
) -> None:
    inbox: Inbox[tuple[str | None, int, int]] = Inbox(budget_bytes=100)
    waiting: dict[str | None, deque[tuple[int, int]]] = {}
    offered = taken = 0
    for number, (step, principal, size) in enumerate(steps):
        if step == "offer":
            offered += 1
            if inbox.offer(principal, size, (principal, size, number)) is Admission.TAKEN:
                waiting.setdefault(principal, deque()).append((size, number))
        else:
            message = inbox.take()
            if message is not None:
                taken += 1
                own = waiting[message[0]]
                while own[0] != message[1:]:
                    own.popleft()  # evicted
                own.popleft()
        assert inbox.used_bytes <= 100
        assert offered == taken + inbox.evicted + inbox.rejected + len(inbox)
    rest = inbox.drain()
    assert sum(size for _, size, _ in rest) <= 100
    assert (inbox.used_bytes, len(inbox), inbox.take()) == (0, 0, None)


def test_what_is_meant_is_removed_wherever_it_waits_and_the_rest_keeps_its_order() -> None:
    inbox: Inbox[str] = Inbox()
    for principal, word in (("alice", "a1"), ("bob", "b1"), ("alice", "a2"), ("alice", "a3"), ("bob", "b2")):
        inbox.offer(principal, 10, word)
    assert inbox.remove(lambda word: word in ("a2", "b1", "b2", "c9")) == 3
    assert (len(inbox), inbox.used_bytes, inbox.active_principals) == (2, 20, 1)
    assert [inbox.take(), inbox.take(), inbox.take()] == ["a1", "a3", None]
    assert inbox.evicted == 0
