"""The operator's groups on disk."""

from __future__ import annotations

import pytest

from aos_runtime.errors import Corrupt, InvalidInput
from aos_runtime.home import Home
from aos_runtime.store.groups import Group, check_group_name, read_groups, write_groups

BUILDERS = Group(name="builders", capabilities=("capsule:install",), description="May install")
ROOTS = Group(name="roots", capabilities=("*",), unsafe_admin=True)


def test_what_was_written_is_read_sorted(home: Home) -> None:
    assert read_groups(home) == {}
    write_groups(home, {"roots": ROOTS, "builders": BUILDERS})
    assert list(read_groups(home).items()) == [("builders", BUILDERS), ("roots", ROOTS)]
    write_groups(home, {"roots": ROOTS})
    assert read_groups(home) == {"roots": ROOTS}


@pytest.mark.parametrize(
    "text",
    ["[groups.x]\ncapabilities = 1\n", "[groups]\nx = 1\n", "= =", '[groups."a b"]\ncapabilities = []\n'],
)
def test_a_damaged_file_is_an_error_and_never_an_empty_table(home: Home, text: str) -> None:
    home.etc.mkdir(parents=True, exist_ok=True)
    home.groups_file.write_text(text)
    with pytest.raises(Corrupt) as raised:
        read_groups(home)
    assert raised.value.code == "groups-damaged"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x" * 65])
def test_names_of_groups(name: str) -> None:
    with pytest.raises(InvalidInput, match="group name"):
        check_group_name(name)
