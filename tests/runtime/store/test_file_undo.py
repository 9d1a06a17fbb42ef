"""Changed files are put back: contents, links, modes and folders, whatever was done to them."""

from __future__ import annotations

import contextlib
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.kernel.files import FileRoots, gates_of
from aos_runtime.kernel.hooks import HookFiles
from aos_runtime.store import file_undo as module
from aos_runtime.store.file_tree import FileCase, FileRefused
from aos_runtime.store.file_undo import FileUndo

EVERYTHING = Capabilities(fs_read=("home://", "/tmp"), fs_write=("home://", "/tmp"))


class Room:
    """A home with files in it, and the files of a hook over it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder.resolve() / "home"
        (self.home / "notes/old").mkdir(parents=True)
        (self.home / "notes/a.txt").write_text("a")
        (self.home / "notes/old/b.txt").write_text("b")
        (self.home / "notes/run.sh").write_text("#!")
        (self.home / "notes/run.sh").chmod(0o700)
        (self.home / "link").symlink_to("notes/a.txt")
        (self.home / "nowhere").symlink_to("notes/missing")
        (self.home / "empty").mkdir()
        self.scratch = folder.resolve() / "scratch"
        self.scratch.mkdir()
        self.kept = folder.resolve() / "kept"
        self.undo = FileUndo(self.kept)
        self.files = self.renew()

    def renew(self) -> HookFiles:
        roots = FileRoots(home=self.home, scratch=self.scratch, own=self.scratch, workspace=lambda: None)
        return HookFiles(
            roots,
            gates_of(EVERYTHING),
            self.undo,
            note=lambda _call, _place, _error: None,
            denied=lambda _denial: None,
        )

    def snapshot(self) -> dict[str, object]:
        """Every name below home and scratch folder, with what it is; `.config` is the runtime's."""
        found: dict[str, object] = {}
        for root in (self.home, self.scratch):
            for path in sorted(root.rglob("*")):
                if path.name == ".config":
                    continue
                mode = stat.S_IMODE(path.lstat().st_mode)
                if path.is_symlink():
                    found[str(path)] = str(path.readlink())
                else:
                    found[str(path)] = (mode, None if path.is_dir() else path.read_bytes())
        return found

    def check(self, *changes: Callable[[HookFiles], object]) -> None:
        before = self.snapshot()
        for change in changes:
            change(self.files)
        assert self.snapshot() != before, "it did change something"
        assert self.undo.undo() == ()
        assert self.snapshot() == before


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def change_open_file(files: HookFiles) -> None:
    opened = files.open("home://notes/a.txt", "read-write")
    opened.write_at(0, b"other")
    opened.set_len(2)
    opened.close()


@pytest.mark.parametrize(
    "changes",
    [
        [lambda files: files.write("home://notes/a.txt", b"new", append=False)],
        [lambda files: files.write("home://notes/a.txt", b"more", append=True)],
        [lambda files: files.write("home://new.txt", b"x", append=False)],
        [lambda files: files.write("/tmp/new.txt", b"x", append=False)],
        [lambda files: files.write("home://link", b"through the link", append=False)],
        [lambda files: files.write("home://nowhere", b"x", append=False)],
        [change_open_file],
        [lambda files: files.open("home://notes/a.txt", "write").close()],
        [lambda files: files.make_folder("home://x/y/z", with_parents=True)],
        [lambda files: files.make_folder("home://x", with_parents=False)],
        [lambda files: files.remove("home://notes/a.txt")],
        [lambda files: files.remove("home://link")],
        [lambda files: files.remove("home://empty")],
        [lambda files: files.remove_all("home://notes")],
        [lambda files: files.copy("home://notes/a.txt", "home://notes/run.sh")],
        [lambda files: files.copy("home://notes/a.txt", "home://c.txt")],
        [lambda files: files.rename("home://notes", "home://moved")],
        [lambda files: files.rename("home://notes/a.txt", "home://notes/run.sh")],
        [
            lambda files: files.hard_link("home://notes/a.txt", "home://twin"),
            lambda files: files.write("home://twin", b"both", append=False),
        ],
        [
            lambda files: files.rename("home://notes", "home://moved"),
            lambda files: files.write("home://moved/a.txt", b"new", append=False),
            lambda files: files.make_folder("home://notes", with_parents=False),
            lambda files: files.write("home://notes/b.txt", b"new", append=False),
            lambda files: files.remove_all("home://moved"),
        ],
        [
            lambda files: files.write("home://notes/old/b.txt", b"new", append=False),
            lambda files: files.remove_all("home://notes"),
            lambda files: files.write("home://notes", b"a file now", append=False),
        ],
    ],
)  # fmt: skip
def test_each_change_is_taken_back(room: Room, changes: list[Callable[[HookFiles], object]]) -> None:
    room.check(*changes)


