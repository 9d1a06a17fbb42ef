"""Cancelling tool calls: who hears `tool.v1.request.cancel`, and what is done about a call in between.

Source: seed tools-as-an-ipc-convention ("Cancellation"), daemon-kernel.md 7.  Ours goes further: what
computes for exactly the named calls is stopped, and what waits for them leaves its queue.  A call that is on
its way from one capsule to the next when it is cancelled is found by looking again, for a moment, from the
ticker.  A run loop, which would lose all that it holds, has that moment to come back by itself (ADR 0010).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container
from typing import NamedTuple, Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.wire.payloads import decode_tool_cancel

CANCEL_TOPIC = "tool.v1.request.cancel"
MAX_CALLS = 256
"""Of one request; the rest is left alone."""

REPEAT_S = 2.0
MAX_REMEMBERED = 256
"""Requests that are looked at again; the oldest are forgotten first."""


class Cancels(Protocol):
    """The part of the kernel that is needed here."""

    def cancel(self, principal: str | None, call_ids: Container[str]) -> None: ...


class _Request(NamedTuple):
    principal: str | None
    call_ids: frozenset[str]
    ends: float


class Cancellations:
    """A native subscriber, and a chore of the ticker.

    `end_loops(principal, call_ids)` interrupts run loops that still compute when the moment is over.
    """

    def __init__(
        self,
        kernel: Cancels,
        end_loops: Callable[[str | None, Container[str]], None] = lambda principal, call_ids: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kernel = kernel
        self._end_loops = end_loops
        self._clock = clock
        self._recent: deque[_Request] = deque(maxlen=MAX_REMEMBERED)

    @staticmethod
    def wants(topic: str) -> bool:
        return topic == CANCEL_TOPIC

    def receive(self, envelope: Envelope) -> None:
        """Cancel the calls of the sender's principal; those of others are none of its business."""
        cancel = decode_tool_cancel(envelope.body)
        if cancel is None or not cancel.call_ids:
            return
        call_ids = frozenset(cancel.call_ids[:MAX_CALLS])
        self._recent.append(_Request(envelope.principal, call_ids, self._clock() + REPEAT_S))
        self._kernel.cancel(envelope.principal, call_ids)

    def sweep(self, now: float) -> None:
        """Look again for what was cancelled a moment ago, once for all calls of a principal."""
        again: dict[str | None, frozenset[str]] = {}
        for request in tuple(self._recent):
            if now < request.ends:
                again[request.principal] = again.get(request.principal, frozenset()) | request.call_ids
            elif self._recent and self._recent[0] is request:
                self._recent.popleft()
                self._end_loops(request.principal, request.call_ids)
        for principal, call_ids in again.items():
            self._kernel.cancel(principal, call_ids)
