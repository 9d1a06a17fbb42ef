"""Grant on use: a principal calls a capsule that its profile does not allow (daemon-kernel.md 9.4).

The gate refuses the message and calls `miss`; the connection that caused it is asked once for the capsule,
however many messages were refused.  A yes goes into `profile.capsules`.  The message is not sent again:
whoever sent it learns of the outcome on `astrid.v1.grant.result.<id>` and may.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.kernel.approvals import USER_APPROVAL
from aos_runtime.kernel.audit import HostCall
from aos_runtime.kernel.audited import Trail
from aos_runtime.kernel.kernel import Journal
from aos_runtime.kernel.questions import APPROVAL_TOPIC, Answer, Asked, Ending, Kind
from aos_runtime.kernel.routing import Plan
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.approval import DECISION_WORDS, find_verdict, read_deed
from aos_runtime.store.approval_rules import ApprovalRules
from aos_runtime.store.audit_entry import SUCCESS
from aos_runtime.store.profile_edits import allow_capsule
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import ApprovalResponse, GrantRequired, GrantResult

GRANT_TIMEOUT_S = 60.0
RESULT_PREFIX = "astrid.v1.grant.result."
GRANT_ACTION = "use capsule"
"""As what a grant stands in etc/approvals.toml and in the audit trail; its resource is the topic."""

_encode = msgspec.json.Encoder().encode


class Bus(Protocol):
    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan: ...


class Posts(Protocol):
    """The part of `Questions` that grants use."""

    def post(
        self,
        asked: Asked,
        topic: str,
        body: bytes,
        kind: str,
        settle: Callable[[Ending, Answer | None], None],
    ) -> bool: ...


class GrantOnUse:
    """One per daemon.  `on_granted(principal)` hears of each yes, so that the gate lets the next one pass;
    `note` of each denial, for the log.
    """

    def __init__(
        self,
        *,
        home: Home,
        bus: Bus,
        questions: Posts,
        journal: Journal,
        before_block: Callable[[], None],
        trail: Trail,
        note: Callable[[CapsuleName, Envelope], None],
        on_granted: Callable[[PrincipalName], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_granted = on_granted
        self._trail = trail
        self._note = note
        self._home = home
        self._rules = ApprovalRules(home)
        self._bus = bus
        self._questions = questions
        self._journal = journal
        self._before_block = before_block
        self._clock = clock
        self._lock = threading.Lock()
        self._asking: set[tuple[PrincipalName, CapsuleName]] = set()

    def denied(self, capsule: CapsuleName, envelope: Envelope) -> None:
        """The access gate kept a message from `capsule`: put it on record, and ask whoever sent it."""
        self._note(capsule, envelope)
        call = HostCall(envelope.principal, capsule, "access", envelope.topic, "no-access")
        self._trail.host_call(call)
        if envelope.principal is not None:
            self.miss(PrincipalName(envelope.principal), capsule, envelope)

    def miss(self, principal: PrincipalName, capsule: CapsuleName, cause: Envelope) -> bool:
        """Ask whether `principal` may use `capsule`, by the operator's rules, then on the connection.

        Never waits for the answer.  False where the rules say no, or nobody can be asked.
        """
        pair = (principal, capsule)
        with self._lock:
            if pair in self._asking:
                return True
            self._asking.add(pair)
        verdict = self._verdict(principal, capsule, cause)
        if verdict is not None or cause.request_owner is None:
            if verdict:
                self._allow(principal, capsule, cause.topic)
            self._forget(pair)
            return bool(verdict)
        request_id = str(uuid.uuid4())
        asked = Asked(
            id=request_id,
            kind=Kind.GRANT,
            cause=cause,
            capsule=capsule,
            subject={"topic": cause.topic},
            asked_at_ms=time.time_ns() // 1_000_000,
            deadline=self._clock() + GRANT_TIMEOUT_S,
        )
        body = _encode(GrantRequired(request_id, principal, capsule, cause.request_owner))

        def settle(ending: Ending, answer: Answer | None) -> None:
            self._settle(asked, principal, capsule, answer)

        if self._questions.post(asked, APPROVAL_TOPIC, body, "grant_required", settle):
            return True
        self._forget(pair)
        return False

    def _settle(
        self, asked: Asked, principal: PrincipalName, capsule: CapsuleName, answer: Answer | None
    ) -> None:
        decision = answer.decision if isinstance(answer, ApprovalResponse) else ""
        granted = decision in DECISION_WORDS
        self._before_block()  # a yes is put on record and into the profile
        try:
            granted = granted and self._allow(principal, capsule, asked.cause.topic)
            if not granted:
                self._trail.record(
                    principal, _action(capsule, asked.cause.topic, "denied"), SUCCESS, USER_APPROVAL
                )
        finally:
            self._forget((principal, capsule))
        body = _encode(GrantResult(asked.id, principal, capsule, granted, asked.owner))
        self._bus.publish(RESULT_PREFIX + asked.id, body, "grant_result", NIL_SOURCE, asked.cause)

    def _verdict(self, principal: PrincipalName, capsule: CapsuleName, cause: Envelope) -> bool | None:
        """What the operator's rules say, None where they say nothing; rules that cannot be read say no."""
        deed = read_deed(capsule, GRANT_ACTION, cause.topic, cause.workspace)
        self._before_block()  # the rules are read from disk
        try:
            return False if deed is None else find_verdict(self._rules.read(), deed)
        except AosError as error:
            self._journal.daemon("error", f"grant of capsule '{capsule}' to {principal}: {error.message}")
            return False

    def _allow(self, principal: PrincipalName, capsule: CapsuleName, topic: str) -> bool:
        try:
            self._trail.require(principal, _action(capsule, topic, "granted"), SUCCESS, USER_APPROVAL)
            allow_capsule(self._home, principal, capsule)
        except AosError as error:
            self._journal.daemon("error", f"grant of capsule '{capsule}' to {principal}: {error.message}")
            return False
        self._journal.daemon("info", f"principal {principal} may use capsule '{capsule}' from now on")
        self._on_granted(principal)
        return True

    def _forget(self, pair: tuple[PrincipalName, CapsuleName]) -> None:
        with self._lock:
            self._asking.discard(pair)


def _action(capsule: CapsuleName, topic: str, outcome: str) -> dict[str, object]:
    return {
        "type": f"approval_{outcome}",
        "capsule_id": capsule,
        "action": GRANT_ACTION,
        "resource": topic,
        "decision": outcome,
    }
