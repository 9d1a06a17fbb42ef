"""kernel.questions, kernel.approvals and kernel.elicits over a fake bus."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aos_runtime.bus.envelope import Envelope
from aos_runtime.errors import Unavailable
from aos_runtime.home import Home
from aos_runtime.host import Err
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.kernel.approvals import Approvals
from aos_runtime.kernel.elicits import ElicitAnswer, OwnerElicitor, Reached
from aos_runtime.kernel.questions import MAX_WAITING, Questions
from aos_runtime.kernel.routing import Plan
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.policy.approval import Decision
from aos_runtime.store.principals import ensure_default
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import encode_tool_cancel, encode_tool_request
from tests.support.kernels import FakeJournal, cause

NOBODY = Plan(steps=(), is_chain=False, natives=(), is_taken=False, is_invocable=False)
DEPLOY = CapsuleName("deploy")
CALL = msgspec.structs.replace(
    cause(DEFAULT_PRINCIPAL),
    topic="tool.v1.execute.deploy",
    body=encode_tool_request("call-1", "deploy", {}),
    kind="tool_execute_request",
)
Answering = Callable[["Desk", Envelope], None]


class Desk:
    """Questions over a bus that answers each with `answer(desk, question)`, on a thread of its own."""

    def __init__(self, answer: Answering = lambda desk, asked: None) -> None:
        self.now = 0.0
        self.published: list[Envelope] = []
        self.answer = answer
        self.questions = Questions(self, clock=lambda: self.now)

    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan:
        envelope = msgspec.structs.replace(cause, topic=topic, body=body, kind=kind, source_id=source_id)
        self.published.append(envelope)
        threading.Thread(target=self.answer, args=(self, envelope)).start()
        return NOBODY

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.published]


def reply(asked: Envelope, payload: dict[str, Any], **changes: Any) -> Envelope:
    """What the front door makes of a person's answer on the connection that was asked."""
    request_id = json.loads(asked.body)["request_id"]
    fields: dict[str, Any] = {
        "topic": f"{asked.topic}.response.{request_id}",
        "body": json.dumps({"request_id": request_id, **payload}).encode(),
        "source_id": NIL_SOURCE,
        **changes,
    }
    return msgspec.structs.replace(asked, **fields)


def deciding(decision: str) -> Answering:
    def answer(desk: Desk, asked: Envelope) -> None:
        body = {"type": "approval_response", "decision": decision}
        desk.questions.hear(reply(asked, body))

    return answer


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    ensure_default(home, now=datetime(2026, 1, 1, tzinfo=UTC))
    return home


def approvals(home: Home, desk: Desk, trail: Any = None) -> Approvals:
    return Approvals(
        trail=trail,
        home=home,
        questions=desk.questions,
        journal=FakeJournal(),
        before_block=lambda: None,
        clock=lambda: desk.now,
    )


def ask(
    asks: Approvals,
    resource: str = "git push origin",
    *,
    capsule: CapsuleName = DEPLOY,
    principal: PrincipalName = DEFAULT_PRINCIPAL,
    by: Envelope | None = CALL,
) -> Decision | Err:
    return asks.request(capsule, principal, by, "git push", resource)


@pytest.mark.parametrize(
    ("word", "decision"),
    [
        ("approve", Decision.APPROVED),
        ("approve_session", Decision.APPROVED_SESSION),
        ("approve_always", Decision.APPROVED_ALWAYS),
        ("deny", Decision.DENIED),
        ("APPROVE", Decision.DENIED),
        ("", Decision.DENIED),
    ],
)
def test_the_words_of_an_answer(home: Home, word: str, decision: Decision) -> None:
    desk = Desk(deciding(word))
    assert ask(approvals(home, desk)) is decision
    (sent,) = desk.published
    assert (sent.topic, sent.kind, sent.source_id) == ("astrid.v1.approval", "approval_required", NIL_SOURCE)
    assert (sent.principal, sent.request_owner) == (CALL.principal, CALL.request_owner)
    (payload,) = desk.payloads
    assert payload == {
        "type": "approval_required",
        "request_id": payload["request_id"],
        "action": "git push",
        "resource": "git push origin",
        "reason": "Capsule 'deploy' requests approval",
        "request_owner": "owner-1",
    }


