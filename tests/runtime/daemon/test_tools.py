"""The door for tools: each call is answered exactly once, whatever becomes of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from aos_runtime.bus.envelope import Envelope
from aos_runtime.daemon.tools import MAX_CALLS_PER_CLIENT, ToolsDoor
from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.wire.methods import ToolsTopic
from aos_runtime.wire.payloads import (
    decode_tool_request,
    decode_tool_result,
    encode_tool_cancel,
    encode_tool_request,
    encode_tool_result,
)
from tests.support.kernels import ALICE, Bench, Call, cause

EXECUTE, RESULT = "tool.v1.request.execute", "tool.v1.execute.result"


class Door:
    """A door on a kernel with a router; `replies` are what the client got, by correlation."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.door = ToolsDoor(self.bench.kernel, self.bench.lifecycle.view, clock=lambda: self.bench.now)
        self.bench.kernel.on(self.door.wants, self.door.hear)
        self.replies: dict[str, list[Any]] = {}

    def router(self) -> None:
        """A router to the letter of the convention, without its name check."""

        def request(call: Call) -> None:
            asked = decode_tool_request(call.payload)
            assert asked is not None
            topic = f"tool.v1.execute.{asked.tool_name}"
            problem = call.speak(topic, encode_tool_request(asked.call_id, asked.tool_name, asked.arguments))
            if problem is not None:
                words = f"Failed to route tool request: {problem}"
                call.speak(RESULT, encode_tool_result(asked.call_id, words, is_error=True))

        def route(call: Call) -> None:
            if call.action == "request":
                request(call)
            else:
                call.speak(RESULT, call.payload)

        self.bench.capsule(
            "router",
            route,
            subscribe={EXECUTE: "request", "tool.v1.execute.*.result": "result"},
            publish=["tool.v1.execute.*", RESULT],
        )

    def tool(self, name: str, guest: Any, *, rows: bool = True, capsule: str = "tools") -> None:
        self.bench.capsule(
            capsule,
            guest,
            tools=[name],
            subscribe={f"tool.v1.execute.{name}": "go"} if rows else {},
            publish=["tool.v1.execute.*.result"],
        )

    def load(self) -> None:
        self.bench.lifecycle.load_all(ALICE)

    def ask(self, verb: str, params: object = None, corr: str = "c1", who: Envelope | None = None) -> None:
        body = b"{}" if params is None else json.dumps({"params": params}).encode()
        replies = self.replies.setdefault(corr, [])
        self.door.receive(
            ToolsTopic(verb, corr),
            body,
            "raw_json",
            who or cause(),
            lambda reply: replies.append(json.loads(reply)),
        )

    def call(self, name: str = "hello", corr: str = "c1", **params: object) -> None:
        self.ask("call", {"name": name, "arguments": {"name": "Ada"}, **params}, corr)


def answer(call: Call) -> None:
    asked = decode_tool_request(call.payload)
    assert asked is not None
    content = f"Hello, {asked.arguments['name']}"
    call.speak("tool.v1.execute.hello.result", encode_tool_result(asked.call_id, content, is_error=False))


@pytest.fixture
def door() -> Door:
    made = Door()
    made.router()
    return made


def only_reply(door: Door, corr: str = "c1") -> Any:
    [reply] = door.replies[corr]
    return reply


def test_a_call_goes_through_the_router_and_is_answered_once(door: Door) -> None:
    door.tool("hello", answer)
    door.load()
    door.call()
    door.bench.now = 0.25
    door.bench.run()
    reply = only_reply(door)
    call_id = reply["data"].pop("call_id")
    assert reply == {
        "status": "Success",
        "data": {"content": "Hello, Ada", "is_error": False, "capsule": "tools", "duration_ms": 250.0},
    }
    assert door.bench.topics() == [
        EXECUTE,
        "tool.v1.execute.hello",
        "tool.v1.execute.hello.result",
        RESULT,
    ]
    assert len(call_id) == 32
    assert {envelope.request_owner for envelope in door.bench.heard} == {"owner-1"}
    assert door.door.calls_in_flight == 0


def test_an_unknown_tool_is_answered_at_once_with_the_nearest_names(door: Door) -> None:
    door.tool("hello", answer)
    door.load()
    door.call("helo")
    door.call("zzz", corr="c2")
    assert only_reply(door) == {"status": "Error", "data": "no tool is called 'helo'; did you mean hello?"}
    assert only_reply(door, "c2") == {"status": "Error", "data": "no tool is called 'zzz'"}
    assert door.bench.heard == []


