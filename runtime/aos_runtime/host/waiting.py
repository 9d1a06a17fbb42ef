"""How many guests may wait at once, whatever they wait for.

A guest that waits inside a call holds a thread of the kernel's 64; were all held, none could serve (nor stop)
anybody.  Run loops have threads of their own and do not count.
"""

from __future__ import annotations

import threading

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
