"""A short crash sweep in every test run; `scripts/soak crash` does the long one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_ins_03_a_kill_at_any_step_leaves_a_whole_home() -> None:
    command = [sys.executable, "-m", "tests.support.crash", "--kills", "96", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "runtime")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["kills"], result["faults"]) == (96, [])
