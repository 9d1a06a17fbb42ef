"""Whole commands as a user runs them: install, a build with nothing to do, status."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.capsules import Original, write_copy
from bench.installation import BenchFailed, Installation

PACKED_BYTES = 100_000
TYPER_PROGRAM = """
import typer

app = typer.Typer()


@app.command()
def main(name: str = "world") -> None:
    typer.echo(f"hello {name}")


app()
"""


def timed_run(command: list[str], *, environ: dict[str, str], folder: Path) -> float:
    """Seconds of one successful run."""
    started = time.perf_counter()
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    elapsed_s = time.perf_counter() - started
    if ended.returncode != 0:
        raise BenchFailed(
            f"`{' '.join(command)}` ended with {ended.returncode}: {ended.stderr.strip()[-2000:]}"
        )
    return elapsed_s


def measure_install(installation: Installation, original: Original, folder: Path, runs: int) -> list[float]:
    """Seconds of `aos capsule install` of new 100 KB capsules; each run installs one that was never
    seen."""
    times = []
    for number in range(runs):
        archive = write_copy(original, f"bench-install-{number}", folder, packed_bytes=PACKED_BYTES)
        command = [installation.aos, "capsule", "install", str(archive), "--approve-untrusted"]
        times.append(timed_run(command, environ=installation.environ, folder=folder))
    return times


def measure_build(installation: Installation, folder: Path, runs: int) -> list[float]:
    """Seconds that `aos capsule build` with nothing to do takes over `cargo build --release` with nothing
    to do.

    cargo has a target folder of its own here: the two may pass different flags, and would undo each
    other's work.
    """
    project = folder / "bench-build"
    installation.run("capsule", "new", "bench-build", folder=folder)
    aos, cargo = [installation.aos, "capsule", "build"], ["cargo", "build", "--release", "--quiet"]
    plain = _cargo_environ(installation, folder)
    timed_run(aos, environ=installation.environ, folder=project)
    timed_run(cargo, environ=plain, folder=project)
    return [
        timed_run(aos, environ=installation.environ, folder=project)
        - timed_run(cargo, environ=plain, folder=project)
        for _ in range(runs)
    ]


def _cargo_environ(installation: Installation, folder: Path) -> dict[str, str]:
    """For plain cargo: its own target folder, and the toolchain that `scripts/bench` found to build for
    wasm."""
    toolchain = os.environ.get("BENCH_RUSTUP_TOOLCHAIN", "")
    chosen = {"RUSTUP_TOOLCHAIN": toolchain} if toolchain else {}
    return {**installation.environ, **chosen, "CARGO_TARGET_DIR": str(folder / "cargo-target")}


def measure_status(installation: Installation, folder: Path, runs: int) -> tuple[list[float], list[float]]:
    """Seconds of `aos status`, and its ratio to a one-command Typer program, alternating."""
    program = folder / "one_command.py"
    program.write_text(TYPER_PROGRAM, encoding="ascii")
    status, typer = [installation.aos, "status"], [sys.executable, str(program)]
    for command in (status, typer):
        timed_run(command, environ=installation.environ, folder=folder)
    times, ratios = [], []
    for _ in range(runs):
        own = min(timed_run(status, environ=installation.environ, folder=folder) for _ in range(3))
        yardstick = min(timed_run(typer, environ=installation.environ, folder=folder) for _ in range(3))
        times.append(own)
        ratios.append(own / yardstick)
    return times, ratios
