"""Drives the real `aos` in a home of its own: the command, the daemon that it starts, and the files they
leave.

Every wait has a deadline; what was started is ended by pid, by whoever uses the fixture.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aos_runtime.home import Home

ROOT = Path(__file__).resolve().parents[2]
COMMAND_TIMEOUT_S = 120.0
WAIT_S = 30.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    command: tuple[str, ...]
    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return (
            f"`{' '.join(self.command)}` ended with {self.status}\n--- out\n{self.out}\n--- err\n{self.err}"
        )

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aos:
    """One home and one working folder.  `launcher` is the program: this interpreter on the checkout by
    default."""

    root: Path
    launcher: tuple[str, ...] = (sys.executable, "-m", "aos_cli")
    extra: Mapping[str, str] = field(default_factory=dict)
    checkout_on_path: bool = True

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @property
    def folder(self) -> Path:
        """The working folder of the commands: empty at first, and no workspace."""
        return self.root / "folder"

    @property
    def environ(self) -> dict[str, str]:
        dropped = ("AOS_", "ASTRID_", "PYTHONPATH", "GITHUB_", "CI")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        if self.checkout_on_path:
            kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
        return {**kept, "AOS_HOME": str(self.home.root), "NO_COLOR": "1", **self.extra}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """A command that goes on; the caller waits for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [*self.launcher, *arguments],
            cwd=options.pop("folder", self.folder),
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def try_run(self, *arguments: str, stdin: str = "", folder: Path | None = None) -> Ended:
        """Run a command to its end, whatever its status."""
        process = self.start(*arguments, folder=folder or self.folder)
        try:
            out, err = process.communicate(stdin, timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"no end in {COMMAND_TIMEOUT_S:.0f} s: {arguments}\n{out}\n{err}") from None
        return Ended(command=("aos", *arguments), status=process.returncode, out=out, err=err)

    def run(self, *arguments: str, stdin: str = "", folder: Path | None = None, status: int = 0) -> Ended:
        """Run a command that must end with `status`."""
        ended = self.try_run(*arguments, stdin=stdin, folder=folder)
        assert ended.status == status, str(ended)
        return ended

    def daemon_pid(self) -> int | None:
        """The pid in the run files, where that process still lives."""
        try:
            pid = int(self.home.pid_file.read_text(encoding="utf-8").splitlines()[0])
            os.kill(pid, 0)
        except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
            return None
        return pid

    def kill_daemon(self) -> None:
        """SIGKILL the daemon of this home and wait until it is gone."""
        pid = self.daemon_pid()
        assert pid is not None, "no daemon to kill"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "the killed daemon is gone")

    def close(self) -> None:
        """End whatever daemon still runs in this home."""
        pid = self.daemon_pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        try:
            wait_until(lambda: not is_alive(pid), "the daemon stops", timeout_s=15)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float = WAIT_S) -> None:
    """Poll `condition` until it holds; AssertionError that says what was waited for otherwise."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(POLL_S)
