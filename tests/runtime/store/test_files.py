"""store.files: whole or not at all, bounded reading, locks, and errors in words."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from aos_runtime.errors import Conflict, Corrupt, Unavailable
from aos_runtime.store import files
from aos_runtime.store.files import (
    FileLock,
    explain,
    is_locked,
    make_private_folder,
    read_bounded,
    read_optional,
    remove_tree,
    sweep_temporaries,
    write_all,
    write_atomic,
    write_once,
)
from tests.runtime.store.conftest import names


def test_write_atomic_replaces_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["file"]


def test_the_bytes_are_synced_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename = Path.replace

    def sync(handle: int) -> None:
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync bytes")

    def replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomic(tmp_path / "file", b"x")
    write_atomic(tmp_path / "file", b"y", sync=False)
    assert steps == ["sync bytes", "rename", "sync folder", "rename"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_write_atomic_leaves_the_old_file_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def refuse(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path if step == "replace" else files.os, step, refuse)
    with pytest.raises(Unavailable) as caught:
        write_atomic(path, b"new")
    monkeypatch.undo()
    assert caught.value.code == "no-space"
    assert caught.value.message == f"no space left on the device that holds {path}"
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "no-space"),
        (errno.EDQUOT, "no-space"),
        (errno.EROFS, "read-only-filesystem"),
        (errno.EACCES, "not-permitted"),
        (errno.EPERM, "not-permitted"),
        (errno.EIO, "file-operation-failed"),
    ],
)
def test_every_system_error_becomes_words_that_name_the_path(number: int, code: str) -> None:
    error = explain(OSError(number, os.strerror(number)), Path("/a/b"))
    assert isinstance(error, Unavailable)
    assert error.code == code
    assert "/a/b" in error.message
    assert error.hint


def test_write_once_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert write_once(path, b"first")
    assert not write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["key"]


def test_write_all_goes_on_after_a_short_write(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    def short(_handle: int, data: memoryview) -> int:
        taken.append(bytes(data[:3]))
        return len(data[:3])

    monkeypatch.setattr(files.os, "write", short)
    write_all(7, b"abcdefgh")
    assert b"".join(taken) == b"abcdefgh"


def test_sweep_removes_the_temporaries_of_dead_processes_only(tmp_path: Path) -> None:
    dead = tmp_path / ".file.999999999.0-abcd.tmp"
    alive = tmp_path / f".file.{os.getpid()}.0-abcd.tmp"
    other = tmp_path / "report.tmp"
    for path in (dead, alive, other):
        path.write_bytes(b"")
    sweep_temporaries(tmp_path)
    assert sorted(names(tmp_path)) == sorted([alive.name, other.name])


def test_make_private_folder_makes_every_missing_level_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def test_make_private_folder_says_what_stands_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(Unavailable) as caught:
        make_private_folder(tmp_path / "a" / "b")
    assert "Not a directory" in caught.value.message


def test_read_bounded_refuses_links_folders_and_large_files(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    (tmp_path / "link").symlink_to("large")
    for name, code in (("large", "file-too-large"), ("link", "file-not-regular"), (".", "file-not-regular")):
        with pytest.raises(Corrupt) as caught:
            read_bounded(tmp_path / name, 10)
        assert caught.value.code == code
    assert read_bounded(tmp_path / "large", 11) == b"x" * 11
    assert read_optional(tmp_path / "none", 10) is None
    assert read_optional(tmp_path / "large" / "below", 10) is None


def test_read_bounded_does_not_hang_on_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Corrupt):
        read_bounded(tmp_path / "pipe", 10)


def test_remove_tree_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_bytes(b"")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    assert remove_tree(inside)
    assert not remove_tree(inside)
    assert (outside / "keep").exists()


def test_ins_06_a_held_lock_says_busy_with_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    first, second = FileLock(path), FileLock(path)
    assert first.try_acquire()
    assert is_locked(path)
    waits: list[float] = []
    with pytest.raises(Conflict) as caught:
        second.acquire(0.0, pause=waits.append)
    assert caught.value.code == "busy"
    assert caught.value.message == f"busy: pid {os.getpid()} holds lock"
    first.release()
    assert not is_locked(path)
    with second:
        assert second.is_held
    assert not second.is_held


def test_a_full_disk_does_not_stop_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "pwrite", refuse)
    with FileLock(tmp_path / "lock") as lock:
        assert lock.holder is None
        assert is_locked(lock.path)


def test_a_lock_is_taken_as_soon_as_it_is_free(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    first.acquire(0.0)
    second.acquire(60.0, pause=lambda _: first.release())
    assert second.is_held
    second.release()
