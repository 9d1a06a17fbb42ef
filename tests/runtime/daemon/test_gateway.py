"""Between clients and bus: who hears an event, chat turns, and what nobody takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from aos_runtime.bus.mailbox import MAILBOX_DEPTH
from aos_runtime.daemon import sessions
from aos_runtime.daemon.connection import Closed, Connection
from aos_runtime.daemon.gateway import Gateway
from aos_runtime.daemon.sessions import Session
from aos_runtime.daemon.tools import ToolsDoor
from aos_runtime.host import HookResult
from aos_runtime.kernel import actor as actor_module
from aos_runtime.names import PrincipalName
from aos_runtime.wire.handshake import Identity, KeyEntry, ServerHandshake
from tests.support.kernels import ALICE, Bench, Call, cause
from tests.support.sockets import NIL


class FakeConnection:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.sent: list[Any] = []
        self.closed: list[Closed] = []

    def send(self, body: bytes) -> None:
        self.sent.append(json.loads(body))

    def close(self, reason: Closed, detail: str = "") -> None:
        self.closed.append(reason)

    close_after_flush = close


class Switch:
    """A gateway with fake connections."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.notes: list[tuple[str, str]] = []
        kernel = self.bench.kernel
        door = ToolsDoor(kernel, self.bench.lifecycle.view, clock=lambda: 0.0)
        self.gateway = Gateway(
            kernel=kernel,
            lifecycle=self.bench.lifecycle,
            door=door,
            ownership=self,
            workspace=Path("/default"),
            check_workspace=lambda folder: "no such workspace" if folder == Path("/bad") else None,
            note=lambda level, text: self.notes.append((level, text)),
            clock=lambda: 0.0,
        )
        kernel.on(self.gateway.wants, self.gateway.hear)
        kernel.on(door.wants, door.hear)
        self.fds = iter(range(100, 200))

    def epoch(self, principal: PrincipalName) -> int | None:
        return None if principal == "moved" else 0

    def connect(
        self, principal: str = ALICE, *, max_established: int = 128, workspace: str | None = None
    ) -> Session:
        session = self.offer()
        identity = Identity(PrincipalName(principal), KeyEntry("key-1", "ab" * 32), "probe", workspace)
        self.bench.lifecycle.load_all(PrincipalName(principal))

        def proceed() -> None:
            self.gateway.sessions.establish(session, max_established=max_established, max_lanes=8)

        assert self.gateway.admit(session, identity, proceed) is None
        return session

    def offer(self) -> Session:
        connection = cast(Connection, FakeConnection(next(self.fds)))
        session = Session(connection, cast(ServerHandshake, object()), 5.0)
        self.gateway.sessions.add(session)
        return session

    def say(self, session: Session, topic: str, **payload: object) -> None:
        frame = {"topic": topic, "payload": payload, "source_id": NIL}
        self.gateway.frame(session, json.dumps(frame).encode())


def sent(session: Session) -> list[Any]:
    return cast(FakeConnection, session.connection).sent


def closed(session: Session) -> list[Closed]:
    return cast(FakeConnection, session.connection).closed


@pytest.fixture
def switch() -> Switch:
    return Switch()


def test_a_connection_is_announced_and_so_is_its_end(switch: Switch) -> None:
    left: list[None] = []
    switch.gateway.on_leave = lambda: left.append(None)
    session = switch.connect()
    switch.gateway.gone(session)
    assert [(one.topic, one.body, one.principal) for one in switch.bench.heard] == [
        ("client.v1.connect", b'{"type":"connect"}', "alice"),
        ("client.v1.disconnect", b'{"type":"disconnect","reason":"socket closed"}', "alice"),
    ]
    assert left == [None]


def test_what_a_client_says_carries_its_own_identity(switch: Switch) -> None:
    session = switch.connect(workspace="/work")
    switch.say(session, "session.v1.request.list", type="raw_json", principal="root", n=1)
    heard = switch.bench.heard[-1]
    assert (heard.topic, heard.body) == ("session.v1.request.list", b'{"principal":"root","n":1}')
    assert (heard.principal, heard.request_owner, heard.device_key_id) == ("alice", session.owner, "key-1")
    assert (heard.origin, heard.workspace, heard.source_id) == ("local_socket", "/work", NIL)


def test_a_client_that_names_no_workspace_gets_the_daemons(switch: Switch) -> None:
    session = switch.connect()
    assert session.cause is not None
    assert session.cause.workspace == "/default"
    identity = Identity(ALICE, None, "probe", "/bad")
    assert switch.gateway.admit(switch.offer(), identity, lambda: None) == "no such workspace"


def test_a_principal_of_another_daemon_is_turned_away(switch: Switch) -> None:
    identity = Identity(PrincipalName("moved"), None, "probe", None)
    assert switch.gateway.admit(switch.offer(), identity, lambda: None) == (
        "principal moved is served by another daemon"
    )


