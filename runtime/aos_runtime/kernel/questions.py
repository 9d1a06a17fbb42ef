"""Questions to people that wait for an answer: approvals, elicitations and grants.

A question belongs to the principal, owner and device of the call that caused it; only an answer that the
front door let through from that very connection, or one that an operator gave by a command, settles it.  It
ends at its deadline, with its connection, its call or the daemon, whatever comes first, and exactly once.
Source: daemon-kernel.md 9.3; cases ABI-30, ABI-31.  What an answer means is its asker's business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.kernel.routing import Plan
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import (
    TOOL_CANCEL_REQUEST,
    ApprovalResponse,
    ElicitResponse,
    ToolCancel,
    decode_tool_request,
)

APPROVAL_TOPIC = "astrid.v1.approval"
APPROVAL_REPLIES = "astrid.v1.approval.response."
ELICIT_TOPIC = "astrid.v1.elicit"
ELICIT_REPLIES = "astrid.v1.elicit.response."
CANCEL_TOPIC = "tool.v1.request.cancel"

MAX_WAITING = 32
"""Questions for which a guest waits: each holds a thread of the leader, which has 64."""

MAX_GRANTS = 1024
"""Grants that are asked for; nobody waits for one."""


class Kind(Enum):
    """What is asked."""

    APPROVAL = "approval"
    ELICIT = "elicit"
    GRANT = "grant"


class Ending(Enum):
    """How a question ended."""

    ANSWERED = "answered"
    TIMEOUT = "timeout"
    GONE = "gone"
    """Its connection was closed, or its call was cancelled."""
    STOPPED = "stopped"
    """The daemon stops."""


Answer = ApprovalResponse | ElicitResponse


class Bus(Protocol):
    """The part of the kernel that questions use."""

    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One open question, as an operator sees it.  `subject` is what it is about, in words of its asker."""

    id: str
    kind: Kind
    cause: Envelope
    capsule: str
    subject: Mapping[str, str]
    asked_at_ms: int
    deadline: float

    @property
    def principal(self) -> str | None:
        return self.cause.principal

    @property
    def owner(self) -> str | None:
        return self.cause.request_owner


@dataclass(slots=True, kw_only=True)
class _Open:
    """An open question and who is told of its end, once."""

    asked: Asked
    settle: Callable[[Ending, Answer | None], None]
    call_id: str | None


_decode_approval = msgspec.json.Decoder(ApprovalResponse).decode
_decode_elicit = msgspec.json.Decoder(ElicitResponse).decode
_decode_cancel = msgspec.json.Decoder(ToolCancel).decode


