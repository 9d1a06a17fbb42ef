"""What a machine lacks is named with the command that brings it; with --yes that command is run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "dirname", "id", "uname", "cat", "cksum", "mkdir", "rm", "printf")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with the few tools that every machine has: all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
    path.chmod(0o755)


def need(bare: Path, function: str, *, yes: bool = False) -> subprocess.CompletedProcess[str]:
    code = f'set -euo pipefail; assume_yes={"yes" if yes else "no"}; . "$1"; {function}'
    return subprocess.run(
        ["bash", "-c", code, "bash", str(ROOT / "scripts" / "environment")],
        env={"PATH": str(bare), "HOME": str(bare.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_a_missing_rust_is_named_with_its_installer(bare: Path) -> None:
    ended = need(bare, "need_cargo")
    assert ended.returncode == 1
    assert "Rust (cargo) is missing" in ended.stderr
    assert "rustup" in ended.stderr and "--yes" in ended.stderr


def test_a_missing_linker_is_named_with_the_package_of_this_system(bare: Path) -> None:
    program(bare, "apt-get", "exit 0")
    ended = need(bare, "need_linker")
    assert ended.returncode == 1
    assert "apt-get install -y --no-install-recommends gcc libc6-dev" in ended.stderr


def test_yes_runs_the_command_that_brings_it(bare: Path) -> None:
    program(bare, "apt-get", f'echo "$@" >>"{bare}/asked"')
    program(bare, "sudo", 'exec "$@"')
    ended = need(bare, "need_linker", yes=True)
    assert ended.returncode == 0, ended.stderr
    assert (bare / "asked").read_text(
        encoding="ascii"
    ) == "install -y --no-install-recommends gcc libc6-dev\n"


def test_a_command_that_fails_is_said(bare: Path) -> None:
    program(bare, "apt-get", "exit 100")
    program(bare, "sudo", 'exec "$@"')
    ended = need(bare, "need_linker", yes=True)
    assert ended.returncode == 1
    assert "failed" in ended.stderr


def test_a_python_that_is_too_old_is_named(bare: Path) -> None:
    program(bare, "python3", "exit 1")
    ended = need(bare, "need_python")
    assert ended.returncode == 1
    assert "Python 3.11 or newer is missing" in ended.stderr


def test_a_python_without_venv_is_named_with_its_package(bare: Path) -> None:
    answers = 'case "$2" in *ensurepip*) exit 1 ;; *print*) echo python3.11-venv ;; esac'
    program(bare, "python3.11", answers)
    program(bare, "apt-get", "exit 0")
    ended = need(bare, "need_python")
    assert ended.returncode == 1
    assert "the venv module of Python is missing" in ended.stderr
    assert "python3.11-venv" in ended.stderr


def test_windows_is_refused_in_one_sentence(bare: Path) -> None:
    (bare / "uname").unlink()
    program(bare, "uname", "echo MINGW64_NT-10.0")
    ended = need(bare, "refuse_windows")
    assert (ended.returncode, ended.stderr) == (1, "error: aos runs on Linux and macOS; on Windows use WSL\n")
