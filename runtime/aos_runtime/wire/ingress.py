"""What a client may put on the bus, decided frame by frame.

Source: daemon-kernel.md 2.4.  The connection's identity is stamped by the daemon; what a frame says about
principal, time or sequence is not even read.  Allowed are the exact topics and prefixes below; a tool is
called through `astrid.v1.request.tools.`, never by publishing on `tool.v1`.

A refused chat message is answered as a chat message and the connection stays; a too large request is
answered with an `Error` on its own reply topic and the connection stays (case DMN-14); any other refusal
is a `disconnect` frame, then the connection closes.  Bytes that are no message at all raise PeerFault:
close without a word.
"""

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from aos_runtime.capsule.topics import topic_problem
from aos_runtime.errors import PeerFault
from aos_runtime.wire import requests
from aos_runtime.wire.egress import encode_event
from aos_runtime.wire.frames import MAX_PAYLOAD_BYTES
from aos_runtime.wire.methods import ADMIN_RESPONSE_PREFIX, NIL_SOURCE, REQUEST_PREFIX, reply_topic
from aos_runtime.wire.payloads import (
    APPROVAL_RESPONSE,
    ELICIT_RESPONSE,
    USER_INPUT,
    AgentResponse,
    Disconnect,
    Normalised,
    UserInput,
    normalise,
)

CHAT_TOPIC = "user.v1.prompt"
CHAT_REPLY_TOPIC = "agent.v1.response"
DISCONNECT_TOPIC = "client.v1.disconnect"

ALLOWED_TOPICS = frozenset({CHAT_TOPIC, "cli.v1.command.execute"})
ALLOWED_PREFIXES = (
    "astrid.v1.request.",
    "astrid.v1.admin.",
    "astrid.v1.elicit.response.",
    "astrid.v1.approval.response.",
    "registry.v1.selection.",
    "session.v1.request.",
    "cli.v1.command.run.",
    "sage.v1.hook.",
)
BLOCKED_PREFIXES = (ADMIN_RESPONSE_PREFIX,)
"""Win over what is allowed."""

_TYPED_REPLIES = {
    "astrid.v1.approval.response.": APPROVAL_RESPONSE,
    "astrid.v1.elicit.response.": ELICIT_RESPONSE,
}
ACTIVE_TURN = "this principal or connection already has an active turn"
NOT_DELIVERED = "runtime input delivery is unavailable"

_SELECTION_PREFIX = "registry.v1.selection."
_HUMAN_PREFIXES = (*_TYPED_REPLIES, _SELECTION_PREFIX)


class ConnectionFacts(Struct, frozen=True):
    """What the daemon knows about a connection.

    `request_owner` is its own id, new for each connection.  `turn_session` is the session of its running
    chat turn.  `human_requests` are the reply topics of approvals, elicitations and selections that were
    delivered to this connection and that it has not answered, the oldest first.
    """

    principal: str
    request_owner: str
    verified: bool = False
    device_key_id: str | None = None
    turn_session: str | None = None
    human_requests: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        return "local_socket" if self.verified else "system"


class Accepted(Struct, frozen=True):
    """Put it on the bus.

    `session` is set for chat messages: a new turn, or the end of one where `cancels`.
    """

    topic: str
    body: bytes
    kind: str | None
    session: str | None = None
    cancels: bool = False


class Refused(Struct, frozen=True):
    """Send `frame` to this connection only (never to the bus), then close it where `close` says so."""

    reason: str
    frame: bytes
    close: bool


class _Message(Struct, frozen=True):
    topic: str
    payload: Raw
    source_id: UUID


class _Ids(Struct, frozen=True):
    request_id: str


_decode = msgspec.json.Decoder(_Message).decode
_decode_input = msgspec.json.Decoder(UserInput).decode
_decode_ids = msgspec.json.Decoder(_Ids).decode
_encode = msgspec.json.Encoder().encode


