"""The publish port of one running capsule: what it may say, and in whose name.

A guest sets a topic and a payload; who it speaks for is inherited from the invocation that it is serving.
Source: daemon-kernel.md 4.2.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.host import GuestContext
from aos_runtime.kernel.routing import Plan
from aos_runtime.policy.publish import IpcRefusal, PublishGate
from aos_runtime.wire.payloads import normalise

MAX_OVERHEARD = 64
"""Messages of one probe that are kept; the others go to nobody as well."""


class Bus(Protocol):
    """The part of the kernel that a guest can reach."""

    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan: ...


class Overheard(NamedTuple):
    """One message that a guest published while it was probed."""

    topic: str
    body: bytes


class GuestPort:
    """`publish` is the port; `bind` gives it the context whose `current` it reads.

    While `overheard` is a list, what the guest publishes goes there and to nobody else (the describe probe).
    """

    __slots__ = ("_bus", "_context", "_idle_cause", "_refusal", "_source_id", "overheard")

    def __init__(self, bus: Bus, patterns: tuple[str, ...], source_id: str, idle_cause: Envelope) -> None:
        self._bus = bus
        self._refusal = PublishGate(patterns).check
        self._source_id = source_id
        self._idle_cause = idle_cause
        self._context: GuestContext | None = None
        self.overheard: list[Overheard] | None = None

    def bind(self, context: GuestContext) -> None:
        self._context = context

    def publish(self, topic: str, payload: bytes) -> str | None:
        """None when accepted; else the case of the WIT error, `unknown:TEXT` for one with a text."""
        refusal = self._refusal(topic, len(payload))
        if refusal is not None:
            return refusal.value
        normalised = normalise(payload)
        if normalised is None:
            return IpcRefusal.INVALID_INPUT.value
        if self.overheard is not None:
            if len(self.overheard) < MAX_OVERHEARD:
                self.overheard.append(Overheard(topic, normalised.body))
            return None
        cause = self._context.current if self._context is not None else None
        plan = self._bus.publish(
            topic, normalised.body, normalised.kind, self._source_id, cause or self._idle_cause
        )
        if plan.is_invocable and not plan.steps:
            return f"unknown:no capsule handles {topic}"
        return None
