"""Kill install and daemon state at every step; see tests/support/crash.py, which does the work in a process
of its own.

Without a budget 500 kills, with one as many as fit into it.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.soak.registry import Budget, Report
from tests.support.crash import DEFAULT_KILLS

GRACE_S = 120.0
UNBOUNDED = 1_000_000


def run(budget: Budget) -> Report:
    """Run the driver and pass its findings on."""
    command = [sys.executable, "-m", "tests.support.crash", "--format", "json"]
    if budget.for_s is None:
        command += ["--kills", str(DEFAULT_KILLS)]
        timeout_s = None
    else:
        command += ["--kills", str(UNBOUNDED), "--for", f"{budget.for_s:.0f}s"]
        timeout_s = budget.for_s + GRACE_S
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return Report(rounds=0, unit="kills", faults=(f"the driver failed: {done.stderr.strip()[-2000:]}",))
    return Report(rounds=result["kills"], unit="kills", faults=tuple(result["faults"]))