def test_an_event_reaches_its_own_principal_device_and_owner(switch: Switch) -> None:
    one, two, other = switch.connect(), switch.connect(), switch.connect("bob")
    event = msgspec.structs.replace(cause(owner=None), device_key_id=None)
    publish = switch.bench.kernel.publish
    publish("astrid.v1.capsules_loaded", b'{"n":1}', None, NIL, event)
    publish(
        "session.v1.response.x",
        b'{"n":2}',
        None,
        "source",
        msgspec.structs.replace(event, request_owner=one.owner),
    )
    publish(
        "session.v1.response.x", b'{"n":3}', None, NIL, msgspec.structs.replace(event, device_key_id="other")
    )
    publish("tool.v1.execute.result", b'{"n":4}', None, NIL, event)
    assert [frame["payload"]["n"] for frame in sent(one)] == [1, 2]
    assert [frame["payload"]["n"] for frame in sent(two)] == [1]
    assert sent(other) == []
    assert sent(one)[1] == {
        "topic": "session.v1.response.x",
        "payload": {"n": 2},
        "source_id": "source",
        "principal": "alice",
        "request_owner": one.owner,
    }


def test_a_forbidden_topic_is_refused_and_the_connection_closed(switch: Switch) -> None:
    session = switch.connect()
    switch.say(session, "tool.v1.request.execute", type="tool_execute_request")
    assert sent(session)[0]["payload"] == {
        "type": "disconnect",
        "reason": "topic is not allowed from local clients",
    }
    assert closed(session) == [Closed.REFUSED]
    assert switch.notes == [("warn", "refused from principal alice: topic is not allowed from local clients")]


def test_a_verb_that_the_door_does_not_know_is_answered(switch: Switch) -> None:
    session = switch.connect()
    switch.say(session, "astrid.v1.request.tools.paint.c1", type="raw_json")
    [reply] = sent(session)
    assert reply["topic"] == "astrid.v1.response.tools.paint.c1"
    assert reply["payload"]["status"] == "Error"


def test_a_command_that_nobody_serves_is_answered_under_its_req_id(switch: Switch) -> None:
    session = switch.connect()
    switch.say(session, "cli.v1.command.run.nope", type="raw_json", req_id="r1", command="x")
    [reply] = sent(session)
    assert (reply["topic"], reply["payload"]) == (
        "astrid.v1.response.failure.r1",
        {"req_id": "r1", "reason": "no capsule handles cli.v1.command.run.nope"},
    )


def test_any_request_that_nobody_serves_is_answered_under_its_uuid(switch: Switch) -> None:
    session, request_id = switch.connect(), "0123456789abcdef0123456789abcdef"
    switch.say(session, "session.v1.request.list.c1", type="raw_json", req_id="r1")
    switch.say(session, "session.v1.request.list.c1", type="raw_json", req_id=request_id)
    [reply] = sent(session)
    assert (reply["topic"], reply["payload"]) == (
        f"astrid.v1.response.failure.{request_id}",
        {"req_id": request_id, "reason": "no capsule handles session.v1.request.list.c1"},
    )


def test_a_command_that_finds_everything_full_is_answered(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_module, "MAX_WAITING", 1)
    switch.bench.capsule("cli", subscribe={"cli.v1.command.run.cli": "go"})
    session = switch.connect()
    for number in range(MAILBOX_DEPTH + 2):
        switch.say(session, "cli.v1.command.run.cli", type="raw_json", req_id=f"r{number}")
    assert [frame["payload"]["reason"] for frame in sent(session)] == ["the queue is full"]


def test_a_failed_tool_call_is_answered_by_the_door_alone(switch: Switch) -> None:
    switch.bench.capsule(
        "router",
        lambda call: HookResult("deny", b"no"),
        subscribe={"tool.v1.request.execute": "go"},
        tools=["x"],
    )
    session = switch.connect()
    switch.say(session, "astrid.v1.request.tools.call.c1", type="raw_json", params={"name": "x"})
    switch.bench.run()
    [reply] = sent(session)
    assert reply["topic"] == "astrid.v1.response.tools.call.c1"
    assert reply["payload"]["data"]["content"] == "capsule 'router' gave no answer: no"