def test_bus_04_a_described_tool_without_its_row_is_answered_promptly(door: Door) -> None:
    door.tool("hello", answer, rows=False)
    door.load()
    door.call()
    door.bench.run()
    data = only_reply(door)["data"]
    assert (data["is_error"], data["content"]) == (
        True,
        "Failed to route tool request: unknown:no capsule handles tool.v1.execute.hello",
    )


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (GuestTrap(TrapReason.FUEL, "all fuel consumed"), "interceptor exhausted its fuel budget"),
        (GuestTrap(TrapReason.DEADLINE, "too long"), "interceptor exceeded its execution deadline"),
        (GuestTrap(TrapReason.TRAP, "panic"), "interceptor execution failed: panic"),
        (HookResult("deny", b"not you"), "not you"),
    ],
)
def test_a_tool_that_does_not_answer_is_an_error_result(door: Door, result: Any, words: str) -> None:
    def guest(call: Call) -> HookResult:
        if isinstance(result, GuestTrap):
            raise result
        assert isinstance(result, HookResult)
        return result

    door.tool("hello", guest)
    door.load()
    door.call()
    door.bench.run()
    data = only_reply(door)["data"]
    assert (data["is_error"], data["content"]) == (True, f"capsule 'tools' gave no answer: {words}")


def test_without_a_router_the_call_says_so() -> None:
    door = Door()
    door.tool("hello", answer)
    door.load()
    door.call()
    assert only_reply(door)["data"].startswith("no router capsule serves principal alice")
    assert door.door.calls_in_flight == 0


