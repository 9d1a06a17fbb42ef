"""Requests that wait are counted, of each client and of all."""

from __future__ import annotations

from aos_runtime.kernel.in_flight import InFlight


def test_each_client_has_so_many_and_nobody_elses() -> None:
    flight = InFlight(2, 100)
    assert [flight.enter("a"), flight.enter("a"), flight.enter("a"), flight.enter("b")] == [
        True,
        True,
        False,
        True,
    ]
    flight.leave("a")
    assert (flight.enter("a"), flight.enter("a")) == (True, False)
    assert flight.refusal() == "too many requests in flight (2 a client)"


def test_all_together_have_so_many_and_what_is_answered_leaves_nothing() -> None:
    flight = InFlight(2, 3)
    assert [flight.enter(owner) for owner in "abcd"] == [True, True, True, False]
    for owner in "abc":
        flight.leave(owner)
    assert (flight._by_owner, flight._all) == ({}, 0)
    assert flight.enter("d")
