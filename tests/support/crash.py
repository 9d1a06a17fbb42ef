"""Kill a writer of the home at every one of its steps and see what a fresh process finds.

`python -m tests.support.crash [--kills N] [--for T] [--scenario NAME]`: each round copies a prepared home,
runs the scenario in a child that crashpoint.c kills at the n-th write, sync, rename, link, removal or folder,
once before the call takes effect and once with half of a write done, then checks in another child.  Exit 1
where a check fails.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.crash_scenarios import Scenario, all_scenarios, make_home
from tests.support.shims import build_shim

PRELOADED = "AOS_CRASHPOINT"
DEFAULT_KILLS = 500
CHILD_TIMEOUT_S = 60.0
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(slots=True)
class Tally:
    """What was done so far.  `faults` are sentences."""

    kills: int = 0
    rounds: int = 0
    faults: list[str] = field(default_factory=list)
    points: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Point:
    """One place to kill: the n-th step of a scenario, with half of a write done or not."""

    scenario: Scenario
    step: int
    is_torn: bool


def run(kills: int, for_s: float | None, only: str | None = None) -> Tally:
    """Kill `kills` times, or until `for_s` seconds are over.  The shim must be preloaded."""
    deadline = None if for_s is None else time.monotonic() + for_s
    tally = Tally()
    shim = ctypes.CDLL(os.environ[PRELOADED])
    with tempfile.TemporaryDirectory(prefix="aos-crash-", dir=_fast_folder()) as folder:
        work = Path(folder).resolve()
        scenarios = [one for one in all_scenarios() if only in (None, one.name)]
        for scenario in scenarios:
            scenario.prepare(make_home(_template(work, scenario)))
            tally.points[scenario.name] = _count(work, scenario, shim)
        points = _spread([list(_points(one, tally.points[one.name])) for one in scenarios])
        while tally.kills < kills and points:
            for point in points[: kills - tally.kills]:
                if deadline is not None and time.monotonic() >= deadline:
                    return tally
                _round(work, point, shim, tally)
    return tally


def _fast_folder() -> str | None:
    """Memory where there is some: a kill leaves the same files there, and syncing costs nothing."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def _points(scenario: Scenario, steps: int) -> Iterator[Point]:
    for step in range(1, steps + 1):
        for is_torn in (False, True):
            yield Point(scenario, step, is_torn)


def _spread(lists: list[list[Point]]) -> list[Point]:
    """All points, so ordered that any start of the list covers every scenario evenly from end to end."""
    keyed = [
        ((_radical(index), place), point)
        for place, points in enumerate(lists)
        for index, point in enumerate(points)
    ]
    return [point for _, point in sorted(keyed, key=lambda pair: pair[0])]


def _radical(index: int) -> float:
    """The van der Corput sequence: successive indices fill the unit interval evenly."""
    value, weight = 0.0, 0.5
    while index:
        value += weight * (index & 1)
        index >>= 1
        weight /= 2
    return value


def _template(work: Path, scenario: Scenario) -> Path:
    folder = work / "template" / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copy(work: Path, scenario: Scenario) -> Path:
    """A fresh copy of the prepared home, always at the same place, since files name absolute paths."""
    target = work / "round"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(_template(work, scenario), target, symlinks=True)
    return target


def _count(work: Path, scenario: Scenario, shim: ctypes.CDLL) -> int:
    """How many steps the scenario has when nobody kills it."""
    folder = _copy(work, scenario)

    def act(tell: Callable[[str], None]) -> None:
        shim.aos_crash_arm(str(folder / "home").encode(), 0, 0)
        scenario.act(make_home(folder), lambda _: None)
        tell(str(shim.aos_crash_count()))

    status, told = _in_child(act)
    assert status == 0 and told, f"scenario {scenario.name} fails by itself: {told}"
    return int(told[-1])


def _round(work: Path, point: Point, shim: ctypes.CDLL, tally: Tally) -> None:
    folder = _copy(work, point.scenario)
    where = f"{point.scenario.name}, step {point.step}{', half a write' if point.is_torn else ''}"

    def act(tell: Callable[[str], None]) -> None:
        shim.aos_crash_arm(str(folder / "home").encode(), point.step, int(point.is_torn))
        point.scenario.act(make_home(folder), tell)

    status, told = _in_child(act)
    tally.rounds += 1
    if status == -signal.SIGKILL:
        tally.kills += 1
    elif status != 0:
        tally.faults.append(f"{where}: the act failed by itself: {told[-1] if told else status}")
        return
    status, said = _in_child(lambda _: point.scenario.check(make_home(folder), told))
    if status != 0:
        tally.faults.append(f"{where}: {said[-1] if said else f'the check ended with {status}'}")


def _in_child(work: Callable[[Callable[[str], None]], None]) -> tuple[int, tuple[str, ...]]:
    """Run `work` in a forked process: its exit status (negative for a signal) and the lines that it told."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = tuple(pipe.read().decode().splitlines())
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), lines


def _child(work: Callable[[Callable[[str], None]], None], writer: int) -> None:
    signal.alarm(int(CHILD_TIMEOUT_S))
    code = 1
    try:
        work(lambda line: os.write(writer, f"{line}\n".encode()) and None)
        code = 0
    except BaseException:  # noqa: BLE001 - the top of a child process: everything becomes a line for the driver
        text = " | ".join(traceback.format_exc().splitlines()[-6:])
        os.write(writer, f"{text}\n".encode())
    finally:
        os._exit(code)


def parse_duration_s(text: str) -> float:
    """`90`, `90s`, `4m`, `2h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"not a duration: {text!r} (90, 90s, 4m, 2h)")
    return float(match[1]) * UNITS[match[2]]


def main(arguments: list[str]) -> int:
    """Parse, load the shim into a fresh interpreter, run, print a summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=DEFAULT_KILLS, metavar="N")
    parser.add_argument("--for", dest="for_s", type=parse_duration_s, metavar="T", help="90s, 4m")
    parser.add_argument("--scenario", choices=[one.name for one in all_scenarios()])
    parser.add_argument("--format", choices=("pretty", "json"), default="pretty")
    chosen = parser.parse_args(arguments)
    if PRELOADED not in os.environ:
        return _run_preloaded(arguments)
    tally = run(chosen.kills, chosen.for_s, chosen.scenario)
    if chosen.format == "json":
        print(json.dumps({"kills": tally.kills, "rounds": tally.rounds, "faults": tally.faults}))
    else:
        steps = ", ".join(f"{name} {count}" for name, count in tally.points.items())
        print("\n".join(f"fault: {fault}" for fault in tally.faults), end="\n" if tally.faults else "")
        print(f"{tally.kills} kills, {len(tally.faults)} faults; steps of each scenario: {steps}")
    return 1 if tally.faults or not tally.kills else 0


def _run_preloaded(arguments: list[str]) -> int:
    """The same command in an interpreter that has the shim loaded."""
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="aos-crashpoint-") as folder:
        shim = str(build_shim("crashpoint", Path(folder)))
        path = os.pathsep.join((str(root), str(root / "runtime")))
        environment = {**os.environ, "LD_PRELOAD": shim, PRELOADED: shim, "PYTHONPATH": path}
        command = [sys.executable, "-m", "tests.support.crash", *arguments]
        return subprocess.run(command, env=environment, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
