"""Rates as decisions: how many requests in a minute, how many bytes in a second.

Source: daemon-kernel.md 5.1 and 3.4; case BUS-22.  Time is passed in as seconds of any monotonic clock.
A request is charged only after it was authorised, per principal and method, so nobody can use up
another's allowance.
"""

from __future__ import annotations

from collections import deque

REQUEST_WINDOW_S = 60.0
MAX_TRACKED = 4096

THROUGHPUT_WINDOW_S = 1.0
MAX_SINGLE_BYTES = 5 * 1024 * 1024
DEFAULT_BYTES_PER_S = 10 * 1024 * 1024


class RequestRates:
    """Sliding windows of 60 s, one per (principal, method), at most MAX_TRACKED of them."""

    __slots__ = ("_charged",)

    def __init__(self) -> None:
        self._charged: dict[tuple[str, str], deque[float]] = {}

    def charge(self, principal: str, method: str, limit: int | None, now_s: float) -> str | None:
        """Count one authorised request: None where it may run, else the refusal, not counted."""
        if limit is None:
            return None
        key = (principal, method)
        if key not in self._charged:
            self._make_room(now_s)
        times = self._charged.setdefault(key, deque())
        _forget_before(times, now_s - REQUEST_WINDOW_S)
        if len(times) >= limit:
            return f"Rate limited: max {limit} {method} requests per minute"
        times.append(now_s)
        return None

    def _make_room(self, now_s: float) -> None:
        """Forget finished windows, then the oldest; seldom, since principals come from profiles."""
        if len(self._charged) < MAX_TRACKED:
            return
        for key, times in tuple(self._charged.items()):
            _forget_before(times, now_s - REQUEST_WINDOW_S)
            if not times:
                del self._charged[key]
        while len(self._charged) >= MAX_TRACKED:
            del self._charged[next(iter(self._charged))]


class Throughput:
    """Bytes published in a window of one second, by all capsules of a principal."""

    __slots__ = ("_bytes", "_limit", "_started_s")

    def __init__(self, bytes_per_s: int = DEFAULT_BYTES_PER_S) -> None:
        self._limit = bytes_per_s
        self._started_s = float("-inf")
        self._bytes = 0

    def limit(self, bytes_per_s: int) -> None:
        """Another rate from now on."""
        self._limit = bytes_per_s

    def charge(self, size_bytes: int, now_s: float) -> bool:
        """Count one publish; False, and not counted, where it is over the rate or too large alone."""
        if now_s - self._started_s >= THROUGHPUT_WINDOW_S:
            self._started_s, self._bytes = now_s, 0
        if size_bytes > MAX_SINGLE_BYTES or self._bytes + size_bytes > self._limit:
            return False
        self._bytes += size_bytes
        return True


def _forget_before(times: deque[float], start_s: float) -> None:
    while times and times[0] <= start_s:
        times.popleft()
