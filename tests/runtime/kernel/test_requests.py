"""Kernel requests: authorise, charge, handle, answer; what cannot be handled is answered too."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any

import msgspec
import pytest

from aos_runtime.bus.envelope import Envelope
from aos_runtime.errors import Corrupt, Denied
from aos_runtime.kernel import requests as module
from aos_runtime.kernel.answers import AgentProfile
from aos_runtime.kernel.in_flight import MAX_EACH
from aos_runtime.kernel.requests import Answer, Caller, Handler, RequestRouter, is_request
from aos_runtime.kernel.routing import Plan
from aos_runtime.names import PrincipalName
from aos_runtime.policy.authority import BUILTIN_GROUPS
from aos_runtime.wire.handshake import KeyEntry
from tests.support.kernels import FakeJournal, cause

NOWHERE = Plan(steps=(), is_chain=False, natives=(), is_taken=False, is_invocable=False)
WAIT_S = 5.0


class FakeProfiles:
    def __init__(self) -> None:
        self.held: tuple[str, ...] = ("admin",)
        self.devices = {"key-1": KeyEntry("key-1", "ab" * 32)}
        self.is_damaged = False

    def profile(self, principal: PrincipalName) -> AgentProfile | None:
        if self.is_damaged:
            raise Corrupt("profile-damaged", "the profile is damaged", hint="correct it")
        if principal == "anonymous":
            return None
        return AgentProfile(principal=principal, enabled=True, groups=self.held, grants=(), revokes=())

    def device(self, principal: PrincipalName, key_id: str) -> KeyEntry | None:
        return self.devices.get(key_id)

    def groups(self) -> dict[str, tuple[str, ...]]:
        return dict(BUILTIN_GROUPS)


class Desk:
    """A router with everything around it fake; `ask` gives the replies of one request."""

    def __init__(self, handlers: dict[str, Handler] | None = None) -> None:
        self.now = 0.0
        self.replies: list[tuple[str, Any]] = []
        self.senders: list[tuple[str, str | None]] = []
        self.replied = threading.Semaphore(0)
        self.jobs: deque[Any] = deque()
        self.profiles = FakeProfiles()
        self.journal = FakeJournal()
        self.asked: list[tuple[Caller, dict[str, Any]]] = []
        self.router = RequestRouter(
            bus=self,
            profiles=self.profiles,
            handlers=handlers
            or {"GetStatus": Handler(run=self.status), "ListCapsules": Handler(run=self.status)},
            journal=self.journal,
            ready=self.jobs.append,
            before_block=lambda: None,
            clock=lambda: self.now,
        )

    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan:
        self.replies.append((topic, json.loads(body)))
        self.senders.append((topic, cause.principal))
        self.replied.release()
        return NOWHERE

    def status(self, caller: Caller, params: Any) -> Answer:
        self.asked.append((caller, dict(params)))
        return Answer(status="Status", data={"pid": 1})

    def ask(
        self, method: str, params: object = None, *, topic: str = "astrid.v1.request.any.corr", **who: Any
    ) -> list[tuple[str, Any]]:
        fields: dict[str, object] = {"method": method} | ({} if params is None else {"params": params})
        if topic.startswith("astrid.v1.admin."):
            fields["request_id"] = "r1"
        envelope = msgspec.structs.replace(
            cause(**who), topic=topic, body=json.dumps(fields).encode(), kind="raw_json"
        )
        self.router.receive(envelope)
        while self.jobs:
            assert not self.jobs.popleft().run_one()
        replies, self.replies = self.replies, []
        return replies


def error(text: str) -> list[tuple[str, Any]]:
    return [("astrid.v1.response.any.corr", {"status": "Error", "data": text})]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_client_has_so_many_requests_unanswered_and_others_theirs(desk: Desk) -> None:
    """What one asks without end is held in no memory, and delays nobody else."""
    body = json.dumps({"method": "GetStatus"}).encode()

    def ask(owner: str) -> None:
        envelope = msgspec.structs.replace(
            cause(owner=owner), topic="astrid.v1.request.any.corr", body=body, kind="raw_json"
        )
        desk.router.receive(envelope)

    for _ in range(MAX_EACH + 3):
        ask("flood")
    assert (len(desk.jobs), len(desk.replies)) == (MAX_EACH, 3)
    assert desk.replies[0] == error(f"too many requests in flight ({MAX_EACH} a client)")[0]
    ask("other")
    assert (len(desk.jobs), len(desk.replies)) == (MAX_EACH + 1, 3)
    desk.profiles.is_damaged = True  # however one ends, it has ended
    while desk.jobs:
        desk.jobs.popleft().run_one()
    ask("flood")
    assert len(desk.jobs) == 1


def test_a_request_is_answered_on_its_reply_topic(desk: Desk) -> None:
    assert desk.ask("GetStatus") == [
        ("astrid.v1.response.any.corr", {"status": "Status", "data": {"pid": 1}})
    ]
    alice = Caller(principal=PrincipalName("alice"), request_owner="owner-1", device_key_id="key-1")
    assert desk.asked == [(alice, {})]


def test_the_topics_that_the_kernel_listens_on() -> None:
    topics = {
        "astrid.v1.request.status.c": True,
        "astrid.v1.admin.agent.list": True,
        "astrid.v1.admin.response.agent.list": False,
        "astrid.v1.request.tools.call.c": False,
        "astrid.v1.request.events.tail.c": False,
        "astrid.v1.response.status.c": False,
        "tool.v1.request.execute": False,
    }
    assert {topic: is_request(topic) for topic in topics} == topics


def test_what_is_no_request_is_left_alone(desk: Desk) -> None:
    message = msgspec.structs.replace(cause(), topic="astrid.v1.request.any", kind="raw_json")
    for body, kind in ((b"{}", "raw_json"), (b'{"method":"GetStatus"}', None), (b"[]", "raw_json")):
        desk.router.receive(msgspec.structs.replace(message, body=body, kind=kind))
    assert not desk.jobs


def test_an_unknown_method_is_answered(desk: Desk) -> None:
    assert desk.ask("NoSuchMethod") == error("unknown method 'NoSuchMethod'")
    assert desk.ask("GetInstalledCapsuleIdentity", {"id": "x"}) == error(
        "GetInstalledCapsuleIdentity is not supported by this runtime"
    )
    for method in ("PromoteWorkspace", "RollbackWorkspace"):
        assert desk.ask(method, {"id": "x"}) == error(f"{method} is not supported by this runtime")


def test_bad_parameters_are_answered(desk: Desk) -> None:
    [(_, reply)] = desk.ask("ReloadCapsule", {"id": 7})
    assert reply["status"] == "Error"
    assert reply["data"].startswith("bad parameters for ReloadCapsule")


def test_nobody_may_ask_without_the_capability(desk: Desk) -> None:
    assert desk.ask("GetStatus", principal="anonymous", owner="o") == error(
        "permission denied for principal anonymous: missing capability system:status"
    )
    desk.profiles.held = ("restricted",)
    assert desk.ask("GetStatus") == error(
        "permission denied for principal alice: missing capability system:status"
    )
    assert desk.asked == []


def test_a_capsules_request_is_held_to_the_same_capability(desk: Desk) -> None:
    body = json.dumps({"method": "GetStatus"}).encode()
    message = msgspec.structs.replace(
        cause(), topic="astrid.v1.request.status.c", body=body, kind="raw_json", source_id="a-capsule"
    )
    for groups, status in (("restricted", "Error"), ("admin", "Status")):
        desk.profiles.held = (groups,)
        desk.router.receive(message)
        desk.jobs.popleft().run_one()
        assert desk.replies.pop()[1]["status"] == status


def test_a_message_without_a_principal_is_denied(desk: Desk) -> None:
    assert desk.ask("GetStatus", principal=None) == error(
        "management request denied: missing or invalid principal"
    )


def test_a_device_may_do_no_more_than_its_scope(desk: Desk) -> None:
    desk.profiles.devices["key-1"] = KeyEntry("key-1", "ab" * 32, allow=("self:*",))
    [(_, reply)] = desk.ask("GetStatus")
    assert reply["data"].endswith("capability system:status is outside the authenticating device's scope")
    desk.profiles.devices.clear()
    [(_, reply)] = desk.ask("GetStatus")
    assert reply["data"] == "permission denied for principal alice: the authenticating key was removed"


def test_an_unreadable_profile_may_do_nothing(desk: Desk) -> None:
    desk.profiles.is_damaged = True
    [(_, reply)] = desk.ask("GetStatus")
    assert reply["data"] == "permission denied for principal alice: missing capability system:status"
    assert desk.journal.lines == [("_daemon", "error", "profile of principal alice: the profile is damaged")]


def test_a_rate_is_charged_per_principal_and_only_after_authorisation() -> None:
    desk = Desk({"Shutdown": Handler(run=lambda caller, params: Answer(status="Success", data=None))})
    desk.profiles.held = ("restricted",)
    for _ in range(3):
        desk.ask("Shutdown", {"reason": None})
    desk.profiles.held = ("admin",)
    [(_, first)] = desk.ask("Shutdown", {"reason": None})
    [(_, second)] = desk.ask("Shutdown", {"reason": None})
    [(_, other)] = desk.ask("Shutdown", {"reason": None}, principal="bob")
    assert (first["status"], other["status"]) == ("Success", "Success")
    assert second["data"] == "Rate limited: max 1 Shutdown requests per minute"
    desk.now = 61.0
    [(_, later)] = desk.ask("Shutdown", {"reason": None})
    assert later["status"] == "Success"


def test_an_expected_failure_and_a_bug_are_answered() -> None:
    def denied(caller: Caller, params: Any) -> Answer:
        raise Denied("no", "not allowed here", hint="ask")

    def broken(caller: Caller, params: Any) -> Answer:
        raise ZeroDivisionError

    desk = Desk({"GetStatus": Handler(run=denied), "ListCapsules": Handler(run=broken)})
    [(topic, told)] = error("not allowed here")
    assert desk.ask("GetStatus") == [(topic, told | {"error": {"code": "no", "hint": "ask"}})]
    assert desk.ask("ListCapsules") == error("internal fault; see the daemon log")
    assert [line[1] for line in desk.journal.lines] == ["warn", "error"]


def test_an_admin_request_echoes_its_id() -> None:
    desk = Desk({"AgentList": Handler(run=lambda caller, params: Answer(status="AgentList", data=[]))})
    assert desk.ask("AgentList", topic="astrid.v1.admin.agent.list") == [
        ("astrid.v1.admin.response.agent.list", {"request_id": "r1", "status": "AgentList", "data": []})
    ]


class FakeAccount:
    """Where everything is put on record."""

    def admit(self, principal: str, method: str, params: Any, capabilities: tuple[str, ...]) -> None: ...

    def finish(self, principal: str, method: str, params: Any, error: str | None) -> None: ...

    def deny(self, principal: str, method: str, params: Any, reason: str) -> None: ...


def test_what_is_put_on_record_is_told_to_the_principals_capsules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1_785_000_000.9)

    def conflict(caller: Caller, params: Any) -> Answer:
        raise Denied("some-code", "not like this", hint="ask")

    desk = Desk(
        {
            "GetStatus": Handler(run=lambda caller, params: Answer(status="Status", data={})),
            "QuotaSet": Handler(run=lambda caller, params: Answer(status="Success", data={})),
            "AgentDelete": Handler(run=conflict),
        }
    )
    desk.router._account = FakeAccount()
    quotas = {"principal": "bob", "quotas": {"max_timeout_secs": 7}}

    def told(method: str, params: object) -> list[tuple[str, Any]]:
        replies = desk.ask(method, params, topic="astrid.v1.admin.x")
        return [(topic, body) for topic, body in replies if not topic.startswith("astrid.v1.admin.")]

    entry = {
        "ts_epoch": 1_785_000_000,
        "method": "QuotaSet",
        "required_capability": "quota:set",
        "principal": "alice",
        "device_key_id": "key-1",
        "target_principal": "bob",
        "params": quotas,
        "outcome": {"status": "success"},
    }
    assert told("QuotaSet", quotas) == [("astrid.v1.audit.entry", entry)]
    [(_, failed)] = told("AgentDelete", {"principal": "bob"})
    assert failed["outcome"] == {"status": "failure", "error": "some-code"}
    assert told("GetStatus", None) == [], "what only reads is not on record"
    desk.profiles.held = ("restricted",)
    [(_, denied)] = told("QuotaSet", quotas)
    assert (denied["required_capability"], denied["outcome"]["status"]) == ("quota:set", "failure")
    assert denied["outcome"]["error"].startswith("permission denied for principal alice")


def test_an_entry_is_told_in_the_name_of_whoever_asked() -> None:
    desk = Desk({"CapsGrant": Handler(run=lambda caller, params: Answer(status="Success", data={}))})
    desk.router._account = FakeAccount()
    params = {"principal": "bob", "capabilities": ["self:capsule:list"]}
    for asker in ("alice", "bob"):
        desk.ask("CapsGrant", params, topic="astrid.v1.admin.caps.grant", principal=asker)
    entries = [who for topic, who in desk.senders if topic == "astrid.v1.audit.entry"]
    assert entries == ["alice", "bob"], "so only her capsules hear of hers"


def test_after_the_answer_comes_what_follows_from_it() -> None:
    order: list[str] = []
    desk = Desk()
    desk.router._handlers = {
        "GetStatus": Handler(
            run=lambda caller, params: Answer(
                status="Success", data=None, after=lambda: order.append(f"after {len(desk.replies)} reply")
            )
        )
    }
    desk.ask("GetStatus")
    assert order == ["after 1 reply"]


def test_a_slow_request_says_working_until_its_answer() -> None:
    gate = threading.Event()

    def slow(caller: Caller, params: Any) -> Answer:
        assert gate.wait(WAIT_S)
        return Answer(status="Success", data="done")

    desk = Desk({"ReloadCapsule": Handler(run=slow, is_slow=True)})
    assert desk.ask("ReloadCapsule", {"id": "x"}) == []
    desk.router.sweep(4.9)
    assert desk.replies == []
    desk.router.sweep(5.0)
    desk.router.sweep(6.0)
    desk.router.sweep(10.0)
    assert [reply for _, reply in desk.replies] == [{"status": "Working"}] * 2
    for _ in range(2):
        desk.replied.acquire()
    gate.set()
    assert desk.replied.acquire(timeout=WAIT_S)
    desk.router.sweep(100.0)
    assert [reply for _, reply in desk.replies][2:] == [{"status": "Success", "data": "done"}]


def test_one_change_too_many_is_told_so() -> None:
    gate = threading.Event()

    def slow(caller: Caller, params: Any) -> Answer:
        assert gate.wait(WAIT_S)
        return Answer(status="Success", data="done")

    desk = Desk({"ReloadCapsule": Handler(run=slow, is_slow=True)})
    for _ in range(8):
        assert desk.ask("ReloadCapsule", {"id": "x"}) == []
    assert desk.ask("ReloadCapsule", {"id": "x"}) == error(
        "8 changes are in progress; try again when one has ended"
    )
    gate.set()
    for _ in range(9):
        assert desk.replied.acquire(timeout=WAIT_S)


def test_draining_waits_for_changes_and_starts_no_more() -> None:
    gate = threading.Event()

    def slow(caller: Caller, params: Any) -> Answer:
        assert gate.wait(WAIT_S)
        return Answer(status="Success", data="done")

    desk = Desk({"ReloadCapsule": Handler(run=slow, is_slow=True)})
    desk.ask("ReloadCapsule", {"id": "x"})
    assert not desk.router.drain(0.0)
    assert desk.ask("ReloadCapsule", {"id": "x"}) == error("the daemon is stopping")
    gate.set()
    assert desk.router.drain(WAIT_S)


def test_a_capsule_cannot_answer_for_a_person() -> None:
    desk = Desk()
    desk.router = RequestRouter(
        bus=desk,
        profiles=desk.profiles,
        handlers={"ApprovalAnswer": Handler(run=desk.status)},
        journal=desk.journal,
        ready=desk.jobs.append,
        before_block=lambda: None,
    )
    params = {"request_id": "r1", "decision": "approve"}
    body = json.dumps({"method": "ApprovalAnswer", "params": params, "request_id": "1"}).encode()
    message = msgspec.structs.replace(
        cause(), topic="astrid.v1.admin.approval.answer", body=body, kind="raw_json"
    )
    desk.router.receive(msgspec.structs.replace(message, source_id="a-capsule"))
    desk.jobs.popleft().run_one()
    assert desk.replies == [
        (
            "astrid.v1.admin.response.approval.answer",
            {
                "request_id": "1",
                "status": "Error",
                "data": "ApprovalAnswer is taken from a client only, never from a capsule",
            },
        )
    ]
    desk.router.receive(message)
    desk.jobs.popleft().run_one()
    assert desk.replies[-1][1]["status"] == "Status"
