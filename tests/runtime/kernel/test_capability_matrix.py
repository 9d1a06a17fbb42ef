"""Each capability key, absent, narrow and broad, against each host function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aos_runtime.capsule.capability import IDENTITY_LEVELS
from aos_runtime.host.factors import FACTORS
from tests.support.capability_matrix import (
    BROAD,
    DENIED,
    KEYS,
    PEOPLE,
    ROWS,
    UNGATED,
    UNGATED_INTERFACES,
    Room,
    Row,
)

EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.close()


def broad(row: Row) -> dict[str, object]:
    return {key: BROAD[key] for key in row.needs}


def test_every_function_is_in_the_matrix_or_needs_no_capability() -> None:
    gated = {row.function for row in ROWS}
    free = {key for key in FACTORS if " ".join(key) in UNGATED or key[0] in UNGATED_INTERFACES}
    assert gated & free == set()
    assert set(FACTORS) - gated - free == set()
    assert {" ".join(key) for key in FACTORS} >= set(UNGATED)


def test_the_matrix_knows_every_capability() -> None:
    assert set(BROAD) == set(KEYS)


@EACH
def test_without_a_capability_it_is_denied(row: Row, room: Room) -> None:
    assert row.call(room.context({}), row.inside) == DENIED
    for absent in row.needs:
        held = {key: entries for key, entries in broad(row).items() if key != absent}
        assert row.call(room.context(held), row.inside) == DENIED, f"without {absent}"


@EACH
def test_a_narrow_one_opens_what_it_covers_and_no_more(row: Row, room: Room) -> None:
    if row.outside is not None:
        assert row.call(room.context(row.needs), row.outside) == DENIED
        for narrow in row.needs:
            assert row.call(room.context({**broad(row), narrow: row.needs[narrow]}), row.outside) == DENIED
    assert row.call(room.context(row.needs), row.inside) in row.passes


@EACH
def test_a_broad_one_opens_it_everywhere(row: Row, room: Room) -> None:
    for arguments in (row.inside, row.outside):
        if arguments is not None:
            assert row.call(room.context(broad(row)), arguments) in row.passes


@EACH
def test_no_other_capability_opens_it(row: Row, room: Room) -> None:
    others = {key: entries for key, entries in BROAD.items() if key not in row.needs}
    assert row.call(room.context(others), row.inside) == DENIED
    for key, entries in BROAD.items():
        if set(row.needs) != {key}:
            assert row.call(room.context({key: entries}), row.inside) == DENIED, f"{key} alone opens it"


@pytest.mark.parametrize("level", IDENTITY_LEVELS)
def test_a_level_of_identity_opens_its_own_functions_and_the_lesser_ones(level: str, room: Room) -> None:
    for row in PEOPLE:
        needed = row.needs.get("identity")
        if isinstance(needed, tuple):
            is_open = IDENTITY_LEVELS.index(needed[0]) <= IDENTITY_LEVELS.index(level)
            case = row.call(room.context({"identity": (level,)}), row.inside)
            assert (case in row.passes) if is_open else (case == DENIED)
            assert row.call(room.context({"identity": ("RESOLVE", "root")}), row.inside) == DENIED
