"""What is said when a handler does not answer: the words, and the receipt that carries them to who waits.

Source: daemon-kernel.md 3.3 (request failure receipts) and 7 (texts).  No guest text enters a sentence here
but the reason that a guest gave when it denied, and that is bounded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.topics import topic_problem, user_invocable
from aos_runtime.errors import AosError
from aos_runtime.host import GuestTrap, TrapReason
from aos_runtime.wire.ingress import topic_refusal
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import (
    TOOL_EXECUTE_REQUEST,
    TOOL_EXECUTE_RESULT,
    decode_tool_result,
    tool_call_id,
)

FAILURE_PREFIX = "astrid.v1.response.failure."
"""Reserved for the kernel; the next segment is the id of the request that failed."""

MAX_ID_BYTES = 128
CANCELLED = "the call was cancelled"


_UUID = re.compile(r"[0-9a-f]{32}")
"""How a client names a request, outside of the topics where every one is answered."""


class FailureMessage(NamedTuple):
    """A receipt, ready to be published."""

    topic: str
    body: bytes


class _Request(msgspec.Struct):
    req_id: str | None = None


_decode_request = msgspec.json.Decoder(_Request).decode


def failure_sentence(error: GuestTrap | AosError) -> str:
    """Why a handler failed, in the words of the published runtime where it has them."""
    if isinstance(error, AosError):
        return error.message
    match error.reason:
        case TrapReason.FUEL:
            return "interceptor exhausted its fuel budget"
        case TrapReason.DEADLINE:
            return "interceptor exceeded its execution deadline"
        case TrapReason.CANCELLED:
            return CANCELLED
        case _:
            return f"interceptor execution failed: {error.message}"


def failure_message(envelope: Envelope, reason: str) -> FailureMessage | None:
    """The receipt for a request that got no answer; None where nobody could wait for one."""
    request_id = _request_id(envelope)
    if request_id is None or "." in request_id or len(request_id) > MAX_ID_BYTES:
        return None
    topic = FAILURE_PREFIX + request_id
    if topic_problem(topic) is not None:
        return None
    return FailureMessage(topic, msgspec.json.encode({"req_id": request_id, "reason": reason}))


def call_of(envelope: Envelope) -> str | None:
    """The id of the tool call that this message asks for; None where it asks for none."""
    return tool_call_id(envelope.body) if envelope.kind == TOOL_EXECUTE_REQUEST else None


def _request_id(envelope: Envelope) -> str | None:
    if envelope.kind == TOOL_EXECUTE_REQUEST:
        return call_of(envelope)
    if envelope.kind == TOOL_EXECUTE_RESULT:
        result = decode_tool_result(envelope.body)
        return None if result is None else result.call_id
    is_invocable = user_invocable(envelope.topic) is not None
    if not is_invocable and not _is_clients(envelope):
        return None
    try:
        request_id = _decode_request(envelope.body).req_id
    except msgspec.DecodeError:
        return None
    if is_invocable or request_id is None or _UUID.fullmatch(request_id):
        return request_id
    return None


def _is_clients(envelope: Envelope) -> bool:
    """Whether a client has published this: what the daemon says itself is on other topics."""
    return (
        envelope.source_id == NIL_SOURCE
        and envelope.request_owner is not None
        and topic_refusal(envelope.topic) is None
    )
