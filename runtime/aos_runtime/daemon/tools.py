"""The door for tools: `astrid.v1.request.tools.<verb>.<corr>` from a client, outside kernel and bus.

Requests are `{"type": "raw_json", "params": {...}}`; replies come on `astrid.v1.response.tools.<verb>.<corr>`
in the kernel-request envelope: `{"status": "Working"}` every five seconds, then once `{"status": "Success",
"data": ...}` or `{"status": "Error", "data": "<sentence>"}`.

| verb | params | data |
|---|---|---|
| list | none | `[{name, description, input_schema, mutable, capsule, shadowed: [capsule]}]`, by name |
| show | `{name}` | one such entry |
| call | `{name, arguments, timeout_s?}` | `{call_id, content, is_error, capsule, duration_ms}` |
| calls | none | `[{call_id, tool, capsule, running_ms, timeout_s}]` of the principal, oldest first |
| cancel | `{corr}`: an own call; or `{call_id}`: any of the principal's | `{cancelled: bool}` |

`corr` is the last segment of the topic of the call.  A handler that traps, denies or was unloaded, and a
call that a capsule cancelled, are a result with `is_error`; what is no tool, a timeout and a client's cancel
are an `Error`.  `capsule` is null where no capsule described the tool.  The door knows no socket: replies
leave through a function that it is given.
"""

from __future__ import annotations

import difflib
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.topics import TOOL_REQUEST, TOOL_RESULT, is_tool_name, tool_topic
from aos_runtime.daemon.call_ids import CallIds
from aos_runtime.kernel.cancellation import CANCEL_TOPIC
from aos_runtime.kernel.cancellation import MAX_CALLS as MAX_CANCELLED
from aos_runtime.kernel.failures import CANCELLED, FAILURE_PREFIX
from aos_runtime.kernel.in_flight import InFlight
from aos_runtime.kernel.ports import Ingress, Submission
from aos_runtime.kernel.routing import Plan
from aos_runtime.kernel.trace import Recorder
from aos_runtime.kernel.views import View
from aos_runtime.names import PrincipalName
from aos_runtime.wire import requests as wire
from aos_runtime.wire.methods import NIL_SOURCE, WORKING_PERIOD_S, ToolsTopic
from aos_runtime.wire.payloads import (
    TOOL_CANCEL_REQUEST,
    TOOL_EXECUTE_REQUEST,
    decode_tool_cancel,
    decode_tool_result,
    encode_tool_cancel,
    encode_tool_request,
)

MAX_CALLS = 4096
MAX_CALLS_PER_CLIENT = 256
NEAREST = 3
MAX_GIVEN_UP = 256

Reply = Callable[[bytes], None]
"""Sends one reply body to the client that asked; a client that is gone is no error."""


class Bus(Ingress, Protocol):
    """The part of the kernel that the door uses."""

    @property
    def trace(self) -> Recorder: ...

    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan: ...

    def is_handled(self, topic: str, principal: str | None) -> bool: ...


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    call_id: str
    content: str
    is_error: bool
    capsule: str | None
    duration_ms: float


class _Answer(msgspec.Struct, frozen=True, gc=False):
    status: str
    data: _Outcome


class _Failure(msgspec.Struct, frozen=True, gc=False):
    reason: str


class _Call:
    """One call in flight.  Whoever pops it from the table answers it: exactly once."""

    __slots__ = (
        "capsule",
        "corr",
        "deadline",
        "message",
        "reply",
        "started",
        "timeout_s",
        "tool",
        "working_at",
    )

    def __init__(
        self,
        message: Envelope,
        reply: Reply,
        corr: str,
        tool: str,
        capsule: str | None,
        timeout_s: float,
        now: float,
    ) -> None:
        self.message = message
        self.reply = reply
        self.corr = corr
        self.tool = tool
        self.capsule = capsule
        self.timeout_s = timeout_s
        self.started = now
        self.deadline = now + timeout_s
        self.working_at = now + WORKING_PERIOD_S


_encode = msgspec.json.Encoder().encode
_decode_failure = msgspec.json.Decoder(_Failure).decode


