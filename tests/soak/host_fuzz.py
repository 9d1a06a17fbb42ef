"""Lies to edge and door, as many as time allows.

One guest calls whatever import its payload names, with whatever numbers the payload holds.  Every call must
come back as the model says: through where each pointer lies inside and is aligned, as a trap of the guest
where one does not, and never as a fault of the host.  What reached a port must be what lies in the guest's
memory.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from aos_runtime.host import EngineSettings, GuestTrap, HostEngine, Instance, TrapReason
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.functions import compile_type
from tests.soak.registry import Budget, Report
from tests.support.guests import CONTINUE, IPC, KV, SYS, Recorder, code_of, guest_text

PAGE = 65536
PATTERN_AT = 16384
PATTERN = bytes(33 + i % 90 for i in range(PAGE - PATTERN_AT))
SIGNATURES: tuple[tuple[str, str, str], ...] = (
    # p pointer, n its length, l level, c option, a result area, w word
    (IPC, "publish", "pnpna"),
    (SYS, "log", "lpn"),
    (SYS, "get-config", "pna"),
    (SYS, "random-bytes", "wa"),
    (KV, "kv-get", "pna"),
    (KV, "kv-set", "pnpna"),
    (KV, "kv-delete", "pna"),
    (KV, "kv-cas", "pncpnpna"),
    (KV, "kv-list-keys", "pna"),
    (KV, "kv-list-keys-page", "pncpnwa"),
    (KV, "kv-clear-prefix", "pna"),
)
EDGES = (0, 1, 2, 4, PATTERN_AT, PAGE - 16, PAGE - 1, PAGE, PAGE + 1, 1 << 31, (1 << 32) - 1, (1 << 32) - 4)
ROUND = 1000


@dataclass
class Fuzz:
    """One engine, the guest, and what went wrong."""

    seed: int
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.engine = HostEngine(EngineSettings(memory_bytes=2 * PAGE, fuel_per_call=1_000_000))
        self.code = code_of(self.engine, _puppet())
        self.recorder = Recorder()
        self.instance: Instance | None = None

    def call(self) -> None:
        """One call with random numbers, checked."""
        if self.instance is None or self.instance.dead:
            if self.instance is not None:
                self.instance.close()
            self.instance = Instance(self.code, self.recorder.context())
        which = self.random.randrange(len(SIGNATURES))
        numbers = [self._number(kind) for kind in SIGNATURES[which][2]]
        self._forget()
        trap = _run(self.instance, which, numbers)
        honest = is_honest(which, numbers)
        if trap is None or trap.reason is not TrapReason.TRAP:
            fine = honest and trap is None
        else:
            fine = not honest or trap.message.endswith("is not UTF-8")
        if not fine:
            self._complain(which, numbers, f"ended as {trap and (trap.reason, trap.message, trap.detail)}")
        if trap is None:
            self._check_arrivals(which, numbers)
            if any(PATTERN_AT - 64 < number < PAGE for number in _areas(which, numbers)):
                self.instance.close()  # the answer was written over the pattern
                self.instance = None

    def _check_arrivals(self, which: int, numbers: list[int]) -> None:
        """What a port was given is what the guest has at that place."""
        at = {"publish": 2, "kv-set": 2, "kv-cas": 5}.get(SIGNATURES[which][1])
        arrived = [payload for _, payload in self.recorder.published] + list(self.recorder.kv.values.values())
        if at is None or numbers[at] < PATTERN_AT:
            return
        start = numbers[at] - PATTERN_AT
        if any(data != PATTERN[start : start + numbers[at + 1]] for data in arrived):
            self._complain(which, numbers, "brought bytes that are not the guest's")

    def close(self) -> None:
        if self.instance is not None:
            self.instance.close()
        self.engine.close()

    def _number(self, kind: str) -> int:
        if kind == "c":
            return self.random.choice((0, 1, 1, 2))
        if kind == "l":
            return self.random.randrange(7)
        if kind == "a" and self.random.random() < 0.7:
            return 512
        if self.random.random() < 0.8:
            low, high = (PATTERN_AT, PAGE - 4096) if kind == "p" else (0, 4096)
            return self.random.randrange(low, high)
        return self.random.choice((self.random.choice(EDGES), self.random.getrandbits(32)))

    def _forget(self) -> None:
        self.recorder.published.clear()
        self.recorder.logged.clear()
        self.recorder.kv.values.clear()

    def _complain(self, which: int, numbers: list[int], what: str) -> None:
        self.faults.append(f"seed {self.seed}: {SIGNATURES[which][1]}{tuple(numbers)} {what}")


def is_honest(which: int, numbers: list[int]) -> bool:
    """Whether every number is one that the canonical ABI allows, for a memory of one page."""
    interface, name, kinds = SIGNATURES[which]
    result = FACTORS[interface, name].signature.result
    area = None if result is None else compile_type(result)
    absent = False
    for i, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
        if kind == "p" and not absent and number + numbers[i + 1] > PAGE:
            return False
        if kind == "a" and area is not None and (number % area.align or number + area.size > PAGE):
            return False
        if (kind == "l" and number > 4) or (kind == "c" and number > 1):
            return False
        absent = (kind == "c" and number == 0) or (absent and kind == "p")
    return True


def _areas(which: int, numbers: list[int]) -> list[int]:
    """Where the call was told to put its result."""
    return [number for kind, number in zip(SIGNATURES[which][2], numbers, strict=True) if kind == "a"]


def _run(instance: Instance, which: int, numbers: list[int]) -> GuestTrap | None:
    try:
        instance.hook(b"", struct.pack(f"<{len(numbers) + 1}I", which, *numbers))
        return None
    except GuestTrap as trap:
        return trap


def _puppet() -> str:
    """The guest: its payload is the number of a function and the numbers to call it with."""
    imports, calls = [], []
    for which, (interface, name, kinds) in enumerate(SIGNATURES):
        types = ["i64" if (name, kind) == ("random-bytes", "w") else "i32" for kind in kinds]
        imports.append(f'(import "{interface}" "{name}" (func $f{which} (param {" ".join(types)})))')
        loads = [
            f"({'i64.load32_u' if kind == 'i64' else 'i32.load'} offset={4 + 4 * i} (local.get $payload))"
            for i, kind in enumerate(types)
        ]
        chosen = f"(i32.eq (local.get $i) (i32.const {which}))"
        calls.append(f"(if {chosen} (then (call $f{which} {' '.join(loads)})))")
    data = "".join(f"\\{byte:02x}" for byte in PATTERN)
    pattern = f'(data (i32.const {PATTERN_AT}) "{data}")'
    which_once = "(local.set $i (i32.load (local.get $payload)))"  # an answer may be written over the payload
    return guest_text(which_once + "".join(calls) + CONTINUE, imports="".join(imports), more=pattern)


def run(budget: Budget) -> Report:
    """Lie until the budget is spent, or 200,000 times."""
    calls, fuzz = 0, Fuzz(seed=random.SystemRandom().getrandbits(32))
    try:
        while not budget.is_spent() and calls < 200_000 and len(fuzz.faults) < 10:
            for _ in range(ROUND):
                fuzz.call()
            calls += ROUND
    finally:
        fuzz.close()
    return Report(rounds=calls, unit="calls with random numbers", faults=tuple(fuzz.faults))
