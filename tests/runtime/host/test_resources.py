"""The handle table: bounded, typed, and every resource closed exactly once."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aos_runtime.host.door import AbiViolation
from aos_runtime.host.resources import MAX_HANDLES, ResourceTable


class Thing:
    def __init__(self) -> None:
        self.closes = 0

    def close(self) -> None:
        self.closes += 1


def added(table: ResourceTable, kind: str = "thing") -> tuple[int, Thing]:
    thing = Thing()
    handle = table.add(kind, thing)
    assert handle is not None
    return handle, thing


def test_a_borrow_finds_it_any_number_of_times_and_a_drop_ends_it() -> None:
    table = ResourceTable()
    handle, thing = added(table)
    assert [table.get("thing", handle) for _ in range(3)] == [thing] * 3
    table.drop("thing", handle)
    assert (table.get("thing", handle), thing.closes) == (None, 1)
    table.drop("thing", handle)
    assert thing.closes == 1


def test_a_handle_of_another_kind_is_a_lie() -> None:
    table = ResourceTable()
    handle, thing = added(table)
    for call in (table.get, table.take, table.drop):
        with pytest.raises(AbiViolation, match="handle of a thing for a stream"):
            call("stream", handle)
    assert thing.closes == 0


def test_what_is_taken_is_the_takers_to_close() -> None:
    table = ResourceTable()
    handle, thing = added(table)
    assert table.take("thing", handle) is thing
    table.clear()
    assert (thing.closes, table.live) == (0, 0)


def test_what_is_swept_is_a_leak_and_what_is_cleared_is_none() -> None:
    table = ResourceTable()
    _, left = added(table)
    handle, _ = added(table)
    table.drop("thing", handle)
    table.sweep()
    assert (table.leaked, left.closes, table.live) == (1, 1, 0)
    added(table)
    table.clear()
    assert (table.leaked, table.live) == (1, 0)


def test_a_live_handle_has_a_kind() -> None:
    table = ResourceTable()
    handle, _ = added(table, "stream")
    assert table.kind_of(handle) == "stream"
    table.clear()
    with pytest.raises(KeyError):
        table.kind_of(handle)


def test_the_table_is_bounded_and_says_so() -> None:
    table = ResourceTable()
    handles = [added(table)[0] for _ in range(MAX_HANDLES)]
    assert len(set(handles)) == MAX_HANDLES
    assert table.add("thing", Thing()) is None
    table.drop("thing", handles[0])
    assert table.add("thing", Thing()) is not None


def test_a_dropped_handle_is_not_soon_another_and_numbers_stay_small() -> None:
    table = ResourceTable(limit=64)
    seen = []
    for _ in range(10_000):
        handle, _ = added(table)
        table.drop("thing", handle)
        seen.append(handle)
    assert max(seen) <= 2 * 64
    assert all(len(set(seen[at : at + 30])) == 30 for at in range(len(seen) - 30))


class Handles(RuleBasedStateMachine):
    """Against a dict: what lives is found, what does not is closed once."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ResourceTable(limit=8)
        self.living: dict[int, Thing] = {}
        self.gone: list[Thing] = []

    @rule()
    def add(self) -> None:
        thing = Thing()
        handle = self.table.add("thing", thing)
        assert (handle is None) == (len(self.living) == 8)
        if handle is not None:
            assert handle not in self.living
            self.living[handle] = thing

    @rule(handle=st.integers(0, 20))
    def drop(self, handle: int) -> None:
        self.table.drop("thing", handle)
        if handle in self.living:
            self.gone.append(self.living.pop(handle))

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.gone += self.living.values()
        self.living.clear()

    @invariant()
    def accounts(self) -> None:
        assert self.table.live == self.table.opened - self.table.closed == len(self.living)
        assert self.table.count("thing") == len(self.living)
        assert all(thing.closes == 0 for thing in self.living.values())
        assert all(thing.closes == 1 for thing in self.gone)


TestHandles = Handles.TestCase