class ToolsDoor:
    """Answers list, show, call, calls and cancel.  `view_of` gives what a principal has loaded."""

    def __init__(
        self,
        bus: Bus,
        view_of: Callable[[PrincipalName], View],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.has_children: Callable[[str | None, str], bool] = lambda principal, call_id: False
        """Whether programs that a principal's call started still run: it can be cancelled, over or not."""
        self._bus = bus
        self._view_of = view_of
        self._clock = clock
        self._ids = CallIds()
        self._calls: dict[str, _Call] = {}
        """One thread enters a call, whichever pops it answers it."""
        self._in_flight = InFlight(MAX_CALLS_PER_CLIENT, MAX_CALLS)
        self._given_up: deque[str] = deque(maxlen=MAX_GIVEN_UP)
        """Calls that were answered before their capsule stopped; its receipt is for nobody."""

    # from the client

    def receive(
        self, asked: ToolsTopic, body: bytes, kind: str | None, cause: Envelope, reply: Reply
    ) -> None:
        """Take one request; `cause` carries who asks (its `request_owner` is the connection's)."""
        params = wire.decode_tools_request(asked.verb, body, kind)
        if isinstance(params, wire.BadRequest):
            reply(wire.error(params.text))
        elif asked.verb == "call":
            self._call(asked.correlation, params, cause, reply)
        elif asked.verb == "cancel":
            cancelled = self._cancel_call(cause, params["corr"], params["call_id"])
            reply(wire.ok("Success", {"cancelled": cancelled}))
        elif asked.verb == "calls":
            reply(wire.ok("Success", self._rows(cause.principal)))
        elif asked.verb == "list":
            reply(wire.ok("Success", [tool.to_json() for tool in self._view(cause).tools.values()]))
        else:
            self._show(params["name"], cause, reply)

    def disconnect(self, request_owner: str) -> None:
        """A client left: nobody waits for its calls any more."""
        for call_id, call in tuple(self._calls.items()):
            if call.message.request_owner == request_owner:
                self._give_up(call_id)

    # from the bus

    @staticmethod
    def wants(topic: str) -> bool:
        """The topics that `hear` takes (a native subscription)."""
        return topic in (TOOL_RESULT, CANCEL_TOPIC) or topic.startswith(FAILURE_PREFIX)

    def expects(self, topic: str) -> bool:
        """Whether a failure receipt on `topic` is about a call of the door, which answers it itself."""
        if not topic.startswith(FAILURE_PREFIX):
            return False
        call_id = topic[len(FAILURE_PREFIX) :]
        return call_id in self._calls or call_id in self._given_up

    def hear(self, envelope: Envelope) -> None:
        """A result, a failure receipt, or a capsule's cancel came by."""
        if envelope.topic == TOOL_RESULT:
            result = decode_tool_result(envelope.body)
            if result is not None:
                self._finish(
                    result.call_id, envelope.principal, result.result.content, result.result.is_error
                )
        elif envelope.topic == CANCEL_TOPIC:
            if envelope.source_id != NIL_SOURCE:
                self._end_cancelled(envelope)
        elif envelope.source_id == NIL_SOURCE:
            call_id = envelope.topic[len(FAILURE_PREFIX) :]
            self._finish(call_id, envelope.principal, _decode_failure(envelope.body).reason, True)

    # from the clock

    def sweep(self, now: float) -> None:
        """A chore: end what timed out, and say `Working` for what has not."""
        for call_id, call in tuple(self._calls.items()):
            if now >= call.deadline:
                if self._give_up(call_id):
                    call.reply(wire.error(f"tool '{call.tool}' did not answer within {call.timeout_s:g} s"))
            elif now >= call.working_at:
                call.working_at = now + WORKING_PERIOD_S
                call.reply(wire.working())

    @property
    def calls_in_flight(self) -> int:
        return len(self._calls)

    def _call(self, corr: str, params: dict[str, Any], cause: Envelope, reply: Reply) -> None:
        name = params["name"]
        bound = self._view(cause).tools.get(name)
        if bound is None and not (
            is_tool_name(name) and self._bus.is_handled(tool_topic(name), cause.principal)
        ):
            reply(wire.error(self._unknown(name, cause)))
            return
        call_id = self._ids.take()
        message = _message(
            cause,
            TOOL_REQUEST,
            encode_tool_request(call_id, name, params["arguments"]),
            TOOL_EXECUTE_REQUEST,
        )
        capsule = None if bound is None else bound.capsule
        call = _Call(message, reply, corr, name, capsule, params["timeout_s"], self._clock())
        if not self._enter(call_id, call):
            reply(wire.error(f"too many calls in flight ({MAX_CALLS_PER_CLIENT} a client)"))
            return
        self._bus.trace.began(cause.principal or "", call_id, name)
        problem = _submission_problem(self._bus.submit(message), cause)
        if problem is not None and self._take(call_id) is not None:
            self._bus.trace.ended(cause.principal or "", call_id, "refused")
            reply(wire.error(problem))

    def _show(self, name: str, cause: Envelope, reply: Reply) -> None:
        bound = self._view(cause).tools.get(name)
        if bound is None:
            reply(wire.error(self._unknown(name, cause)))
        else:
            reply(wire.ok("Success", bound.to_json()))

    def _finish(self, call_id: str, principal: str | None, content: str, is_error: bool) -> None:
        """Answer the call with this id, if the answer comes from its own principal's capsules."""
        call = self._calls.get(call_id)
        if call is None or call.message.principal != principal or self._take(call_id) is None:
            return
        self._bus.trace.ended(principal or "", call_id, "error" if is_error else "ok")
        duration_ms = round((self._clock() - call.started) * 1000, 3)
        call.reply(
            _encode(_Answer("Success", _Outcome(call_id, content, is_error, call.capsule, duration_ms)))
        )

    def _end_cancelled(self, envelope: Envelope) -> None:
        """A capsule cancelled calls of its principal: whoever waits for them is told at once."""
        cancel = decode_tool_cancel(envelope.body)
        for call_id in () if cancel is None else cancel.call_ids[:MAX_CANCELLED]:
            if call_id in self._calls:
                self._given_up.append(call_id)
                self._finish(call_id, envelope.principal, CANCELLED, True)

    def _cancel_call(self, cause: Envelope, corr: str | None, call_id: str | None) -> bool:
        """Cancel the caller's own call with this `corr`, or its principal's call with this id."""
        for one, call in tuple(self._calls.items()):
            who = call.message
            is_own = call.corr == corr and who.request_owner == cause.request_owner
            is_named = one == call_id and who.principal == cause.principal
            if (is_own or is_named) and self._give_up(one):
                call.reply(wire.error(f"the call of tool '{call.tool}' was cancelled"))
                return True
        if call_id is None or not self.has_children(cause.principal, call_id):
            return False
        self._ask_to_cancel(call_id, cause)
        return True

    def _rows(self, principal: str | None) -> list[dict[str, object]]:
        now = self._clock()
        return [
            {
                "call_id": call_id,
                "tool": call.tool,
                "capsule": call.capsule,
                "running_ms": round((now - call.started) * 1000, 3),
                "timeout_s": call.timeout_s,
            }
            for call_id, call in tuple(self._calls.items())
            if call.message.principal == principal
        ]

    def _give_up(self, call_id: str) -> bool:
        """Forget a call and tell its capsule; False where somebody else answered it meanwhile."""
        call = self._take(call_id)
        if call is None:
            return False
        self._bus.trace.ended(call.message.principal or "", call_id, "given up")
        self._given_up.append(call_id)
        self._ask_to_cancel(call_id, call.message)
        return True

    def _ask_to_cancel(self, call_id: str, cause: Envelope) -> None:
        self._bus.publish(CANCEL_TOPIC, encode_tool_cancel([call_id]), TOOL_CANCEL_REQUEST, NIL_SOURCE, cause)

    def _enter(self, call_id: str, call: _Call) -> bool:
        """Put a call into the table; False where its client, or all of them, have too many."""
        if not self._in_flight.enter(call.message.request_owner or ""):
            return False
        self._calls[call_id] = call
        return True

    def _take(self, call_id: str) -> _Call | None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            self._in_flight.leave(call.message.request_owner or "")
        return call

    def _view(self, cause: Envelope) -> View:
        return self._view_of(PrincipalName(cause.principal or ""))

    def _unknown(self, name: str, cause: Envelope) -> str:
        near = difflib.get_close_matches(name[:200], list(self._view(cause).tools), NEAREST)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        return f"no tool is called {name[:200]!r}{hint}"


def _message(cause: Envelope, topic: str, body: bytes, kind: str) -> Envelope:
    return msgspec.structs.replace(cause, topic=topic, body=body, kind=kind, source_id=NIL_SOURCE)


def _submission_problem(submission: Submission, cause: Envelope) -> str | None:
    match submission:
        case Submission.ACCEPTED:
            return None
        case Submission.MOVED:
            return f"principal {cause.principal} is served by another daemon now; connect again"
        case Submission.FULL:
            return "the tool router is overloaded; try again later"
        case _:
            return f"no router capsule serves principal {cause.principal}; see `aos capsule list`"
