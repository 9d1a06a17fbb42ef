"""How many guests may wait at once, whatever they wait for.

A guest that waits inside a call holds a thread of the kernel's 64; were all held, none could serve (nor stop)
anybody.  Run loops have threads of their own and do not count.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

MAX_WAITING = 48


class WaitGate:
    """Counts waiting guests.  Every `enter` that answered True is followed by one `leave`."""

    __slots__ = ("_lock", "count", "limit")

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self.limit = limit
        self.count = 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Whether one more may wait now."""
        with self._lock:
            if self.count >= self.limit:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """The wait is over."""
        with self._lock:
            self.count -= 1


@contextlib.contextmanager
def waiting_at(gate: WaitGate | None) -> Iterator[bool]:
    """Around one wait: whether it may be begun.  None: a wait that does not count, as that of a run loop."""
    if gate is None:
        yield True
        return
    is_admitted = gate.enter()
    try:
        yield is_admitted
    finally:
        if is_admitted:
            gate.leave()
