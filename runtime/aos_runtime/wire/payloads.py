"""Message payloads: the known tags, and the one rule by which a payload enters the bus.

Source: daemon-kernel.md 3.2, host-abi.md 1.3 and 6.4.  Guests and clients publish bare JSON.  An object
whose `type` is a known tag and whose fields decode is re-serialised from its typed form, so extra fields
vanish; everything else is custom JSON and stays byte for byte.  `raw_json` and `custom` are wrappers and
are taken off.  Bytes that are not strict JSON (invalid UTF-8, NaN, trailing text, nesting that no decoder
follows) are no payload at all.

Nested shapes that only capsules and models read (LLM messages, form fields, stream events) are carried as
they came.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct, field

RAW_JSON = "raw_json"
"""The tag that requests to kernel and tools door must carry."""

USER_INPUT = "user_input"
APPROVAL_RESPONSE = "approval_response"
ELICIT_RESPONSE = "elicit_response"
TOOL_EXECUTE_REQUEST = "tool_execute_request"
TOOL_EXECUTE_RESULT = "tool_execute_result"
TOOL_CANCEL_REQUEST = "tool_cancel_request"

REMEMBERED, REMEMBERED_BYTES = 64, 2048
"""Small payloads whose outcome is kept: a router says what it has just heard, byte for byte."""


class Normalised(Struct, frozen=True, gc=False):
    """A payload on the bus.

    `kind` is its tag, None for custom; `body` is what guests and clients are sent.
    """

    kind: str | None
    body: bytes


class _Tagged(Struct, frozen=True, gc=False, tag_field="type"):
    pass


class _Optional(_Tagged, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """Fields whose default is None are left out; so is a null that was sent."""


def _default_session() -> str:
    return "default"  # from a factory, because `omit_defaults` must not leave it out


class UserInput(_Optional, frozen=True, gc=False, tag="user_input"):
    text: str
    session_id: str = field(default_factory=_default_session)
    context: Any = None


class AgentResponse(_Tagged, frozen=True, gc=False, tag="agent_response"):
    text: str
    is_final: bool
    session_id: str = "default"


class ApprovalRequired(_Optional, frozen=True, gc=False, tag="approval_required"):
    request_id: str
    action: str
    resource: str
    reason: str
    request_owner: str | None = None


class ApprovalResponse(_Optional, frozen=True, gc=False, tag="approval_response"):
    request_id: str
    decision: str
    reason: str | None = None


class GrantRequired(_Optional, frozen=True, gc=False, tag="grant_required"):
    request_id: str
    principal: str
    capsule_id: str
    request_owner: str | None = None


class GrantResult(_Optional, frozen=True, gc=False, tag="grant_result"):
    request_id: str
    principal: str
    capsule_id: str
    granted: bool
    request_owner: str | None = None


class OnboardingRequired(_Tagged, frozen=True, gc=False, tag="onboarding_required"):
    capsule_id: str
    fields: list[Any]


class LlmRequest(_Tagged, frozen=True, gc=False, tag="llm_request"):
    request_id: UUID
    model: str
    messages: list[Any]
    tools: list[Any]
    system: str


class LlmStreamEvent(_Tagged, frozen=True, gc=False, tag="llm_stream_event"):
    request_id: UUID
    event: Any


class LlmResponse(_Tagged, frozen=True, gc=False, tag="llm_response"):
    request_id: UUID
    response: Any


class ToolRequest(_Tagged, frozen=True, gc=False, tag="tool_execute_request"):
    """A call of one tool.

    `arguments` is any JSON; to send bytes that are JSON already, pass a `msgspec.Raw`.
    """

    call_id: str
    tool_name: str
    arguments: Any


class _Call(Struct, frozen=True, gc=False, tag_field="type", tag="tool_execute_request"):
    """Whose call it is; the arguments, which may be large, are passed over."""

    call_id: str


_CALL_HEAD = re.compile(rb'\{"type":"tool_execute_request","call_id":"([\x20-\x21\x23-\x5b\x5d-\x7e]*)"')


class ToolOutcome(Struct, frozen=True, gc=False):
    """What a tool answered.  `content` is text for the model, often JSON inside a string."""

    call_id: str
    content: str
    is_error: bool = False


class ToolResult(_Tagged, frozen=True, gc=False, tag="tool_execute_result"):
    call_id: str
    result: ToolOutcome


class ToolCancel(_Tagged, frozen=True, gc=False, tag="tool_cancel_request"):
    call_ids: list[str]


class SelectionOption(Struct, frozen=True, gc=False, omit_defaults=True):
    id: str
    label: str
    description: str | None = None


class SelectionRequired(_Tagged, frozen=True, gc=False, tag="selection_required"):
    request_id: str
    title: str
    options: list[SelectionOption]
    callback_topic: str


class ElicitRequest(_Tagged, frozen=True, gc=False, tag="elicit_request"):
    request_id: UUID
    capsule_id: str
    field: Any


class ElicitResponse(_Optional, frozen=True, gc=False, tag="elicit_response"):
    request_id: UUID
    value: str | None = None
    values: list[str] | None = None


class Connect(_Tagged, frozen=True, gc=False, tag="connect"):
    pass


class Disconnect(_Optional, frozen=True, gc=False, tag="disconnect"):
    reason: str | None = None


class Custom(_Tagged, frozen=True, gc=False, tag="custom"):
    data: Any


class RawJson(_Tagged, frozen=True, gc=False, tag="raw_json"):
    """Only its tag is read: its fields are the object's own."""


