"""Servers as a guest: which tools count, what is published, and when one that dies is left alone."""

from __future__ import annotations

import json
from concurrent.futures import Future

import pytest

from aos_runtime.capsule.manifest import parse_manifest
from aos_runtime.errors import PeerFault, Unavailable
from aos_runtime.host import GuestTrap, TrapReason
from aos_runtime.kernel.mcp_guest import McpGuest, Starts, with_rows
from aos_runtime.kernel.restarts import MAX_RESTARTS
from aos_runtime.programs.mcp_tools import McpAnswer, McpTool
from aos_runtime.wire.payloads import encode_tool_request
from tests.support.guests import Recorder, envelope_from


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


class FakeServer:
    """Answers with `answer`; a future that is never done where that is None."""

    def __init__(self, *names: str, answer: McpAnswer | Exception | None = None) -> None:
        self.tools = tuple(McpTool(name=name, description="", input_schema={}) for name in names)
        self.is_running = True
        self.answer = answer
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.closed = False

    def call(self, tool: str, arguments: dict[str, object], timeout_s: float) -> Future[McpAnswer]:
        self.calls.append((tool, arguments))
        future: Future[McpAnswer] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        elif self.answer is not None:
            future.set_result(self.answer)
        return future

    def close(self) -> None:
        self.closed = True


def request(tool: str) -> bytes:
    return encode_tool_request("call-1", tool, {"n": 1})


def test_the_first_server_with_a_name_has_it_and_bad_names_are_left_out(recorder: Recorder) -> None:
    first, second = FakeServer("a", "a.b"), FakeServer("a", "b", "result")
    guest = McpGuest(recorder.context(), {"one": first, "two": second})
    assert [tool.name for tool in guest.tools] == ["a", "b"]
    assert guest.warnings == (
        "MCP server `one` has a tool named 'a.b', left out",
        "MCP server `two` has a second tool 'a'; the first counts",
        "MCP server `two` has a tool named 'result', left out",
    )


@pytest.mark.parametrize(
    ("answer", "content", "is_error"),
    [
        (McpAnswer(content="yes", is_error=False), "yes", False),
        (PeerFault("mcp-server-silent", "it was silent", hint="-"), "it was silent", True),
    ],
)
def test_an_answer_is_published_with_the_id_of_its_call(
    recorder: Recorder, answer: McpAnswer | Exception, content: str, is_error: bool
) -> None:
    server = FakeServer("a", answer=answer)
    guest = McpGuest(recorder.context(), {"one": server})
    assert guest.hook(b"tool_execute_a", request("a")).action == "continue"
    assert server.calls == [("a", {"n": 1})]
    [(topic, body)] = recorder.published
    result = {"call_id": "call-1", "content": content, "is_error": is_error}
    assert topic == "tool.v1.execute.a.result"
    assert json.loads(body) == {"type": "tool_execute_result", "call_id": "call-1", "result": result}


def test_it_describes_itself(recorder: Recorder) -> None:
    guest = McpGuest(recorder.context(), {"one": FakeServer("a")})
    body = guest.hook(b"tool_describe", b"{}").data
    assert json.loads(body or b"") == {"tools": [{"name": "a", "description": "", "input_schema": {}}]}
    assert recorder.published == [("tool.v1.response.describe.self", body)]
    assert guest.hook(b"tool_execute_b", request("b")).action == "deny"


def test_a_cancelled_call_ends_and_the_servers_live_on(recorder: Recorder) -> None:
    call = envelope_from("alice")
    guest = McpGuest(recorder.context(current=call, cancelled=call), {"one": FakeServer("a")})
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"tool_execute_a", request("a"))
    assert caught.value.reason is TrapReason.CANCELLED
    assert not guest.dead and recorder.published == []


def test_one_dead_server_is_a_dead_guest(recorder: Recorder) -> None:
    one, two = FakeServer("a"), FakeServer("b")
    guest = McpGuest(recorder.context(), {"one": one, "two": two})
    two.is_running = False
    assert guest.dead
    guest.close()
    assert one.closed and two.closed


def test_what_keeps_dying_is_not_started_for_a_while() -> None:
    now = [0.0]
    starts = Starts(clock=lambda: now[0])
    for _ in range(MAX_RESTARTS + 1):
        starts.check()
    with pytest.raises(Unavailable, match="ended 6 times in 60 s"):
        starts.check()
    now[0] = 60.0
    starts.check()


def test_the_rows_are_those_of_a_tool_capsule(recorder: Recorder) -> None:
    guest = McpGuest(recorder.context(), {"one": FakeServer("a")})
    manifest = with_rows(parse_manifest(b'[package]\nname = "x"\nversion = "1.0.0"\n'), guest.tools)
    assert {row.topic: row.handler for row in manifest.handlers} == {
        "tool.v1.execute.a": "tool_execute_a",
        "tool.v1.request.describe": "tool_describe",
    }
    assert manifest.publish_patterns == ("tool.v1.execute.*.result", "tool.v1.response.describe.self")
