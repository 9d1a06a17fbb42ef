"""Which calls a cancel request ends, for whom, and for how long it is remembered."""

from __future__ import annotations

from collections.abc import Container

import msgspec
import pytest

from aos_runtime.kernel.cancellation import MAX_CALLS, MAX_REMEMBERED, REPEAT_S, Cancellations
from aos_runtime.wire.payloads import encode_tool_cancel
from tests.support.kernels import cause


class Calls:
    """A kernel that notes what it is asked to cancel."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cancelled: list[tuple[str | None, list[str]]] = []
        self.ended: list[tuple[str | None, list[str]]] = []
        self.cancellations = Cancellations(self, self.end_loops, clock=lambda: self.now)

    def end_loops(self, principal: str | None, call_ids: Container[str]) -> None:
        assert isinstance(call_ids, frozenset)
        self.ended.append((principal, sorted(call_ids)))

    def cancel(self, principal: str | None, call_ids: Container[str]) -> None:
        assert isinstance(call_ids, frozenset)
        self.cancelled.append((principal, sorted(call_ids)))

    def hear(self, body: bytes, principal: str = "alice") -> None:
        self.cancellations.receive(msgspec.structs.replace(cause(principal), body=body))


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_the_topic() -> None:
    assert Cancellations.wants("tool.v1.request.cancel")
    assert not Cancellations.wants("tool.v1.request.cancel.x")
    assert not Cancellations.wants("tool.v1.request.execute")


def test_a_request_ends_calls_of_its_own_principal(calls: Calls) -> None:
    calls.hear(encode_tool_cancel(["a", "b"]), "bob")
    assert calls.cancelled == [("bob", ["a", "b"])]


@pytest.mark.parametrize("body", [b"{}", b"null", b'{"type":"tool_cancel_request","call_ids":[1]}', b"\xff"])
def test_what_is_no_cancel_request_does_nothing(calls: Calls, body: bytes) -> None:
    calls.hear(body)
    calls.hear(encode_tool_cancel([]))
    calls.cancellations.sweep(calls.now)
    assert calls.cancelled == []


def test_it_is_looked_at_again_for_two_seconds_then_loops_are_ended(calls: Calls) -> None:
    calls.hear(encode_tool_cancel(["a"]))
    for now in (100.25, 101.9):
        calls.cancellations.sweep(now)
    assert (calls.cancelled, calls.ended) == ([("alice", ["a"])] * 3, [])
    for now in (100.0 + REPEAT_S, 103.0):
        calls.cancellations.sweep(now)
    assert (calls.cancelled, calls.ended) == ([("alice", ["a"])] * 3, [("alice", ["a"])])


def test_both_are_bounded(calls: Calls) -> None:
    calls.hear(encode_tool_cancel([f"{number:04}" for number in range(MAX_CALLS + 1)]))
    assert len(calls.cancelled[0][1]) == MAX_CALLS
    for number in range(MAX_REMEMBERED):
        calls.hear(encode_tool_cancel([str(number)]))
    calls.cancelled.clear()
    calls.hear(encode_tool_cancel(["other"]), "bob")
    calls.cancelled.clear()
    calls.cancellations.sweep(calls.now)
    assert calls.cancelled == [
        ("alice", sorted(str(number) for number in range(1, MAX_REMEMBERED))),
        ("bob", ["other"]),
    ], "each queue is looked through once, however many calls were cancelled"