class Questions:
    """The table of open questions.

    `is_present(principal, owner)` says whether the connection that would be asked is there.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        clock: Callable[[], float] = time.monotonic,
        is_present: Callable[[str | None, str | None], bool] = lambda principal, owner: True,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self.is_present = is_present
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._is_stopping = False

    # asking

    def wait(self, asked: Asked, topic: str, body: bytes, kind: str) -> tuple[Ending, Answer | None]:
        """Publish a question and wait for its end.  The caller has given its thread's work away first.

        GONE at once where too many wait already.
        """
        done = threading.Event()
        outcome: list[tuple[Ending, Answer | None]] = []

        def settle(ending: Ending, answer: Answer | None) -> None:
            outcome.append((ending, answer))
            done.set()

        if not self.post(asked, topic, body, kind, settle):
            return Ending.GONE, None
        if not done.wait(max(0.0, asked.deadline - self._clock())):
            self._close(asked.id, Ending.TIMEOUT, None)
            done.wait()  # whoever took it from the table settles it without waiting for anything
        return outcome[0]

    def post(
        self,
        asked: Asked,
        topic: str,
        body: bytes,
        kind: str,
        settle: Callable[[Ending, Answer | None], None],
    ) -> bool:
        """Publish a question; `settle` is called once, from any thread.  False where the table is full."""
        request = decode_tool_request(asked.cause.body)
        entry = _Open(asked=asked, settle=settle, call_id=None if request is None else request.call_id)
        with self._lock:
            grants = sum(one.asked.kind is Kind.GRANT for one in self._open.values())
            is_grant = asked.kind is Kind.GRANT
            is_full = grants >= MAX_GRANTS if is_grant else len(self._open) - grants >= MAX_WAITING
            if self._is_stopping or is_full:
                return False
            self._open[asked.id] = entry
        if self.is_present(asked.principal, asked.owner):
            self._bus.publish(topic, body, kind, NIL_SOURCE, asked.cause)
        else:  # asked after the entry was made: a connection that closes now is seen by one of the two
            self._close(asked.id, Ending.GONE, None)
        return True

    def list_open(self, principal: str | None) -> tuple[Asked, ...]:
        """What is open for a principal (None: for all), oldest first."""
        with self._lock:
            found = [one.asked for one in self._open.values()]
        return tuple(one for one in found if principal is None or one.principal == principal)

    # answers

    @staticmethod
    def wants(topic: str) -> bool:
        """The topics that `hear` takes (a native subscription)."""
        return topic.startswith((APPROVAL_REPLIES, ELICIT_REPLIES)) or topic == CANCEL_TOPIC

    def hear(self, envelope: Envelope) -> None:
        """A human's answer, or the cancel of a call, came by.  Whatever does not fit changes nothing."""
        if envelope.topic == CANCEL_TOPIC:
            if envelope.kind == TOOL_CANCEL_REQUEST:
                self._cancel(envelope.principal, frozenset(_decode_cancel(envelope.body).call_ids))
            return
        asked = self._find(envelope.topic.rpartition(".")[2])
        if asked is None or not _is_from_asked(envelope, asked):
            return
        decode = _decode_elicit if asked.kind is Kind.ELICIT else _decode_approval
        try:
            answer = decode(envelope.body)
        except msgspec.DecodeError:
            return
        self._close(asked.id, Ending.ANSWERED, answer)

    def answer(self, question_id: str, answer: Answer) -> bool:
        """An operator's answer; False where the question has ended meanwhile."""
        return self._close(question_id, Ending.ANSWERED, answer)

    # ends

    def sweep(self, now: float) -> None:
        """A chore: end what nobody waits for and has had its time."""
        self._end_where(
            lambda one: one.asked.kind is Kind.GRANT and now >= one.asked.deadline, Ending.TIMEOUT
        )

    def drop_owner(self, owner: str) -> None:
        """A connection was closed: nobody is there to answer any more."""
        self._end_where(lambda one: one.asked.owner == owner, Ending.GONE)

    def stop(self) -> None:
        """End every question and take no new ones."""
        with self._lock:
            self._is_stopping = True
        self._end_where(lambda one: True, Ending.STOPPED)

    def _cancel(self, principal: str | None, call_ids: frozenset[str]) -> None:
        self._end_where(lambda one: one.asked.principal == principal and one.call_id in call_ids, Ending.GONE)

    def _end_where(self, chosen: Callable[[_Open], bool], ending: Ending) -> None:
        with self._lock:
            found = [name for name, one in self._open.items() if chosen(one)]
        for name in found:
            self._close(name, ending, None)

    def _find(self, question_id: str) -> Asked | None:
        with self._lock:
            entry = self._open.get(question_id)
        return None if entry is None else entry.asked

    def _close(self, question_id: str, ending: Ending, answer: Answer | None) -> bool:
        """Take a question from the table and settle it; False where another thread did."""
        with self._lock:
            entry = self._open.pop(question_id, None)
        if entry is None:
            return False
        entry.settle(ending, answer)
        return True


def _is_from_asked(envelope: Envelope, asked: Asked) -> bool:
    """Whether an answer came from the front door, for the connection that was asked."""
    return (
        envelope.source_id == NIL_SOURCE
        and envelope.principal == asked.principal
        and envelope.request_owner == asked.owner
        and envelope.topic.startswith(ELICIT_REPLIES if asked.kind is Kind.ELICIT else APPROVAL_REPLIES)
    )
