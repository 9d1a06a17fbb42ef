"""The seams of the kernel: what a second machine would replace (architecture section 5).

Several daemons may later serve one fleet, sharded by principal.  Then only this crosses: who owns a
principal, requests from outside, durable state, and blobs, which are content-addressed files already
(`store.content`) and get a protocol with their second form.  What is embedded today is this process and
SQLite, at epoch 0.  Nothing outside of these assumes that another principal is served here.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.host.context import KvSpace
from aos_runtime.names import CapsuleName, PrincipalName

LOCAL_EPOCH = 0


class Submission(Enum):
    """What became of a message from outside."""

    ACCEPTED = "accepted"
    FULL = "full"
    """A queue it needs has no room; nothing was delivered to anybody."""
    MOVED = "moved"
    """Another daemon owns the principal."""
    UNAVAILABLE = "unavailable"
    """Nothing here handles it."""


class Ingress(Protocol):
    """Messages from outside: sockets today, a broker later."""

    def submit(self, message: Envelope) -> Submission:
        """Publish `message` (`seq` and time are set here) for a caller that can be told of the outcome."""
        ...


class Ownership(Protocol):
    """Who serves a principal."""

    def epoch(self, principal: PrincipalName) -> int | None:
        """The epoch at which this process owns `principal`; None when another one does."""
        ...


class State(Protocol):
    """Durable key-value state; every space is fenced by the epoch of its principal's owner."""

    def space(self, principal: PrincipalName, capsule: CapsuleName) -> KvSpace:
        """The keys of one capsule for one principal."""
        ...


class LocalOwnership:
    """This process owns every principal, at epoch 0."""

    def epoch(self, principal: PrincipalName) -> int | None:
        return LOCAL_EPOCH
