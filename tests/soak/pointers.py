"""Pointers that lead anywhere: at the door by itself, and from real guests in both lanes.

The door is given pairs of pointer and length over a memory that lies between two banks of bytes that are not
its own, and that grows: what it gives must be exactly what lies there, and everything else an AbiViolation.
A real guest lies about an argument, about where a result goes, in its realloc, or about what its hook
returned: a lie must end as a trap of that guest alone.
"""

from __future__ import annotations

import random
import struct

from aos_runtime.host import EngineSettings, GuestTrap, HostEngine, TrapReason, wit
from aos_runtime.host.door import AbiViolation, GuestMemory
from tests.soak.registry import Budget, Report
from tests.support import abi
from tests.support.abi import Function
from tests.support.canonical import Image, align_of, flat_of, size_of, store
from tests.support.lies import LyingImage, Truth, made_up, truth_of
from tests.support.relay import IMAGE_AT, LANES, MEMORY_BYTES, Relay, without_handles
from tests.support.wit_values import arms, value_of

DOOR_PAIRS, GUEST_LIES = 10_000_000, 20_000
DOOR_ROUND, GUEST_ROUND = 20_000, 40
PAGE, PAGES, BANK = 65536, 4, 4096
INTERFACES = ("astrid:ipc/host@1.0.0", "astrid:kv/host@1.0.0", "astrid:fs/host@1.0.0", abi.ZOO)
SETTINGS = EngineSettings(memory_bytes=16 << 20, fuel_per_call=200_000_000)
_WORD = struct.Struct("<I")


