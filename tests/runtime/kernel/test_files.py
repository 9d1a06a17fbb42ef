"""A guest's files: where a path leads, what of it is shown, what is refused and what is recorded."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.kernel.audit import AuditTrail
from aos_runtime.kernel.audited import note_calls
from aos_runtime.kernel.files import FileRoots, GuestFiles, gates_of
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.audit import AuditStore
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.file_handles import MAX_FILE_BYTES
from aos_runtime.store.file_tree import FileCase, FileRefused
from tests.support.audit_trails import SEED
from tests.support.guest_files import FileRoom


@pytest.fixture
def room(tmp_path: Path) -> FileRoom:
    return FileRoom(tmp_path)


def case(operation: Callable[[], object]) -> FileCase:
    with pytest.raises(FileRefused) as caught:
        operation()
    return caught.value.case


def test_each_scheme_is_a_folder_of_its_own(room: FileRoom) -> None:
    files = room.files()
    for path in ("cwd://a", "/b", "c", "home://d", "/tmp/e"):
        files.write(path, path.encode(), append=False)
        assert files.read(path) == path.encode()
    assert sorted(path.name for path in room.workspace.iterdir()) == ["a", "b", "c"]
    assert (room.home / "d").read_bytes() == b"home://d"
    assert (room.scratch / "e").read_bytes() == b"/tmp/e"


def test_every_operation_does_what_its_name_says(room: FileRoom) -> None:
    files = room.files()
    files.make_folder("a/b", with_parents=True)
    files.make_folder("a/c", with_parents=False)
    files.write("a/f", b"1", append=False)
    files.write("a/f", b"2", append=True)
    files.copy("a/f", "home://copy")
    files.rename("a/f", "a/b/g")
    files.hard_link("a/b/g", "a/h")
    files.write("a/h", b"3", append=True)
    (room.workspace / "link").symlink_to("a/b")
    assert files.list_names("a") == ["b", "c", "h"]
    assert (files.read("home://copy"), files.read("link/g")) == (b"12", b"123")
    assert files.canonicalize("./link//g") == "cwd://a/b/g"
    assert files.canonicalize("home://copy") == "home://copy"
    assert files.canonicalize("/tmp") == "/tmp"
    assert files.read_link("link") == "cwd://a/b"
    assert (files.stat("link", follow=True).kind, files.stat("link", follow=False).kind) == (
        "directory",
        "symlink",
    )
    assert (files.exists("a"), files.exists("b")) == (True, False)
    opened = files.open("a/h", "read-write")
    opened.write_at(0, b"x")
    opened.set_len(2)
    assert opened.read_at(0, 9) == b"x2"
    opened.close()
    files.remove("a/h")
    assert files.remove_all("a") == 4


def test_the_record_names_the_call_the_place_and_how_it_ended(room: FileRoom) -> None:
    files = room.files(Capabilities(fs_read=("cwd://",), fs_write=("cwd://out",)))
    files.make_folder("out", with_parents=False)
    files.write("/out//x", b"", append=False)
    files.open("out/x", "append").write_at(0, b"y")
    assert case(lambda: files.read("home://a\u0085b")) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.read("none")) is FileCase.NOT_FOUND
    assert case(lambda: files.read("../x")) is FileCase.INVALID_PATH
    assert case(lambda: files.rename("out/x", "home://x")) is FileCase.CROSS_VFS
    assert case(lambda: files.write("no", bytes(MAX_FILE_BYTES + 1), append=True)) is FileCase.TOO_LARGE
    assert room.notes == [
        ("fs.mkdir", "cwd://out", None),
        ("fs.write", "cwd://out/x", None),
        ("fs.open", "cwd://out/x", None),
        ("fs.write-at", "cwd://out/x", None),
        ("fs.read", "home://a\u0085b", "capability-denied"),
        ("fs.read", "cwd://none", "not-found"),
        ("fs.read", "../x", "invalid-path"),
        ("fs.rename", "cwd://out/x -> home://x", "cross-vfs"),
        ("fs.append", "no", "too-large"),
    ]


def test_a_refusal_says_in_the_log_what_would_allow_it(room: FileRoom) -> None:
    files = room.files(Capabilities(fs_read=("cwd://",)))
    assert case(lambda: files.write("a", b"", append=False)) is FileCase.CAPABILITY_DENIED
    assert [denial.render() for denial in room.denials] == [
        'denied operation=fs.write path="cwd://a" rule="no fs_write entry covers it" '
        'allow="[capabilities] fs_write = [\\"cwd://a\\"]"'
    ]


@pytest.mark.parametrize(
    "path",
    [
        "home://.config/env/demo.env.json",
        "home://.local/tokens/token",
        "home://.local/generations/demo/1/Capsule.toml",
    ],
)
def test_what_the_runtime_keeps_in_a_home_is_hidden(room: FileRoom, path: str) -> None:
    files = room.files()
    (room.home / "shortcut").symlink_to(path.removeprefix("home://").rpartition("/")[0])
    name = path.rpartition("/")[2]
    for spelled in (path, f"home://shortcut/{name}"):
        for operation in (
            lambda spelled=spelled: files.read(spelled),
            lambda spelled=spelled: files.exists(spelled),
            lambda spelled=spelled: files.stat(spelled, follow=False),
            lambda spelled=spelled: files.write(spelled, b"x", append=False),
            lambda spelled=spelled: files.open(spelled, "read"),
            lambda spelled=spelled: files.remove(spelled),
            lambda spelled=spelled: files.copy(spelled, "home://copy"),
            lambda spelled=spelled: files.rename(spelled, "home://moved"),
            lambda spelled=spelled: files.hard_link(spelled, "home://linked"),
        ):
            assert case(operation) is FileCase.CAPABILITY_DENIED, spelled
    assert files.list_names("home://") == [".config", ".local", "shortcut"]
    assert files.list_names("home://.config") == []
    assert files.list_names("home://.local") == ["capsules"]


def test_capsules_have_their_settings_beside_those_of_the_runtime(tmp_path: Path) -> None:
    """`home://.config/NAME` is where published capsules keep what people edit by hand."""
    room = FileRoom(tmp_path)
    shutil.rmtree(room.home / ".config")  # a principal whose capsules have no values yet
    files = room.files()
    files.write("home://.config/own.toml", b"name = 1", append=False)
    assert files.read("home://.config/own.toml") == b"name = 1"
    assert files.list_names("home://.config") == ["own.toml"]
    files.make_folder("home://.config/own", with_parents=False)
    for operation in (
        lambda: files.make_folder("home://.config/env", with_parents=False),
        lambda: files.rename("home://.config/own", "home://.config/env"),
        lambda: files.rename("home://.config/own", "home://.Config/ENV"),
        lambda: files.rename("home://.config", "home://moved"),
        lambda: files.remove_all("home://.config"),
        lambda: files.write("home://.config", b"x", append=False),
    ):
        assert case(operation) is FileCase.CAPABILITY_DENIED
    assert stat.S_IMODE((room.home / ".config").stat().st_mode) == 0o700


def test_installed_capsules_can_be_read_and_not_touched(room: FileRoom) -> None:
    files = room.files()
    assert files.list_names("home://.local/capsules") == ["demo"]
    assert files.read("home://.local/capsules/demo/Capsule.toml") == b"[package]\n"
    (room.home / "wit").mkdir()
    for operation in (
        lambda: files.write("home://.local/capsules/demo/Capsule.toml", b"", append=False),
        lambda: files.make_folder("home://.local/capsules/mine", with_parents=True),
        lambda: files.remove_all("home://.local/capsules"),
        lambda: files.remove_all("home://.local"),
        lambda: files.rename("home://.local", "home://x"),
        lambda: files.remove("home://.local/capsules/demo"),
        lambda: files.write("home://wit/a.wit", b"", append=False),
    ):
        assert case(operation) is FileCase.CAPABILITY_DENIED


def test_an_entry_for_installed_capsules_covers_them_wherever_their_files_are(room: FileRoom) -> None:
    every = room.files(Capabilities(fs_read=("home://.local/capsules",)))
    assert every.list_names("home://.local/capsules") == ["demo"]
    assert every.read("home://.local/capsules/demo/Capsule.toml") == b"[package]\n"
    assert case(lambda: every.read("home://.local/generations/demo/1/Capsule.toml")) is (
        FileCase.CAPABILITY_DENIED
    )
    one = room.files(Capabilities(fs_read=("home://.local/capsules/demo",)))
    assert one.read("home://.local/capsules/demo/Capsule.toml") == b"[package]\n"
    other = room.files(Capabilities(fs_read=("home://.local/capsules/dem", "home://.local/generations")))
    assert case(lambda: other.read("home://.local/capsules/demo/Capsule.toml")) is FileCase.CAPABILITY_DENIED


def test_without_a_workspace_cwd_is_the_capsules_own_folder_read_only(room: FileRoom) -> None:
    room.serves = None
    files = room.files()
    assert files.list_names("cwd://") == ["Capsule.toml"]
    assert case(lambda: files.write("Capsule.toml", b"", append=False)) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.remove("Capsule.toml")) is FileCase.CAPABILITY_DENIED
    room.serves = str(room.workspace)
    assert files.list_names("cwd://") == []
    files.write("new", b"", append=False)
    room.serves = None
    assert files.list_names("cwd://") == ["Capsule.toml"]


def test_a_hook_reads_what_it_installs_without_an_entry(room: FileRoom) -> None:
    room.serves = None
    files = room.files(Capabilities(), shows_own=True)
    assert files.read("Capsule.toml") == b"[package]\n"
    assert case(lambda: files.write("Capsule.toml", b"", append=False)) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.read("home://x")) is FileCase.CAPABILITY_DENIED
    assert case(lambda: room.files(Capabilities()).read("Capsule.toml")) is FileCase.CAPABILITY_DENIED


def test_a_literal_entry_is_a_folder_of_the_machine_and_never_the_home(room: FileRoom) -> None:
    (room.workspace / "sub").mkdir()
    (room.workspace / "sub/f").write_bytes(b"1")
    (room.home / "f").write_bytes(b"2")
    files = room.files(
        Capabilities(fs_read=(f"{room.workspace}/sub", str(room.home), str(room.own), "/tmp/x"))
    )
    assert files.read("sub/f") == b"1"
    assert case(lambda: files.read("f")) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.read("home://f")) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.read("/tmp/y")) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.read("/tmp/x")) is FileCase.NOT_FOUND
    room.serves = None
    assert case(lambda: files.read("Capsule.toml")) is FileCase.CAPABILITY_DENIED


def test_a_link_leads_no_further_than_the_entries_do(room: FileRoom) -> None:
    (room.workspace / "open").mkdir()
    (room.workspace / "closed").mkdir()
    (room.workspace / "closed/f").write_bytes(b"no")
    (room.workspace / "open/link").symlink_to("../closed")
    files = room.files(Capabilities(fs_read=("cwd://open",), fs_write=("cwd://open",)))
    for operation in (
        lambda: files.read("open/link/f"),
        lambda: files.write("open/link/g", b"", append=False),
        lambda: files.make_folder("open/link/new", with_parents=True),
        lambda: files.list_names("open/link"),
        lambda: files.canonicalize("open/link/f"),
    ):
        assert case(operation) is FileCase.CAPABILITY_DENIED
    assert sorted(path.name for path in (room.workspace / "closed").iterdir()) == ["f"]


@pytest.mark.parametrize("move", ["rename", "hard_link"])
def test_moving_a_file_does_not_make_it_readable(room: FileRoom, move: str) -> None:
    (room.workspace / "secret").write_bytes(b"s")
    (room.workspace / "out").mkdir()
    (room.workspace / "tree").mkdir()
    files = room.files(Capabilities(fs_read=("cwd://out",), fs_write=("cwd://",)))
    moving = getattr(files, move)
    assert case(lambda: moving("secret", "out/x")) is FileCase.CAPABILITY_DENIED
    moving("secret", "hidden")
    files.write("out/y", b"", append=False)
    moving("out/y", "out/z")
    deep = room.files(Capabilities(fs_read=("cwd://new/secret",), fs_write=("cwd://",)))
    if move == "rename":
        assert case(lambda: deep.rename("tree", "new")) is FileCase.CAPABILITY_DENIED


def test_opening_for_both_needs_both(room: FileRoom) -> None:
    (room.workspace / "f").write_bytes(b"1")
    writer = room.files(Capabilities(fs_write=("cwd://",)))
    reader = room.files(Capabilities(fs_read=("cwd://",)))
    for files, allowed in ((writer, {"write", "append"}), (reader, {"read"}), (room.files(), {"read-write"})):
        for mode in ("read", "write", "append", "read-write"):
            if mode in allowed:
                files.open("f", mode).close()
            elif files in (writer, reader):
                assert case(lambda files=files, mode=mode: files.open("f", mode)) is (
                    FileCase.CAPABILITY_DENIED
                )


def test_a_workspace_that_is_gone_is_not_found(room: FileRoom) -> None:
    room.serves = str(room.workspace / "gone")
    assert case(lambda: room.files().read("f")) is FileCase.NOT_FOUND
    assert not room.files().exists("f")


def test_a_home_that_is_not_there_yet_is_made(room: FileRoom) -> None:
    room.home = room.home.parent / "bob"
    room.files().write("home://a", b"1", append=False)
    assert (room.home / "a").read_bytes() == b"1"
    assert room.home.stat().st_mode & 0o077 == 0
    room.scratch = room.home / "a" / "scratch"
    with pytest.raises(FileRefused, match="unknown: its folder cannot be made"):
        room.files().read("/tmp/x")


def test_sec_14_each_call_is_on_record_before_the_guest_hears_of_it(room: FileRoom, tmp_path: Path) -> None:
    """Done, failed and denied, the last with a path of 20 MB: one row each, cut at a character boundary."""
    trail = AuditTrail(AuditStore(tmp_path / "audit.db", SEED), report=lambda _level, _text: None)
    trail.start()
    gates = gates_of(Capabilities(fs_read=("cwd://",), fs_write=("cwd://",)))
    roots = FileRoots(
        home=room.home, scratch=room.scratch, own=room.own, workspace=lambda: str(room.workspace)
    )
    note = note_calls(trail, PrincipalName("alice"), CapsuleName("demo"))
    files = GuestFiles(roots, gates, note=note, denied=room.denials.append)
    files.write("done", b"x", append=False)
    assert case(lambda: files.read("absent")) is FileCase.NOT_FOUND
    assert case(lambda: files.read("home://secret")) is FileCase.CAPABILITY_DENIED
    assert case(lambda: files.read("é" * 10_000_000)) is FileCase.INVALID_PATH
    assert trail.health()["accepted"] == 4, "taken in before the answer"
    assert trail.close()
    with read_audit(tmp_path / "audit.db") as reader:
        assert reader is not None
        rows = [record.entry for record in reader.records()]
    told = [(row.principal, row.action["capsule_id"], row.action["call"]) for row in rows]
    assert told == [("alice", "demo", call) for call in ("fs.write", "fs.read", "fs.read", "fs.read")]
    assert [row.outcome.get("error") for row in rows] == [
        None,
        "not-found",
        "capability-denied",
        "invalid-path",
    ]
    resource = str(rows[3].action["resource"])
    assert (len(resource.encode()), set(resource)) == (1024, {"é"})


def test_the_runtimes_folders_are_held_to_a_quota_and_the_workspace_is_not(room: FileRoom) -> None:
    asked: list[int] = []

    def grow(added_bytes: int) -> None:
        asked.append(added_bytes)
        if sum(asked) > 100:
            raise FileRefused(FileCase.QUOTA)

    room.grow = grow
    files = room.files()
    files.write("home://a", bytes(10), append=False)
    files.write("/tmp/a", bytes(20), append=True)
    files.make_folder("home://d", with_parents=False)
    files.make_folder("home://e/f", with_parents=True)
    files.copy("home://a", "/tmp/b")
    opened = files.open("home://a", "read-write")
    opened.write_at(0, bytes(30))
    opened.set_len(35)
    opened.set_len(5)
    assert asked == [10, 20, 0, 0, 0, 10, 30, 5, 0]
    for operation in (
        lambda: files.write("home://big", bytes(50), append=False),
        lambda: opened.write_at(0, bytes(50)),
        lambda: opened.set_len(1 << 40),
        lambda: files.copy("home://a", "home://more"),
        lambda: files.make_folder("/tmp/x", with_parents=False),
        lambda: files.make_folder("/tmp/y/z", with_parents=True),
        lambda: files.open("home://new", "write"),
    ):
        assert case(operation) is FileCase.QUOTA
    asked.clear()
    files.write("cwd://big", bytes(1000), append=False)
    files.copy("cwd://big", "cwd://bigger")
    assert asked == []