def test_one_turn_at_a_time_until_its_final_answer(switch: Switch) -> None:
    calls: list[Call] = []
    switch.bench.capsule("agent", calls.append, subscribe={"user.v1.prompt": "go"}, publish=["agent.v1.*"])
    session = switch.connect()
    switch.say(session, "user.v1.prompt", type="user_input", text="hi", session_id="s1")
    switch.say(session, "user.v1.prompt", type="user_input", text="again", session_id="s1")
    switch.bench.run()
    assert [json.loads(call.payload)["text"] for call in calls] == ["hi"]
    assert "already has an active turn" in sent(session)[0]["payload"]["text"]
    answer = {"type": "agent_response", "text": "hello", "is_final": True, "session_id": "s1"}
    switch.bench.publish(
        "agent.v1.response", json.dumps(answer).encode(), "agent_response", owner=session.owner
    )
    assert sent(session)[-1]["payload"]["text"] == "hello"
    switch.say(session, "user.v1.prompt", type="user_input", text="next", session_id="s1")
    switch.bench.run()
    assert len(calls) == 2


def test_a_client_may_speak_as_soon_as_it_is_sent_the_final_answer(switch: Switch) -> None:
    calls: list[Call] = []
    switch.bench.capsule("agent", calls.append, subscribe={"user.v1.prompt": "go"}, publish=["agent.v1.*"])
    session = switch.connect()

    def prompt(text: str) -> None:
        switch.say(session, "user.v1.prompt", type="user_input", text=text, session_id="s1")

    prompt("hi")
    connection = cast(FakeConnection, session.connection)
    send = connection.send

    def send_to_a_quick_client(body: bytes) -> None:
        connection.send = send  # type: ignore[method-assign]  # the answers of the next turn are not answered
        send(body)
        prompt("next")

    connection.send = send_to_a_quick_client  # type: ignore[method-assign]  # it answers while it is sent to
    answer = {"type": "agent_response", "text": "hello", "is_final": True, "session_id": "s1"}
    switch.bench.publish(
        "agent.v1.response", json.dumps(answer).encode(), "agent_response", owner=session.owner
    )
    switch.bench.run()
    assert [json.loads(call.payload)["text"] for call in calls] == ["hi", "next"]
    assert session.facts is not None and session.facts.turn_session == "s1"


def test_a_chat_session_has_one_turn_whatever_connection_it_is_of(switch: Switch) -> None:
    switch.bench.capsule("agent", subscribe={"user.v1.prompt": "go"}, publish=["agent.v1.*"])
    switch.bench.capsule("agent", subscribe={"user.v1.prompt": "go"}, principal=PrincipalName("bob"))
    first, second, other = switch.connect(), switch.connect(), switch.connect("bob")

    def prompt(session: Session, chat: str) -> str | None:
        before = len(sent(session))
        switch.say(session, "user.v1.prompt", type="user_input", text="hi", session_id=chat)
        switch.bench.run()
        return sent(session)[-1]["payload"]["text"] if len(sent(session)) > before else None

    assert prompt(first, "s1") is None
    refusal = "Request refused: this principal or connection already has an active turn"
    assert prompt(second, "s1") == refusal
    assert (prompt(second, "s2"), prompt(other, "s1")) == (None, None)
    assert closed(second) == []
    switch.gateway.sessions.remove(first)
    assert prompt(second, "s1") == refusal, "its own turn still runs"
    assert prompt(switch.connect(), "s1") is None, "a connection that is gone holds no session"


def test_a_prompt_that_nobody_takes_is_refused_and_leaves_no_turn(switch: Switch) -> None:
    session = switch.connect()
    for _ in range(2):
        switch.say(session, "user.v1.prompt", type="user_input", text="hi", session_id="s1")
        payload = sent(session)[-1]["payload"]
        assert (payload["text"], payload["is_final"], payload["session_id"]) == (
            "Request refused: runtime input delivery is unavailable",
            True,
            "s1",
        )
    assert (closed(session), session.facts and session.facts.turn_session) == ([], None)


def test_a_cancelled_turn_ends_with_a_final_answer(switch: Switch) -> None:
    switch.bench.capsule("agent", subscribe={"user.v1.prompt": "go"}, publish=["agent.v1.*"])
    session = switch.connect()
    switch.say(session, "user.v1.prompt", type="user_input", text="hi", session_id="s1")
    cancel = {"action": "cancel_turn"}
    switch.say(session, "user.v1.prompt", type="user_input", text="", session_id="s1", context=cancel)
    assert sent(session)[-1]["payload"] == {
        "type": "agent_response",
        "text": "Request cancelled.",
        "is_final": True,
        "session_id": "s1",
    }
    assert session.facts is not None
    assert session.facts.turn_session is None


def test_a_reserved_lane_asks_once(switch: Switch) -> None:
    lane = switch.connect(max_established=0)
    switch.say(lane, "astrid.v1.request.status.c1", type="raw_json", method="GetStatus")
    assert closed(lane) == []
    answer = msgspec.structs.replace(cause(owner=lane.owner), device_key_id=None)
    publish = switch.bench.kernel.publish
    publish("astrid.v1.response.status.c1", b'{"status":"Working"}', None, NIL, answer)
    assert closed(lane) == []
    publish("astrid.v1.response.status.c1", b'{"status":"Status"}', None, NIL, answer)
    assert closed(lane) == [Closed.REFUSED]
    assert len(sent(lane)) == 2


