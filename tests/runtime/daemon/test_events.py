"""The events door: who may see and say what, in whose name."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from aos_runtime.bus.envelope import Envelope
from aos_runtime.daemon.events import EventsDoor, Sources
from aos_runtime.daemon.showing import Showing
from aos_runtime.daemon.tails import Tails
from aos_runtime.kernel.audited import Requests
from aos_runtime.kernel.in_flight import MAX_EACH
from aos_runtime.kernel.leader import Job
from aos_runtime.wire.methods import NIL_SOURCE, EventsTopic
from aos_runtime.wire.payloads import encode_tool_request
from tests.support.audit_trails import FakeTrail
from tests.support.kernels import ALICE, Bench, Call, cause

ALL = frozenset({"self:audit:read", "audit:read_all", "audit:read_payloads", "system:status",
                 "capsule:access:any", "self:capsule:list"})  # fmt: skip


class FakeClient:
    """A connection of `alice`; `spoken` is what went to the front door."""

    def __init__(self, refusal: str | None = None) -> None:
        self.owner = "owner-1"
        self.is_busy = False
        self.cause = cause()
        self.refusal = refusal
        self.got: list[Any] = []
        self.spoken: list[tuple[str, bytes]] = []

    def be_patient(self, patience_s: float) -> None:
        assert patience_s > 60

    def send(self, body: bytes) -> None:
        self.got.append(json.loads(body))

    def speak(self, topic: str, body: bytes) -> str | None:
        self.spoken.append((topic, body))
        return self.refusal


class Door:
    """An events door over a kernel of fakes; jobs run when they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: frozenset[str] = ALL) -> None:
        monkeypatch.setattr("aos_runtime.daemon.tails.threading.Thread.start", lambda self: None)
        self.bench = Bench()
        self.held = held
        self.asked: list[str] = []
        self.trail = FakeTrail()
        self.client = FakeClient()
        self.tails = Tails(self.bench.kernel, on_fault=pytest.fail)
        self.showing = Showing(
            boot_id="boot",
            views=lambda: self.bench.lifecycle.views,
            secrets_of=lambda principal: (f"secret-of-{principal}",),
        )
        sources = Sources(
            denial=self._denial,
            views=lambda: self.bench.lifecycle.views,
            process=lambda: {"pid": 1},
            ready=lambda job: job.run_one() and None,
            before_block=lambda: None,
            account=Requests(self.trail),
        )
        self.door = EventsDoor(self.bench.kernel, sources, self.showing, self.tails)

    def _denial(self, who: Envelope, capability: str) -> str | None:
        self.asked.append(capability)
        return None if capability in self.held else f"permission denied: {capability}"

    def ask(self, verb: str, params: Mapping[str, object] | None = None) -> list[Any]:
        """The replies that one request brought at once."""
        before = len(self.client.got)
        body = json.dumps({"params": params or {}}).encode()
        self.door.receive(EventsTopic(verb, "c1"), body, "raw_json", self.client)
        return self.client.got[before:]

    def events(self) -> list[Any]:
        before = len(self.client.got)
        self.tails.round()
        return [reply["data"] for reply in self.client.got[before:] if reply["status"] == "Event"]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door(monkeypatch)


def test_a_client_has_so_many_requests_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    door, jobs = Door(monkeypatch), deque[Job]()
    door.door._sources = replace(door.door._sources, ready=jobs.append)
    for _ in range(MAX_EACH):
        assert door.ask("top") == []
    refusal = {"status": "Error", "data": f"too many requests in flight ({MAX_EACH} a client)"}
    assert door.ask("top") == [refusal]
    while jobs:
        jobs.popleft().run_one()
    assert (len(door.client.got), door.ask("top"), len(jobs)) == (MAX_EACH + 1, [], 1)


def test_without_the_right_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch, frozenset())
    for verb, params, right in (
        ("tail", {}, "self:audit:read"),
        ("tail", {"principal": "*"}, "audit:read_all"),
        ("trace", {"principal": "bob"}, "audit:read_all"),
        ("top", {}, "self:capsule:list"),
        ("top", {"everybody": True}, "system:status"),
        ("publish", {"topic": "a.b", "payload": {}}, "capsule:access:any"),
    ):
        assert door.ask(verb, params) == [{"status": "Error", "data": f"permission denied: {right}"}]
    assert door.bench.heard == []
    assert door.tails.round() is False