NAMES = ("notes", "notes/a.txt", "notes/old", "notes/old/b.txt", "link", "nowhere", "empty", "x", "x/y")


def do_something(files: HookFiles, choose: random.Random) -> tuple[object, ...]:
    """One deed of the guest's, which may be refused; what it was."""
    one, two = (f"home://{choose.choice(NAMES)}" for _ in range(2))
    flag = choose.random() < 0.5
    deeds: list[Callable[[], object]] = [
        lambda: files.write(one, b"new", append=flag),
        lambda: files.make_folder(one, with_parents=flag),
        lambda: files.remove(one),
        lambda: files.remove_all(one),
        lambda: files.rename(one, two),
        lambda: files.copy(one, two),
        lambda: files.hard_link(one, two),
    ]
    number = choose.randrange(len(deeds))
    with contextlib.suppress(FileRefused):
        deeds[number]()
    return number, one, two, flag


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_done_in_whatever_order_is_taken_back(room: Room, seed: int) -> None:
    choose, before = random.Random(seed), room.snapshot()
    done = [do_something(room.files, choose) for _ in range(12)]
    assert room.undo.undo() == (), done
    assert room.snapshot() == before, done


def test_places_that_were_not_to_be_changed_are_left_alone(room: Room) -> None:
    room.files.write("home://notes/a.txt", b"new", append=False)
    assert room.files.exists("home://notes/old/b.txt") and room.files.read("home://link") == b"new"
    (room.home / "notes/of-another.txt").write_text("meanwhile")
    room.undo.undo()
    assert (room.home / "notes/a.txt").read_text() == "a"
    assert (room.home / "notes/of-another.txt").read_text() == "meanwhile"
    assert len(list(room.kept.iterdir())) == 1
    room.files.make_folder("home://notes", with_parents=True)
    assert room.undo.undo() == ()
    assert (room.home / "notes/of-another.txt").exists(), "a folder that was there is not kept"


def test_what_cannot_be_kept_is_not_changed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(room.home / "notes/pipe")
    before = [path.name for path in sorted(room.home.rglob("*"))]
    for case in (FileCase.ACCESS, FileCase.QUOTA):
        with pytest.raises(FileRefused) as refused:
            room.files.remove_all("home://notes")
        assert refused.value.case is case
        room.files.write("home://empty/x", b"", append=False)  # what it had begun to keep is in nobody's way
        room.files.remove("home://empty/x")
        (room.home / "notes/pipe").unlink(missing_ok=True)
        before = [name for name in before if name != "pipe"]
        monkeypatch.setattr(module, "MAX_KEPT_NAMES", 2)
        room.undo = FileUndo(room.kept / "again")
        room.files = room.renew()
    assert [path.name for path in sorted(room.home.rglob("*")) if path.name != ".config"] == before


def test_what_cannot_be_put_back_is_named_and_the_rest_is(room: Room) -> None:
    room.files.write("home://notes/a.txt", b"new", append=False)
    room.files.write("home://notes/run.sh", b"new", append=False)
    (room.kept / "2").unlink()
    assert room.undo.undo() == ("notes/run.sh",)
    assert (room.home / "notes/a.txt").read_text() == "a"
