"""`request-approval` of every capsule: policy file, standing grants, session allowances, then a person.

Source: host-abi.md 1.10, daemon-kernel.md 9.3.  Order: the operator's rules (a denial wins over everything
else), always-grants of the profile, allowances of this daemon's life, then the connection whose call this is;
a call that nobody owns is denied at once.  The waiting is `questions`', the deciding `policy.approval`'s.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.host import Err
from aos_runtime.kernel.audited import Trail
from aos_runtime.kernel.kernel import Journal
from aos_runtime.kernel.questions import APPROVAL_TOPIC, Answer, Asked, Ending, Kind
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.approval import (
    DECISION_WORDS,
    Allowance,
    Decision,
    Deed,
    find_verdict,
    read_deed,
)
from aos_runtime.store.allowances import AlwaysGrant, add_always, list_always, revoke_always
from aos_runtime.store.approval_rules import ApprovalRules
from aos_runtime.store.audit_entry import SUCCESS
from aos_runtime.wire.payloads import ApprovalRequired, ApprovalResponse

APPROVAL_TIMEOUT_S = 60.0
USER_APPROVAL: Mapping[str, object] = {"type": "user_approval"}
MAX_ALLOWANCES = 1024
"""Session allowances of one principal; the oldest goes."""

_encode = msgspec.json.Encoder().encode


class Asks(Protocol):
    """The part of `Questions` that approvals use."""

    def wait(self, asked: Asked, topic: str, body: bytes, kind: str) -> tuple[Ending, Answer | None]: ...


class Approvals:
    """One per daemon."""

    def __init__(
        self,
        *,
        home: Home,
        questions: Asks,
        journal: Journal,
        before_block: Callable[[], None],
        trail: Trail | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._rules = ApprovalRules(home)
        self._questions = questions
        self._journal = journal
        self._before_block = before_block
        self._trail = trail
        self._clock = clock
        self._lock = threading.Lock()
        self._session: dict[PrincipalName, list[Allowance]] = {}

    def request(
        self,
        capsule: CapsuleName,
        principal: PrincipalName,
        cause: Envelope | None,
        action: str,
        resource: str,
    ) -> Decision | Err:
        """The port of one capsule.  May wait a minute for a person."""
        workspace = None if cause is None else cause.workspace
        deed = read_deed(capsule, action, resource, workspace)
        if deed is None:
            return Err("invalid-input")
        self._before_block()  # the profile is read from disk, and a person may be asked
        try:
            known = self._find_known(principal, deed)
            decision = known if known is not None else self._ask(principal, deed, cause)
            self._put_on_record(principal, deed, decision)
            return decision
        except AosError as error:
            self._journal.daemon("error", f"approval for capsule '{capsule}': {error.message}")
            return Err("store-unavailable")

    def list_session(self, principal: PrincipalName) -> tuple[Allowance, ...]:
        """What was allowed until the daemon stops."""
        with self._lock:
            return tuple(self._session.get(principal, ()))

    def revoke(self, principal: PrincipalName, grant_id: str) -> None:
        """Take a standing approval back; from the next request on it is asked again.

        NotFound `always-grant-unknown`.
        """
        with self._lock:
            held = self._session.get(principal, [])
            kept = [one for one in held if session_id(one) != grant_id]
            self._session[principal] = kept
        if len(kept) == len(held):
            revoke_always(self._home, principal, grant_id)

    def forget(self, principal: PrincipalName) -> None:
        """It was deleted: what it allowed holds for nobody who gets its name."""
        with self._lock:
            self._session.pop(principal, None)

    def _find_known(self, principal: PrincipalName, deed: Deed) -> Decision | None:
        verdict = find_verdict(self._rules.read(), deed)
        if verdict is False:
            self._note("warn", deed, principal, "denied by etc/approvals.toml")
            return Decision.DENIED
        if verdict:
            self._note("info", deed, principal, "allowed by etc/approvals.toml")
            return Decision.ALLOWANCE
        always = (
            Allowance(one.capsule, one.action, one.resource, one.workspace)
            for one in list_always(self._home, principal)
        )
        held = (*always, *self.list_session(principal))
        return Decision.ALLOWANCE if any(one.covers(deed) for one in held) else None

    def _ask(self, principal: PrincipalName, deed: Deed, cause: Envelope | None) -> Decision | Err:
        if cause is None or cause.request_owner is None:
            self._note("warn", deed, principal, "denied: no connection owns the call")
            return Decision.DENIED
        request_id = str(uuid.uuid4())
        asked = Asked(
            id=request_id,
            kind=Kind.APPROVAL,
            cause=cause,
            capsule=deed.capsule,
            subject={"action": deed.action, "resource": deed.resource},
            asked_at_ms=time.time_ns() // 1_000_000,
            deadline=self._clock() + APPROVAL_TIMEOUT_S,
        )
        body = _encode(
            ApprovalRequired(
                request_id,
                deed.action,
                deed.resource,
                f"Capsule '{deed.capsule}' requests approval",
                cause.request_owner,
            )
        )
        ending, answer = self._questions.wait(asked, APPROVAL_TOPIC, body, "approval_required")
        if ending is not Ending.ANSWERED or not isinstance(answer, ApprovalResponse):
            self._note("warn", deed, principal, f"no answer: {ending.value}")
            return Err("timeout")
        decision = DECISION_WORDS.get(answer.decision, Decision.DENIED)
        self._note("info", deed, principal, decision.value)
        self._remember(principal, deed, decision)
        return decision

    def _put_on_record(self, principal: PrincipalName, deed: Deed, decision: Decision | Err) -> None:
        """In the audit trail, and a yes before its effect.  AosError where that cannot be."""
        if self._trail is None:
            return
        is_granted = isinstance(decision, Decision) and decision is not Decision.DENIED
        action = {
            "type": "approval_granted" if is_granted else "approval_denied",
            "capsule_id": deed.capsule,
            "action": deed.action,
            "resource": deed.resource,
            "decision": decision.case if isinstance(decision, Err) else decision.value,
        }
        write = self._trail.require if is_granted else self._trail.record
        write(principal, action, SUCCESS, USER_APPROVAL)

    def _remember(self, principal: PrincipalName, deed: Deed, decision: Decision) -> None:
        if decision is Decision.APPROVED_ALWAYS:
            add_always(
                self._home,
                principal,
                AlwaysGrant(
                    capsule=deed.capsule,
                    action=deed.action,
                    resource=deed.resource,
                    workspace=deed.workspace,
                ),
            )
        elif decision is Decision.APPROVED_SESSION:
            with self._lock:
                held = self._session.setdefault(principal, [])
                held.append(Allowance(*deed))
                del held[:-MAX_ALLOWANCES]

    def _note(self, level: str, deed: Deed, principal: PrincipalName, outcome: str) -> None:
        """The daemon's record; the texts are spelled out already."""
        self._journal.daemon(
            level,
            f"approval of {deed.action!r} for capsule '{deed.capsule}' of principal {principal}: {outcome}",
        )


def session_id(allowance: Allowance) -> str:
    """A short name of a session allowance."""
    grant = AlwaysGrant(
        capsule=allowance.capsule,
        action=allowance.action,
        resource=allowance.resource,
        workspace=allowance.workspace,
    )
    return grant.id.replace("always-", "session-", 1)
