"""One signal unwinds a command, a second ends it at once; neither shows a traceback, whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys
from aos_cli import app

def strike(*_):
    os.kill(os.getpid(), {number})

def fail(*_):
    raise RuntimeError("broken")

{patches}
status = app.run(["version"], os.environ)
print("status", status, flush=True)
strike()
print("still here")
"""
MAIN = """
import aos_runtime.daemon.__main__ as daemon, os
daemon._serve = lambda parsed: os.kill(os.getpid(), {number})
daemon.main(["serve"])
"""


def ended(code: str) -> tuple[int, str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


both = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)


@both
def test_the_first_unwinds_and_one_after_the_command_ends_the_process(
    number: signal.Signals, status: int
) -> None:
    code = PROGRAM.format(number=int(number), patches="app._dispatch = strike")
    assert ended(code) == (-number, f"status {status}\n", "")


@both
def test_a_second_while_the_first_is_told_ends_the_process_at_once(
    number: signal.Signals, status: int
) -> None:
    patches = "app._dispatch = strike\napp._show = strike"
    assert ended(PROGRAM.format(number=int(number), patches=patches)) == (-number, "", "")


@both
def test_a_first_while_a_failure_is_told_is_the_end_that_counts(number: signal.Signals, status: int) -> None:
    patches = "app._dispatch = fail\napp._show = strike"
    code = PROGRAM.format(number=int(number), patches=patches)
    assert ended(code) == (-number, f"status {status}\n", "")


def test_a_background_job_stays_deaf_to_ctrl_c() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + PROGRAM
    status, out, _ = ended(code.format(number=int(signal.SIGINT), patches=""))
    assert (status, out.endswith("still here\n")) == (0, True)


@both
def test_a_daemon_that_is_not_up_yet_ends_without_a_traceback(number: signal.Signals, status: int) -> None:
    assert ended(MAIN.format(number=int(number))) == (-number, "", "")
