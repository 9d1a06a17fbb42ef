"""The crash sweep as a soak: 500 kills, or as many as the time allows.

The driver is `tests.support.crash`; it runs in an interpreter of its own, since it loads the shim that kills.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.soak.registry import Budget, Report
from tests.support.crash import DEFAULT_KILLS


def run(budget: Budget) -> Report:
    """Kill and look.  A driver that ends in another way than with its result is a fault too."""
    command = [sys.executable, "-m", "tests.support.crash", "--format", "json", "--kills", str(DEFAULT_KILLS)]
    if budget.for_s is not None:
        command += ["--for", f"{budget.for_s}s"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        result = json.loads(ended.stdout)
    except ValueError:
        words = (ended.stderr or ended.stdout).strip()[-2000:]
        return Report(rounds=0, unit="kills", faults=(f"the driver ended with {ended.returncode}: {words}",))
    return Report(rounds=result["kills"], unit="kills", faults=tuple(result["faults"]))
