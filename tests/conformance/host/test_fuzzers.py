"""The fuzzers `scripts/soak lanes` and `scripts/soak pointers`: silent where all is well, and not where a
codec or the door has a bug.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from aos_runtime.host import codecs, compound_values, compounds, door, functions, values
from tests.soak.lanes import Pairs
from tests.soak.pointers import DoorStand, GuestStand
from tests.support import abi

STEPS = 400
SEED = 20_261_201


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    made = Pairs(SEED, interfaces=(abi.ZOO, "astrid:fs/host@1.0.0", "astrid:kv/host@1.0.0"))
    yield made
    made.close()


def test_the_lanes_agree(pairs: Pairs) -> None:
    for _ in range(STEPS):
        pairs.step()
    assert pairs.faults == []


def _add_one(original: Any) -> Any:
    return lambda *arguments: original(*arguments) + 1


def _cut_text(original: Any) -> Any:
    return lambda self, crossing, block, at, value: original(self, crossing, block, at, value[:9])


def _misplace(original: Any) -> Any:
    return lambda self, guest, at, value: original(self, guest, at + 8 if self.size > 64 else at, value)


def _swallow(original: Any) -> Any:
    return lambda self, index, payload: None if payload == "" else original(self, index, payload)


PLANTS = {
    "edge: a signed number is lifted wrong": (codecs.Integer, "lift", _add_one),
    "edge: a large record is stored at the wrong place": (compounds.Fields, "store", _misplace),
    "edge: an empty text in an option is lost": (compounds.Option, "_wrap", _swallow),
    "component: a text is cut": (values.String, "write", _cut_text),
    "component: a number is read wrong": (values.Number, "read", _add_one),
    "component: flags are dropped": (
        compound_values.Flags,
        "read",
        lambda _: lambda *_arguments: frozenset(),
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_codec_bug_is_found(name: str, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, breaking = PLANTS[name]
    monkeypatch.setattr(owner, method, breaking(getattr(owner, method)))
    pairs.faults.clear()
    steps = 0
    while not pairs.faults and steps < 10 * STEPS:
        pairs.step()
        steps += 1
    assert pairs.faults and f"in the {name.split(':')[0]} lane" in pairs.faults[0]
    pairs.faults.clear()


def test_no_pointer_leads_outside() -> None:
    stand = DoorStand(random.Random(SEED))
    for _ in range(4):
        stand.round()
    assert stand.faults == []


def test_a_door_that_does_not_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: door.GuestMemory, at: int, size: int) -> memoryview:
        return self._bytes[at : at + size]

    monkeypatch.setattr(door.GuestMemory, "view", careless)
    stand = DoorStand(random.Random(SEED))
    stand.round()
    assert stand.faults


@pytest.fixture
def guests() -> Iterator[GuestStand]:
    made = GuestStand(SEED)
    yield made
    made.close()


def test_a_lie_of_a_guest_ends_that_guest(guests: GuestStand) -> None:
    while guests.lies < 200:
        guests.round()
    assert guests.faults == []


def test_a_host_that_does_not_look_at_alignment_is_found(
    guests: GuestStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (codecs, functions):
        monkeypatch.setattr(module, "check_aligned", lambda _at, _align: None)
    rounds = 0
    while not guests.faults and rounds < 100:
        guests.round()
        rounds += 1
    assert guests.faults and "LIE ended as None" in guests.faults[0]
