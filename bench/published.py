"""The published runtime beside ours, where its binaries `astrid` and `astrid-daemon` are on PATH; else
`absent`.

Black boxes, driven as a user drives them in a home of their own.  Only what both have in the same form is
set side by side: boot, memory, install and status; and tool calls, which it takes on its own socket as
`astrid.v1.request.mcp.tool.call`, through its own mcp and router capsules.  Those are not in its binaries:
`ASTRID_BENCH_HOME` names a home of it, not in use, where they and the tool `hello` are installed and
approved.  It is copied, never written.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calls import BridgedCalls, measure_calls
from bench.capsules import find_tool_capsule, write_copy
from bench.installation import COMMAND_TIMEOUT_S, READY_TIMEOUT_S, BenchFailed, connect
from bench.report import ABSENT, Figure

if TYPE_CHECKING:
    from bench.measures import Plan

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
    measure = _MEASURES.get(name)
    if measure is None or published_version() == ABSENT or (name in _OF_CALLS and _prepared_home() is None):
        return figures
    with _published() as published:
        values = measure(published, plan)
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

    def connect(self) -> socket.socket:
        home = self.root / "home"
        return connect(
            home / "run" / "system.sock", home / "run" / "system.token", home / "keys" / "default.key"
        )

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


def _prepared_home() -> Path | None:
    """The home with the capsules that serve tool calls, where one is named."""
    named = os.environ.get("ASTRID_BENCH_HOME")
    return None if named is None else Path(named)


@contextmanager
def _answering(published: _Published) -> Iterator[BridgedCalls]:
    """A daemon that answers tool calls."""
    prepared = _prepared_home()
    assert prepared is not None  # it was asked before
    shutil.copytree(prepared, published.root / "home")
    with _daemon(published):
        yield BridgedCalls(find_tool_capsule(), {"name": "Ada"}, "Ada")


def _call(published: _Published, plan: Plan) -> dict[str, float]:
    with _answering(published) as calls:
        runs = [
            measure_calls(published.connect, calls, clients=1, for_s=plan.for_s) for _ in range(plan.runs)
        ]
    return {"call_p50": statistics.median(run.quantile_s(0.5) * 1e3 for run in runs)}


def _load(published: _Published, plan: Plan) -> dict[str, float]:
    eight, many = [], []
    with _answering(published) as calls:
        for _ in range(plan.runs):
            eight.append(measure_calls(published.connect, calls, clients=8, for_s=plan.for_s))
            many.append(measure_calls(published.connect, calls, clients=32, for_s=plan.for_s))
    return {
        "load_8_rate": statistics.median(run.rate for run in eight),
        "load_8_p99": statistics.median(run.quantile_s(0.99) * 1e3 for run in eight),
        "load_32_rate": statistics.median(run.rate for run in many),
        "load_32_over_8": statistics.median(
            one.rate / other.rate for one, other in zip(many, eight, strict=True)
        ),
    }


_OF_CALLS = ("call", "load")
_MEASURES = {"boot": _boot, "install": _install, "status": _status, "call": _call, "load": _load}