def test_an_auditor_sees_that_others_speak_and_not_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch, frozenset({"audit:read_all"}))
    assert door.ask("tail", {"principal": "*", "payloads": True}) == [
        {"status": "Error", "data": "permission denied: audit:read_payloads"}
    ]
    assert door.ask("tail", {"principal": "*"}) == [{"status": "Tailing", "data": {"corr": "c1"}}]
    door.bench.publish("a.b", b'{"x":1}', principal="bob")
    (event,) = door.events()
    assert "payload" not in event and event["principal"] == "bob"


def test_one_event_as_it_is_shown(door: Door) -> None:
    door.bench.capsule("reader", subscribe={"a.b": "go"})
    door.bench.lifecycle.load_all(ALICE)
    door.ask("tail")
    door.bench.kernel.publish("a.b", b'{"x":1,"y":"secret-of-alice"}', None, "source-of-reader", cause())
    (event,) = door.events()
    assert isinstance(event.pop("digest"), str) and isinstance(event.pop("time"), str)
    assert event == {
        "event_id": "boot-1",
        "seq": 1,
        "topic": "a.b",
        "kind": None,
        "principal": "alice",
        "source": "reader",
        "origin": "local_socket",
        "targets": ["reader"],
        "size_bytes": 29,
        "keys": ["x", "y"],
    }


def test_payloads_are_shown_when_asked_for_and_secrets_never(door: Door) -> None:
    door.ask("tail", {"payloads": True})
    door.bench.publish("a.b", b'{"x":"is secret-of-alice","password":"p"}')
    door.bench.publish("astrid.v1.elicit.response.1", b'{"value":"typed"}')
    assert [event["payload"] for event in door.events()] == [
        {"x": "is [secret]", "password": "[secret]"},
        "[secret]",
    ]


def test_another_principals_events_are_not_ones_own(door: Door) -> None:
    door.ask("tail")
    door.bench.publish("a.b", principal="bob")
    assert door.events() == []


def test_a_capsules_events_are_what_it_says_and_what_it_is_sent(door: Door) -> None:
    door.bench.capsule("one", subscribe={"to.one": "go"})
    door.bench.capsule("two", subscribe={"to.two": "go"})
    door.bench.lifecycle.load_all(ALICE)
    door.ask("tail", {"capsule": "one"})
    for topic in ("to.one", "to.two", "to.nobody"):
        door.bench.publish(topic)
    door.bench.kernel.publish("from.one", b"{}", None, "source-of-one", cause())
    assert [event["topic"] for event in door.events()] == ["to.one", "from.one"]


def test_a_tail_can_be_stopped(door: Door) -> None:
    door.ask("tail")
    replies = door.ask("stop", {"corr": "c1"})
    assert replies == [
        {"status": "Success", "data": {"sent": 0, "dropped": 0}},
        {"status": "Success", "data": {"stopped": True}},
    ]
    assert door.ask("stop", {"corr": "c1"}) == [{"status": "Success", "data": {"stopped": False}}]


def test_what_is_published_has_the_connections_name_whatever_the_payload_says(door: Door) -> None:
    door.bench.capsule("reader", subscribe={"my.topic": "go"})
    door.bench.lifecycle.load_all(ALICE)
    payload = {"principal": "root", "origin": "system", "source_id": "x", "request_owner": "y"}
    assert door.ask("publish", {"topic": "my.topic", "payload": payload}) == [
        {"status": "Success", "data": {"topic": "my.topic", "handlers": ["reader"], "taken": True}}
    ]
    heard = door.bench.heard[-1]
    inherited = msgspec.structs.replace(
        door.client.cause,
        seq=heard.seq,
        topic="my.topic",
        body=msgspec.json.encode(payload),
        source_id=NIL_SOURCE,
        timestamp_ms=heard.timestamp_ms,
    )
    assert heard == inherited