Payload = (
    ToolRequest
    | ToolResult
    | UserInput
    | AgentResponse
    | RawJson
    | Custom
    | ApprovalRequired
    | ApprovalResponse
    | GrantRequired
    | GrantResult
    | OnboardingRequired
    | LlmRequest
    | LlmStreamEvent
    | LlmResponse
    | ToolCancel
    | SelectionRequired
    | ElicitRequest
    | ElicitResponse
    | Connect
    | Disconnect
)

TAGS: tuple[str, ...] = tuple(sorted(str(kind.__struct_config__.tag) for kind in Payload.__args__))
"""Every known tag."""

_decode = msgspec.json.Decoder(Payload).decode
_decode_any = msgspec.json.Decoder().decode
_decode_request = msgspec.json.Decoder(ToolRequest).decode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode
_decode_cancel = msgspec.json.Decoder(ToolCancel).decode
_encode = msgspec.json.Encoder().encode

# How a decoder says that bytes are not JSON, or are JSON that it cannot hold.
_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeError)


def normalise(payload: bytes) -> Normalised | None:
    """Apply the module's publish rule to untrusted bytes; None where they are not strict JSON.

    Measured at 0.5 us for a small tool request.  Size is the caller's check.
    """
    return _remembered(payload) if len(payload) <= REMEMBERED_BYTES else _normalise(payload)


def _normalise(payload: bytes) -> Normalised | None:
    try:
        if not payload.isascii():
            payload.decode()  # the decoder does not look inside a field that it leaves out
        value = _decode(payload)
    except msgspec.ValidationError:
        return _as_custom(payload)
    except _NOT_JSON:
        return None
    kind = type(value)
    if kind is RawJson:
        return _unwrap_raw(payload)
    try:
        if kind is Custom:
            return Normalised(None, _encode(value.data))  # type: ignore[union-attr]  # kind is Custom
        return Normalised(kind.__struct_config__.tag, _encode(value))  # type: ignore[arg-type]  # tags are str
    except (RecursionError, OverflowError):
        return None


_remembered = lru_cache(maxsize=REMEMBERED)(_normalise)


def decode_tool_request(body: bytes) -> ToolRequest | None:
    """A normalised body as a tool request, or None where it is something else."""
    try:
        return _decode_request(body)
    except _NOT_JSON:
        return None


def tool_call_id(body: bytes) -> str | None:
    """The call id of a normalised tool request, None where it is something else.

    A normalised one begins with it, so its arguments are not read: whoever looks for a call looks at many.
    """
    head = _CALL_HEAD.match(body)
    if head is not None:
        return head[1].decode("ascii")
    try:
        return _decode_call(body).call_id
    except _NOT_JSON:
        return None


def decode_tool_result(body: bytes) -> ToolResult | None:
    """A normalised body as a tool result, or None where it is something else."""
    try:
        return _decode_result(body)
    except _NOT_JSON:
        return None


def encode_tool_request(call_id: str, tool_name: str, arguments: object) -> bytes:
    """The body of a tool request; `arguments` is a JSON value, or a `msgspec.Raw` that holds valid JSON."""
    return _encode(ToolRequest(call_id, tool_name, arguments))


def encode_tool_result(call_id: str, content: str, *, is_error: bool) -> bytes:
    """The body of a tool result, with the call id at both levels (seed tools-as-an-ipc-convention)."""
    return _encode(ToolResult(call_id, ToolOutcome(call_id, content, is_error)))


def encode_tool_cancel(call_ids: list[str]) -> bytes:
    """The body of a cancel request."""
    return _encode(ToolCancel(call_ids))


def decode_tool_cancel(body: bytes) -> ToolCancel | None:
    """A normalised body as a cancel request, or None where it is something else."""
    try:
        return _decode_cancel(body)
    except _NOT_JSON:
        return None


def _as_custom(payload: bytes) -> Normalised | None:
    """JSON without a known, well-formed tag: kept byte for byte."""
    try:
        _decode_any(payload)
    except _NOT_JSON:
        return None
    return Normalised(None, payload)


def _unwrap_raw(payload: bytes) -> Normalised | None:
    """The object's own fields, without `type`."""
    try:
        fields = _decode_any(payload)
        del fields["type"]
        return Normalised(RAW_JSON, _encode(fields))
    except (*_NOT_JSON, OverflowError):
        return None
