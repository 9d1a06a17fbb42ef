"""What happens after a hook: the next link of a chain, or the end.

Source: daemon-kernel.md 6.6, host-abi.md 2.3 and 2.4.  Handlers of equal priority are a fan-out: each
gets the original payload and none stops another.  Where priorities differ all of them form one sequence,
in which Continue with data replaces the payload, Final and Deny stop, and a trap or a link that cannot be
called denies, since what guards a topic must not open it by dying.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

from aos_runtime.bus.routes import Handler

MAX_LINK_BYTES = 1024 * 1024
"""Largest payload that one link may hand to the next: that of any message."""

Link = TypeVar("Link")


class Verdict(Enum):
    """What a link wants."""

    CONTINUE = "continue"
    FINAL = "final"
    DENY = "deny"


class Outcome(Struct, frozen=True):
    """What one hook call came to.

    `data` is its payload; for DENY `reason` says why, without a final period.
    """

    verdict: Verdict
    data: bytes = b""
    reason: str = ""


_TRAPS = {
    "fuel": "interceptor exhausted its fuel budget",
    "deadline": "interceptor exceeded its execution deadline",
    "cancelled": "the call was cancelled",
}


def returned(action: str, data: bytes | None) -> Outcome:
    """The outcome of a hook that returned (`action`, `data`); an unknown action continues."""
    if action in ("deny", "abort"):
        reason = (data or b"").decode("utf-8", "replace")
        return Outcome(Verdict.DENY, reason=reason or "denied by interceptor")
    if action == "final":
        return Outcome(Verdict.FINAL, data or b"")
    return Outcome(Verdict.CONTINUE, data or b"")


def trapped(kind: str, message: str) -> Outcome:
    """The outcome of a hook whose instance died: `kind` is fuel, deadline, cancelled, memory or trap."""
    return Outcome(Verdict.DENY, reason=_TRAPS.get(kind, f"interceptor execution failed: {message}"))


def is_chain(handlers: Sequence[Handler]) -> bool:
    """Whether these handlers of one topic run as a sequence; otherwise each runs on its own."""
    return len({handler.priority for handler in handlers}) > 1


class Chain(Generic[Link]):
    """One message on its way through its links, which are in order already.

    The caller runs `link` with `payload`, then calls `advance` with what came of it, until `link` is
    None.
    """

    __slots__ = ("_at", "_links", "denied", "payload")

    def __init__(self, links: Sequence[Link], payload: bytes) -> None:
        self._links = tuple(links)
        self._at = 0
        self.payload = payload
        self.denied: str | None = None
        """Why the chain was stopped by a Deny."""

    @property
    def link(self) -> Link | None:
        """The link to run now, None where the chain has ended."""
        return self._links[self._at] if self._at < len(self._links) else None

    def advance(self, outcome: Outcome) -> None:
        """Take the outcome of the current link."""
        if len(outcome.data) > MAX_LINK_BYTES:
            outcome = Outcome(Verdict.DENY, reason=_too_large(len(outcome.data)))
        if outcome.verdict is Verdict.DENY:
            self.denied = outcome.reason
        elif outcome.data:
            self.payload = outcome.data
        self._at = self._at + 1 if outcome.verdict is Verdict.CONTINUE else len(self._links)


def _too_large(size: int) -> str:
    return f"interceptor returned {size} bytes, limit {MAX_LINK_BYTES}"
