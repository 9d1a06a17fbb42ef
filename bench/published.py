"""The published runtime beside ours, where its binaries `astrid` and `astrid-daemon` are on PATH; else
`absent`.

Black boxes, driven as a user drives them in a home of their own.  Only what both have in the same form is
set side by side: boot, memory, install and status.  Its tool calls go through a bridge and are not
comparable with a raw socket, so that column stays `absent` for them.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.capsules import find_tool_capsule, write_copy
from bench.installation import COMMAND_TIMEOUT_S, READY_TIMEOUT_S, BenchFailed
from bench.report import ABSENT, Figure

if TYPE_CHECKING:
    from bench.measures import Plan

COMPARABLE = ("boot", "install", "status")
PACKED_BYTES = 100_000
INSTALLS_A_MINUTE = 10
"""The published daemon refuses more."""


def published_version() -> str:
    """What `astrid --version` says, or the word absent."""
    if shutil.which("astrid") is None or shutil.which("astrid-daemon") is None:
        return ABSENT
    ended = subprocess.run(["astrid", "--version"], capture_output=True, text=True, check=False, timeout=60)
    return ended.stdout.strip() or ABSENT


def measure_published(name: str, figures: list[Figure], plan: Plan) -> list[Figure]:
    """The same figures, with the published runtime's value where it can be measured in the same way."""
    if name not in COMPARABLE or published_version() == ABSENT:
        return figures
    with _published() as published:
        values = {"boot": _boot, "install": _install, "status": _status}[name](published, plan)
    return [replace(figure, published=values.get(figure.key)) for figure in figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    root: Path

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AOS_", "ASTRID_"))}
        return {**kept, "ASTRID_HOME": str(self.root / "home"), "NO_COLOR": "1"}

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def boot(self) -> tuple[subprocess.Popen[bytes], float]:
        ready = self.root / "home" / "run" / "system.ready"
        ready.unlink(missing_ok=True)
        started = time.perf_counter()
        process = subprocess.Popen(
            ["astrid-daemon", "--workspace", str(self.workspace)],
            cwd=self.workspace,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() - started > READY_TIMEOUT_S:
                process.kill()
                raise BenchFailed("the published daemon did not get ready")
            time.sleep(0.001)
        return process, time.perf_counter() - started

    def run(self, *arguments: str) -> float:
        started = time.perf_counter()
        ended = subprocess.run(
            ["astrid", *arguments],
            cwd=self.workspace,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        elapsed_s = time.perf_counter() - started
        if ended.returncode != 0:
            raise BenchFailed(
                f"`astrid {' '.join(arguments)}` ended with {ended.returncode}: {ended.stderr[-500:]}"
            )
        return elapsed_s

    def install_copy(self, name: str, packed_bytes: int = 0) -> float:
        archive = write_copy(find_tool_capsule(), name, self.root, packed_bytes=packed_bytes)
        return self.run("capsule", "install", str(archive), "--approve-untrusted")


@contextmanager
def _published() -> Iterator[_Published]:
    root = Path(tempfile.mkdtemp(prefix="aos-bench-published-"))
    published = _Published(root=root)
    published.workspace.mkdir()
    try:
        yield published
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _daemon(published: _Published) -> Iterator[subprocess.Popen[bytes]]:
    process, _ = published.boot()
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(READY_TIMEOUT_S)


def _boot(published: _Published, plan: Plan) -> dict[str, float]:
    from bench.measures import BOOT_CAPSULES

    with _daemon(published):
        for number in range(BOOT_CAPSULES):
            if number and number % INSTALLS_A_MINUTE == 0:
                time.sleep(61)
            published.install_copy(f"bench-{number}")
    times, resident = [], []
    for _ in range(plan.runs):
        process, ready_s = published.boot()
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
        resident.append(
            int(next(line for line in status if line.startswith("VmRSS:")).split()[1]) * 1024 / 1e6
        )
        _stop(process)
        times.append(ready_s)
    return {"boot_ready": statistics.median(times), "boot_rss": statistics.median(resident)}


def _install(published: _Published, plan: Plan) -> dict[str, float]:
    with _daemon(published):
        times = [
            published.install_copy(f"bench-install-{number}", PACKED_BYTES) for number in range(plan.runs)
        ]
    return {"install_100kb": statistics.median(times)}


def _status(published: _Published, plan: Plan) -> dict[str, float]:
    with _daemon(published):
        return {"status_time": statistics.median(published.run("status") for _ in range(plan.runs))}
