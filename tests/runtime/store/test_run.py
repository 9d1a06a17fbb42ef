"""store.run: one daemon a home, nothing foreign removed, and looking changes nothing."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from aos_runtime.errors import Conflict, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store import run
from aos_runtime.store.files import FileLock
from aos_runtime.store.layout import open_home
from aos_runtime.store.processes import own_record
from aos_runtime.store.run import (
    Liveness,
    RunFiles,
    fingerprint,
    liveness,
    observe,
    probe_socket,
    read_process,
    sweep_stale,
)
from tests.runtime.store.conftest import names


@pytest.fixture
def files(home: Home) -> Iterator[RunFiles]:
    """The run files of a daemon that holds the lock."""
    held = RunFiles(home)
    held.acquire()
    yield held
    held.clear()


def _serve(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    return server


def _boot(files: RunFiles, workspace: Path) -> socket.socket:
    server = _serve(files.claim_socket_path())
    files.write_pid()
    files.write_token()
    files.write_ready(workspace)
    return server


def test_a_boot_writes_the_published_files(home: Home, files: RunFiles, tmp_path: Path) -> None:
    with _boot(files, tmp_path):
        assert names(home.run) == ["system.lock", "system.pid", "system.ready", "system.sock", "system.token"]
        pid, executable, nonce = home.pid_file.read_text().splitlines()
        assert (int(pid), nonce) == (os.getpid(), own_record().nonce)
        assert Path(executable).is_absolute()
        assert home.ready_file.read_text() == f"v1:{fingerprint(tmp_path)}\n"
        assert re.fullmatch(r"[0-9a-f]{64}", home.token_file.read_text())
        modes = {path.name: path.stat().st_mode & 0o777 for path in home.run.iterdir() if path != home.socket}
        assert set(modes.values()) == {0o600}
        assert probe_socket(home.socket) is None


def test_what_capsules_left_in_their_scratch_folders_goes_with_the_next_start(
    home: Home, tmp_path: Path
) -> None:
    open_home(home, create=True)
    scratch = home.scratch(PrincipalName("alice"))
    (scratch / "deep/er").mkdir(parents=True)
    (scratch / "deep/file").write_bytes(b"left")
    kept = tmp_path / "kept"
    kept.write_bytes(b"mine")
    (scratch / "link").symlink_to(kept)
    held = RunFiles(home)
    held.acquire()
    assert not home.all_scratch.exists()
    held.clear()
    assert kept.read_bytes() == b"mine"


def test_the_fingerprint_is_the_measured_one(tmp_path: Path) -> None:
    path = str(tmp_path.resolve())
    text = f"astrid-workspace-selection-v2\0{path}\0{path}/.aos\0.aos"
    assert fingerprint(tmp_path) == blake3(text.encode()).hexdigest()


def test_every_boot_has_another_token(files: RunFiles) -> None:
    first, second = files.write_token(), files.write_token()
    assert first != second
    assert len(first) == 64


def test_the_second_daemon_of_a_home_is_told_about_the_first(home: Home, files: RunFiles) -> None:
    with pytest.raises(Conflict) as caught:
        RunFiles(home).acquire(wait_s=0)
    assert caught.value.code == "daemon-running"
    assert caught.value.context["pid"] == os.getpid()


def test_liveness_over_the_life_of_a_daemon(home: Home, tmp_path: Path) -> None:
    assert liveness(home) is Liveness.STOPPED
    files = RunFiles(home)
    files.acquire()
    assert liveness(home) is Liveness.STARTING
    with _boot(files, tmp_path):
        assert observe(home).liveness is Liveness.RUNNING
        assert observe(home).process == own_record()
    files.clear()
    assert liveness(home) is Liveness.STOPPED
    assert names(home.run) == ["system.lock"]
    files.clear()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Liveness.STARTING),
        (b"1234", Liveness.STARTING),
        (b"1234\n/usr/bin/py", Liveness.STARTING),
        (b"garbage\n", Liveness.UNKNOWN),
        (b"\xff\xfe\n", Liveness.UNKNOWN),
        (b"0\n", Liveness.UNKNOWN),
        (b"-5\n", Liveness.UNKNOWN),
        (b"99999999999999\n", Liveness.UNKNOWN),
        ("١٢\n".encode(), Liveness.UNKNOWN),
        (b"999999999\n/bin/x\n" + b"0" * 32 + b"\n", Liveness.STOPPED),
    ],
)
def test_lst_15_looking_reads_and_never_repairs(home: Home, data: bytes, expected: Liveness) -> None:
    home.run.mkdir(parents=True)
    home.pid_file.write_bytes(data)
    observation = observe(home)
    assert observation.liveness is expected
    assert observation.reason
    assert home.pid_file.read_bytes() == data
    assert names(home.run) == ["system.pid"]


def test_lst_14_looking_at_no_home_creates_nothing(home: Home, tmp_path: Path) -> None:
    assert observe(home).liveness is Liveness.STOPPED
    assert read_process(home) is None
    assert sweep_stale(home) == ()
    assert names(tmp_path) == []


def test_a_folder_in_place_of_the_pid_file_is_unknown_not_a_crash(home: Home) -> None:
    home.pid_file.mkdir(parents=True)
    assert observe(home).liveness is Liveness.UNKNOWN


def test_the_ready_file_of_a_killed_daemon_does_not_stand_for_the_one_that_starts(home: Home) -> None:
    """A killed daemon leaves pid and ready file; the next has just taken the lock and cleared nothing yet."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    open_home(home, create=True)
    home.run.mkdir(parents=True, exist_ok=True)
    home.pid_file.write_text(f"{ended.pid}\n{sys.executable}\n{'0' * 32}\n")
    home.ready_file.write_text("1:left\n")
    lock = FileLock(home.lock_file)
    lock.acquire(0)
    with lock:
        assert observe(home).liveness is Liveness.STARTING


