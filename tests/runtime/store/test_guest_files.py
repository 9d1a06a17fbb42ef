"""Files below one root: what each operation does, and that none leads out of it."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aos_runtime.store import guest_files
from aos_runtime.store.file_handles import MAX_FILE_BYTES, MAX_PIECE_BYTES, Made
from aos_runtime.store.file_tree import MAX_TURNS, At, FileCase, FileRefused, FileTree, Parts
from aos_runtime.store.guest_files import MAX_NAMES

SECRET = b"outside"
ENOUGH = 400
AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Ground:
    """A root with an outside beside it."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        self.root = folder / "root"
        self.outside = folder / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(SECRET)
        self.tree = FileTree(self.root, is_canonical=True)
        self.made: Made = {}
        self.asked: list[Parts] = []

    def at(self, path: str) -> At:
        return At(self.tree, tuple(name for name in path.split("/") if name), self.asked.append)

    def write(self, path: str, data: bytes = b"x", *, append: bool = False) -> None:
        guest_files.write(self.at(path), data, self.made, append=append)

    def read(self, path: str) -> bytes:
        return guest_files.read(self.at(path))

    def names(self, path: str = "") -> list[str]:
        return guest_files.list_names(self.at(path))[1]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def case(operation: Callable[[], object]) -> FileCase:
    with pytest.raises(FileRefused) as caught:
        operation()
    return caught.value.case


def open_handles() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0  # noqa: PTH208


@pytest.fixture(autouse=True)
def no_handle_is_left() -> Iterator[None]:
    before = open_handles()
    yield
    assert open_handles() == before


def test_write_append_and_read(ground: Ground) -> None:
    ground.write("a", b"one")
    ground.write("a", b"1")
    ground.write("a", b"2", append=True)
    ground.write("b", b"3", append=True)
    assert (ground.read("a"), ground.read("b")) == (b"12", b"3")
    assert (ground.root / "a").read_bytes() == b"12"


def test_abi_01_what_cannot_be_read_has_a_name_for_it(ground: Ground) -> None:
    (ground.root / "folder").mkdir()
    ground.write("file")
    assert case(lambda: ground.read("absent")) is FileCase.NOT_FOUND
    assert case(lambda: ground.read("no/where")) is FileCase.NOT_FOUND
    assert case(lambda: ground.read("folder")) is FileCase.IS_DIRECTORY
    assert case(lambda: ground.read("file/below")) is FileCase.NOT_DIRECTORY
    assert case(lambda: ground.names("file")) is FileCase.NOT_DIRECTORY
    assert case(lambda: ground.write("no/where")) is FileCase.NOT_FOUND
    assert case(lambda: ground.write("folder")) is FileCase.IS_DIRECTORY
    assert case(lambda: ground.write("x" * 300)) is FileCase.INVALID_PATH


def test_abi_01_the_cap_of_a_listing_is_an_error(ground: Ground) -> None:
    for number in range(MAX_NAMES):
        (ground.root / f"{number:04}").touch()
    assert ground.names() == [f"{number:04}" for number in range(MAX_NAMES)]
    (ground.root / "one more").touch()
    assert case(ground.names) is FileCase.TOO_LARGE