@pytest.mark.parametrize("word", ["approve_session", "approve_always"])
def test_abi_33_a_standing_yes_is_for_its_capsule_and_principal(home: Home, word: str) -> None:
    desk = Desk(deciding(word))
    asks = approvals(home, desk)
    ask(asks)
    desk.answer = deciding("deny")
    assert ask(asks) is Decision.ALLOWANCE
    desk.now = 1e9
    assert ask(asks, "git push other") is Decision.ALLOWANCE, "time does not end it"
    assert ask(asks, capsule=CapsuleName("other")) is Decision.DENIED
    assert ask(asks, principal=PrincipalName("bob")) is Decision.DENIED
    elsewhere = msgspec.structs.replace(CALL, workspace="/elsewhere")
    assert ask(asks, by=elsewhere) is Decision.DENIED
    again = approvals(home, desk)
    assert (ask(again) is Decision.ALLOWANCE) == (word == "approve_always")


class FakeTrail:
    """Keeps entries; `is_full` is a disk that takes none."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Any]] = []
        self.is_full = False

    def record(self, principal: str, action: Any, outcome: Any, authorization: Any) -> None:
        self.entries.append(("record", action))

    def require(self, principal: str, action: Any, outcome: Any, authorization: Any) -> None:
        if self.is_full:
            raise Unavailable("audit-unavailable", "the disk is full", hint="free some space")
        self.entries.append(("require", action))


def test_a_yes_is_on_record_before_its_effect(home: Home) -> None:
    desk, trail = Desk(deciding("approve")), FakeTrail()
    asks = approvals(home, desk, trail)
    assert ask(asks) is Decision.APPROVED
    trail.is_full = True
    assert ask(asks) == Err("store-unavailable"), "what cannot be recorded is not allowed"
    desk.answer = deciding("deny")
    assert ask(asks) is Decision.DENIED
    deed = {"capsule_id": "deploy", "action": "git push", "resource": "git push origin"}
    assert trail.entries == [
        ("require", {"type": "approval_granted", **deed, "decision": "approved"}),
        ("record", {"type": "approval_denied", **deed, "decision": "denied"}),
    ]


def test_nobody_to_ask_is_denied_at_once(home: Home) -> None:
    desk = Desk()
    asks = approvals(home, desk)
    for nobody in (None, msgspec.structs.replace(CALL, request_owner=None)):
        assert ask(asks, by=nobody) is Decision.DENIED
    assert desk.published == []


def test_a_connection_that_is_gone_is_not_waited_for(home: Home) -> None:
    desk = Desk()
    desk.questions.is_present = lambda principal, owner: False
    assert ask(approvals(home, desk)) == Err("timeout")


def test_what_is_no_request_is_invalid(home: Home) -> None:
    assert ask(approvals(home, Desk()), "x" * 5000) == Err("invalid-input")


def test_a_damaged_profile_or_policy_allows_nothing(home: Home) -> None:
    desk = Desk(deciding("approve"))
    home.approvals_file.write_text("nonsense = 1\n", encoding="utf-8")
    assert ask(approvals(home, desk)) == Err("store-unavailable")
    home.approvals_file.unlink()
    home.profile(DEFAULT_PRINCIPAL).write_text("enabled = ", encoding="utf-8")
    assert ask(approvals(home, desk)) == Err("store-unavailable")
    assert desk.published == []


def test_abi_30_only_the_front_door_and_the_connection_that_was_asked(home: Home) -> None:
    yes = {"type": "approval_response", "decision": "approve"}
    no = {"type": "approval_response", "decision": "deny"}

    def answer(desk: Desk, asked: Envelope) -> None:
        forged = [
            reply(asked, yes, source_id="a-capsule"),
            reply(asked, yes, principal="mallory"),
            reply(asked, yes, request_owner="owner-2"),
            reply(asked, yes, request_owner=None),
            reply(asked, yes, topic=reply(asked, yes).topic.replace("approval", "elicit")),
            reply(asked, yes, topic="astrid.v1.approval.response.other"),
            reply(asked, yes, body=b'{"type":"approval_response"}'),
            reply(asked, yes, body=b"{}"),
        ]
        for one in forged * 100:
            desk.questions.hear(one)
        desk.questions.hear(reply(asked, no))
        desk.questions.hear(reply(asked, yes))

    assert ask(approvals(home, Desk(answer))) is Decision.DENIED


def cancel(desk: Desk, asked: Envelope, **changes: Any) -> None:
    body = encode_tool_cancel(["other", "call-1"])
    fields = {"topic": "tool.v1.request.cancel", "body": body, "kind": "tool_cancel_request", **changes}
    desk.questions.hear(msgspec.structs.replace(asked, **fields))


@pytest.mark.parametrize(
    "end",
    [
        lambda desk, asked: desk.questions.drop_owner("owner-1"),
        lambda desk, asked: desk.questions.stop(),
        cancel,
    ],
)
def test_a_wait_ends_with_its_connection_its_call_and_the_daemon(home: Home, end: Answering) -> None:
    assert ask(approvals(home, Desk(end))) == Err("timeout")


def test_a_cancel_of_another_principal_ends_nothing(home: Home) -> None:
    def answer(desk: Desk, asked: Envelope) -> None:
        cancel(desk, asked, principal="mallory")
        deciding("approve")(desk, asked)

    assert ask(approvals(home, Desk(answer))) is Decision.APPROVED


def test_abi_31_a_wait_is_bounded(home: Home) -> None:
    desk = Desk()
    asks = approvals(home, desk)

    def pass_a_minute() -> float:
        desk.now += 60.0
        return desk.now

    desk.questions = Questions(desk, clock=pass_a_minute)
    asks = approvals(home, desk)
    assert ask(asks) == Err("timeout")
    assert desk.questions.list_open(None) == ()


def test_so_many_may_wait_and_no_more(home: Home) -> None:
    gathered = threading.Barrier(MAX_WAITING + 1)
    desk = Desk(lambda desk, asked: gathered.wait(10) and None)
    asks = approvals(home, desk)
    results: list[Decision | Err] = []
    threads = [threading.Thread(target=lambda: results.append(ask(asks))) for _ in range(MAX_WAITING)]
    for thread in threads:
        thread.start()
    gathered.wait(10)
    assert ask(asks) == Err("timeout"), "and at once"
    desk.questions.stop()
    for thread in threads:
        thread.join(10)
    assert results == [Err("timeout")] * MAX_WAITING


# elicit

CITY = ElicitQuestion("select", "city", "Which\x1b[2J city?", ("Rome", "Oslo"), "Rome")


def test_a_hook_asks_the_connection_that_installs() -> None:
    def answer(desk: Desk, asked: Envelope) -> None:
        desk.questions.hear(reply(asked, {"type": "elicit_response", "value": "Oslo"}))

    desk = Desk(answer)
    elicit = OwnerElicitor(desk.questions, CALL, clock=lambda: 0.0)
    assert elicit("deploy", CITY) == ElicitAnswer(Reached.ANSWERED, "Oslo", None)
    (payload,) = desk.payloads
    assert payload == {
        "type": "elicit_request",
        "request_id": payload["request_id"],
        "capsule_id": "deploy",
        "field": {
            "key": "city",
            "prompt": "Which\\u{1b}[2J city?",
            "field_type": {"Enum": ["Rome", "Oslo"]},
            "default": "Rome",
        },
    }


def test_a_hook_of_nobody_asks_nobody() -> None:
    ownerless = msgspec.structs.replace(CALL, request_owner=None)
    desk = Desk()
    assert OwnerElicitor(desk.questions, ownerless)("deploy", CITY) == ElicitAnswer(Reached.GONE)
    assert desk.published == []