@pytest.mark.parametrize(
    ("topic", "method"),
    [
        ("astrid.v1.request.status.c1", "Shutdown"),
        ("astrid.v1.request.status.c1.d", "GetStatus"),
        ("astrid.v1.request.list_capsules.c1", "ListCapsules"),
        ("astrid.v1.request.tools.list.c1", "GetStatus"),
    ],
)
def test_a_reserved_lane_asks_nothing_else(switch: Switch, topic: str, method: str) -> None:
    lane = switch.connect(max_established=0)
    switch.say(lane, topic, type="raw_json", method=method)
    assert closed(lane) == [Closed.REFUSED]
    assert switch.bench.topics() == ["client.v1.connect"]


def ask_for_approval(switch: Switch, request_id: str, source_id: str = NIL, **who: str | None) -> None:
    payload = {
        "type": "approval_required",
        "request_id": request_id,
        "action": "git push",
        "resource": "git push origin",
        "reason": "Capsule 'deploy' requests approval",
    }
    body = json.dumps(payload).encode()
    switch.bench.kernel.publish("astrid.v1.approval", body, "approval_required", source_id, cause(**who))


def answer_approval(switch: Switch, session: Session, request_id: str) -> None:
    topic = f"astrid.v1.approval.response.{request_id}"
    switch.say(session, topic, type="approval_response", request_id=request_id, decision="approve")


def test_abi_30_a_human_reply_is_taken_once_and_only_where_it_was_asked(switch: Switch) -> None:
    asked, other = switch.connect(), switch.connect()
    ask_for_approval(switch, "r1", owner=asked.owner)
    assert ([frame["topic"] for frame in sent(asked)], sent(other)) == (["astrid.v1.approval"], [])
    answer_approval(switch, other, "r1")
    assert sent(other)[-1]["payload"]["reason"] == "human reply is no longer available on this connection"
    assert closed(other) == [Closed.REFUSED]
    answer_approval(switch, asked, "r1")
    assert switch.bench.topics()[-1] == "astrid.v1.approval.response.r1"
    assert (switch.bench.heard[-1].request_owner, closed(asked)) == (asked.owner, [])
    answer_approval(switch, asked, "r1")
    assert closed(asked) == [Closed.REFUSED], "a second answer comes too late"


def test_what_a_capsule_forges_opens_no_reply(switch: Switch) -> None:
    asked = switch.connect()
    ask_for_approval(switch, "r1", source_id="a-capsule", owner=asked.owner)
    answer_approval(switch, asked, "r1")
    assert closed(asked) == [Closed.REFUSED]


def test_a_selection_names_where_it_is_answered(switch: Switch) -> None:
    asked = switch.connect()
    for callback in ("registry.v1.selection.c1", "astrid.v1.approval.response.c1"):
        payload = {"request_id": "s1", "title": "?", "options": [], "callback_topic": callback}
        body = json.dumps({"type": "selection_required", **payload}).encode()
        switch.bench.kernel.publish(
            "registry.v1.response.x", body, "selection_required", "a-capsule", cause(owner=asked.owner)
        )
    assert asked.facts is not None
    assert asked.facts.human_requests == ("registry.v1.selection.c1",)


def test_a_connection_has_so_many_open_questions(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_HUMAN_REQUESTS", 2)
    asked = switch.connect()
    for number in range(3):
        ask_for_approval(switch, f"r{number}", owner=asked.owner)
    assert len(sent(asked)) == 3, "what ended elsewhere takes nobody's place for ever"
    answer_approval(switch, asked, "r2")
    answer_approval(switch, asked, "r1")
    assert closed(asked) == []
    answer_approval(switch, asked, "r0")
    assert closed(asked) == [Closed.REFUSED]


def test_questions_of_one_kind_displace_no_others(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_HUMAN_REQUESTS", 2)
    asked = switch.connect()
    ask_for_approval(switch, "r1", owner=asked.owner)
    for number in range(3):
        asked.expect_reply(f"registry.v1.selection.c{number}")
    answer_approval(switch, asked, "r1")
    assert (closed(asked), switch.bench.topics()[-1]) == ([], "astrid.v1.approval.response.r1")


def test_who_waits_on_a_connection_hears_of_its_end(switch: Switch) -> None:
    gone: list[str] = []
    switch.gateway.on_gone = gone.append
    session = switch.connect()
    assert switch.gateway.is_present(ALICE, session.owner)
    assert not switch.gateway.is_present("bob", session.owner)
    switch.gateway.sessions.remove(session)
    switch.gateway.gone(session)
    assert gone == [session.owner]
    assert not switch.gateway.is_present(ALICE, session.owner)