def decide_ingress(frame: bytes, connection: ConnectionFacts) -> Accepted | Refused:
    """Decide on the body of one client frame.

    PeerFault `message-invalid` where it is no message; its text never repeats what came.
    """
    try:
        message = _decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise _invalid() from None
    raw = bytes(message.payload)
    payload = normalise(raw) if raw.startswith(b"{") else None
    if payload is None:
        raise _invalid()
    topic = message.topic
    reason = topic_refusal(topic)
    if reason is not None:
        return _refuse(topic, reason, connection)
    if len(payload.body) > MAX_PAYLOAD_BYTES:
        return _refuse_size(topic, payload, connection)
    if topic == CHAT_TOPIC:
        return _decide_chat(payload, connection)
    if topic.startswith(_HUMAN_PREFIXES):
        reason = _human_refusal(topic, payload, connection)
        if reason is not None:
            return _refuse(topic, reason, connection)
    return Accepted(topic, payload.body, payload.kind)


def refuse_turn(reason: str, session: str, connection: ConnectionFacts) -> Refused:
    """The answer to a prompt whose turn cannot begin: in chat, and the connection stays."""
    return _refuse(CHAT_TOPIC, reason, connection, session)


def topic_refusal(topic: str) -> str | None:
    """Why a client may not publish on `topic`, in the published words; None where it may."""
    if topic_problem(topic) is not None:
        return "invalid topic shape"
    if topic.startswith(BLOCKED_PREFIXES):
        return "topic is not allowed from local clients"
    if topic in ALLOWED_TOPICS or topic.startswith(ALLOWED_PREFIXES):
        return None
    return "topic is not allowed from local clients"


def _decide_chat(payload: Normalised, connection: ConnectionFacts) -> Accepted | Refused:
    session, cancels = "", False
    if payload.kind == USER_INPUT:
        chat = _decode_input(payload.body)
        session = chat.session_id
        cancels = isinstance(chat.context, dict) and chat.context.get("action") == "cancel_turn"
    reason = _chat_refusal(session, cancels, connection)
    if reason is not None:
        return _refuse(CHAT_TOPIC, reason, connection, session)
    return Accepted(CHAT_TOPIC, payload.body, payload.kind, session, cancels)


def _chat_refusal(session: str, cancels: bool, connection: ConnectionFacts) -> str | None:
    if not session:
        return "chat request is missing a session ID"
    if cancels:
        if session == connection.turn_session:
            return None
        return "cancellation does not match this connection's active session"
    return None if connection.turn_session is None else ACTIVE_TURN


def _human_refusal(topic: str, payload: Normalised, connection: ConnectionFacts) -> str | None:
    """A human's answer counts only on the connection that was asked, in the shape that was asked for."""
    for prefix, kind in _TYPED_REPLIES.items():
        if topic.startswith(prefix):
            if payload.kind != kind:
                return "human reply requires a typed response"
            if _decode_ids(payload.body).request_id != topic[len(prefix) :]:
                return "human reply request ID does not match its topic"
    if topic not in connection.human_requests:
        return "human reply is no longer available on this connection"
    return None


def _refuse_size(topic: str, payload: Normalised, connection: ConnectionFacts) -> Refused:
    """Name size and limit; where the request has a reply topic, answer there and keep the connection."""
    size = len(payload.body)
    reason = f"payload exceeds IPC limit: {size} bytes, limit {MAX_PAYLOAD_BYTES}"
    answer = reply_topic(topic) if topic.startswith(REQUEST_PREFIX) else None
    if answer is None:
        return _refuse(topic, reason, connection)
    return Refused(
        reason, encode_event(answer, requests.error(reason), NIL_SOURCE, connection.principal), False
    )


def _refuse(topic: str, reason: str, connection: ConnectionFacts, session: str = "") -> Refused:
    is_chat = topic == CHAT_TOPIC
    body: AgentResponse | Disconnect = Disconnect(reason)
    if is_chat:
        body = AgentResponse(f"Request refused: {reason}", True, session or "default")
    frame = encode_event(
        CHAT_REPLY_TOPIC if is_chat else DISCONNECT_TOPIC,
        _encode(body),
        NIL_SOURCE,
        connection.principal,
        connection.request_owner,
    )
    return Refused(reason, frame, close=not is_chat)


def _invalid() -> PeerFault:
    return PeerFault(
        "message-invalid",
        "invalid IPC message",
        hint="send a JSON object with `topic`, `payload` (an object) and `source_id` (a UUID)",
    )
