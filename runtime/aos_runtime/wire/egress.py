"""What a client is sent, decided event by event, and how it looks on the wire.

Source: daemon-kernel.md 2.5.  A connection sees only its own principal's events on the topics below, only
those of its own device and owner where an event has them, and chat only of its own turn.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import Struct

CHAT_TOPICS = frozenset({"agent.v1.stream.delta", "agent.v1.response"})
UNSTAMPED_TOPICS = frozenset({"registry.v1.active_model_changed"})
"""The only topics on which an event without a principal is delivered."""

ALLOWED_TOPICS = (
    CHAT_TOPICS
    | UNSTAMPED_TOPICS
    | {
        "astrid.v1.elicit",
        "astrid.v1.private.elicit.request",
        "astrid.v1.onboarding.required",
        "astrid.v1.approval",
        "astrid.v1.capsules_loaded",
    }
)
ALLOWED_PREFIXES = (
    "astrid.v1.response.",
    "astrid.v1.admin.response.",
    "registry.v1.response.",
    "registry.v1.selection.",
    "session.v1.response.",
    "cli.v1.command.result.",
    "astrid.v1.grant.result.",
)

MAX_QUEUED_EVENTS = 1024
MAX_QUEUED_BYTES = 4 * 1024 * 1024
EVENT_OVERHEAD_BYTES = 1024
WRITE_TIMEOUT_S = 5.0
"""A connection that is over one of these is closed as lagged."""


class Event(Protocol):
    """The parts of an envelope that decide (`bus.envelope.Envelope` has them)."""

    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def device_key_id(self) -> str | None: ...
    @property
    def request_owner(self) -> str | None: ...


class Receiver(Protocol):
    """The parts of a connection that decide (`ingress.ConnectionFacts` has them)."""

    @property
    def principal(self) -> str: ...
    @property
    def device_key_id(self) -> str | None: ...
    @property
    def request_owner(self) -> str: ...
    @property
    def turn_session(self) -> str | None: ...


class _Session(Struct, frozen=True):
    session_id: str = "default"


_decode_session = msgspec.json.Decoder(_Session).decode
_encode = msgspec.json.Encoder().encode


def is_for_clients(topic: str) -> bool:
    """Whether events on `topic` leave the daemon at all; static, so it may be cached per topic."""
    return topic in ALLOWED_TOPICS or topic.startswith(ALLOWED_PREFIXES)


def decide_egress(event: Event, connection: Receiver) -> bool:
    """Whether this connection is sent this event."""
    topic = event.topic
    if not is_for_clients(topic):
        return False
    if event.principal is None:
        return topic in UNSTAMPED_TOPICS
    if event.principal != connection.principal:
        return False
    if event.device_key_id is not None and event.device_key_id != connection.device_key_id:
        return False
    if event.request_owner is not None and event.request_owner != connection.request_owner:
        return False
    return topic not in CHAT_TOPICS or _is_own_turn(event.body, connection)


def encode_event(
    topic: str, body: bytes, source_id: str, principal: str | None, request_owner: str | None = None
) -> bytes:
    """The body of one frame to a client.

    `body` is a normalised payload, so it is JSON already.  Replies of the kernel carry no `request_owner`
    (recorded), events of a capsule carry that of the call which they answer.
    """
    parts = [b'{"topic":', _encode(topic), b',"payload":', body, b',"source_id":', _encode(source_id)]
    if principal is not None:
        parts += (b',"principal":', _encode(principal))
    if request_owner is not None:
        parts += (b',"request_owner":', _encode(request_owner))
    parts.append(b"}")
    return b"".join(parts)


def _is_own_turn(body: bytes, connection: Receiver) -> bool:
    try:
        return _decode_session(body).session_id == connection.turn_session
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
