"""astrid:fs: every function over real folders, its error arms, and a guest that holds open files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.host import Err, HostEngine, Instance
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.factors.fs import FILE_HANDLE, MAX_OPEN_FILES
from aos_runtime.store.file_handles import MAX_FILE_BYTES
from aos_runtime.store.file_tree import FileCase
from tests.support.guest_files import EVERYTHING, FileRoom
from tests.support.guests import FS, Recorder, code_of, guest_text


@pytest.fixture
def room(tmp_path: Path) -> FileRoom:
    return FileRoom(tmp_path)


@pytest.fixture
def context(room: FileRoom, recorder: Recorder) -> GuestContext:
    return recorder.context(files=room.files(), keeps_resources=True)


def call(context: GuestContext, name: str, *arguments: object) -> Any:
    return FACTORS[FS, name].run(context, *arguments)


def method(context: GuestContext, name: str, *arguments: object) -> Any:
    return call(context, f"[method]file-handle.{name}", *arguments)


def test_every_function_of_the_interface_works(context: GuestContext, room: FileRoom) -> None:
    assert call(context, "fs-mkdir", "d") is None
    assert call(context, "fs-mkdir-all", "d/e/f") is None
    assert call(context, "write-file", "d/a", b"one") is None
    assert call(context, "fs-append", "d/a", b"two") is None
    assert call(context, "read-file", "d/a") == b"onetwo"
    assert call(context, "fs-exists", "d/a") is True
    assert call(context, "fs-exists", "d/b") is False
    assert call(context, "fs-readdir", "d") == ["a", "e"]
    assert call(context, "fs-copy", "d/a", "/tmp/c") is None
    assert call(context, "fs-rename", "d/a", "d/b") is None
    assert call(context, "fs-hard-link", "d/b", "d/c") is None
    (room.workspace / "link").symlink_to("d")
    assert call(context, "fs-canonicalize", "link/b") == "cwd://d/b"
    assert call(context, "fs-read-link", "link") == "cwd://d"
    assert call(context, "fs-stat", "link")["kind"] == "directory"
    assert call(context, "fs-stat-symlink", "link")["kind"] == "symlink"
    assert call(context, "fs-unlink", "link") is None
    assert call(context, "fs-remove-dir-all", "d") == 5
    assert call(context, "read-file", "/tmp/c") == b"onetwo"


@pytest.mark.parametrize("name", ["write-file", "fs-append"])
def test_abi_04_a_write_over_the_cap_is_refused(context: GuestContext, name: str) -> None:
    call(context, "write-file", "f", b"before")
    assert call(context, name, "f", bytes(MAX_FILE_BYTES + 1)) == Err("too-large")
    assert call(context, "read-file", "f") == b"before"
    assert call(context, name, "new", bytes(MAX_FILE_BYTES)) is None
    assert len(call(context, "read-file", "new")) == MAX_FILE_BYTES


def test_the_status_of_a_file(context: GuestContext, room: FileRoom) -> None:
    call(context, "write-file", "f", b"12")
    (room.workspace / "f").chmod(0o640)
    os.utime(room.workspace / "f", ns=(1_500_000_000_000_000_007, -1))
    expected = {
        "size": 2,
        "kind": "regular",
        "mode": 0o100640,
        "modified": {"seconds": -1, "nanoseconds": 999_999_999},
        "created": None,
        "accessed": {"seconds": 1_500_000_000, "nanoseconds": 7},
    }
    assert call(context, "fs-stat", "f") == expected
    handle = call(context, "fs-open", "f", "read")
    assert method(context, "stat", handle) == expected


def test_an_open_file(context: GuestContext) -> None:
    handle = call(context, "fs-open", "f", "write")
    assert method(context, "write-at", handle, 2, b"xy") == 2
    assert method(context, "sync-data", handle) is None
    assert method(context, "sync-all", handle) is None
    assert method(context, "set-len", handle, 3) is None
    assert method(context, "read-at", handle, 0, 1) == Err("access")
    reader = call(context, "fs-open", "f", "read")
    assert method(context, "read-at", reader, 0, 99) == b"\0\0x"
    assert method(context, "read-at", reader, 3, 99) == b""
    assert method(context, "write-at", reader, 0, b"") in (0, Err("access"))
    context.resources.drop(FILE_HANDLE, reader)
    for name, *arguments in (
        ("read-at", 0, 1),
        ("write-at", 0, b""),
        ("sync-data",),
        ("sync-all",),
        ("stat",),
        ("set-len", 0),
    ):
        assert method(context, name, reader, *arguments) == Err("closed"), name


def test_open_files_are_bounded_and_accounted(context: GuestContext) -> None:
    handles = [call(context, "fs-open", "f", "write") for _ in range(MAX_OPEN_FILES)]
    assert call(context, "fs-open", "f", "write") == Err("quota")
    assert context.resources.count(FILE_HANDLE) == MAX_OPEN_FILES
    context.resources.drop(FILE_HANDLE, handles[0])
    assert isinstance(call(context, "fs-open", "f", "write"), int)
    context.resources.clear()
    assert context.resources.opened == context.resources.closed == MAX_OPEN_FILES + 1
    full = context.resources
    full.limit = 0
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert call(context, "fs-open", "f", "write") == Err("quota")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_each_refusal_is_its_own_arm(context: GuestContext, room: FileRoom) -> None:
    call(context, "write-file", "f", b"")
    call(context, "fs-mkdir-all", "d/e")
    (room.workspace / "out").symlink_to("/")
    os.mkfifo(room.workspace / "fifo")
    assert {
        call(context, "read-file", "none"): "not-found",
        call(context, "read-file", "fifo"): "access",
        call(context, "fs-rename", "fifo", "home://.config/x"): "cross-vfs",
        call(context, "read-file", "home://.config/env/demo.env.json"): "capability-denied",
        call(context, "read-file", "out/etc/passwd"): "boundary-escape",
        call(context, "read-file", "a/../f"): "invalid-path",
        call(context, "read-file", "d"): "is-directory",
        call(context, "read-file", "f/x"): "not-directory",
        call(context, "fs-unlink", "d"): "not-empty",
        call(context, "write-file", "f", bytes(10 * 1024 * 1024 + 1)): "too-large",
        call(context, "fs-mkdir", "f"): "already-exists",
        method(context, "stat", 99): "closed",
    } == {
        Err(case): case
        for case in (
            *("not-found", "access", "cross-vfs", "capability-denied", "boundary-escape", "invalid-path"),
            *("is-directory", "not-directory", "not-empty", "too-large", "already-exists", "closed"),
        )
    }


@pytest.mark.parametrize(
    ("number", "case"), [(28, "quota"), (122, "quota"), (11, "would-block"), (24, "access"), (5, "unknown")]
)
def test_what_the_system_says_becomes_an_arm_without_a_path(
    context: GuestContext, monkeypatch: pytest.MonkeyPatch, number: int, case: str
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number), "/a/path/of/this/machine")

    monkeypatch.setattr(os, "write", fail)
    refused = call(context, "write-file", "f", b"x")
    assert refused == Err(case, "Input/output error" if case == "unknown" else None)


def test_the_arms_are_those_of_the_wit_in_their_order() -> None:
    signature = FACTORS[FS, "fs-exists"].signature
    assert [name for name, _ in signature.result.err.cases] == [case.value for case in FileCase]  # type: ignore[union-attr]


def test_without_files_every_path_is_refused(recorder: Recorder) -> None:
    context = recorder.context()
    assert call(context, "read-file", "f") == Err("capability-denied")
    assert call(context, "fs-open", "f", "read") == Err("capability-denied")


IMPORTS = f"""
 (import "{FS}" "fs-open" (func $open (param i32 i32 i32 i32)))
 (import "{FS}" "[method]file-handle.read-at" (func $read (param i32 i64 i32 i32)))
 (import "{FS}" "[method]file-handle.stat" (func $stat (param i32 i32)))
 (import "{FS}" "[resource-drop]file-handle" (func $drop (param i32)))
 (import "{FS}" "fs-readdir" (func $list (param i32 i32 i32)))"""
OPEN = "(call $open (local.get $action) (local.get $action_size) (i32.const 0) (i32.const 512))"
"""The action is the path; the handle stands at 516."""
HANDLE = "(i32.load (i32.const 516))"
READ = f"(call $read {HANDLE} (i64.const 1) (i32.const 3) (i32.const 600))"
RETURN = """(i32.store (i32.const 16) (i32.load (i32.const 604)))
 (i32.store (i32.const 20) (i32.load (i32.const 608)))
 (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
"""Returns the bytes that were read, as its action."""
Build = Callable[..., Instance]


@pytest.fixture
def guest(engine: HostEngine, room: FileRoom, instantiate: Callable[..., Instance]) -> Build:
    def build(hook: str, **changes: object) -> Instance:
        fields = {"files": room.files(), "capabilities": EVERYTHING, **changes}
        return instantiate(code_of(engine, guest_text(hook, imports=IMPORTS)), **fields)

    return build


def test_cmp_21_a_guest_opens_and_reads(guest: Build, room: FileRoom) -> None:
    (room.workspace / "hello").write_bytes(b"abcdef")
    instance = guest(OPEN + READ + RETURN)
    assert instance.hook(b"hello", b"").action == "bcd"
    resources = instance.context.resources
    assert (resources.opened, resources.closed, resources.live) == (1, 1, 0), "none outlives the hook"


def test_a_record_with_options_reaches_the_guest(guest: Build, room: FileRoom) -> None:
    (room.workspace / "hello").write_bytes(b"abcdef")
    stat = f"(call $stat {HANDLE} (i32.const 600))"
    # size at 608, kind at 616, mode at 620, then three options of (s64, u32), 24 bytes each
    answer = """(i32.store8 (i32.const 100) (i32.add (i32.const 48) (i32.load8_u (i32.const 608))))
      (i32.store8 (i32.const 101) (i32.add (i32.const 48) (i32.load8_u (i32.const 616))))
      (i32.store8 (i32.const 102) (i32.add (i32.const 48) (i32.load8_u (i32.const 624))))
      (i32.store8 (i32.const 103) (i32.add (i32.const 48) (i32.load8_u (i32.const 648))))
      (i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 4))
      (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
    instance = guest(OPEN + stat + answer)
    assert instance.hook(b"hello", b"").action == "6110", "6 bytes, regular, modified, never created"


def test_ten_thousand_open_files_leave_nothing(guest: Build, room: FileRoom) -> None:
    (room.workspace / "hello").write_bytes(b"abcdef")
    instance = guest(OPEN + f"(call $drop {HANDLE})" + OPEN + READ + RETURN, keeps_resources=False)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5_000):
        assert instance.hook(b"hello", b"").action == "bcd"
    resources = instance.context.resources
    assert (resources.opened, resources.closed, resources.live) == (10_000, 10_000, 0)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_capsule_without_rights_is_denied_and_goes_on(guest: Build, room: FileRoom) -> None:
    (room.workspace / "hello").write_bytes(b"abcdef")
    answer = """(i32.store8 (i32.const 100) (i32.add (i32.const 48) (i32.load8_u (i32.const 512))))
      (i32.store8 (i32.const 101) (i32.add (i32.const 48) (i32.load8_u (i32.const 516))))
      (i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 2))
      (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
    instance = guest(OPEN + answer, files=room.files(Capabilities()))
    assert [instance.hook(b"hello", b"").action for _ in range(2)] == ["12", "12"], "the err arm, case 2"
