"""The caller's side of the session: request frames out, replies picked from whatever comes in.

Source: daemon-kernel.md 2.4, 2.5, 5.1, 5.3.  Sans-I/O: the owner of the socket sends `Exchange.request`
in one frame and feeds every received body to `Exchange.receive` until it returns a final reply.  A frame
of an unknown kind, with extra fields or without optional ones is skipped, never an error (case DMN-16).
Standard library only, since `aos status` pays for every import.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from aos_runtime.errors import InvalidInput, LimitExceeded, PeerFault
from aos_runtime.wire.frames import MAX_PAYLOAD_BYTES
from aos_runtime.wire.methods import (
    ADMIN_METHODS,
    ADMIN_PREFIX,
    METHODS,
    NIL_SOURCE,
    REQUEST_PREFIX,
    events_topic,
    reply_topic,
    tools_topic,
)

_REFUSED_TOPIC = "client.v1.disconnect"


class Event(NamedTuple):
    """One message from the daemon.  `payload` is parsed JSON; absent optional fields are None."""

    topic: str
    payload: object
    source_id: str | None
    principal: str | None
    request_owner: str | None


class Reply(NamedTuple):
    """The body of a kernel reply: `status` names the shape of `data` (daemon-kernel.md 5.2).

    Of a failure `code` and `hint` are those of the daemon's error, where it says them.
    """

    status: str
    data: object
    code: str | None = None
    hint: str | None = None

    @property
    def is_final(self) -> bool:
        """False for the `Working` that only says that the daemon is alive."""
        return self.status != "Working"

    @property
    def is_error(self) -> bool:
        return self.status == "Error"


def encode_message(topic: str, payload: object) -> bytes:
    """The body of a client frame.

    LimitExceeded `payload-too-large` names size and limit (case DMN-14); InvalidInput `payload-not-json`.
    """
    text = _encode(payload)
    if len(text) > MAX_PAYLOAD_BYTES:
        raise LimitExceeded(
            "payload-too-large",
            f"a message of {len(text)} bytes is over the limit of {MAX_PAYLOAD_BYTES} bytes",
            hint="send less in one message, or pass the name of a file instead of its content",
            size_bytes=len(text),
            limit_bytes=MAX_PAYLOAD_BYTES,
        )
    return b'{"topic":%b,"payload":%b,"source_id":"%b"}' % (_encode(topic), text, NIL_SOURCE.encode())


def decode_event(body: bytes) -> Event | None:
    """One received body; None where it is not an event that this client understands."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("topic"), str) or "payload" not in value:
        return None
    optional = (_text(value.get(key)) for key in ("source_id", "principal", "request_owner"))
    return Event(value["topic"], value["payload"], *optional)


class Exchange:
    """One request and its replies.  `request` is the body to send; `topic` is where the answer comes."""

    __slots__ = ("_request_id", "request", "topic")

    def __init__(self, request: bytes, topic: str, request_id: str | None = None) -> None:
        self.request = request
        self.topic = topic
        self._request_id = request_id

    def receive(self, body: bytes) -> Reply | None:
        """The reply in one received body, None for anybody else's.

        PeerFault `request-refused` where the daemon refused the request and is closing the connection.
        """
        event = decode_event(body)
        if event is None or not isinstance(event.payload, dict):
            return None
        payload = event.payload
        if event.topic == _REFUSED_TOPIC and payload.get("type") == "disconnect":
            raise _refused(payload.get("reason"))
        if event.topic != self.topic or not isinstance(payload.get("status"), str):
            return None
        if self._request_id is not None and payload.get("request_id") != self._request_id:
            return None
        cause = payload.get("error")
        told = cause if isinstance(cause, dict) else {}
        return Reply(payload["status"], payload.get("data"), _text(told.get("code")), _text(told.get("hint")))


def kernel_exchange(method: str, params: dict[str, object] | None, correlation: str) -> Exchange:
    """A kernel request.  `correlation` is one topic segment, new for each request."""
    topic = f"{REQUEST_PREFIX}{METHODS[method].suffix}.{correlation}"
    return _exchange(topic, _payload(method, params))


def admin_exchange(method: str, params: dict[str, object] | None, request_id: str) -> Exchange:
    """An admin request, whose reply is told by its `request_id`."""
    topic = ADMIN_PREFIX + ADMIN_METHODS[method].suffix
    return _exchange(topic, {**_payload(method, params), "request_id": request_id}, request_id)


def tools_exchange(verb: str, params: dict[str, object] | None, correlation: str) -> Exchange:
    """A request to the tools door.

    `verb` is one of TOOLS_VERBS; parameters are those of `requests.TOOLS_PARAMS`.
    """
    return _exchange(tools_topic(verb, correlation), _payload(f"Tools{verb.capitalize()}", params))


def events_exchange(verb: str, params: dict[str, object] | None, correlation: str) -> Exchange:
    """A request to the events door.

    `verb` is one of EVENTS_VERBS; parameters are those of `events.SHAPES`.
    """
    return _exchange(events_topic(verb, correlation), _payload(f"Events{verb.capitalize()}", params))


def _exchange(topic: str, payload: dict[str, object], request_id: str | None = None) -> Exchange:
    answer = reply_topic(topic)
    assert answer is not None
    return Exchange(encode_message(topic, payload), answer, request_id)


def _payload(method: str, params: dict[str, object] | None) -> dict[str, object]:
    head: dict[str, object] = {"type": "raw_json", "method": method}
    return head if params is None else {**head, "params": params}


def _encode(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):  # NaN, half a surrogate pair, nesting without end
        raise InvalidInput(
            "payload-not-json",
            "the message holds a value that JSON cannot say",
            hint="use finite numbers and valid Unicode text",
        ) from None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _refused(reason: object) -> PeerFault:
    text = reason if isinstance(reason, str) else "no reason given"
    return PeerFault(
        "request-refused",
        f"the daemon refused the request: {text}",
        hint="if this command worked before, restart the daemon with `aos restart`",
        reason=text,
    )
