"""Both lanes, driven with the same random calls: any function of the ABI (and of the zoo, which has every
type), random arguments, a random arm of its result.  Both must bring what was sent, and so each other's.

Now and then a number is made up, so that a pointer leads outside: both lanes must stop their guest for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from aos_runtime.host import EngineSettings, HostEngine, TrapReason
from tests.soak.registry import Budget, Report
from tests.support import abi
from tests.support.abi import Function
from tests.support.lies import LyingImage, Truth
from tests.support.relay import IMAGE_AT, LANES, MEMORY_BYTES, Outcome, Relay
from tests.support.wit_values import arms, value_of

WHOLE_S = 600.0
ROUND = 200
LIES_IN_TEN = 2
SETTINGS = EngineSettings(memory_bytes=16 << 20, fuel_per_call=200_000_000)


class Pairs:
    """One engine with a relay for each interface and lane, and what went wrong."""

    def __init__(self, seed: int, interfaces: Sequence[str] | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.faults: list[str] = []
        self.engine = HostEngine(SETTINGS)
        everything = (*abi.functions(), *abi.zoo())
        self.functions = [one for one in everything if interfaces is None or one.interface in interfaces]
        names = dict.fromkeys(one.interface for one in self.functions)
        self.relays = {name: [Relay(self.engine, name, lane) for lane in LANES] for name in names}

    def step(self) -> None:
        """One call in both lanes."""
        function = self.random.choice(self.functions)
        arguments = [value_of(kind, self.random) for _, kind in function.signature.params]
        answer = self.random.choice(list(arms(function.signature.result, self.random)))
        if self.random.randrange(10) < LIES_IN_TEN:
            self._lie(function, arguments, answer)
        else:
            self._call(function, arguments, answer)

    def close(self) -> None:
        for pair in self.relays.values():
            for relay in pair:
                relay.close()
        self.engine.close()

    def _call(self, function: Function, arguments: list[Any], answer: Any) -> None:
        wanted = Outcome(tuple(arguments), answer)
        for lane, relay in zip(LANES, self.relays[function.interface], strict=True):
            try:
                found = relay.call(function, arguments, answer)
            except (AssertionError, ValueError, LookupError) as wrong:
                relay.close()
                self._complain(function, lane, f"brought what cannot be read: {wrong}")
                continue
            if found != wanted:
                self._complain(function, lane, f"brought {found}, where it should have been {wanted}")

    def _lie(self, function: Function, arguments: list[Any], answer: Any) -> None:
        """The same lie in both lanes."""
        seed = self.random.getrandbits(32)
        for lane, relay in zip(LANES, self.relays[function.interface], strict=True):
            liar = random.Random(seed)
            image = LyingImage(IMAGE_AT, MEMORY_BYTES, liar, lie_at=liar.randrange(4))
            trap = relay.lie(function, arguments, answer, image=image)
            reason = None if trap is None else trap.reason
            fine = {
                Truth.HONEST: reason is None,
                Truth.UNKNOWN: reason in (None, TrapReason.TRAP),
                Truth.LIE: reason is TrapReason.TRAP,
            }
            if not fine[image.truth]:
                self._complain(function, lane, f"ended a call that was {image.truth} as {trap!r}")

    def _complain(self, function: Function, lane: str, what: str) -> None:
        self.faults.append(f"seed {self.seed}: {function} in the {lane} lane {what}"[:1000])


def run(budget: Budget) -> Report:
    """Call until the budget is spent, or for ten minutes."""
    calls, pairs = 0, Pairs(random.SystemRandom().getrandbits(32))
    try:
        while not budget.is_spent() and budget.elapsed_s < WHOLE_S and len(pairs.faults) < 10:
            for _ in range(ROUND):
                pairs.step()
            calls += ROUND
    finally:
        pairs.close()
    return Report(rounds=calls, unit="calls in both lanes", faults=tuple(pairs.faults))
