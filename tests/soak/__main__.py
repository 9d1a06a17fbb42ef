"""`scripts/soak NAME [--for T]`, `scripts/soak --list`.  Exit 1 where a soak finds a fault."""

from __future__ import annotations

import argparse
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.soak.registry import SOAKS, Budget, Report, load_soak

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FAULTS_SHOWN = 20
TELL_EACH_S = 60.0


def parse_duration_s(text: str) -> float:
    """`90`, `90s`, `4m`, `2h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"not a duration: {text!r} (90, 90s, 4m, 2h)")
    return float(match[1]) * UNITS[match[2] or "s"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Run a soak: whole, or for a time.")
    parser.add_argument("name", nargs="?", choices=sorted(SOAKS))
    parser.add_argument(
        "--for", dest="for_s", type=parse_duration_s, metavar="T", help="stop after T (90s, 4m)"
    )
    parser.add_argument("--list", action="store_true", help="print the names, one a line")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(sorted(SOAKS)))
        return 0
    if chosen.name is None:
        for name, (_, meaning) in sorted(SOAKS.items()):
            print(f"{name:10} {meaning}")
        return 2
    budget = Budget(for_s=chosen.for_s)
    with telling(chosen.name, budget):
        result = load_soak(chosen.name)(budget)
    return report(chosen.name, result, budget)


@contextmanager
def telling(name: str, budget: Budget, each_s: float = TELL_EACH_S) -> Iterator[None]:
    """Say on stderr, now and then, that the soak still runs and for how long it has."""
    is_over = threading.Event()
    whole = "" if budget.for_s is None else f" of {budget.for_s:.0f}"

    def tell() -> None:
        while not is_over.wait(each_s):
            print(f"soak {name}: {budget.elapsed_s:.0f}{whole} s", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, name="soak-teller", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def report(name: str, result: Report, budget: Budget) -> int:
    for fault in result.faults[:FAULTS_SHOWN]:
        print(f"fault: {fault}")
    if len(result.faults) > FAULTS_SHOWN:
        print(f"... and {len(result.faults) - FAULTS_SHOWN} more")
    if result.rounds == 0:
        print(f"soak {name}: nothing was tried in {budget.elapsed_s:.0f} s")
        return 1
    print(
        f"soak {name}: {result.rounds} {result.unit} in {budget.elapsed_s:.0f} s, {len(result.faults)} faults"
    )
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
