"""store.layout: a foreign home is refused before the first write."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.errors import AosError, Conflict, Denied, Unavailable
from aos_runtime.home import Home
from aos_runtime.store import layout
from aos_runtime.store.files import FileLock
from aos_runtime.store.layout import open_home
from tests.runtime.store.conftest import names


def _tree(folder: Path) -> list[tuple[str, bytes]]:
    return sorted(
        (str(path.relative_to(folder)), path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    )


def test_creating_writes_the_layout_file_and_opens_again(home: Home) -> None:
    open_home(home, create=True)
    assert home.layout_file.read_text() == "aos-1\n"
    assert home.state.stat().st_mode & 0o777 == 0o700
    before = _tree(home.root)
    open_home(home, create=True)
    open_home(home, create=False)
    assert _tree(home.root) == before


def test_lst_14_looking_at_a_home_that_does_not_exist_creates_nothing(home: Home, tmp_path: Path) -> None:
    open_home(home, create=False)
    assert names(tmp_path) == []


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "files",
    [
        {"runtime/astrid.volume": ""},
        {"astrid.volume": ""},
        {"runtime/etc/layout-version": "1\n"},
        {"runtime/etc/layout-version": "2\n"},
        {"runtime/etc/layout-version": "aos-2\n"},
        {"runtime/etc/layout-version": ""},
        {"runtime/keys/runtime.key": "x"},
        {"runtime/etc/profiles/default.toml": ""},
    ],
)
def test_a_foreign_home_is_refused_and_left_as_it_is(home: Home, files: dict[str, str], create: bool) -> None:
    for name, text in files.items():
        path = home.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = _tree(home.root)
    with pytest.raises(Conflict) as caught:
        open_home(home, create=create)
    assert caught.value.code == "home-foreign"
    assert "AOS_HOME" in caught.value.hint
    assert _tree(home.root) == before


def test_a_home_on_which_another_runtime_starts_is_refused(home: Home) -> None:
    open_home(home, create=True)
    lock_path = home.root / "astrid-lifecycle-abc" / "runtime.lock"
    lock_path.parent.mkdir()
    lock = FileLock(lock_path)
    lock.acquire(0)
    with pytest.raises(Conflict) as caught:
        open_home(home, create=True)
    assert "another runtime is starting or stopping" in caught.value.message
    lock.release()
    open_home(home, create=True)


def test_a_home_that_another_process_creates_meanwhile_is_no_foreign_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = layout.list_folder

    def create_first(folder: Path) -> tuple[Path, ...]:
        if not home.layout_file.exists():
            monkeypatch.setattr(layout, "list_folder", real)
            open_home(home, create=True)
            home.var.mkdir()
        return real(folder)

    monkeypatch.setattr(layout, "list_folder", create_first)
    open_home(home, create=True)
    assert home.layout_file.is_file()


def test_settings_may_be_written_before_the_first_start(home: Home) -> None:
    home.etc.mkdir(parents=True, mode=0o700)
    home.state.chmod(0o700)
    home.config_file.write_text("")
    open_home(home, create=True)
    assert home.layout_file.is_file()


def test_a_killed_creation_is_completed(home: Home) -> None:
    home.etc.mkdir(parents=True, mode=0o700)
    home.state.chmod(0o700)
    (home.etc / ".layout-version.999999999.0-abcd.tmp").write_text("aos")
    open_home(home, create=True)
    assert names(home.etc) == ["layout-version"]


def test_a_home_that_others_can_write_is_refused(home: Home) -> None:
    open_home(home, create=True)
    home.state.chmod(0o770)
    with pytest.raises(Denied) as caught:
        open_home(home, create=False)
    assert caught.value.code == "home-writable-by-others"


def test_a_home_of_another_user_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    open_home(home, create=True)
    monkeypatch.setattr(layout.os, "getuid", lambda: 4242)
    with pytest.raises(Denied) as caught:
        open_home(home, create=False)
    assert caught.value.code == "home-owner"


def test_dmn_09_a_home_that_cannot_be_written_names_the_way_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, mode: int = 0o777) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Unavailable) as caught:
        open_home(home, create=True)
    assert caught.value.code == "not-permitted"
    assert "AOS_HOME" in caught.value.hint
    assert isinstance(caught.value, AosError)
