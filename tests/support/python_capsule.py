"""A capsule written in Python, made by componentize-py: dozens of core modules that share a memory.

WASI, which the Python of componentize-py is built for, is stubbed out: its calls trap, and no function is
imported but those of `astrid:*`.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from aos_runtime.capsule.archive import Member, write_archive
from tests.support import abi

PROJECT = Path(__file__).parents[1] / "journeys" / "projects" / "python"
WORLD = """package test:python;

interface lifecycle {
  record capsule-result { action: string, data: option<string> }
}

world capsule {
  import astrid:ipc/host@1.0.0;
  import astrid:kv/host@1.0.0;
  import astrid:sys/host@1.0.0;
  use lifecycle.{capsule-result};
  export astrid-hook-trigger: func(action: string, payload: list<u8>) -> capsule-result;
}
"""


def build_component(folder: Path) -> bytes:
    """The component of the project, built in `folder`.  Takes some seconds."""
    (folder / "wit").mkdir(parents=True)
    (folder / "wit" / "world.wit").write_text(WORLD + abi.packages())
    program = Path(sysconfig.get_path("scripts")) / "componentize-py"
    made = folder / "python.wasm"
    command = [str(program), "--wit-path", str(folder / "wit"), "--world", "capsule", "componentize"]
    options = ["--stub-wasi", "--python-path", str(PROJECT), "app", "--output", str(made)]
    run = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    return made.read_bytes()


def archive_of(component: bytes) -> bytes:
    """An unsigned `.capsule` of it."""
    manifest = (PROJECT / "Capsule.toml").read_bytes()
    return write_archive(
        [Member(path="Capsule.toml", data=manifest), Member(path="python.wasm", data=component)]
    )
