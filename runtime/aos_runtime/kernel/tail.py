"""One watcher of the bus: what it wants to see, and a bounded queue between it and the bus.

The bus only appends, each message with the capsules that it goes to: a subscription may be gone when
somebody looks.  Who reads the queue does all the work.  What finds it full is counted and lost, for a watcher
may never slow what it watches.  This module reads no payload and sends nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from threading import Lock

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.topics import covers

MAX_QUEUED_EVENTS = 1024
MAX_QUEUED_BYTES = 4 * 1024 * 1024
MAX_TOPICS = 4096
"""Topics are made by guests: of so many it is remembered whether they are wanted."""

Seen = tuple[Envelope, tuple[str, ...]]
"""A message, and the capsules that it went to."""


class Tail:
    """`see` is a watcher of `trace.Recorder`.

    `pattern` and `principal` None are every topic and everybody's; `concerns(envelope, targets)` narrows
    further; `wake` tells the reader that there is something.
    """

    def __init__(
        self,
        *,
        pattern: str | None,
        principal: str | None,
        concerns: Callable[[Envelope, tuple[str, ...]], bool] | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._covers = None if pattern is None else lru_cache(MAX_TOPICS)(partial(covers, pattern))
        self._principal = principal
        self._concerns = concerns
        self._wake = wake
        self._lock = Lock()
        self._queue: deque[Seen] = deque()
        self._bytes = 0
        self._lost = 0

    def see(self, envelope: Envelope, targets: tuple[str, ...]) -> None:
        """(order) Queue one event that is wanted, or count it as lost."""
        if self._principal is not None and envelope.principal != self._principal:
            return
        if self._covers is not None and not self._covers(envelope.topic):
            return
        if self._concerns is not None and not self._concerns(envelope, targets):
            return
        size = len(envelope.body)
        with self._lock:
            full = len(self._queue) >= MAX_QUEUED_EVENTS or self._bytes + size > MAX_QUEUED_BYTES
            if full:
                self._lost += 1
                return
            self._queue.append((envelope, targets))
            self._bytes += size
            was_empty = len(self._queue) == 1
        if was_empty:
            self._wake()

    def take(self) -> Seen | None:
        """The oldest event, None where there is none."""
        with self._lock:
            if not self._queue:
                return None
            seen = self._queue.popleft()
            self._bytes -= len(seen[0].body)
            return seen

    @property
    def has_events(self) -> bool:
        return bool(self._queue)

    def take_lost(self) -> int:
        """How many events were lost since this was asked last."""
        with self._lock:
            lost, self._lost = self._lost, 0
            return lost