def test_what_clients_may_say_goes_by_the_front_door(door: Door) -> None:
    asked = {"topic": "cli.v1.command.run.x", "payload": {"req_id": "1"}}
    assert door.ask("publish", asked)[0]["status"] == "Success"
    assert door.client.spoken == [("cli.v1.command.run.x", b'{"req_id":"1"}')]
    assert door.asked == []
    door.client.refusal = "human reply is no longer available on this connection"
    assert door.ask("publish", asked) == [{"status": "Error", "data": door.client.refusal}]


def test_not_even_an_operator_speaks_for_the_system(door: Door) -> None:
    for topic in ("astrid.v1.response.failure.c1", "client.v1.connect"):
        (reply,) = door.ask("publish", {"topic": topic, "payload": {}})
        assert reply["data"] == "topics below astrid. and client. are the system's own words"
    assert door.bench.heard == []


def test_a_call_is_shown_with_who_spoke(door: Door) -> None:
    door.bench.capsule(
        "router",
        lambda call: _speak(call),
        subscribe={"tool.v1.request.execute": "go"},
        publish=["tool.v1.execute.*"],
    )
    door.bench.lifecycle.load_all(ALICE)
    body = encode_tool_request("id1", "x", {"api_key": "k", "text": "y" * 2000})
    door.bench.publish("tool.v1.request.execute", body, "tool_execute_request")
    door.bench.run()
    (reply,) = door.ask("trace", {"call_id": "id1", "payloads": True})
    first, _, third = reply["data"]["steps"][:3]
    assert first["payload"].startswith("[2") and first["digest"] is None and first["keys"] is None
    assert (third["capsule"], third["name"], third["payload"]) == (
        "router",
        "tool.v1.execute.result",
        {"token": "[secret]"},
    )


def _speak(call: Call) -> None:
    call.speak("tool.v1.execute.result", b'{"token":"t"}')


def test_a_call_that_is_not_remembered_is_said_so(door: Door) -> None:
    assert door.ask("trace") == [
        {"status": "Error", "data": "no tool call is remembered; the daemon keeps the last few hundred"}
    ]
    (reply,) = door.ask("trace", {"call_id": "nope"})
    assert reply["data"].startswith("no call 'nope' is remembered")


def test_top_shows_ones_own_capsules_and_everybodys_to_an_operator(door: Door) -> None:
    door.bench.capsule("mine")
    door.bench.capsule("theirs", principal="bob")
    for principal in (ALICE, "bob"):
        door.bench.lifecycle.load_all(principal)  # type: ignore[arg-type]
    own = door.ask("top")[0]["data"]
    assert [(row["principal"], row["capsule"]) for row in own["capsules"]] == [("alice", "mine")]
    assert own["process"] == {}
    everybodys = door.ask("top", {"everybody": True})[0]["data"]
    assert [row["capsule"] for row in everybodys["capsules"]] == ["mine", "theirs"]
    assert everybodys["process"] == {"pid": 1}


def test_what_is_published_is_on_record_before_and_without_its_payload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door(monkeypatch)
    door.ask("publish", {"topic": "in.v1.x", "payload": {"text": "m4rk3r"}})
    params = {"topic": "in.v1.x", "payload": "<redacted>"}
    action = {"type": "admin_request", "method": "events.publish", "params": params}
    assert [(kept, what, how.get("details")) for kept, _, what, how in door.trail.entries] == [
        ("require", action, "admitted"),
        ("record", action, None),
    ]


def test_what_cannot_be_put_on_record_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    door.trail.is_full = True
    [reply] = door.ask("publish", {"topic": "in.v1.x", "payload": {}})
    assert (reply["status"], reply["data"]) == ("Error", "nothing was done")
    assert (door.bench.heard, door.client.spoken, door.trail.entries) == ([], [], [])


def test_who_looks_is_on_record_and_so_is_who_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    door.ask("tail", {"pattern": "a.*"})
    door.ask("top")
    assert [(kept, what["method"]) for kept, _, what, _ in door.trail.entries] == [
        ("record", "events.tail"),
        ("record", "events.tail"),
    ]
    refused = Door(monkeypatch, held=frozenset())
    refused.ask("top")
    [(_, principal, what, how)] = refused.trail.entries
    assert (principal, what["method"], how["status"]) == (ALICE, "events.top", "failure")