def test_a_living_process_without_the_lock_is_unknown(home: Home, files: RunFiles) -> None:
    files.write_pid()
    data = home.pid_file.read_bytes()
    files.clear()
    home.pid_file.write_bytes(data)
    observation = observe(home)
    assert observation.liveness is Liveness.UNKNOWN
    assert "does not hold the lock" in (observation.reason or "")


def test_dmn_02_the_rest_of_a_killed_daemon_is_swept(home: Home, tmp_path: Path) -> None:
    files = RunFiles(home)
    files.acquire()
    _boot(files, tmp_path).close()
    files._lock.release()
    assert sweep_stale(home) == ("system.ready", "system.sock", "system.token", "system.pid")
    assert names(home.run) == ["system.lock"]


def test_dmn_02_a_new_daemon_takes_over_a_stale_socket(home: Home, tmp_path: Path) -> None:
    files = RunFiles(home)
    files.acquire()
    _boot(files, tmp_path).close()
    files._lock.release()
    files.acquire()
    assert not home.ready_file.exists()
    with _serve(files.claim_socket_path()):
        assert probe_socket(home.socket) is None
    files.clear()


def test_dmn_03_a_busy_daemon_is_not_swept(home: Home, files: RunFiles, tmp_path: Path) -> None:
    with _boot(files, tmp_path):
        with pytest.raises(Conflict):
            sweep_stale(home)
        assert home.socket.exists()


@pytest.mark.parametrize("answer", [errno.EACCES, errno.EMFILE, errno.ECONNRESET, errno.EAGAIN, None])
def test_dmn_03_only_a_refused_connection_makes_a_socket_stale(
    home: Home, files: RunFiles, answer: int | None
) -> None:
    with _serve(home.socket):
        with pytest.raises(Conflict) as caught:
            files.claim_socket_path(probe=lambda _: answer)
        assert caught.value.code == "socket-path-taken"
        assert home.socket.exists()
    assert files.claim_socket_path(probe=lambda _: errno.ECONNREFUSED) == home.socket
    assert not home.socket.exists()


def test_dmn_04_what_is_no_socket_is_left_alone_and_named(home: Home, files: RunFiles) -> None:
    home.socket.write_text("mine")
    with pytest.raises(Conflict) as caught:
        files.claim_socket_path()
    assert caught.value.message.endswith("stands a file that is no socket")
    assert home.socket.read_text() == "mine"
    home.socket.unlink()
    home.socket.mkdir()
    with pytest.raises(Conflict) as caught:
        files.claim_socket_path()
    assert caught.value.message.endswith("stands a folder")
    files.clear()
    assert home.socket.is_dir()


def test_dmn_04_a_socket_of_another_user_is_left_alone(
    home: Home, files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _serve(home.socket):
        monkeypatch.setattr(run.os, "getuid", lambda: 4242)
        with pytest.raises(Conflict) as caught:
            files.claim_socket_path(probe=lambda _: errno.ECONNREFUSED)
        assert "another user (uid" in caught.value.message
        assert home.socket.exists()


def test_a_link_at_the_socket_path_is_taken_away_not_followed(home: Home, files: RunFiles) -> None:
    target = home.root / "target"
    target.write_text("keep")
    home.socket.symlink_to(target)
    files.claim_socket_path()
    assert not home.socket.is_symlink()
    assert target.read_text() == "keep"


def test_dmn_01_a_deep_home_gets_a_short_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = Home(tmp_path / ("d" * 100) / "one")
    other = Home(tmp_path / ("d" * 100) / "two")
    assert deep.socket != other.socket
    assert len(os.fsencode(deep.socket)) <= 103
    files = RunFiles(deep)
    files.acquire()
    path = files.claim_socket_path()
    try:
        assert path.parent.stat().st_mode & 0o777 == 0o700
        with _serve(path):
            assert probe_socket(path) is None
        path.parent.chmod(0o755)
        with pytest.raises(Conflict) as caught:
            files.claim_socket_path()
        assert caught.value.code == "socket-folder-foreign"
    finally:
        files.clear()
    assert not path.parent.exists()


def test_a_path_that_no_socket_can_have_is_said_with_its_limit(
    home: Home, files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SOCKET_PATH_MAX_BYTES", 10)
    with pytest.raises(Unavailable) as caught:
        files.claim_socket_path()
    assert caught.value.code == "socket-path-too-long"
    assert "10 bytes" in caught.value.message


def test_old_pid_files_are_read_as_far_as_they_go(home: Home) -> None:
    home.run.mkdir(parents=True)
    home.pid_file.write_text("1234\n/usr/bin/astrid-daemon\n")
    record = read_process(home)
    assert record is not None
    assert (record.pid, record.executable, record.nonce) == (1234, "/usr/bin/astrid-daemon", None)
    home.pid_file.write_text("1234\n" + "a" * 32 + "\n")
    record = read_process(home)
    assert record is not None
    assert (record.executable, record.nonce) == (None, "a" * 32)
