"""Writes refusals to the log of the capsule that was refused, without letting a flood of them fill it.

The first of a kind is a line at once; the same again within `QUIET_S` is counted and told with the next line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

QUIET_S = 10.0
MAX_KINDS = 256
"""Topics and paths are made by guests: the table must stay bounded."""


class Refusal(Protocol):
    """What was refused: `policy.denials.Denial` and its like."""

    @property
    def kind(self) -> tuple[str, str, str]:
        """What repeats are told by."""
        ...

    def render(self, *, repeated: int = 0) -> str: ...


class DenialLog:
    """One per running instance, whose thread alone calls it.  `write` takes a finished line."""

    __slots__ = ("_clock", "_kinds", "_write", "total")

    def __init__(self, write: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._kinds: dict[tuple[str, str, str], tuple[float, int]] = {}
        """When a kind was last written, and how often it came since."""
        self.total = 0

    def note(self, denial: Refusal) -> None:
        """Log a refusal, or count it."""
        self.total += 1
        now, key = self._clock(), denial.kind
        written_at, quiet = self._kinds.get(key, (-QUIET_S, 0))
        if now - written_at < QUIET_S:
            self._kinds[key] = (written_at, quiet + 1)
            return
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        self._kinds[key] = (now, 0)
        self._write(denial.render(repeated=quiet))
