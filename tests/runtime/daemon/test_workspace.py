"""Which folders may be a workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.daemon.workspace import find_workspace, workspace_refusal
from aos_runtime.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path.resolve() / "user" / ".aos"
    root.mkdir(parents=True)
    return Home(root)


def test_what_may_not_be_a_workspace(home: Home, tmp_path: Path) -> None:
    user = home.root.parent
    inside = home.root / "runtime"
    inside.mkdir()
    link = tmp_path.resolve() / "link"
    project = tmp_path.resolve() / "project"
    project.mkdir()
    link.symlink_to(project)
    assert workspace_refusal(project, home, user) is None
    refusals = {
        Path("/"): "workspace must not be the root folder",
        user: "workspace must not be the home folder of the user",
        user.parent: "workspace must not hold the aos home nor lie in it",
        inside: "workspace must not hold the aos home nor lie in it",
        home.root: "workspace must not hold the aos home nor lie in it",
        link: "workspace must be a canonical path, without symbolic links",
        project / "absent": "workspace is not a folder",
    }
    assert {folder: workspace_refusal(folder, home, user) for folder in refusals} == refusals


def test_another_users_folder_is_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    monkeypatch.setattr("os.getuid", lambda: project.stat().st_uid + 1)
    assert workspace_refusal(project, home, None) == "workspace belongs to another user"


def test_the_nearest_marked_folder_upward_is_the_default(home: Home, tmp_path: Path) -> None:
    project = tmp_path.resolve() / "project"
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    assert find_workspace(deep, home, None) is None
    (project / ".git").mkdir()
    assert find_workspace(deep, home, None) == project
    (project / "src" / ".aos").mkdir()
    assert find_workspace(deep, home, None) == project / "src"


def test_the_users_own_home_is_no_default_workspace(home: Home) -> None:
    user = home.root.parent
    (user / "notes").mkdir()
    assert find_workspace(user / "notes", home, user) is None
