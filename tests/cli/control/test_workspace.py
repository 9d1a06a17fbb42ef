"""aos_cli.control.workspace: what `cwd://` means for a caller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from aos_cli.control.workspace import find_workspace, parse_workspace
from aos_runtime.errors import InvalidInput
from aos_runtime.home import Home


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    (folder / "project" / ".git").mkdir(parents=True)
    (folder / "project" / "src" / "deep").mkdir(parents=True)
    (folder / ".aos").mkdir()
    return folder


def environ(user: Path) -> Mapping[str, str]:
    return {"HOME": str(user)}


def test_the_nearest_marked_folder_upward(user: Path) -> None:
    home = Home(user / ".aos")
    assert find_workspace(user / "project" / "src" / "deep", home, environ(user)) == user / "project"
    (user / "project" / "src" / ".aos").mkdir()
    assert find_workspace(user / "project" / "src" / "deep", home, environ(user)) == user / "project" / "src"


def test_the_user_s_own_folder_is_none_though_it_holds_dot_aos(user: Path) -> None:
    (user / "elsewhere").mkdir()
    assert find_workspace(user / "elsewhere", Home(user / ".aos"), environ(user)) is None


def test_nothing_around_or_inside_the_home_of_aos(user: Path) -> None:
    home = Home(user / "project" / "state")
    (home.root / "inner" / ".git").mkdir(parents=True)
    assert find_workspace(user / "project" / "src", home, environ(user)) is None
    assert find_workspace(home.root / "inner", home, environ(user)) is None


def test_a_named_folder_is_resolved_from_where_the_caller_stands(user: Path) -> None:
    home = Home(user / ".aos")
    assert parse_workspace("src", user / "project", home, environ(user)) == user / "project" / "src"


@pytest.mark.parametrize("text", ["/", "..", "missing", "../.aos"])
def test_refused_workspaces(user: Path, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_workspace(text, user / "project", Home(user / ".aos"), environ(user))
    assert refused.value.code == "workspace-refused"
