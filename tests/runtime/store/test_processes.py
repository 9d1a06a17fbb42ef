"""store.processes: a process is its boot, id and start together."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aos_runtime.store import processes
from aos_runtime.store.processes import (
    Identity,
    ProcessRecord,
    identify,
    own_record,
    process_nonce,
    send_signal,
)

GONE = ProcessRecord(pid=999_999_999, executable="/bin/x", nonce="0" * 32)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """An unrelated process of this user."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _record(process: subprocess.Popen[bytes]) -> ProcessRecord:
    return ProcessRecord(
        pid=process.pid, executable=os.path.realpath(sys.executable), nonce=process_nonce(process.pid)
    )


def test_a_process_knows_itself() -> None:
    record = own_record()
    assert identify(record) is Identity.OURS
    assert record.nonce is not None
    assert len(record.nonce) == 32
    assert record == own_record()


@pytest.mark.parametrize("pid", [0, -1, 999_999_999, 2**40])
def test_what_does_not_run_is_gone(pid: int) -> None:
    record = dataclasses.replace(GONE, pid=pid)
    assert identify(record) is Identity.GONE
    assert send_signal(record, signal.SIGTERM) is Identity.GONE


def test_dmn_06_a_reused_id_is_foreign_and_never_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    record = dataclasses.replace(_record(sleeper), nonce="0" * 32)
    assert identify(record) is Identity.FOREIGN
    assert send_signal(record, signal.SIGKILL) is Identity.FOREIGN
    assert sleeper.poll() is None


def test_dmn_06_another_executable_is_foreign(sleeper: subprocess.Popen[bytes]) -> None:
    record = dataclasses.replace(_record(sleeper), executable="/usr/bin/aos-daemon")
    assert send_signal(record, signal.SIGKILL) is Identity.FOREIGN
    assert sleeper.poll() is None


def test_dmn_06_an_executable_that_an_upgrade_replaced_is_still_ours(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = _record(sleeper)
    real = os.readlink
    monkeypatch.setattr(processes.os, "readlink", lambda path: f"{real(path)} (deleted)")
    assert identify(record) is Identity.OURS


def test_a_record_without_a_nonce_proves_nothing(sleeper: subprocess.Popen[bytes]) -> None:
    record = dataclasses.replace(_record(sleeper), nonce=None)
    assert identify(record) is Identity.UNVERIFIED
    assert send_signal(record, signal.SIGKILL) is Identity.UNVERIFIED
    assert sleeper.poll() is None


def test_the_right_process_gets_the_signal_and_a_zombie_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    record = _record(sleeper)
    assert send_signal(record, signal.SIGTERM) is Identity.OURS
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert identify(record) is Identity.GONE
    assert sleeper.wait(10) == -signal.SIGTERM


def test_without_process_descriptors_the_signal_goes_plainly(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(processes.os, "pidfd_open")
    assert send_signal(_record(sleeper), signal.SIGTERM) is Identity.OURS
    assert sleeper.wait(10) == -signal.SIGTERM
