"""Admin requests about approvals: what is open, what stands, an operator's answer, a revocation.

Ours, beside the published answer on the connection that was asked.  They come from clients only
(`wire.methods.HUMAN_METHODS`), and an elicitation is answered where it was asked and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from aos_runtime.errors import Conflict, NotFound
from aos_runtime.home import Home
from aos_runtime.kernel.approvals import Approvals, session_id
from aos_runtime.kernel.questions import Asked, Kind, Questions
from aos_runtime.kernel.requests import Answer, Caller
from aos_runtime.names import PrincipalName, parse_principal_name
from aos_runtime.store.allowances import list_always
from aos_runtime.wire.payloads import ApprovalResponse


class HumanRequests:
    """The three methods."""

    def __init__(self, *, home: Home, questions: Questions, approvals: Approvals) -> None:
        self._home = home
        self._questions = questions
        self._approvals = approvals

    def list_all(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """`{pending: [...], standing: [...]}` of one principal."""
        principal = _target(caller, params)
        pending = [_row(asked) for asked in self._questions.list_open(principal)]
        standing: list[dict[str, object]] = [
            {
                "id": grant.id,
                "scope": "always",
                "capsule": grant.capsule,
                "action": grant.action,
                "resource": grant.resource,
                "workspace": grant.workspace,
            }
            for grant in list_always(self._home, principal)
        ]
        standing += [
            {
                "id": session_id(allowance),
                "scope": "session",
                "capsule": allowance.capsule,
                "action": allowance.action,
                "resource": allowance.resource,
                "workspace": allowance.workspace,
            }
            for allowance in self._approvals.list_session(principal)
        ]
        return Answer(
            status="Success", data={"principal": principal, "pending": pending, "standing": standing}
        )

    def answer(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """Settle an open approval."""
        request_id, decision = str(params["request_id"]), str(params["decision"])
        open_now = self._questions.list_open(_target(caller, params))
        asked = next((one for one in open_now if one.id == request_id), None)
        if asked is not None and asked.kind is Kind.ELICIT:
            raise Conflict(
                "approval-elsewhere",
                "a question of an install is answered where it was asked",
                hint="look at the terminal in which the install runs",
            )
        if asked is None or not self._questions.answer(request_id, ApprovalResponse(request_id, decision)):
            raise NotFound(
                "approval-unknown",
                f"no approval request {request_id[:64]!r} is open",
                hint="`aos approve list` shows what is open",
            )
        return Answer(status="Success", data={"request_id": request_id, "decision": decision})

    def revoke(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """Take a standing approval back, effective at once."""
        self._approvals.revoke(_target(caller, params), str(params["id"]))
        return Answer(status="Success", data={"id": params["id"], "revoked": True})


def _target(caller: Caller, params: Mapping[str, object]) -> PrincipalName:
    named = params.get("principal")
    return caller.principal if named is None else parse_principal_name(str(named))


def _row(asked: Asked) -> dict[str, object]:
    return {
        "request_id": asked.id,
        "kind": asked.kind.value,
        "capsule": asked.capsule,
        "principal": asked.principal,
        "workspace": asked.cause.workspace,
        "asked_at_ms": asked.asked_at_ms,
        **asked.subject,
    }
