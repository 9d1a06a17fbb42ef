"""Child processes: their bytes, their deadlines, and what is left of them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from aos_cli.build.process import TAIL_BYTES, Command, Finished, run, run_all
from aos_runtime.errors import LimitExceeded, Unavailable


def shell(script: str, folder: Path, timeout_s: float = 10.0) -> Command:
    return Command(arguments=("sh", "-c", script), folder=folder, environ=os.environ, timeout_s=timeout_s)


def test_status_output_and_errors_are_collected(tmp_path: Path) -> None:
    finished = run(shell("echo out; echo err >&2; exit 3", tmp_path))
    assert finished == Finished(status=3, stdout=b"out\n", stderr="err\n")


def test_bytes_are_handed_on_as_they_come(tmp_path: Path) -> None:
    shown, received = bytearray(), bytearray()
    finished = run(
        shell("printf a; printf b >&2; printf c", tmp_path), show=shown.extend, receive=received.extend
    )
    assert (bytes(received), bytes(shown), finished.stdout) == (b"ac", b"b", b"")


def test_only_the_tail_of_stderr_is_kept(tmp_path: Path) -> None:
    code = f"import sys; sys.stderr.write('x' * {3 * TAIL_BYTES} + 'end')"
    command = Command(
        arguments=(sys.executable, "-S", "-c", code), folder=tmp_path, environ=os.environ, timeout_s=10
    )
    finished = run(command)
    assert len(finished.stderr) == TAIL_BYTES
    assert finished.stderr.endswith("xend")


def test_several_run_side_by_side_in_order(tmp_path: Path) -> None:
    commands = [shell(f"echo {number}", tmp_path) for number in range(3)]
    assert [one.stdout for one in run_all(*commands)] == [b"0\n", b"1\n", b"2\n"]


def test_bld_08_a_missing_program_is_named(tmp_path: Path) -> None:
    command = Command(
        arguments=("no-such-program",), folder=tmp_path, environ={"PATH": str(tmp_path)}, timeout_s=1
    )
    with pytest.raises(Unavailable) as caught:
        run(command)
    assert (caught.value.code, caught.value.message) == (
        "program-missing",
        "`no-such-program` was not found on PATH",
    )


def test_bld_08_a_program_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    command = Command(arguments=(str(tmp_path / "tool"),), folder=tmp_path, environ={}, timeout_s=1)
    with pytest.raises(Unavailable) as caught:
        run(command)
    assert caught.value.code == "program-not-executable"


def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > child; wait"
    with pytest.raises(LimitExceeded) as caught:
        run(shell(script, tmp_path, timeout_s=0.3))
    assert caught.value.code == "program-deadline"
    assert_gone(int((tmp_path / "child").read_text()))


def test_what_ends_the_wait_ends_the_whole_group(tmp_path: Path) -> None:
    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(shell("sleep 60 & echo $! > child; echo ready; wait", tmp_path), receive=interrupt)
    assert_gone(int((tmp_path / "child").read_text()))


def test_a_grandchild_that_keeps_the_pipe_open_does_not_keep_us(tmp_path: Path) -> None:
    began = time.monotonic()
    finished = run(shell("sleep 5 & echo $! > child; echo done", tmp_path))
    assert finished.stdout == b"done\n"
    assert time.monotonic() - began < 4
    os.kill(int((tmp_path / "child").read_text()), 9)


def assert_gone(pid: int) -> None:
    ends_at = time.monotonic() + 5
    while time.monotonic() < ends_at:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
    raise AssertionError(f"process {pid} is still there")
