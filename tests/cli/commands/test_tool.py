"""`aos tool list | show | call` against a fake daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aos_cli.tools import door
from aos_runtime.home import Home
from tests.cli.conftest import RunAos
from tests.support.fake_daemon import FakeDaemon

HELLO: dict[str, Any] = {
    "name": "hello",
    "description": "Greet someone.",
    "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "mutable": False,
    "capsule": "greeter",
    "shadowed": [],
}
BARE: dict[str, Any] = {**HELLO, "name": "bare", "input_schema": {"type": "object"}}


class Door:
    """Answers list with two tools and call with `content`."""

    def __init__(self, content: str = '"Hello, Ada!"', *, is_error: bool = False) -> None:
        self.content = content
        self.is_error = is_error

    def __call__(self, topic: str, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        verb = topic.split(".")[4]
        if verb == "list":
            return {"status": "Success", "data": [HELLO, BARE]}
        if verb == "call":
            data = {
                "call_id": "c1",
                "content": self.content,
                "is_error": self.is_error,
                "capsule": "greeter",
                "duration_ms": 0.4,
            }
            return {"status": "Success", "data": data}
        return {"status": "Success", "data": {"cancelled": True}}


def test_the_list(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door()):
        assert run_aos("tool", "list").out == (
            "TOOL   CAPSULE  DESCRIPTION\nbare   greeter  Greet someone.\nhello  greeter  Greet someone.\n"
        )
        document = run_aos("tool", "list", "--json").json
    assert document == [{**BARE, "input_schema": {"type": "object", "properties": {}}}, HELLO]


def test_no_tools_is_an_empty_document(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": []}):
        assert run_aos("tool", "list", "--json").out == "[]\n"
        ended = run_aos("tool", "list")
    assert (ended.status, ended.out, ended.err) == (0, "", "No tools: no running capsule describes one.\n")


def test_the_answer_is_decoded_and_alone_on_stdout(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door()) as daemon:
        ended = run_aos("tool", "call", "hello", "--arg", "name=Ada", "--timeout", "5")
    assert (ended.status, ended.out, ended.err) == (0, "Hello, Ada!\n", "")
    topic, payload = daemon.requests[-1]
    assert topic.startswith("astrid.v1.request.tools.call.")
    assert payload["params"] == {"name": "hello", "arguments": {"name": "Ada"}, "timeout_s": 5.0}


@pytest.mark.parametrize(
    ("content", "words", "out"),
    [
        ('"a"', ["--raw"], '"a"\n'),
        ('{"a": 1}', [], '{"a": 1}\n'),
        ("plain\nlines", [], "plain\nlines\n"),
        ('"\\u001b[31mred"', [], "\x1b[31mred\n"),
    ],
)
def test_content_in_a_pipe_is_exact(
    run_aos: RunAos, home: Home, content: str, words: list[str], out: str
) -> None:
    with FakeDaemon(home, Door(content)):
        assert run_aos("tool", "call", "bare", *words).out == out


def test_content_on_a_terminal_is_safe(run_aos: RunAos, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aos_cli.console.Console.stdout_is_terminal", True)
    with FakeDaemon(home, Door('"\\u001b[31mred\\nnext"')):
        assert run_aos("tool", "call", "bare").out == "\\x1b[31mred\nnext\n"
        assert run_aos("tool", "call", "bare", "--raw").out == '"\\u001b[31mred\\nnext"\n'


def test_the_document_of_a_call(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door('{"sum":3}')):
        document = run_aos("tool", "call", "bare", "--json").json
    assert document == {
        "tool": "bare",
        "call_id": "c1",
        "content": '{"sum":3}',
        "is_error": False,
        "capsule": "greeter",
        "duration_ms": 0.4,
        "value": {"sum": 3},
    }


def test_a_tool_that_fails_exits_1(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door('"no \\u001b[2Jluck"', is_error=True)):
        ended = run_aos("tool", "call", "bare")
        document = run_aos("tool", "call", "bare", "--json")
    assert (ended.status, ended.out, ended.err) == (1, "", "error: tool `bare` failed: no \\x1b[2Jluck\n")
    assert (document.status, document.json["is_error"]) == (1, True)


def test_arguments_are_checked_before_anything_is_sent(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door()) as daemon:
        ended = run_aos("tool", "call", "hello", "name:=5")
    assert (ended.status, ended.err) == (
        1,
        "error: the arguments do not fit the tool\n"
        "  name: 5 is not of type 'string'\n"
        "hint: `aos tool show NAME` shows what it takes\n",
    )
    assert [topic.split(".")[4] for topic, _ in daemon.requests] == ["list"]


def test_an_unknown_tool_is_answered_with_the_nearest(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door()):
        ended = run_aos("tool", "call", "helo")
        error = run_aos("tool", "show", "zzzzzz", "--json").error
    assert (ended.status, ended.err) == (1, "error: no tool is called 'helo'\nhint: did you mean `hello`?\n")
    assert (error["code"], error["context"]["nearest"]) == ("tool-unknown", [])


def test_ctrl_c_cancels_the_call(run_aos: RunAos, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = door.Connection.wait_reply

    def interrupted(self: Any, exchange: Any, **options: Any) -> Any:
        if ".tools.call." in exchange.topic:
            raise KeyboardInterrupt
        return wait(self, exchange, **options)

    monkeypatch.setattr(door.Connection, "wait_reply", interrupted)
    with FakeDaemon(home, Door()) as daemon:
        ended = run_aos("tool", "call", "bare")
    assert (ended.status, ended.out, ended.err) == (130, "", "")
    call, cancel = daemon.requests[-2:]
    assert cancel[0].startswith("astrid.v1.request.tools.cancel.")
    assert cancel[1]["params"] == {"corr": call[0].rpartition(".")[2]}


def test_a_call_that_is_not_answered_ends_at_its_timeout(
    run_aos: RunAos, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_GRACE_S", 0.0)
    answer = Door()
    with FakeDaemon(
        home, lambda topic, payload: None if ".call." in topic else answer(topic, payload)
    ) as daemon:
        ended = run_aos("tool", "call", "bare", "--timeout", "0.1")
    assert (ended.status, ended.err.splitlines()[0]) == (
        1,
        "error: the daemon did not answer within 0.1 s",
    )
    assert ".tools.cancel." in daemon.requests[-1][0]


@pytest.mark.parametrize("timeout", ["0", "-1", "4000", "nan", "soon"])
def test_timeouts_out_of_range_are_usage_errors(run_aos: RunAos, timeout: str) -> None:
    assert run_aos("tool", "call", "x", "--no-start", "--timeout", timeout).status == 2


def test_no_start_says_what_to_do(run_aos: RunAos) -> None:
    ended = run_aos("tool", "list", "--no-start")
    assert (ended.status, ended.out, ended.err) == (
        1,
        "",
        "error: the daemon is not running\nhint: start it with `aos start`\n",
    )


def test_an_answer_of_another_version_is_no_traceback(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": "what"}):
        ended = run_aos("tool", "list")
    assert (ended.status, ended.err.splitlines()[0]) == (
        1,
        "error: the daemon's answer is not what this version of aos expects",
    )


def test_the_calls_that_run(run_aos: RunAos, home: Home) -> None:
    rows = [
        {"call_id": "0a1b", "tool": "hello", "capsule": "greeter", "running_ms": 1234.5, "timeout_s": 60.0},
        {"call_id": "2c3d", "tool": "bare", "capsule": None, "running_ms": 65000.0, "timeout_s": 300.0},
    ]
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": rows}):
        assert run_aos("tool", "calls").out == (
            "CALL ID  TOOL   CAPSULE  RUNNING  TIMEOUT\n"
            "0a1b     hello  greeter    1.2 s   60.0 s\n"
            "2c3d     bare             65.0 s  300.0 s\n"
        )
        assert run_aos("tool", "calls", "--json").json == rows
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": []}):
        assert run_aos("tool", "calls").err == "No tool call runs.\n"


def test_a_call_is_cancelled_by_its_id(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Door()) as daemon:
        ended = run_aos("tool", "cancel", "0a1b")
        assert (ended.status, ended.out, ended.err) == (0, "", "✓ Cancelled the call 0a1b.\n")
        assert run_aos("tool", "cancel", "0a1b", "--json").json == {"call_id": "0a1b", "cancelled": True}
    topic, payload = daemon.requests[0]
    assert topic.startswith("astrid.v1.request.tools.cancel.")
    assert payload["params"] == {"call_id": "0a1b"}


def test_a_call_that_is_not_there_cannot_be_cancelled(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": {"cancelled": False}}):
        ended = run_aos("tool", "cancel", "0a1b\x1b[2J")
    assert (ended.status, ended.err) == (
        1,
        "error: no tool call with the id '0a1b\\\\x1b[2J' runs\n"
        "hint: it may have ended; `aos tool calls` lists what runs\n",
    )


@pytest.mark.parametrize("verb", ["calls", "cancel"])
def test_what_runs_is_asked_of_a_daemon_that_is_there(run_aos: RunAos, verb: str) -> None:
    ended = run_aos("tool", verb, *(["x"] if verb == "cancel" else []))
    assert (ended.status, ended.err.splitlines()[0]) == (1, "error: the daemon is not running")
