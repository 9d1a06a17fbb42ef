"""What a command imports: `aos status` must not pay for what other commands need (cases CPL-05).

Counted in modules, in a fresh process, never in milliseconds; the bench has the times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "wasmtime",
    "rich",
    "pydantic",
    "jsonschema",
    "tomlkit",
    "msgspec",
    "zstandard",
    "httpx",
    "sqlite3",
    "asyncio",
    "markdown_it",
    "pygments",
}
PROGRAM = """
import json, os, sys
from aos_cli.app import run
status = run(sys.argv[1:], os.environ)
sys.stdout.flush()
packages = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([status, packages, sorted(sys.modules)]), file=sys.stderr)
"""


def imported_by(*words: str) -> tuple[int, set[str], set[str]]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    status, packages, modules = json.loads(ended.stderr.splitlines()[-1])
    return status, set(packages), set(modules)


@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("--help",), ("completions", "bash")])
def test_the_quick_commands_import_nothing_heavy(words: tuple[str, ...]) -> None:
    status, packages, _ = imported_by(*words)
    assert (status, packages & HEAVY) == (0, set())


def test_help_imports_no_command_and_no_room_of_the_store() -> None:
    _, _, modules = imported_by("--help")
    assert [name for name in modules if name.startswith(("aos_cli.commands.", "aos_runtime.store"))] == []


def test_nacl_is_imported_only_to_sign() -> None:
    assert "nacl" not in imported_by("--help")[1]
    assert "nacl" not in imported_by("completions", "bash")[1]


@pytest.mark.parametrize(
    "words",
    [("capsule", "list"), ("capsule", "show", "x"), ("logs",), ("tool", "list", "--no-start"), ("ps",)],
)
def test_no_reading_command_imports_the_engine_or_pydantic(words: tuple[str, ...]) -> None:
    assert imported_by(*words)[1] & {"wasmtime", "pydantic", "rich", "asyncio"} == set()
