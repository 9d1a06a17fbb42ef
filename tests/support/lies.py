"""Guests that lie about where their values are: one pointer, length or result area of a call is made up."""

from __future__ import annotations

import random
from enum import Enum

from aos_runtime.host import wit
from tests.support.canonical import Image, align_of, size_of

EDGES = (0, 1, 3, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 8, (1 << 32) - 1)


class Truth(Enum):
    """What a number turned out to be."""

    HONEST = "inside, and where the value is"
    UNKNOWN = "inside, where something else is"
    LIE = "outside of the memory, or misaligned"


class LyingImage(Image):
    """Makes up the n-th pointer that is asked of it; `truth` says what came of it."""

    def __init__(self, base: int, memory_bytes: int, random_: random.Random, lie_at: int) -> None:
        super().__init__(base)
        self.truth = Truth.HONEST
        self._memory_bytes, self._random, self._lie_at = memory_bytes, random_, lie_at

    def point(self, at: int, count: int, kind: wit.Type) -> tuple[int, int]:
        self._lie_at -= 1
        if self._lie_at != -1:
            return at, count
        if self._random.random() < 0.5:
            at = made_up(self._random, self._memory_bytes)
        else:
            count = made_up(self._random, self._memory_bytes)
        self.truth = truth_of(at, count * size_of(kind), align_of(kind), self._memory_bytes)
        return at, count


def made_up(random_: random.Random, memory_bytes: int) -> int:
    """A number near an edge, or any."""
    near = memory_bytes + random_.randrange(-64, 64)
    return random_.choice(
        (near, random_.choice(EDGES), random_.getrandbits(32), random_.randrange(memory_bytes))
    )


def truth_of(at: int, size: int, align: int, memory_bytes: int) -> Truth:
    """What a guest that passes these has done."""
    return Truth.LIE if at % align or at + size > memory_bytes else Truth.UNKNOWN