def test_a_call_that_takes_too_long_is_ended_and_cancelled(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    door.call(timeout_s=12.5)
    door.bench.run()
    for now in (4.9, 5.0, 9.9):
        door.bench.now = now
        door.door.sweep(now)
    door.door.sweep(12.5)
    door.door.sweep(13.0)
    assert door.replies["c1"] == [
        {"status": "Working"},
        {"status": "Error", "data": "tool 'hello' did not answer within 12.5 s"},
    ]
    cancel = door.bench.heard[-1]
    assert cancel.topic == "tool.v1.request.cancel"
    [call_id] = json.loads(cancel.body)["call_ids"]
    late = msgspec.structs.replace(
        cancel, topic=RESULT, body=encode_tool_result(call_id, "late", is_error=False)
    )
    door.door.hear(late)
    assert len(door.replies["c1"]) == 2


def test_a_cancel_ends_the_call_of_its_own_client_only(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    door.call()
    door.ask("cancel", {"corr": "c1"}, "c2", cause(owner="somebody else"))
    assert only_reply(door, "c2") == {"status": "Success", "data": {"cancelled": False}}
    door.ask("cancel", {"corr": "c1"}, "c3")
    assert only_reply(door, "c3") == {"status": "Success", "data": {"cancelled": True}}
    assert only_reply(door) == {"status": "Error", "data": "the call of tool 'hello' was cancelled"}


def test_another_client_of_the_principal_lists_and_cancels_by_call_id(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    door.call(timeout_s=7)
    door.bench.now = 1.5
    door.ask("calls", None, "c2", cause(owner="somebody else"))
    [row] = only_reply(door, "c2")["data"]
    call_id = row.pop("call_id")
    assert row == {"tool": "hello", "capsule": "tools", "running_ms": 1500.0, "timeout_s": 7.0}
    door.ask("calls", None, "c3", cause("bob"))
    assert only_reply(door, "c3")["data"] == []
    door.ask("cancel", {"call_id": call_id}, "c4", cause("bob"))
    assert only_reply(door, "c4")["data"] == {"cancelled": False}
    door.ask("cancel", {"call_id": call_id}, "c5", cause(owner="somebody else"))
    assert only_reply(door, "c5")["data"] == {"cancelled": True}
    assert only_reply(door) == {"status": "Error", "data": "the call of tool 'hello' was cancelled"}
    assert door.door.expects(f"astrid.v1.response.failure.{call_id}")  # its receipt is for nobody


def test_a_call_that_is_over_is_cancelled_for_the_children_that_it_left(door: Door) -> None:
    asked: list[tuple[str | None, str]] = []

    def has_children(principal: str | None, call_id: str) -> bool:
        asked.append((principal, call_id))
        return call_id == "gone"

    door.door.has_children = has_children
    for number, (call_id, is_cancelled) in enumerate((("gone", True), ("never", False))):
        door.ask("cancel", {"call_id": call_id}, f"c{number}")
        assert only_reply(door, f"c{number}")["data"] == {"cancelled": is_cancelled}
    assert asked == [("alice", "gone"), ("alice", "never")]
    [cancel] = [one for one in door.bench.heard if one.topic == "tool.v1.request.cancel"]
    assert (cancel.principal, json.loads(cancel.body)["call_ids"]) == ("alice", ["gone"])


@pytest.mark.parametrize("params", [{}, {"corr": "a", "call_id": "b"}])
def test_a_cancel_names_one_call(door: Door, params: object) -> None:
    door.load()
    door.ask("cancel", params)
    assert only_reply(door)["status"] == "Error"


def test_a_call_that_a_capsule_cancels_is_answered_at_once(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.bench.capsule(
        "react",
        lambda call: void(call.speak("tool.v1.request.cancel", call.payload)),
        subscribe={"cancel.v1": "go"},
        publish=["tool.v1.request.cancel"],
    )
    door.load()
    door.call()
    door.bench.run()
    request = decode_tool_request(door.bench.heard[0].body)
    assert request is not None
    door.bench.publish("cancel.v1", encode_tool_cancel([request.call_id]), principal="bob")
    door.bench.publish("cancel.v1", encode_tool_cancel([request.call_id]))
    door.bench.run()
    data = only_reply(door)["data"]
    assert (data["content"], data["is_error"]) == ("the call was cancelled", True)


def void(_value: object) -> None:
    return None


def test_a_client_that_leaves_cancels_its_calls(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    door.call(corr="c1")
    door.call(corr="c2")
    door.door.disconnect("owner-1")
    assert door.door.calls_in_flight == 0
    assert door.bench.topics().count("tool.v1.request.cancel") == 2
    assert door.replies == {"c1": [], "c2": []}


def test_another_principals_result_does_not_answer(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    door.call()
    request = decode_tool_request(door.bench.heard[0].body)
    assert request is not None
    forged = encode_tool_result(request.call_id, "forged", is_error=False)
    door.door.hear(msgspec.structs.replace(cause("bob"), topic=RESULT, body=forged))
    receipt = msgspec.structs.replace(
        cause("alice"),
        topic=f"astrid.v1.response.failure.{request.call_id}",
        body=b'{"reason":"forged"}',
        source_id="capsule",
    )
    door.door.hear(receipt)
    assert door.replies["c1"] == []
    assert decode_tool_result(forged) is not None


def test_list_and_show(door: Door) -> None:
    door.tool("zeta", answer)
    door.tool("alpha", answer, capsule="others")
    door.load()
    door.ask("list")
    listed = only_reply(door)["data"]
    assert [tool["name"] for tool in listed] == ["alpha", "zeta"]
    assert listed[0] == {
        "name": "alpha",
        "description": "",
        "input_schema": {},
        "mutable": False,
        "capsule": "others",
        "shadowed": [],
    }
    door.ask("show", {"name": "zeta"}, "c2")
    assert only_reply(door, "c2")["data"]["capsule"] == "tools"
    door.ask("show", {"name": "zetta"}, "c3")
    assert only_reply(door, "c3")["data"] == "no tool is called 'zetta'; did you mean zeta?"


@pytest.mark.parametrize(
    "params", [None, {}, {"name": "hello", "timeout_s": 0}, {"name": "hello", "timeout_s": 1e9}]
)
def test_bad_parameters_are_answered(door: Door, params: object) -> None:
    door.load()
    door.ask("call", params)
    assert only_reply(door)["status"] == "Error"


def test_a_client_may_not_have_more_calls_than_the_bound(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    for number in range(MAX_CALLS_PER_CLIENT + 1):
        door.call(corr=f"c{number}")
    assert only_reply(door, f"c{MAX_CALLS_PER_CLIENT}")["data"].startswith("too many calls in flight")
    assert door.door.calls_in_flight == MAX_CALLS_PER_CLIENT


def test_a_call_that_ends_while_another_begins_leaves_no_trace_in_the_bound(door: Door) -> None:
    door.tool("hello", lambda call: None)
    door.load()
    door.call(corr="first")

    def clock() -> float:
        """Another thread finishes the first call while the second is being made."""
        door.ask("cancel", {"corr": "first"}, corr="cancel")
        return door.bench.now

    door.door._clock = clock
    door.call(corr="second")
    door.door._clock = lambda: door.bench.now
    assert only_reply(door, "cancel")["data"] == {"cancelled": True}
    for number in range(MAX_CALLS_PER_CLIENT - 1):
        door.call(corr=f"more-{number}")
    assert door.door.calls_in_flight == MAX_CALLS_PER_CLIENT
