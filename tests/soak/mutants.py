"""Small wrong changes to the pure rooms, each put before the tests of its room: how many are noticed?

Without a time every one is tried; with one, a sample in an order that a printed seed decides.
AOS_MUTANTS_SEED=N repeats an order, AOS_MUTANTS_ONLY=policy/hosts tries only what lies there.
"""

from __future__ import annotations

import math
import os
import random
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.soak.registry import Budget, Report
from tests.support.imports import distances
from tests.support.mutant_crew import End, Subject, crew
from tests.support.mutation import Mutation, read_mutations

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("equivalent_mutants.toml")
ROOMS = ("capsule", "bus", "policy")
EQUIVALENT = "equivalent"

AIM = 0.9
ONE_SIDED_95 = 1.645
MOST_BROKEN = 0.01
LEAST_SAMPLE = 50
"""So many are tried even where a slow machine has used the time up before the first."""

Identity = tuple[str, str, str]
"""Module, function and change: what stays the same when lines move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A package whose modules are changed, and the folder of the tests that must notice.

    `roots` are the folders where what they import is found.
    """

    package: str
    sources: Path
    tests: Path
    roots: tuple[Path, ...]

    def mutations(self) -> Iterator[Mutation]:
        for path in sorted(self.sources.glob("*.py")):
            if path.stem != "__init__":
                yield from read_mutations(path, f"{self.package}.{path.stem}")

    def test_files(self) -> list[Path]:
        return sorted(self.tests.glob("test_*.py"))

    @cache  # noqa: B019 - there are three rooms
    def parts_for(self, source: Path) -> tuple[tuple[Path, ...], ...]:
        """The test files that import a module, however far: the nearest are one part, all others another."""
        far = {file: distances(file, self.roots).get(source) for file in self.test_files()}
        nearest = min((distance for distance in far.values() if distance is not None), default=0)
        near = tuple(file for file, distance in far.items() if distance == nearest)
        further = tuple(file for file, distance in far.items() if distance is not None and file not in near)
        return (near, further) if further else (near,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which mutants are tried: `only` is the start of their place."""

    budget: Budget
    seed: int
    only: str = ""


@dataclass(slots=True)
class Tally:
    """What became of the mutants of each package."""

    ends: dict[str, Counter[str]] = field(default_factory=dict)
    survivors: list[Mutation] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def note(self, mutation: Mutation, end: End, *, is_listed: bool) -> None:
        """`is_listed` where nobody can notice it, as the list says."""
        self.ends.setdefault(package_of(mutation), Counter())[EQUIVALENT if is_listed else end] += 1
        if is_listed and end != End.SURVIVED:
            self.faults.append(f"listed as equivalent, but {end}: {place(mutation)}: {mutation.what}")
        elif not is_listed and end == End.SURVIVED:
            self.survivors.append(mutation)

    def total(self) -> Counter[str]:
        return sum(self.ends.values(), Counter())

    def lines(self) -> Iterator[str]:
        for mutation in sorted(self.survivors, key=lambda one: (one.path, one.line)):
            yield f"survived: {place(mutation)} {mutation.where}: {mutation.what}"
        for package, ends in sorted(self.ends.items()):
            counts = ", ".join(f"{ends[end]} {end}" for end in (*End, EQUIVALENT))
            yield f"{package}: {ends.total()} mutants, {counts}; {share_noticed(ends):.1%} noticed"


def package_of(mutation: Mutation) -> str:
    return mutation.module.rpartition(".")[0]


def place(mutation: Mutation) -> str:
    return f"{mutation.path.parent.name}/{mutation.path.name}:{mutation.line}"


def identity(mutation: Mutation) -> Identity:
    return (mutation.module, mutation.where, mutation.what)


def share_noticed(ends: Counter[str]) -> float:
    """The share that was noticed, of those that could be."""
    noticed = ends[End.KILLED] + ends[End.TIMED_OUT]
    return noticed / max(1, noticed + ends[End.SURVIVED])


def fault_of_share(ends: Counter[str], *, is_sample: bool) -> str | None:
    """What is wrong with the share that was noticed; a sample is given what chance may do."""
    tried = ends[End.KILLED] + ends[End.TIMED_OUT] + ends[End.SURVIVED]
    if not tried:
        return "no mutant was tried"
    if ends[End.BROKEN] > MOST_BROKEN * tried:
        return f"{ends[End.BROKEN]} of {tried} broke down outside of the tests"
    margin = ONE_SIDED_95 * math.sqrt(AIM * (1 - AIM) / tried) if is_sample else 0.0
    share = share_noticed(ends)
    return None if share >= AIM - margin else f"{share:.1%} of {tried} noticed, less than {AIM - margin:.1%}"


def read_reasons(path: Path) -> dict[Identity, str]:
    """The mutants that nobody can notice, and why."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"]
    return {(row["module"], row["where"], change): row["why"] for row in rows for change in row["changes"]}


def try_rooms(rooms: Sequence[Room], reasons: Mapping[Identity, str], order: Order) -> Tally:
    """Try the mutants of these rooms; `reasons` says of some why nobody can notice them."""
    tally = Tally()
    by_package = {room.package: room for room in rooms}
    every = [mutation for room in rooms for mutation in room.mutations()]
    stale = reasons.keys() - {identity(mutation) for mutation in every}
    tally.faults += [f"listed as equivalent, but there is none: {' '.join(one)}" for one in sorted(stale)]
    chosen = [index for index, mutation in enumerate(every) if place(mutation).startswith(order.only)]
    random.Random(order.seed).shuffle(chosen)
    subject = Subject(
        mutations=every,
        tests=[file for room in rooms for file in room.test_files()],
        tests_of=lambda mutation: by_package[package_of(mutation)].parts_for(mutation.path),
    )
    with crew(subject) as team:
        begun = (
            index for count, index in enumerate(chosen) if count < LEAST_SAMPLE or not order.budget.is_spent()
        )
        for mutation, end in team.run(begun):
            tally.note(mutation, end, is_listed=identity(mutation) in reasons)
    return tally


def run(budget: Budget) -> Report:
    """All mutants of the pure rooms, or as many as the budget allows."""
    rooms = [
        Room(
            package=f"aos_runtime.{name}",
            sources=ROOT / "runtime/aos_runtime" / name,
            tests=ROOT / "tests/runtime" / name,
            roots=(ROOT, ROOT / "runtime"),
        )
        for name in ROOMS
    ]
    seed = int(os.environ.get("AOS_MUTANTS_SEED") or random.SystemRandom().getrandbits(32))
    print(f"AOS_MUTANTS_SEED={seed}", flush=True)
    order = Order(budget=budget, seed=seed, only=os.environ.get("AOS_MUTANTS_ONLY", ""))
    tally = try_rooms(rooms, read_reasons(LISTED), order)
    for line in tally.lines():
        print(line)
    ends = tally.total()
    fault = None if tally.faults else fault_of_share(ends, is_sample=budget.for_s is not None)
    return Report(
        rounds=ends.total(),
        unit=f"mutants ({share_noticed(ends):.1%} noticed, {ends[End.SURVIVED]} survived)",
        faults=(*tally.faults, *([fault] if fault else [])),
    )
