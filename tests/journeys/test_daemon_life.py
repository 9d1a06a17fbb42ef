"""Starting, stopping, dying and healing, with a real daemon process (cases DMN)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.installation import Aos, is_alive, wait_until

pytestmark = pytest.mark.journey


def test_a_double_start_is_no_error(aos: Aos) -> None:
    aos.run("start")
    first = aos.daemon_pid()
    again = aos.run("start")
    assert "already running" in again.out + again.err
    assert aos.daemon_pid() == first


def test_starts_at_the_same_moment_give_one_daemon(aos: Aos) -> None:
    starters = [aos.start("start") for _ in range(4)]
    ended = [(process.communicate(timeout=60), process.returncode) for process in starters]
    assert [status for _, status in ended] == [0, 0, 0, 0], ended
    daemons = [
        pid
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        if f"AOS_HOME={aos.home.root}".encode() in _environ(pid) and b"aos_runtime.daemon" in _command(pid)
    ]
    assert daemons == [aos.daemon_pid()]


def test_dmn_02_what_a_kill_leaves_is_healed_by_the_next_start(aos: Aos) -> None:
    aos.run("start")
    aos.kill_daemon()
    assert aos.home.socket.exists()
    aos.run("start")
    aos.run("status", "--check")


def test_dmn_04_a_file_at_the_socket_path_is_left_alone(aos: Aos) -> None:
    aos.run("start")
    aos.run("stop")
    aos.home.socket.parent.mkdir(parents=True, exist_ok=True)
    aos.home.socket.write_text("mine", encoding="ascii")
    refused = aos.run("start", status=1)
    assert str(aos.home.socket) in refused.err
    assert aos.home.socket.read_text(encoding="ascii") == "mine"


def test_dmn_06_a_recycled_pid_is_never_signalled(aos: Aos) -> None:
    aos.run("start")
    aos.kill_daemon()
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        lines = aos.home.pid_file.read_text(encoding="utf-8").splitlines()
        aos.home.pid_file.write_text("\n".join([str(sleeper.pid), *lines[1:]]) + "\n", encoding="utf-8")
        aos.try_run("stop")
        time.sleep(0.2)
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_dmn_10_the_caller_of_start_sees_end_of_file(aos: Aos) -> None:
    process = aos.start("start", close_fds=True)
    out, err = process.communicate(timeout=30)  # waits for end-of-file on both pipes
    assert process.returncode == 0, out + err
    pid = aos.daemon_pid()
    assert pid is not None
    assert Path(f"/proc/{pid}/cwd").readlink() != aos.folder


def test_stopped_is_said_once_the_process_is_gone(aos: Aos) -> None:
    aos.run("start")
    pid = aos.daemon_pid()
    assert pid is not None
    aos.run("stop")
    assert not is_alive(pid)
    for path in (aos.home.socket, aos.home.token_file, aos.home.ready_file, aos.home.pid_file):
        assert not path.exists(), path
    assert aos.run("stop").status == 0, "stopping what is stopped is no error"


def test_sigterm_ends_the_daemon_and_leaves_no_run_files(aos: Aos) -> None:
    aos.run("start")
    pid = aos.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_alive(pid), "the daemon ends after SIGTERM", timeout_s=15)
    assert not aos.home.socket.exists()


def test_status_of_a_stopped_daemon(aos: Aos) -> None:
    assert "not running" in (ended := aos.run("status")).out + ended.err
    assert aos.run("status", "--check", status=1).status == 1
    assert not aos.home.root.exists(), "a command that only reads makes no home"


def test_an_ephemeral_daemon_ends_after_its_last_client(aos: Aos, hello_capsule: Path) -> None:
    aos.run("capsule", "install", str(hello_capsule), "--approve-untrusted")
    aos.run("tool", "call", "hello", "--arg", "name=Ada")
    wait_until(lambda: aos.daemon_pid() is None, "the daemon that the call started is gone")


def test_dmn_01_a_home_too_deep_for_a_socket_works_and_is_not_mixed_up_with_its_twin(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    first, second = Aos(root=deep / "first"), Aos(root=deep / "second")
    try:
        for home in (first, second):
            home.folder.mkdir(parents=True)
            home.run("start")
        assert first.home.socket != second.home.socket
        assert first.home.socket.parent.stat().st_mode & 0o777 == 0o700
        assert first.run("status", "--format", "json").json["daemon"]["pid"] == first.daemon_pid()
        assert second.run("status", "--format", "json").json["daemon"]["pid"] == second.daemon_pid()
    finally:
        first.close()
        second.close()


def test_ins_06_two_installs_at_once_have_exactly_one_whole_outcome(aos: Aos, hello_capsule: Path) -> None:
    both = [aos.start("capsule", "install", str(hello_capsule), "--approve-untrusted") for _ in range(2)]
    ended = [(process.communicate(timeout=60), process.returncode) for process in both]
    statuses = sorted(status for _, status in ended)
    assert statuses in ([0, 0], [0, 1]), ended
    if statuses == [0, 1]:
        assert any("busy" in err or "pid" in err for (_, err), status in ended if status == 1), ended
    assert aos.run("tool", "call", "hello", "--arg", "name=Ada").out == "Hello, Ada!\n"


def _environ(pid: int) -> bytes:
    return _read(Path(f"/proc/{pid}/environ"))


def _command(pid: int) -> bytes:
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
