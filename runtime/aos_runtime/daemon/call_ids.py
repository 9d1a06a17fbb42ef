"""Ids of tool calls: 128 random bits in hexadecimal, drawn from the system many at a time.

A capsule must not be able to guess the id of a call that it was not given.  One at a time would be a system
call, and a change of threads, for each call.
"""

from __future__ import annotations

import os
from collections import deque

ID_BYTES = 16
IDS_AT_A_TIME = 256


class CallIds:
    """Gives each id once; safe from any thread."""

    __slots__ = ("_drawn",)

    def __init__(self) -> None:
        self._drawn: deque[str] = deque()

    def take(self) -> str:
        """A new id, 32 hexadecimal digits."""
        while True:
            try:
                return self._drawn.pop()
            except IndexError:
                self._draw()

    def _draw(self) -> None:
        drawn = os.urandom(ID_BYTES * IDS_AT_A_TIME).hex()
        size = 2 * ID_BYTES
        self._drawn.extend(drawn[start : start + size] for start in range(0, len(drawn), size))
