"""Runs one measure and gives its figures.  Each has the set-up that it needs and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.blocked import install_dozer, measure_beside_blocked
from bench.calls import ToolCalls, measure_calls, measure_echo
from bench.capsules import Original, bundled_names, find_tool_capsule, write_copy
from bench.clients import Load
from bench.commands import measure_build, measure_install, measure_status
from bench.installation import BenchFailed, Installation, throwaway_installation
from bench.report import Figure

BOOT_CAPSULES = 11
"""What the published runtime boots with by default."""
DEMO_ARGUMENTS: dict[str, object] = {"name": "Ada"}
DEMO_ANSWER = "Ada"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure: `runs` repetitions, each load run for `for_s` seconds."""

    runs: int
    for_s: float


def _prepared(installation: Installation, folder: Path, original: Original, copies: int) -> None:
    """A home in which a daemon has run once and `copies` of the tool capsule are installed."""
    installation.home.root.mkdir(parents=True, exist_ok=True)
    with installation.daemon():
        for number in range(copies):
            archive = write_copy(original, f"bench-{number}", folder)
            installation.run("capsule", "install", str(archive), "--approve-untrusted")


def _with_home(copies: int, measure: Callable[[Installation, Path, Original], list[Figure]]) -> list[Figure]:
    original = find_tool_capsule()
    with throwaway_installation() as installation:
        folder = installation.home.root.parent
        _prepared(installation, folder, original, copies)
        return measure(installation, folder, original)


def _calls(original: Original) -> ToolCalls:
    return ToolCalls(original, DEMO_ARGUMENTS, DEMO_ANSWER)


def hook(plan: Plan) -> list[Figure]:
    """bench/hook_lane.py: one hook through the host over the same guest looped in wasm."""
    from bench.hook_lane import measure_ratios

    runs = [measure_ratios(find_tool_capsule().members) for _ in range(plan.runs)]
    keys = {0: "hook_0b", 1_000: "hook_1kb", 10_000: "hook_10kb", 100_000: "hook_100kb"}
    return [Figure(key=key, runs=tuple(run[size] for run in runs)) for size, key in keys.items()]


def call(plan: Plan) -> list[Figure]:
    def measure(installation: Installation, folder: Path, original: Original) -> list[Figure]:
        calls, times, ratios = _calls(original), [], []
        with installation.daemon() as daemon:
            for _ in range(plan.runs):
                echo = measure_echo(folder, calls.make, for_s=plan.for_s)
                own = measure_calls(daemon.connect, calls, clients=1, for_s=plan.for_s)
                times.append(own.quantile_s(0.5) * 1e3)
                ratios.append(own.quantile_s(0.5) / echo.quantile_s(0.5))
        return [Figure(key="call_p50", runs=tuple(times)), Figure(key="call_echo", runs=tuple(ratios))]

    return _with_home(0, measure)


def rate_ratios(more: Sequence[Load], fewer: Sequence[Load]) -> tuple[float, ...]:
    """The rate of each run over that of the run with fewer clients."""
    return tuple(one.rate / other.rate for one, other in zip(more, fewer, strict=True))


def load(plan: Plan) -> list[Figure]:
    def measure(installation: Installation, folder: Path, original: Original) -> list[Figure]:
        calls = _calls(original)
        with installation.daemon() as daemon:
            eight, many = [], []
            for _ in range(plan.runs):
                eight.append(measure_calls(daemon.connect, calls, clients=8, for_s=plan.for_s))
                many.append(measure_calls(daemon.connect, calls, clients=32, for_s=plan.for_s))
            install_dozer(installation, folder)
            beside = [measure_beside_blocked(daemon, calls, for_s=plan.for_s) for _ in range(plan.runs)]
        return [
            Figure(key="load_8_rate", runs=tuple(run.rate for run in eight)),
            Figure(key="load_8_p99", runs=tuple(run.quantile_s(0.99) * 1e3 for run in eight)),
            Figure(key="load_32_rate", runs=tuple(run.rate for run in many)),
            Figure(key="load_32_over_8", runs=rate_ratios(many, eight)),
            Figure(key="load_beside_16", runs=tuple(beside)),
        ]

    return _with_home(0, measure)


def boot(plan: Plan) -> list[Figure]:
    def measure(installation: Installation, folder: Path, original: Original) -> list[Figure]:
        times, resident = [], []
        for _ in range(plan.runs):
            daemon, ready_s = installation.boot()
            try:
                _check_capsules(installation)
                measure_calls(daemon.connect, _calls(original), clients=1, for_s=0.05)
                resident.append(daemon.resident_mb())
            finally:
                daemon.stop()
            times.append(ready_s)
        return [Figure(key="boot_ready", runs=tuple(times)), Figure(key="boot_rss", runs=tuple(resident))]

    return _with_home(BOOT_CAPSULES - len(bundled_names()), measure)


def _check_capsules(installation: Installation) -> None:
    """All eleven must be up, or the boot that was timed was not the boot that is meant."""
    capsules = json.loads(installation.run("status", "--format", "json"))["daemon"]["capsules"]
    ready = [row["name"] for row in capsules if row["state"] == "ready"]
    if len(ready) != BOOT_CAPSULES:
        raise BenchFailed(f"{len(ready)} capsules are ready, not {BOOT_CAPSULES}: {capsules}")


def install(plan: Plan) -> list[Figure]:
    def measure(installation: Installation, folder: Path, original: Original) -> list[Figure]:
        with installation.daemon():
            return [
                Figure(
                    key="install_100kb",
                    runs=tuple(measure_install(installation, original, folder, plan.runs)),
                )
            ]

    return _with_home(0, measure)


def build(plan: Plan) -> list[Figure]:
    with throwaway_installation() as installation:
        installation.home.root.mkdir(parents=True)
        times = measure_build(installation, installation.home.root.parent, plan.runs)
    return [Figure(key="build_over_cargo", runs=tuple(times))]


def status(plan: Plan) -> list[Figure]:
    def measure(installation: Installation, folder: Path, original: Original) -> list[Figure]:
        with installation.daemon():
            times, ratios = measure_status(installation, folder, plan.runs)
        return [Figure(key="status_time", runs=tuple(times)), Figure(key="status_typer", runs=tuple(ratios))]

    return _with_home(0, measure)


def payload(plan: Plan) -> list[Figure]:
    """bench/payload.py: host calls that move bytes, over what Python needs for the same bytes."""
    from bench.payload import measure_costs, measure_memory

    costs = [measure_costs() for _ in range(plan.runs)]
    sizes = [measure_memory() for _ in range(plan.runs)]
    return [
        *(Figure(key=f"payload_{key}", runs=tuple(run[key] for run in costs)) for key in costs[0]),
        *(Figure(key=f"payload_{key}_memory", runs=tuple(run[key] for run in sizes)) for key in sizes[0]),
    ]


def kv(plan: Plan) -> list[Figure]:
    """bench/payload.py: the key-value store with small values, over bare sqlite3."""
    from bench.payload import measure_kv

    runs = [measure_kv() for _ in range(plan.runs)]
    return [Figure(key=f"kv_{key}", runs=tuple(run[key] for run in runs)) for key in runs[0]]


MEASURE: dict[str, Callable[[Plan], list[Figure]]] = {
    "hook": hook, "call": call, "load": load, "boot": boot, "install": install, "build": build, "status":
    status, "payload": payload, "kv": kv, }  # fmt: skip
