"""A capsule that is no single core module, on the real thing: built, installed, called, and called again by a
daemon that has only its precompiled code.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aos_runtime.capsule.wasm import component_imports
from tests.support.installation import Aos
from tests.support.python_capsule import archive_of, build_component

pytestmark = pytest.mark.journey


def tally(aos: Aos, by: int) -> dict[str, object]:
    ended = aos.run("tool", "call", "tally", "--input", json.dumps({"by": by}))
    found: dict[str, object] = json.loads(ended.out)
    return found


def test_a_capsule_in_python_is_installed_called_and_survives_a_restart(aos: Aos, tmp_path: Path) -> None:
    component = build_component(tmp_path / "build")
    imports = component_imports(component)
    assert "astrid:kv/host@1.0.0" in imports and not any(name.startswith("wasi:") for name in imports)
    archive = tmp_path / "python.capsule"
    archive.write_bytes(archive_of(component))
    aos.run("capsule", "install", str(archive), "--approve-untrusted")
    wanted = {
        "city": None,
        "keys": ["count"],
        "random": 16,
        "empty key": "ErrorCode_InvalidKey",
        "elsewhere": "ErrorCode_CapabilityDenied",
    }
    assert tally(aos, 3) == {**wanted, "count": 3}
    assert tally(aos, 4) == {**wanted, "count": 7}
    assert "count is 7" in aos.run("logs", "python").out
    aos.run("restart")
    assert tally(aos, 1) == {**wanted, "count": 8}
