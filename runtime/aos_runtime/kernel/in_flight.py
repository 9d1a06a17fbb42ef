"""How many requests of each client are not answered yet, and of all of them: what comes on top is refused.

Frames come in faster than requests are answered, since rights are read from disk.  Without a bound one client
would fill the memory, and everybody else would wait behind what it asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from aos_runtime.kernel.leader import Job

MAX_EACH = 64
MAX_ALL = 1024


class InFlight:
    """Counts by a client's owner id; safe from any thread."""

    __slots__ = ("_all", "_by_owner", "_lock", "_max_all", "_max_each")

    def __init__(self, max_each: int = MAX_EACH, max_all: int = MAX_ALL) -> None:
        self._max_each = max_each
        self._max_all = max_all
        self._lock = threading.Lock()
        self._by_owner: dict[str, int] = {}
        self._all = 0

    def admit(self, owner: str, run: Callable[[], None]) -> Job | None:
        """`run` as a job that is counted until it is done; None where `enter` says no."""
        if not self.enter(owner):
            return None

        def counted() -> None:
            try:
                run()
            finally:
                self.leave(owner)

        return Job(counted)

    def enter(self, owner: str) -> bool:
        """Count one more; False, and not counted, where its client, or all of them, have too many."""
        with self._lock:
            count = self._by_owner.get(owner, 0)
            if count >= self._max_each or self._all >= self._max_all:
                return False
            self._by_owner[owner] = count + 1
            self._all += 1
            return True

    def leave(self, owner: str) -> None:
        """One that had entered was answered."""
        with self._lock:
            left = self._by_owner[owner] - 1
            self._all -= 1
            if left:
                self._by_owner[owner] = left
            else:
                del self._by_owner[owner]

    def refusal(self) -> str:
        """What is said to who may not enter."""
        return f"too many requests in flight ({self._max_each} a client)"