def test_a_name_that_is_no_text_is_not_listed(ground: Ground) -> None:
    os.close(os.open(os.fsencode(ground.root) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    ground.write("ok")
    assert ground.names() == ["ok"]


def following(ground: Ground, at: At) -> list[Callable[[], object]]:
    """Every operation that goes through a link at the end of its path."""
    return [
        lambda: guest_files.exists(at),
        lambda: guest_files.status(at, follow=True),
        lambda: guest_files.read(at),
        lambda: guest_files.write(at, b"x", ground.made),
        lambda: guest_files.write(at, b"x", ground.made, append=True),
        lambda: guest_files.open_file(at, "write", ground.made),
        lambda: guest_files.open_file(at, "read", ground.made),
        lambda: guest_files.make_folder(at),
        lambda: guest_files.make_folders(at),
        lambda: guest_files.resolve(at),
        lambda: guest_files.copy(at, ground.at("copy"), ground.made),
        lambda: guest_files.copy(ground.at("own"), at, ground.made),
        lambda: guest_files.hard_link(at, ground.at("copy"), ground.made),
    ]


def staying(ground: Ground, at: At) -> list[Callable[[], object]]:
    """Every operation that takes a link at the end of its path for what it is."""
    return [
        lambda: guest_files.status(at, follow=False),
        lambda: guest_files.remove(at),
        lambda: guest_files.remove_all(at),
        lambda: guest_files.rename(at, ground.at("copy")),
        lambda: guest_files.rename(ground.at("own"), at),
        lambda: guest_files.hard_link(ground.at("own"), at, ground.made),
        lambda: guest_files.read_link(at),
    ]


def test_abi_02_a_link_out_is_refused_for_every_operation(ground: Ground) -> None:
    (ground.root / "link").symlink_to(ground.outside)
    (ground.root / "file").symlink_to(ground.outside / "secret")
    (ground.root / "up").symlink_to("../outside")
    ground.write("own")
    for path in ("link/secret", "up/secret", "file", "link/newdir/newfile"):
        for operation in following(ground, ground.at(path)):
            assert case(operation) is FileCase.BOUNDARY_ESCAPE, path
    for path in ("link/secret", "up/secret"):
        for operation in staying(ground, ground.at(path)):
            assert case(operation) is FileCase.BOUNDARY_ESCAPE, path
    assert sorted(os.listdir(ground.outside)) == ["secret"]  # noqa: PTH208
    assert (ground.outside / "secret").read_bytes() == SECRET


def test_the_link_itself_can_be_looked_at_moved_and_removed(ground: Ground) -> None:
    (ground.root / "link").symlink_to(ground.outside)
    assert guest_files.status(ground.at("link"), follow=False).kind == "symlink"
    guest_files.rename(ground.at("link"), ground.at("other"))
    assert case(lambda: guest_files.remove_all(ground.at("other"))) is FileCase.NOT_DIRECTORY
    guest_files.remove(ground.at("other"))
    assert ground.names() == []
    assert (ground.outside / "secret").exists()


def test_links_that_stay_inside_are_followed_and_told(ground: Ground) -> None:
    guest_files.make_folders(ground.at("a/b"))
    ground.write("a/b/file", b"inside")
    (ground.root / "rel").symlink_to("a/b")
    (ground.root / "a" / "up").symlink_to("../a/./b/..//b")
    (ground.root / "abs").symlink_to(ground.root / "a")
    (ground.root / "self").symlink_to(".")
    for path in ("rel/file", "a/up/file", "abs/b/file", "self/self/rel/file"):
        assert ground.read(path) == b"inside"
        assert ground.asked[-1] == ("a", "b", "file")
        assert guest_files.resolve(ground.at(path)) == ("a", "b", "file")
    assert guest_files.read_link(ground.at("rel")) == ("a", "b")
    assert guest_files.read_link(ground.at("a/up")) == ("a", "b")
    assert case(lambda: guest_files.read_link(ground.at("a"))) is FileCase.INVALID_PATH
    guest_files.make_folders(ground.at("rel/new/newer"))
    assert (ground.root / "a/b/new/newer").is_dir()
    (ground.root / "dangling").symlink_to("a/later")
    assert not guest_files.exists(ground.at("dangling"))
    ground.write("dangling", b"made")
    assert (ground.root / "a/later").read_bytes() == b"made"


def test_a_ring_of_links_ends(ground: Ground) -> None:
    (ground.root / "a").symlink_to("b")
    (ground.root / "b").symlink_to("a")
    assert case(lambda: ground.read("a")) is FileCase.INVALID_PATH
    assert case(lambda: guest_files.make_folders(ground.at("a/x"))) is FileCase.INVALID_PATH
    for number in range(MAX_TURNS):
        (ground.root / f"l{number}").symlink_to(f"l{number + 1}")
    (ground.root / f"l{MAX_TURNS}").write_bytes(b"end")
    assert ground.read("l1") == b"end"
    assert case(lambda: ground.read("l0")) is FileCase.INVALID_PATH


def test_a_step_up_leaves_where_the_link_led_and_not_where_it_stands(ground: Ground) -> None:
    for folder in ("a/b", "b"):
        (ground.root / folder).mkdir(parents=True)
        (ground.root / folder / "file").write_bytes(folder.encode())
    (ground.root / "l").symlink_to("a/b")
    (ground.root / "m").symlink_to("l/../b")
    assert (ground.root / "m/file").read_bytes() == b"a/b", "as the system has it"
    assert ground.read("m/file") == b"a/b"
    assert guest_files.resolve(ground.at("m")) == guest_files.read_link(ground.at("m")) == ("a", "b")
    guest_files.make_folders(ground.at("m/new"))
    assert (ground.root / "a/b/new").is_dir()
    (ground.root / "out").symlink_to("l/../../../outside")
    (ground.root / "nowhere").symlink_to("gone/../b")
    for path, expected in (("out/secret", FileCase.BOUNDARY_ESCAPE), ("nowhere/file", FileCase.NOT_FOUND)):
        assert case(lambda path=path: ground.read(path)) is expected
        assert case(lambda path=path: guest_files.make_folders(ground.at(path))) is expected
    assert sorted(os.listdir(ground.outside)) == ["secret"]  # noqa: PTH208


def test_a_refusal_at_the_real_place_comes_before_the_effect(ground: Ground) -> None:
    (ground.root / "hidden").mkdir()
    (ground.root / "link").symlink_to("hidden")

    def admit(parts: Parts) -> None:
        if parts[:1] == ("hidden",):
            raise FileRefused(FileCase.CAPABILITY_DENIED)

    at = At(ground.tree, ("link", "x"), admit)
    assert case(lambda: guest_files.write(at, b"x", ground.made)) is FileCase.CAPABILITY_DENIED
    assert case(lambda: guest_files.make_folders(at)) is FileCase.CAPABILITY_DENIED
    assert case(lambda: guest_files.exists(at)) is FileCase.CAPABILITY_DENIED
    assert list((ground.root / "hidden").iterdir()) == []


def test_abi_03_a_file_with_a_name_elsewhere_is_read_and_never_written(ground: Ground) -> None:
    (ground.root / "shared").hardlink_to(ground.outside / "secret")
    assert ground.read("shared") == SECRET
    reading = guest_files.open_file(ground.at("shared"), "read", ground.made)
    assert reading.read_at(0, 100) == SECRET
    reading.close()
    for operation in (
        lambda: ground.write("shared"),
        lambda: ground.write("shared", append=True),
        lambda: guest_files.open_file(ground.at("shared"), "read-write", ground.made),
        lambda: guest_files.copy(ground.at("own"), ground.at("shared"), ground.made),
    ):
        ground.write("own")
        assert case(operation) is FileCase.ACCESS
    assert (ground.outside / "secret").read_bytes() == SECRET
    guest_files.remove(ground.at("shared"))


def test_opening_what_is_not_there_to_read_it_needs_no_room(tmp_path: Path) -> None:
    def full(_size_bytes: int) -> None:
        raise FileRefused(FileCase.QUOTA)

    at = At(FileTree(tmp_path.resolve(), is_canonical=True, grow=full), ("missing",), lambda _parts: None)
    modes = ("read", "read-write", "write", "append")
    cases = {mode: case(lambda mode=mode: guest_files.open_file(at, mode, {})) for mode in modes}  # type: ignore[misc]
    assert cases == {
        "read": FileCase.NOT_FOUND,
        "read-write": FileCase.NOT_FOUND,
        "write": FileCase.QUOTA,
        "append": FileCase.QUOTA,
    }


def test_a_name_that_was_made_here_does_not_close_the_file(ground: Ground) -> None:
    ground.write("a", b"1")
    guest_files.hard_link(ground.at("a"), ground.at("b"), ground.made)
    ground.write("b", b"2")
    assert ground.read("a") == b"2"
    (ground.outside / "third").hardlink_to(ground.root / "a")
    assert case(lambda: ground.write("a")) is FileCase.ACCESS
    assert case(lambda: guest_files.hard_link(ground.at("a"), ground.at("b"), ground.made)) is (
        FileCase.ALREADY_EXISTS
    )
    guest_files.make_folder(ground.at("folder"))
    assert case(lambda: guest_files.hard_link(ground.at("folder"), ground.at("c"), ground.made)) is (
        FileCase.IS_DIRECTORY
    )


def test_abi_04_special_files_are_refused_without_waiting(ground: Ground) -> None:
    os.mkfifo(ground.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(ground.root / "socket"))
        for name in ("fifo", "socket"):
            assert case(lambda name=name: ground.read(name)) is FileCase.ACCESS
            assert case(lambda name=name: ground.write(name)) is FileCase.ACCESS
            assert guest_files.status(ground.at(name), follow=True).kind == name
    assert guest_files.exists(ground.at("fifo"))


def test_abi_04_size_is_what_was_read(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    with (ground.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert case(lambda: ground.read("sparse")) is FileCase.TOO_LARGE
    ground.write("full", b"x" * MAX_FILE_BYTES)
    assert len(ground.read("full")) == MAX_FILE_BYTES
    (ground.root / "full").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert case(lambda: ground.read("full")) is FileCase.TOO_LARGE
    # a file that grows while it is read: what was there is given, unless it grows past the cap
    real = os.read

    def growing(handle: int, size: int) -> bytes:
        with (ground.root / "grows").open("ab") as file:
            file.write(b"y" * 4_000_000)
        return real(handle, size)

    ground.write("grows", b"y")
    monkeypatch.setattr(os, "read", growing)
    assert case(lambda: ground.read("grows")) is FileCase.TOO_LARGE


def test_what_is_made_has_the_rights_of_its_tree_whatever_the_process_leaves(ground: Ground) -> None:
    before = os.umask(0o077)
    try:
        ground.write("private")
        shared = FileTree(ground.root, is_canonical=True, umask=0o022)

        def at(*parts: str) -> At:
            return At(shared, parts, lambda _parts: None)

        guest_files.make_folder(at("one"))
        guest_files.make_folders(at("two", "three"))
        guest_files.write(at("one", "file"), b"x", ground.made)
        guest_files.open_file(at("one", "opened"), "write", ground.made).close()
        guest_files.copy(at("private"), at("one", "copied"), ground.made)
        guest_files.write(at("private"), b"y", ground.made)
    finally:
        os.umask(before)
    modes = {
        path.relative_to(ground.root).as_posix(): path.stat().st_mode & 0o777
        for path in ground.root.rglob("*")
    }
    assert modes == {
        "private": 0o600,
        **dict.fromkeys(("one", "two", "two/three"), 0o755),
        **dict.fromkeys(("one/file", "one/opened", "one/copied"), 0o644),
    }


def test_status_tells_kind_size_and_times(ground: Ground) -> None:
    ground.write("file", b"12345")
    os.utime(ground.root / "file", ns=(1_000_000_001, 2_000_000_002))
    found = guest_files.status(ground.at("file"), follow=True)
    assert (found.kind, found.size, found.accessed_ns, found.modified_ns) == (
        "regular",
        5,
        1_000_000_001,
        2_000_000_002,
    )
    assert guest_files.status(ground.at(""), follow=True).kind == "directory"
    assert case(lambda: guest_files.status(ground.at("absent"), follow=True)) is FileCase.NOT_FOUND


def test_folders_are_made_once_and_removed_empty(ground: Ground) -> None:
    guest_files.make_folder(ground.at("a"))
    guest_files.make_folder(ground.at("a"))
    assert case(lambda: guest_files.make_folder(ground.at("b/c"))) is FileCase.NOT_FOUND
    ground.write("file")
    assert case(lambda: guest_files.make_folder(ground.at("file"))) is FileCase.ALREADY_EXISTS
    assert case(lambda: guest_files.make_folders(ground.at("file/x"))) is FileCase.NOT_DIRECTORY
    guest_files.make_folders(ground.at("b/c/d"))
    guest_files.make_folders(ground.at("b/c/d"))
    assert case(lambda: guest_files.remove(ground.at("b"))) is FileCase.NOT_EMPTY
    guest_files.remove(ground.at("b/c/d"))
    assert case(lambda: guest_files.remove(ground.at("b/c/d"))) is FileCase.NOT_FOUND
    assert ground.names("b") == ["c"]


def test_the_root_is_not_a_guests_to_make_or_move(ground: Ground) -> None:
    ground.write("file")
    for operation in (
        lambda: guest_files.make_folder(ground.at("")),
        lambda: guest_files.remove(ground.at("")),
        lambda: guest_files.remove_all(ground.at("")),
        lambda: guest_files.rename(ground.at(""), ground.at("x")),
        lambda: guest_files.rename(ground.at("file"), ground.at("")),
        lambda: guest_files.hard_link(ground.at("file"), ground.at(""), ground.made),
    ):
        assert case(operation) is FileCase.ACCESS
    guest_files.make_folders(ground.at(""))
    assert ground.names() == ["file"]


def test_a_tree_is_removed_whole_and_counted(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    guest_files.make_folders(ground.at("t/a/b"))
    for path in ("t/1", "t/a/2", "t/a/b/3"):
        ground.write(path)
    (ground.root / "t/out").symlink_to(ground.outside)
    assert guest_files.remove_all(ground.at("t")) == 7
    assert (ground.outside / "secret").read_bytes() == SECRET
    assert case(lambda: guest_files.remove_all(ground.at("t"))) is FileCase.NOT_FOUND
    ground.write("file")
    assert case(lambda: guest_files.remove_all(ground.at("file"))) is FileCase.NOT_DIRECTORY
    monkeypatch.setattr(guest_files, "MAX_REMOVED", 5)
    guest_files.make_folder(ground.at("many"))
    for number in range(8):
        ground.write(f"many/{number}")
    assert case(lambda: guest_files.remove_all(ground.at("many"))) is FileCase.TOO_LARGE
    assert len(ground.names("many")) == 4
    assert guest_files.remove_all(ground.at("many")) == 5
    guest_files.make_folders(ground.at("/".join(["d"] * 140)))
    assert case(lambda: guest_files.remove_all(ground.at("d"))) is FileCase.TOO_LARGE


def test_rename_replaces_and_copy_overwrites(ground: Ground) -> None:
    ground.write("a", b"1")
    ground.write("b", b"22")
    guest_files.rename(ground.at("a"), ground.at("b"))
    assert (ground.read("b"), ground.names()) == (b"1", ["b"])
    ground.write("c", b"longer")
    guest_files.copy(ground.at("b"), ground.at("c"), ground.made)
    guest_files.copy(ground.at("b"), ground.at("d"), ground.made)
    guest_files.copy(ground.at("b"), ground.at("b"), ground.made)
    assert [ground.read(name) for name in "bcd"] == [b"1"] * 3
    guest_files.make_folders(ground.at("f/g"))
    assert case(lambda: guest_files.rename(ground.at("f"), ground.at("f/g/f"))) is FileCase.INVALID_PATH
    assert case(lambda: guest_files.rename(ground.at("b"), ground.at("f"))) is FileCase.IS_DIRECTORY
    assert case(lambda: guest_files.copy(ground.at("f"), ground.at("x"), ground.made)) is (
        FileCase.IS_DIRECTORY
    )
    assert case(lambda: guest_files.rename(ground.at("none"), ground.at("x"))) is FileCase.NOT_FOUND


def test_an_open_file_is_read_and_written_anywhere(ground: Ground) -> None:
    opened = guest_files.open_file(ground.at("f"), "write", ground.made)
    assert opened.write_at(3, b"abc") == 3
    assert case(lambda: opened.read_at(0, 1)) is FileCase.ACCESS
    assert case(lambda: opened.write_at(0, b"x" * (MAX_PIECE_BYTES + 1))) is FileCase.TOO_LARGE
    assert case(lambda: opened.write_at(1 << 63, b"x")) is FileCase.TOO_LARGE
    opened.sync(data_only=True)
    opened.sync(data_only=False)
    opened.close()
    opened.close()
    both = guest_files.open_file(ground.at("f"), "read-write", ground.made)
    assert both.read_at(0, 100) == b"\0\0\0abc"
    assert both.read_at(6, 100) == b""
    both.set_len(4)
    assert both.stat().size == 4
    both.close()
    adding = guest_files.open_file(ground.at("f"), "append", ground.made)
    adding.write_at(0, b"z")
    adding.close()
    assert ground.read("f") == b"\0\0\0az"
    for mode in ("read", "read-write"):
        assert case(lambda mode=mode: guest_files.open_file(ground.at("no"), mode, ground.made)) is (
            FileCase.NOT_FOUND
        )


def test_a_canonical_root_that_became_a_link_leads_nowhere(ground: Ground) -> None:
    parent = ground.root.parent / "parent"
    inner = parent / "inner"
    inner.mkdir(parents=True)
    tree = FileTree(inner, is_canonical=True)
    at = At(tree, ("secret",), lambda _parts: None)
    assert not guest_files.exists(at)
    inner.rmdir()
    parent.rmdir()
    parent.symlink_to(ground.root)
    (ground.root / "inner").symlink_to(ground.outside)
    assert case(lambda: guest_files.read(at)) is FileCase.NOT_DIRECTORY


def exchange(one: Path, other: Path) -> None:
    """Let two names change places in one step, whatever they name; either may be moved away just now."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)


@pytest.mark.parametrize("target", ["folder", "file"])
def test_abi_02_no_swap_of_links_leads_out(ground: Ground, target: str) -> None:
    """A thread changes `d` between a real folder and a link outwards as fast as it can."""
    (ground.root / "d").mkdir()
    stop = threading.Event()

    link = ground.root / "link"
    link.symlink_to(ground.outside if target == "folder" else ground.outside / "secret")
    (ground.root / "d/secret").write_bytes(b"inside")
    swapped = ground.root / ("d" if target == "folder" else "d/secret")

    def swap() -> None:
        while not stop.is_set():
            exchange(swapped, link)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[object] = set()
    try:
        for number in range(ENOUGH if target == "folder" else ENOUGH // 4):
            for operation in (
                lambda: ground.read("d/secret"),
                lambda: ground.write("d/secret", b"inside"),
                lambda number=number: ground.write(f"d/new{number % 7}", b"inside"),
                lambda: guest_files.remove(ground.at("d/new3")),
                lambda: guest_files.rename(ground.at("d/new4"), ground.at("d/new5")),
                lambda: guest_files.make_folders(ground.at("d/x/y")),
                lambda: guest_files.remove_all(ground.at("d/x")),
            ):
                try:
                    seen.add(operation())
                except FileRefused as refusal:
                    seen.add(refusal.case)
    finally:
        stop.set()
        thread.join()
    assert SECRET not in seen and b"inside" in seen
    assert FileCase.BOUNDARY_ESCAPE in seen
    assert sorted(os.listdir(ground.outside)) == ["secret"]  # noqa: PTH208
    assert (ground.outside / "secret").read_bytes() == SECRET


moves = st.lists(st.sampled_from(["a", "b", "..", ".", "l", "m"]), min_size=1, max_size=5)


@settings(deadline=None, max_examples=150)
@given(moves, moves, moves)
def test_any_links_are_resolved_as_the_system_does_or_refused(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str], path: list[str]
) -> None:
    ground = Ground(tmp_path_factory.mktemp("links"))
    for folder in ("a", "b", "a/b", "b/a"):
        (ground.root / folder).mkdir()
        (ground.root / folder / "file").write_bytes(folder.encode())
    (ground.root / "l").symlink_to("/".join(first))
    (ground.root / "a/m").symlink_to("/".join(second))
    named = [name for name in path if name not in ("..", ".")]
    real = Path(os.path.realpath(ground.root.joinpath(*named, "file")))
    try:
        data = ground.read("/".join([*named, "file"]))
    except FileRefused:
        return
    assert real.is_relative_to(ground.root)
    assert data == real.read_bytes()
    assert ground.asked[-1] == real.relative_to(ground.root).parts
