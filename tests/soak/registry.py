"""The list of soaks: long runs that find what shows only after many tries.  Run by `scripts/soak`.

A soak is a module with a function `run(budget) -> Report`; registering it is one line in `SOAKS`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long a soak may go on.  `for_s` is None for the whole run, which ends by itself."""

    for_s: float | None
    started_s: float = field(default_factory=time.monotonic)

    def is_spent(self) -> bool:
        return self.for_s is not None and time.monotonic() - self.started_s >= self.for_s

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a soak did.  `rounds` of what `unit` says; `faults` are sentences, empty where all is well."""

    rounds: int
    unit: str
    faults: tuple[str, ...] = ()


Soak = Callable[[Budget], Report]

SOAKS: dict[str, tuple[str, str]] = {
    "crash": (
        "tests.soak.crash",
        "kill install and daemon at every n-th write, fsync and rename: every home opens again, whole",
    ),
    "lanes": (
        "tests.soak.lanes",
        "both lanes with the same random calls of the whole ABI: equal, and equal to what was sent",
    ),
    "pointers": (
        "tests.soak.pointers",
        "made-up pointers: nothing outside a guest's memory is touched, every lie is a trap of that guest",
    ),
    "host": (
        "tests.soak.host_fuzz",
        "a guest that calls every import with random numbers: each call is honest or a trap, never our fault",
    ),
    "load": (
        "tests.soak.load",
        "ten minutes at full load of several principals: each reply right, memory, descriptors, threads flat",
    ),
    "mixed": (
        "tests.soak.mixed",
        "an hour of every kind of capsule and call: no handle, descriptor, thread, child left, memory flat",
    ),
    "principals": (
        "tests.soak.principals",
        "two principals, 10,000 calls each of one capsule: no byte of one is ever seen by the other",
    ),
    "frames": (
        "tests.soak.frames",
        "a million damaged frames to decoders and ingress: a fault of the peer or a refusal, memory flat",
    ),
    "mutants": (
        "tests.soak.mutants",
        "small wrong changes to capsule, bus and policy: the tests notice nine in ten, the others are listed",
    ),
}
"""name -> (module with a function `run`, one line that says what it does).  A new soak is a line here."""


def load_soak(name: str) -> Soak:
    module, _ = SOAKS[name]
    run: Soak = importlib.import_module(module).run
    return run
