"""`scripts/bench [NAME...] [--format json] [--smoke]`: each figure with its target; exit 1 where one
falls short."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from aos_runtime import AOS_VERSION
from bench.measures import MEASURE, Plan
from bench.published import measure_published, published_version
from bench.report import Figure, render_json, render_table
from bench.targets import MEASURES

FULL = Plan(runs=5, for_s=2.0)
SMOKE = Plan(runs=1, for_s=0.3)
"""One short run of each: shows that every measure works and every reply is right, and holds no figure to
its bound."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"measures to run: {', '.join(MEASURES)}")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--smoke", action="store_true", help="one short run of each, no figure is held to its target"
    )
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in MEASURE]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)} (one of {', '.join(MEASURES)})")
    plan = SMOKE if chosen.smoke else FULL
    figures: list[Figure] = []
    for name in chosen.names or MEASURES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures += measure_published(name, MEASURE[name](plan), plan)
    draw = render_json if chosen.format == "json" else render_table
    print(draw(figures, conditions(plan)))
    return 0 if chosen.smoke or all(figure.is_met for figure in figures) else 1


def conditions(plan: Plan) -> dict[str, str]:
    """What the figures depend on."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.release()}",
        "load average": load,
        "versions": f"aos {AOS_VERSION}, Python {platform.python_version()}, wasmtime {version('wasmtime')}",
        "runs": f"{plan.runs} of each, median and spread; a load run lasts {plan.for_s:g} s",
        "published": published_version(),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor() or platform.machine()
    lines = information.read_text(encoding="utf-8").splitlines()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
