"""Calls of tools and commands, as the audit trail tells them: one entry for each execution."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from blake3 import blake3

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.topics import user_invocable
from aos_runtime.kernel.actor import Actor, Delivery
from aos_runtime.kernel.audited import Trail
from aos_runtime.names import CapsuleName
from aos_runtime.store.audit_entry import NOT_REQUIRED, SUCCESS, Draft, ToolCall, capped, failure

TOOL_PREFIX = "tool.v1.execute."
MAX_ANSWERS = 4096
MAX_CALL_ID = 256
LOOP_ANSWER_S = 300.0
"""A run loop's answer that took longer is taken for one that never came."""
NO_RESULT = "no result published"
ERROR_RESULT = "tool reported an error"


class _Call(msgspec.Struct, frozen=True, gc=False):
    call_id: str
    arguments: msgspec.Raw


class _Result(msgspec.Struct, frozen=True, gc=False):
    is_error: bool = False


class _Answer(msgspec.Struct, frozen=True, gc=False):
    """A tool result without its content, which may be large and is nobody's business here."""

    call_id: str
    result: _Result


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_call = msgspec.json.Decoder(_Call).decode


class ToolCalls:
    """One entry for each execution of a tool or command handler.

    The kernel says what a handler answered and when it has ended.  A run loop has no end that could be seen:
    its entry is made when the result comes by, or never came.
    """

    def __init__(self, trail: Trail, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._trail = trail
        self._clock = clock
        self._answers: dict[tuple[int, str], bool] = {}
        """Results of handlers that run: by the sequence number of the request and the id in the result."""
        self._loops: dict[tuple[str | None, str], tuple[float, ToolCall]] = {}
        """Calls that run loops have, the oldest first: since when, and what their entry will say."""

    def answered(self, envelope: Envelope, cause: Envelope) -> None:
        """A result was published while `cause` was served; it counts for the handler that serves it."""
        is_own = user_invocable(cause.topic) == "tool"
        if not is_own and not self._loops:
            return
        try:
            answer = _decode_answer(envelope.body)
        except (msgspec.DecodeError, UnicodeError):
            return
        if len(answer.call_id) > MAX_CALL_ID:
            return
        waiting = self._loops.pop((envelope.principal, answer.call_id), None) if self._loops else None
        if waiting is not None:
            self._record_call(
                envelope.principal, waiting[1], ERROR_RESULT if answer.result.is_error else None
            )
        elif is_own:
            if len(self._answers) >= MAX_ANSWERS:  # of ids that no handler was asked for
                self._answers.clear()
            self._answers[cause.seq, answer.call_id] = answer.result.is_error

    def executed(self, actor: Actor, delivery: Delivery, error: str | None) -> None:
        """A handler of a user-invocable topic has ended; `error` says why it failed, where it did."""
        envelope = delivery.envelope
        if not envelope.topic.startswith(TOOL_PREFIX):
            self._record_command(actor.name, envelope, error)
            return
        call = _read_call(delivery.body)
        answer = self._answers.pop((envelope.seq, call.call_id), None) if call.call_id else None
        if error is None and answer is not False:
            error = NO_RESULT if answer is None else ERROR_RESULT
        self._record_call(envelope.principal, _call_action(actor.name, envelope.topic, call), error)

    def delivered(self, envelope: Envelope, capsule: CapsuleName) -> None:
        """A run loop got a request; a result that comes within `LOOP_ANSWER_S` ends it."""
        if not envelope.topic.startswith(TOOL_PREFIX):
            self._record_command(capsule, envelope, None)
            return
        call = _read_call(envelope.body)
        action = _call_action(capsule, envelope.topic, call)
        if len(self._loops) >= MAX_ANSWERS:
            self._expire(next(iter(self._loops)))
        self._loops[envelope.principal, call.call_id] = self._clock(), action

    def sweep(self, now: float) -> None:
        """A chore: the calls that a run loop has not answered are on record as such."""
        for key, (since, _) in tuple(self._loops.items()):
            if now - since < LOOP_ANSWER_S:
                return
            self._expire(key)

    def _expire(self, key: tuple[str | None, str]) -> None:
        waiting = self._loops.pop(key, None)
        if waiting is not None:
            self._record_call(key[0], waiting[1], NO_RESULT)

    def _record_call(self, principal: str | None, call: ToolCall, error: str | None) -> None:
        outcome = SUCCESS if error is None else failure(error)
        self._trail.take(Draft(time.time_ns(), principal, call, NOT_REQUIRED, outcome))

    def _record_command(self, capsule: CapsuleName, envelope: Envelope, error: str | None) -> None:
        action = {
            "type": "capsule_command_run",
            "capsule_id": capsule,
            "command": envelope.topic.rpartition(".")[2],
            "args_hash": blake3(envelope.body).hexdigest(),
        }
        self._trail.record(envelope.principal, action, SUCCESS if error is None else failure(error))


def _call_action(capsule: CapsuleName, topic: str, call: _Call) -> ToolCall:
    return ToolCall(capsule, topic[len(TOOL_PREFIX) :], blake3(call.arguments).hexdigest(), call.call_id)


def _read_call(body: bytes) -> _Call:
    """Id and arguments of a tool request; of anything else no id, and all of it for arguments."""
    try:
        call = _decode_call(body)
    except (msgspec.DecodeError, UnicodeError):
        return _Call("", msgspec.Raw(body))
    return call if len(call.call_id) <= MAX_CALL_ID else _Call(capped(call.call_id), call.arguments)
