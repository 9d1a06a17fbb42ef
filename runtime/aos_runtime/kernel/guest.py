"""The ipc ports of one running instance: what it may say and hear, and in whose name.

A guest sets a topic and a payload; who it speaks for is inherited from the invocation that it is serving.
Every refusal is a line in the capsule's log that names the manifest row which would allow it.
Source: daemon-kernel.md 4.2 and 4.3, host-abi.md 1.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.bus.inbox import Scope
from aos_runtime.capsule.topics import MAX_TOPIC_BYTES
from aos_runtime.host import GuestContext
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.ports import Submission
from aos_runtime.kernel.receipts import DELIVERY_MARK, own_pattern, take_delivery_id
from aos_runtime.kernel.routing import Plan
from aos_runtime.kernel.subscriptions import Owner, Subscription, Subscriptions
from aos_runtime.kernel.trace import Recorder
from aos_runtime.policy.denials import Denial, publish_denial, subscribe_denial, uplink_denial
from aos_runtime.policy.publish import IpcRefusal, PublishGate, is_refused_early, subscribe_refusal
from aos_runtime.wire.payloads import normalise

MAX_OVERHEARD = 64
"""Messages of one probe that are kept; the others go to nobody as well."""

UNBOUND_UPLINK = "anonymous"
"""Who an uplink speaks for while no connection has proved who it is."""


class Bus(Protocol):
    """The part of the kernel that a guest can reach."""

    def publish(
        self,
        topic: str,
        body: bytes,
        kind: str | None,
        source_id: str,
        cause: Envelope,
        delivery_id: str | None = None,
    ) -> Plan: ...

    def submit(self, message: Envelope) -> Submission: ...

    def is_handled(self, topic: str, principal: str | None) -> bool: ...
    @property
    def trace(self) -> Recorder: ...


class Overheard(NamedTuple):
    """One message that a guest published while it was probed."""

    topic: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """What a guest may hear: the rows of its `[subscribe]` table, and where its subscriptions are kept."""

    rows: tuple[str, ...]
    subscriptions: Subscriptions
    owner: Owner


def _ignore(_denial: Denial) -> None:
    return None


class GuestPort:
    """`publish`, `publish_as` and `subscribe` are the ports; `bind` gives the context that they read.

    Without `hearing` every subscription is refused (lifecycle hooks).  While `overheard` is a list, what the
    guest publishes goes there and to nobody else (the describe probe).  `budget` counts the
    bytes of a message against the principal's rate.
    """

    __slots__ = (
        "_budget",
        "_bus",
        "_context",
        "_denied",
        "_hearing",
        "_idle_cause",
        "_is_uplink",
        "_patterns",
        "_refusal",
        "_source_id",
        "overheard",
    )

    def __init__(
        self,
        bus: Bus,
        patterns: tuple[str, ...],
        source_id: str,
        idle_cause: Envelope,
        *,
        hearing: Hearing | None = None,
        is_uplink: bool = False,
        denied: Callable[[Denial], None] = _ignore,
        budget: Budget | None = None,
    ) -> None:
        self._bus = bus
        self._budget = budget
        self._patterns = patterns
        self._refusal = PublishGate(patterns).check
        self._source_id = source_id
        self._idle_cause = idle_cause
        self._hearing = hearing
        self._is_uplink = is_uplink
        self._denied = denied
        self._context: GuestContext | None = None
        self.overheard: list[Overheard] | None = None

    def bind(self, context: GuestContext) -> None:
        self._context = context
        context.observe = self._observe

    def publish(self, topic: str, payload: bytes, cause: Envelope | None = None) -> str | None:
        """None when accepted; else the case of the WIT error, `unknown:TEXT` for one with a text.

        The message inherits who it is from `cause`, by default from the invocation that is served.
        """
        if cause is None:
            cause = self._cause()
        size_bytes = len(payload)
        refusal = self._refusal(topic, size_bytes)
        budget = self._budget
        if budget is not None and not budget.is_exempt and not budget.admit(size_bytes):
            refusal = refusal if is_refused_early(topic) else IpcRefusal.RATE_LIMITED
        delivery_id = None
        if refusal is None and DELIVERY_MARK in payload:
            marked = take_delivery_id(payload)
            if marked is None:
                refusal = IpcRefusal.INVALID_INPUT
            else:
                payload, delivery_id = marked
        normalised = normalise(payload) if refusal is None else None
        if normalised is None:
            case = refusal or IpcRefusal.INVALID_INPUT
            self._denied(publish_denial(topic, self._patterns, case))
            return self._refuse(topic, case.value)
        if self.overheard is not None:
            if len(self.overheard) < MAX_OVERHEARD:
                self.overheard.append(Overheard(topic, normalised.body))
            return None
        plan = self._bus.publish(topic, normalised.body, normalised.kind, self._source_id, cause, delivery_id)
        if plan.refusal is not None and (plan.denied or not self._bus.is_handled(topic, cause.principal)):
            return self._refuse(topic, f"unknown:{plan.refusal}")
        return None

    def publish_as(self, topic: str, payload: bytes, claimed: str) -> str | None:
        """`publish` in the name of the connection that an uplink reads; what it claims is never believed."""
        if not self._is_uplink:
            self._denied(uplink_denial(topic))
            return IpcRefusal.CAPABILITY_DENIED.value
        speaker = None if self._context is None else self._context.speaks_for
        principal = speaker or UNBOUND_UPLINK
        cause = msgspec.structs.replace(self._cause(), principal=principal, device_key_id=None)
        return self.publish(topic, payload, cause)

    def hand_in(self, topic: str, body: bytes, kind: str) -> Submission | None:
        """Bring in a message of somebody outside, in the name of whom the guest serves, as a client's would
        come: it waits for room, within bounds.  None where it is over the principal's rate.
        """
        if self._budget is not None and not self._budget.admit(len(body)):
            return None
        if self.overheard is not None:
            return Submission.UNAVAILABLE
        message = msgspec.structs.replace(
            self._cause(), topic=topic, body=body, kind=kind, source_id=self._source_id, delivery_id=None
        )
        return self._bus.submit(message)

    def subscribe(self, pattern: str) -> Subscription | str:
        """A subscription, or the case of the WIT error."""
        hearing = self._hearing
        if hearing is None:
            return IpcRefusal.CAPABILITY_DENIED.value
        refusal = subscribe_refusal(pattern, hearing.rows, len(hearing.owner.held))
        if refusal is not None:
            self._denied(subscribe_denial(pattern, refusal))
            return refusal.case.value
        return hearing.subscriptions.open(
            hearing.owner, own_pattern(pattern, self._source_id), self._scope(hearing.owner)
        )

    def _scope(self, owner: Owner) -> Scope:
        """Inside an interceptor only its caller's messages, in a run loop the owner's and the system's."""
        context = self._context
        if context is None or context.is_loop or context.current is None:
            return Scope(owner.principal, True)
        return Scope(context.current.principal, False)

    def _cause(self) -> Envelope:
        """Whom the guest speaks for: the caller, or its owner where there is none or it is the system."""
        cause = self._context.current if self._context is not None else None
        return self._idle_cause if cause is None or cause.principal is None else cause

    def _refuse(self, topic: str, refusal: str) -> str:
        """Leave a step of a publish that the guest was refused; gives back the refusal."""
        context = self._context
        if context is not None:
            seq = 0 if context.current is None else context.current.seq
            self._bus.trace.refused(seq, context.principal, context.capsule, topic[:MAX_TOPIC_BYTES], refusal)
        return refusal

    def _observe(self, name: str, started: int, refusal: str | None) -> None:
        """The guest called a host function (`GuestContext.observe`)."""
        context = self._context
        if context is not None:
            seq = 0 if context.current is None else context.current.seq
            self._bus.trace.called(started, seq, context.principal, context.capsule, name, refusal)