class DoorStand:
    """A memory of one to four pages between two banks, and the door to it."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.faults: list[str] = []
        inside = bytes(i % 251 for i in range(PAGES * PAGE))  # never the byte that the banks are made of
        self._all = bytearray(b"\xff" * BANK + inside + b"\xff" * BANK)
        self._whole = memoryview(self._all)[BANK : BANK + PAGES * PAGE]
        self._pages = 1
        self._pointer = 0
        self.door = GuestMemory(lambda: self._whole[: self._pages * PAGE], lambda _a, _s: self._pointer)

    def round(self) -> None:
        """DOOR_ROUND pairs; the memory has grown by the end of some rounds."""
        self._pages = self.random.randint(self._pages, PAGES) if self._pages < PAGES else 1
        if self._pages == 1:
            self.door = GuestMemory(lambda: self._whole[: self._pages * PAGE], lambda _a, _s: self._pointer)
        view, take, begin = self.door.view, self.door.take, self.door.begin
        expected, end = bytes(self._whole), self._pages * PAGE
        for i in range(DOOR_ROUND):
            at, size = self._pair(end)
            begin()
            try:
                found = bytes((take if i & 1 else view)(at, size))
            except AbiViolation:
                if at + size <= end:
                    self.faults.append(f"the door refused {at}, {size} of {end}")
            else:
                if at + size > end or found != expected[at : at + size]:
                    self.faults.append(f"the door gave something else for {at}, {size} of {end}")
        self._write(end)

    def _pair(self, end: int) -> tuple[int, int]:
        bits = self.random.getrandbits(67)
        at, size = bits & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF
        kind = bits >> 64
        if kind < 4:  # a pair that is near, and small
            return at % (end + 16), size % 512
        if kind == 4:  # one that ends near the end
            return max(0, end - size % 512 + at % 3 - 1), size % 512
        return (at % end if kind == 5 else at), size

    def _write(self, end: int) -> None:
        """Some writes, which must stay inside too, and some allocations."""
        for _ in range(DOOR_ROUND // 100):
            at = self.random.choice((self.random.getrandbits(32), end + self.random.randrange(-8, 8)))
            try:
                self.door.pack(_WORD, at, 0)
                self._whole[at : at + 4] = bytes(i % 251 for i in range(at, at + 4))
            except struct.error:
                self.faults.append(f"the door let a write to {at} of {end} pass")
            except AbiViolation:
                if at + 4 <= end:
                    self.faults.append(f"the door refused to write to {at} of {end}")
            self._pointer = at
            try:
                got = self.door.allocate(4, 8)
            except AbiViolation:
                got = None
            if (got is None) == (truth_of(at, 8, 4, end) is not Truth.LIE):
                self.faults.append(f"the door took {at} of {end} for what realloc may give")
        if self._all[:BANK] + self._all[-BANK:] != b"\xff" * (2 * BANK):
            self.faults.append("something was written outside of the memory")


class GuestStand:
    """Lying guests in both lanes, and an honest one beside each."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.faults: list[str] = []
        self.lies = 0
        self.engine = HostEngine(SETTINGS)
        self.relays = {(name, lane): Relay(self.engine, name, lane) for name in INTERFACES for lane in LANES}
        self.witnesses = {lane: Relay(self.engine, "astrid:kv/host@1.0.0", lane) for lane in LANES}
        self.functions = [one for one in (*abi.functions(), *abi.zoo()) if one.interface in INTERFACES]

    def round(self) -> None:
        """GUEST_ROUND attempts; what is certainly a lie is counted."""
        for _ in range(GUEST_ROUND):
            lane = self.random.choice(LANES)
            function = self.random.choice(self.functions)
            relay = self.relays[function.interface, lane]
            tell = self.random.choice((self._argument, self._area, self._realloc, self._returned))
            truth, trap = tell(relay, function)
            self._judge(f"{function} in the {lane} lane, {tell.__name__[1:]}", truth, trap)
        self._ask_witnesses()

    def close(self) -> None:
        for relay in (*self.relays.values(), *self.witnesses.values()):
            relay.close()
        self.engine.close()

    def _judge(self, what: str, truth: Truth, trap: GuestTrap | None) -> None:
        reason = None if trap is None else trap.reason
        fine = {
            Truth.HONEST: reason is None,
            Truth.UNKNOWN: reason in (None, TrapReason.TRAP),
            Truth.LIE: reason is TrapReason.TRAP,
        }[truth]
        self.lies += truth is Truth.LIE
        if not fine:
            self.faults.append(
                f"seed {self.seed}: {what}: {truth} ended as {trap!r} ({trap and trap.detail})"[:900]
            )

    def _ask_witnesses(self) -> None:
        for lane, relay in self.witnesses.items():
            before, function = relay.instance, relay.functions[0]
            outcome = relay.call(function, ["key"], b"value")
            if outcome.result != b"value" or (before is not None and relay.instance is not before):
                self.faults.append(f"seed {self.seed}: an honest guest in the {lane} lane: {outcome}")

    def _argument(self, relay: Relay, function: Function) -> tuple[Truth, GuestTrap | None]:
        image = LyingImage(IMAGE_AT, MEMORY_BYTES, self.random, lie_at=self.random.randrange(3))
        trap = relay.lie(function, self._arguments(function), self._answer(function), image=image)
        return image.truth, trap

    def _area(self, relay: Relay, function: Function) -> tuple[Truth, GuestTrap | None]:
        area, result = made_up(self.random, MEMORY_BYTES), function.signature.result
        image = Image(IMAGE_AT)
        trap = relay.lie(function, self._arguments(function), self._answer(function), image=image, area=area)
        if result is None or len(flat_of(result)) < 2:
            return Truth.HONEST, trap
        return truth_of(area, size_of(result), align_of(result), MEMORY_BYTES), trap

    def _realloc(self, relay: Relay, function: Function) -> tuple[Truth, GuestTrap | None]:
        lie, answer, result = (
            made_up(self.random, MEMORY_BYTES),
            self._answer(function),
            function.signature.result,
        )
        trap = relay.lie(function, self._arguments(function), answer, image=Image(IMAGE_AT), realloc=lie)
        if result is None or not lie or function.name == "publish":  # a fake's text is no `unknown` there
            return Truth.UNKNOWN, trap
        return (Truth.LIE if lie >= MEMORY_BYTES and _allocates(result, answer) else Truth.UNKNOWN), trap

    def _returned(self, relay: Relay, _function: Function) -> tuple[Truth, GuestTrap | None]:
        action, data = (made_up(self.random, MEMORY_BYTES) for _ in "ab")
        sizes = [self.random.choice((0, 1, made_up(self.random, MEMORY_BYTES))) for _ in "ab"]
        case = self.random.choice((0, 1, 1, 2, 255))
        record = struct.pack("<IIIII", action, sizes[0], case, data, sizes[1])
        pointer = 16 if self.random.random() < 0.7 else made_up(self.random, MEMORY_BYTES)
        trap = relay.lie_about_its_result(pointer, record)
        truths = [truth_of(pointer, 20, 4, MEMORY_BYTES)]
        if pointer == 16:
            truths.append(truth_of(action, sizes[0], 1, MEMORY_BYTES))
            truths.append(Truth.LIE if case > 1 else Truth.UNKNOWN)
            truths += [truth_of(data, sizes[1], 1, MEMORY_BYTES)] * (case == 1)
        return (Truth.LIE if Truth.LIE in truths else Truth.UNKNOWN), trap

    def _arguments(self, function: Function) -> list[object]:
        return [value_of(kind, self.random) for _, kind in function.signature.params]

    def _answer(self, function: Function) -> object:
        return self.random.choice(list(arms(function.signature.result, self.random)))


def _allocates(result: wit.Type, answer: object) -> bool:
    """Whether the host must ask the guest for memory to answer this."""
    image = Image(0)
    at = image.allocate(align_of(result), size_of(result))
    fixed = len(image.data)
    store(image, result, without_handles(result, answer), at)
    return len(image.data) > fixed


def run(budget: Budget) -> Report:
    """All of both, or a share of each until the budget is spent."""
    seed = random.SystemRandom().getrandbits(32)
    door, guests, pairs = DoorStand(random.Random(seed)), GuestStand(seed), 0
    try:
        while (pairs < DOOR_PAIRS or guests.lies < GUEST_LIES) and not budget.is_spent():
            if pairs < DOOR_PAIRS:
                door.round()
                pairs += DOOR_ROUND
            if guests.lies < GUEST_LIES:
                guests.round()
            if len(door.faults) + len(guests.faults) > 10:
                break
    finally:
        guests.close()
    faults = (*door.faults, *guests.faults)
    return Report(
        rounds=pairs + guests.lies,
        unit=f"pairs at the door ({pairs}) and lies of guests ({guests.lies})",
        faults=faults,
    )
