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
from aos_runtime.home import Home
from aos_runtime.host import Err
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.kernel.approvals import Approvals
from aos_runtime.kernel.audit import HostCall
from aos_runtime.kernel.elicits import ElicitAnswer, OwnerElicitor, Reached, onboarding_field
from aos_runtime.kernel.grants import GrantOnUse
from aos_runtime.kernel.questions import MAX_WAITING, Questions
from aos_runtime.kernel.routing import Plan
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.policy.approval import Decision
from aos_runtime.store.principals import ensure_default, read_profile
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import encode_tool_cancel, encode_tool_request
from tests.support.audit_trails import FakeTrail
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


def test_a_yes_is_on_record_before_its_effect(home: Home) -> None:
    desk, trail = Desk(deciding("approve")), FakeTrail()
    asks = approvals(home, desk, trail)
    assert ask(asks) is Decision.APPROVED
    trail.is_full = True
    assert ask(asks) == Err("store-unavailable"), "what cannot be recorded is not allowed"
    desk.answer = deciding("deny")
    assert ask(asks) is Decision.DENIED
    deed = {"capsule_id": "deploy", "action": "git push", "resource": "git push origin"}
    assert [(way, action) for way, _, action, _ in trail.entries] == [
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


def test_what_a_deleted_principal_allowed_holds_for_nobody(home: Home) -> None:
    desk = Desk(deciding("approve_session"))
    asks = approvals(home, desk)
    assert (ask(asks), ask(asks)) == (Decision.APPROVED_SESSION, Decision.ALLOWANCE)
    asks.forget(PrincipalName("bob"))
    assert ask(asks) is Decision.ALLOWANCE
    asks.forget(DEFAULT_PRINCIPAL)
    assert (ask(asks), asks.list_session(PrincipalName("bob"))) == (Decision.APPROVED_SESSION, ())


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


def test_abi_31_a_hook_waits_two_minutes_and_no_longer() -> None:
    desk = Desk()

    def pass_two_minutes() -> float:
        desk.now += 120.0
        return desk.now

    desk.questions = Questions(desk, clock=pass_two_minutes)
    elicit = OwnerElicitor(desk.questions, CALL, clock=lambda: 0.0)
    assert elicit("deploy", CITY) == ElicitAnswer(Reached.TIMEOUT)
    assert desk.questions.list_open(None) == ()
    assert len(desk.published) == 1


@pytest.mark.parametrize(
    ("kind", "field_type"),
    [("text", "Text"), ("secret", "Secret"), ("array", "Array"), ("select", {"Enum": ["a", "b"]})],
)
def test_each_kind_of_question_has_its_published_type(kind: str, field_type: object) -> None:
    found = onboarding_field(ElicitQuestion(kind, "key", "", ("a", "b"), None))
    assert found == {"key": "key", "prompt": "Please enter value for key", "field_type": field_type}


def test_a_hook_of_nobody_asks_nobody() -> None:
    ownerless = msgspec.structs.replace(CALL, request_owner=None)
    desk = Desk()
    assert OwnerElicitor(desk.questions, ownerless)("deploy", CITY) == ElicitAnswer(Reached.GONE)
    assert desk.published == []


# grant on use


ALICE = PrincipalName("alice")
ALICES = msgspec.structs.replace(CALL, principal=ALICE)


class Gate:
    """Grants for alice, who may use nothing, over a desk."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.desk, self.trail = Desk(), FakeTrail()
        self.granted: list[str] = []
        self.noted: list[str] = []
        home.profile(ALICE).write_text('profile_version = 1\nenabled = true\ngroups = ["agent"]\n')
        self.grants = GrantOnUse(
            home=home,
            bus=self.desk,
            questions=self.desk.questions,
            journal=FakeJournal(),
            before_block=lambda: None,
            trail=self.trail,
            note=lambda capsule, envelope: self.noted.append(capsule),
            on_granted=self.granted.append,
            clock=lambda: self.desk.now,
        )

    @property
    def capsules(self) -> tuple[str, ...]:
        profile = read_profile(self.home, ALICE)
        assert profile is not None
        return profile.capsules


@pytest.fixture
def gate(home: Home) -> Gate:
    return Gate(home)


def test_one_question_a_capsule_and_its_result(gate: Gate) -> None:
    for _ in range(5):
        gate.grants.denied(DEPLOY, ALICES)
    (asked,) = gate.desk.published
    (payload,) = gate.desk.payloads
    assert payload == {
        "type": "grant_required",
        "request_id": payload["request_id"],
        "principal": "alice",
        "capsule_id": "deploy",
        "request_owner": "owner-1",
    }
    deciding("approve")(gate.desk, asked)
    assert (gate.capsules, gate.granted) == (("deploy",), ["alice"])
    result = gate.desk.published[-1]
    assert result.topic == f"astrid.v1.grant.result.{payload['request_id']}"
    assert gate.desk.payloads[-1] == {**payload, "type": "grant_result", "granted": True}


def test_an_answer_that_names_another_grant_grants_what_was_asked(gate: Gate) -> None:
    gate.grants.denied(DEPLOY, ALICES)
    (asked,) = gate.desk.published
    other = {"principal": "default", "capsule_id": "other", "granted": True}
    answer = {"type": "approval_response", "decision": "approve", **other}
    gate.desk.questions.hear(reply(asked, answer))
    assert (gate.capsules, gate.granted) == (("deploy",), ["alice"])
    result = gate.desk.payloads[-1]
    assert (result["principal"], result["capsule_id"]) == ("alice", "deploy")


def test_denials_and_answers_are_on_record(gate: Gate) -> None:
    gate.grants.denied(DEPLOY, ALICES)
    assert gate.noted == ["deploy"]
    assert gate.trail.calls == [HostCall("alice", "deploy", "access", "tool.v1.execute.deploy", "no-access")]
    deciding("deny")(gate.desk, gate.desk.published[-1])
    gate.grants.denied(DEPLOY, ALICES)
    deciding("approve")(gate.desk, gate.desk.published[-1])
    about = {"capsule_id": "deploy", "action": "use capsule", "resource": "tool.v1.execute.deploy"}
    assert [(way, action) for way, _, action, _ in gate.trail.entries] == [
        ("record", {"type": "approval_denied", **about, "decision": "denied"}),
        ("require", {"type": "approval_granted", **about, "decision": "granted"}),
    ]


def test_a_yes_that_cannot_be_put_on_record_grants_nothing(gate: Gate) -> None:
    gate.trail.is_full = True
    gate.grants.denied(DEPLOY, ALICES)
    deciding("approve")(gate.desk, gate.desk.published[-1])
    assert (gate.capsules, gate.granted, gate.desk.payloads[-1]["granted"]) == ((), [], False)


def test_a_no_and_a_minute_grant_nothing(gate: Gate) -> None:
    gate.grants.denied(DEPLOY, ALICES)
    deciding("deny")(gate.desk, gate.desk.published[-1])
    assert gate.desk.payloads[-1]["granted"] is False
    gate.grants.denied(DEPLOY, ALICES)
    gate.desk.questions.sweep(59.9)
    assert len(gate.desk.questions.list_open(None)) == 1
    gate.desk.questions.sweep(60.0)
    assert gate.desk.payloads[-1]["granted"] is False
    assert (gate.capsules, gate.granted) == ((), [])


def test_a_background_call_asks_nobody(gate: Gate) -> None:
    gate.grants.denied(DEPLOY, msgspec.structs.replace(ALICES, request_owner=None))
    assert gate.desk.published == []


@pytest.mark.parametrize(("decision", "granted"), [("allow", ("deploy",)), ("deny", ())])
def test_the_operators_rules_answer_for_everybody(
    gate: Gate, decision: str, granted: tuple[str, ...]
) -> None:
    gate.home.approvals_file.write_text(
        f'[[rule]]\ncapsule = "deploy"\naction = "use capsule"\nresource = "*"\ndecision = "{decision}"\n'
    )
    gate.grants.denied(DEPLOY, msgspec.structs.replace(ALICES, request_owner=None))
    gate.grants.denied(DEPLOY, ALICES)
    assert (gate.desk.published, gate.capsules) == ([], granted)


def test_grants_do_not_take_the_places_of_those_who_wait(gate: Gate) -> None:
    for number in range(MAX_WAITING + 1):
        gate.grants.denied(CapsuleName(f"deploy-{number}"), ALICES)
    assert len(gate.desk.questions.list_open("alice")) == MAX_WAITING + 1
