"""kernel.hook_state: what a failed hook wrote is taken back, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.kernel import hook_state
from aos_runtime.kernel.hook_state import UndoSpace
from aos_runtime.store.kv import KvRefused
from tests.support.guests import FakeKv

KEYS = st.sampled_from(["a", "ab", "b", "c"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "cas", "clear"]), KEYS, st.binary(max_size=3)), max_size=20
)


def contents(kv: FakeKv) -> dict[str, bytes | None]:
    return {key: kv.get(key) for key in kv.list_keys("")}


@given(st.dictionaries(KEYS, st.binary(max_size=3)), STEPS)
def test_undo_puts_back_what_was(before: dict[str, bytes], steps: list[tuple[str, str, bytes]]) -> None:
    kv = FakeKv()
    for key, value in before.items():
        kv.set(key, value)
    space = UndoSpace(kv)
    for step, key, value in steps:
        if step == "set":
            space.set(key, value)
        elif step == "delete":
            space.delete(key)
        elif step == "cas":
            space.cas(key, space.get(key), value)
        else:
            space.clear_prefix(key)
    space.undo()
    assert contents(kv) == before


def test_what_others_write_meanwhile_stays() -> None:
    kv = FakeKv()
    space = UndoSpace(kv)
    space.set("hook", b"1")
    kv.set("other", b"2")
    space.undo()
    assert contents(kv) == {"other": b"2"}
    space.undo()
    assert contents(kv) == {"other": b"2"}


def test_reading_goes_through() -> None:
    kv = FakeKv()
    space = UndoSpace(kv)
    space.set("a", b"1")
    assert (space.get("a"), space.list_keys(""), space.list_page("", None, 5)) == (
        b"1",
        ("a",),
        (("a",), None),
    )


def test_a_hook_changes_no_more_than_can_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_state, "MAX_KEYS", 1)
    space = UndoSpace(FakeKv())
    space.set("a", b"1")
    space.set("a", b"2")
    with pytest.raises(KvRefused):
        space.set("b", b"1")
