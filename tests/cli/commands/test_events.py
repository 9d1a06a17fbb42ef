"""`aos events`, `aos trace` and `aos top` against a fake daemon, with their whole output."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from aos_cli.watch.door import default_reply_topic
from aos_runtime.home import Home
from tests.cli.conftest import RunAos
from tests.support.fake_daemon import FakeDaemon

EVENT: dict[str, Any] = {
    "event_id": "b-1",
    "seq": 1,
    "time": "2026-01-02T03:04:05.678+00:00",
    "topic": "tool.v1.execute.hello",
    "kind": None,
    "principal": "default",
    "source": "router",
    "origin": "local_socket",
    "targets": ["hello"],
    "size_bytes": 2048,
    "digest": "aa",
    "keys": ["a", "b"],
}
HOSTILE = "\x1b[2J\x1b[31mapprove?\u202e\r\n"
CALL: dict[str, Any] = {
    "call_id": "c1",
    "tool": "hello",
    "principal": "default",
    "time": "2026-01-02T03:04:05.678+00:00",
    "duration_us": 1000.0,
    "outcome": "ok",
    "steps": [
        {"at_us": 0.0, "depth": 0, "what": "received", "capsule": None, "name": "hello", "outcome": None},
        {"at_us": 10.0, "depth": 0, "what": "published", "capsule": None, "name": "tool.v1.request.execute",
         "outcome": None, "targets": ["router"], "size_bytes": 12, "keys": ["x"]},
        {"at_us": 250.0, "depth": 1, "what": "handled", "capsule": "router", "name": "go",
         "outcome": "continue", "duration_us": 500.0, "waited_us": 240.0},
        {"at_us": 300.0, "depth": 2, "what": "called", "capsule": "router", "name": "kv-get", "outcome": "ok",
         "duration_us": 5.0},
        {"at_us": 310.0, "depth": 2, "what": "refused", "capsule": "router", "name": "no.way",
         "outcome": "capability-denied"},
        {"at_us": 320.0, "depth": 3, "what": "dropped", "capsule": "hello", "name": "a.b",
         "outcome": "its queue was full"},
        {"at_us": 1000.0, "depth": 0, "what": "answered", "capsule": None, "name": "", "outcome": "ok"},
    ],
    "omitted": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


class Stream(FakeDaemon):
    """A daemon whose tail gives `replies`, one frame each."""

    def __init__(self, home: Home, *replies: Mapping[str, Any]) -> None:
        super().__init__(home, lambda topic, payload: None)
        self.replies = replies

    def _reply(self, connection: Any, message: Mapping[str, Any]) -> None:
        for reply in self.replies:
            self._answer = lambda topic, payload, reply=reply: reply
            super()._reply(connection, message)


def test_a_tail_shows_each_event_on_a_line_and_ends(run_aos: RunAos, home: Home) -> None:
    replies = [
        {"status": "Tailing", "data": {}},
        {"status": "Event", "data": EVENT},
        {"status": "Working"},
        {"status": "Event", "data": {**EVENT, "source": None, "targets": [], "payload": {"a": "é"}}},
        {"status": "Dropped", "data": {"count": 7}},
        {"status": "Success", "data": {"sent": 2, "dropped": 7}},
    ]
    with Stream(home, *replies) as daemon:
        ended = run_aos("events", "tail", "tool.*", "--payloads", "-n", "2", "--capsule", "router")
    assert ended.out == (
        "03:04:05.678  tool.v1.execute.hello  router → hello  2.0 KiB  {a, b}\n"
        "03:04:05.678  tool.v1.execute.hello  host → nobody  2.0 KiB  {a, b}\n"
        '    {"a":"é"}\n'
    )
    assert ended.err == "warning: 7 events lost: more came than could be shown\n"
    assert ended.status == 0
    assert daemon.requests[0][1]["params"] == {
        "pattern": "tool.*", "capsule": "router", "principal": None, "payloads": True, "limit": 2
    }  # fmt: skip


def test_a_tail_is_ndjson_for_a_program(run_aos: RunAos, home: Home) -> None:
    replies = [
        {"status": "Event", "data": EVENT},
        {"status": "Dropped", "data": {"count": 7}},
        {"status": "Success", "data": {}},
    ]
    with Stream(home, *replies):
        ended = run_aos("events", "tail", "--json")
    assert [json.loads(line) for line in ended.out.splitlines()] == [EVENT, {"dropped": 7}]


def test_everybodys_events_say_whose_they_are(run_aos: RunAos, home: Home) -> None:
    with Stream(home, {"status": "Event", "data": EVENT}, {"status": "Success", "data": {}}) as daemon:
        ended = run_aos("events", "tail", "--all-principals")
    assert ended.out == ("03:04:05.678  tool.v1.execute.hello  router → hello  [default]  2.0 KiB  {a, b}\n")
    assert daemon.requests[0][1]["params"]["principal"] == "*"


def test_what_guests_wrote_never_reaches_the_terminal_as_it_is(run_aos: RunAos, home: Home) -> None:
    event = {
        **EVENT,
        "topic": HOSTILE,
        "source": HOSTILE,
        "targets": [HOSTILE],
        "principal": HOSTILE,
        "keys": [HOSTILE],
        "payload": {HOSTILE: HOSTILE},
    }
    steps = [
        {"at_us": 1.0, "depth": 1, "what": what, "capsule": HOSTILE, "name": HOSTILE, "outcome": HOSTILE,
         "targets": [HOSTILE], "keys": [HOSTILE], "payload": HOSTILE}
        for what in ("received", "published", "handled", "called", "refused", "dropped", "answered", HOSTILE)
    ]  # fmt: skip
    call = {**CALL, "tool": HOSTILE, "call_id": HOSTILE, "outcome": HOSTILE, "steps": steps}
    with Stream(home, {"status": "Event", "data": event}, {"status": "Success", "data": {}}):
        shown = run_aos("events", "tail", "--all-principals").out
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": call}):
        shown += run_aos("trace").out
    rows = [{"principal": HOSTILE, "capsule": HOSTILE, "calls": 1, "latency": [1]}]
    top = {"status": "Success", "data": {"monotonic_ns": 1, "latency_bounds_us": [], "capsules": rows}}
    with FakeDaemon(home, lambda topic, payload: top):
        shown += run_aos("top", "--once", "--interval", "0.1").out
    assert "approve?" in shown
    assert not any(mark in shown for mark in ("\x1b", "\r", "\u202e"))


def test_the_tails_denial_is_the_commands_error(run_aos: RunAos, home: Home) -> None:
    text = "permission denied for principal default: missing capability self:audit:read"
    with FakeDaemon(home, lambda topic, payload: {"status": "Error", "data": text}):
        ended = run_aos("events", "tail", "--json")
    assert (ended.status, ended.error["code"], ended.error["message"]) == (1, "permission-denied", text)


@pytest.mark.parametrize(
    ("answer", "err"),
    [
        ({"handlers": ["a", "b"], "taken": True}, "✓ Published to a, b.\n"),
        ({"handlers": [], "taken": True}, "✓ Published to the daemon.\n"),
        ({"handlers": [], "taken": False}, "warning: published, and no capsule handles the topic\n"),
    ],
)
def test_pub_says_who_got_it(run_aos: RunAos, home: Home, answer: Mapping[str, Any], err: str) -> None:
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": answer}) as daemon:
        ended = run_aos("events", "pub", "a.b", '{"x":1}')
    assert (ended.status, ended.out, ended.err) == (0, "", err)
    assert daemon.requests[0][1]["params"] == {"topic": "a.b", "payload": {"x": 1}}


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_a_message_is_a_json_object(run_aos: RunAos, home: Home, text: str) -> None:
    assert run_aos("events", "pub", "a.b", text).status == 2


def test_a_request_prints_the_first_answer(run_aos: RunAos, home: Home) -> None:
    class Answering(FakeDaemon):
        def _reply(self, connection: Any, message: Mapping[str, Any]) -> None:
            self.requests.append((message["topic"], message["payload"]))
            wanted = message["payload"]["params"]["topic"].replace(".request.", ".response.")
            for topic, payload in (
                ("astrid.v1.response.other.1", {"status": "Success"}),
                (wanted, {"status": "Working"}),
                (wanted, {"status": "Success", "data": ["a"]}),
            ):
                self.send(connection, topic, payload)

        def send(self, connection: Any, topic: str, payload: object) -> None:
            from aos_runtime.wire.frames import encode_frame

            event = {"topic": topic, "payload": payload, "source_id": "0", "principal": "default"}
            connection.sendall(encode_frame(json.dumps(event).encode()))

    with Answering(home, lambda topic, payload: None):
        ended = run_aos("events", "request", "astrid.v1.request.x.1", '{"type":"raw_json"}', "--json")
    assert (ended.status, ended.json) == (0, {"status": "Success", "data": ["a"]})


@pytest.mark.parametrize(
    ("topic", "answer"),
    [
        ("my.ask", "my.answer.*"),
        ("cli.v1.command.execute", "agent.v1.response"),  # clients are sent chat of their own turn only
    ],
)
def test_a_request_elsewhere_is_answered_through_a_tail(
    run_aos: RunAos, home: Home, topic: str, answer: str
) -> None:
    class Answering(FakeDaemon):
        def _reply(self, connection: Any, message: Mapping[str, Any]) -> None:
            self._answer = lambda topic, payload: {"status": "Tailing", "data": {}}
            super()._reply(connection, message)
            if ".publish." in message["topic"]:
                asked = {"topic": self.requests[0][0], "payload": {}}
                self._answer = lambda topic, payload: {"status": "Event", "data": {"payload": {"n": 1}}}
                super()._reply(connection, asked)

    with Answering(home, lambda topic, payload: None) as daemon:
        ended = run_aos("events", "request", topic, "{}", "--reply-topic", answer)
    assert (ended.status, ended.out) == (0, '{\n  "n": 1\n}\n')
    assert daemon.requests[0][1]["params"] == {"pattern": answer, "payloads": True, "limit": 1}


@pytest.mark.parametrize(
    ("topic", "payload", "answer"),
    [
        ("astrid.v1.request.status.1", {}, "astrid.v1.response.status.1"),
        ("cli.v1.command.run.greet", {"req_id": "7"}, "cli.v1.command.result.7"),
        ("cli.v1.command.run.greet", {}, None),
        ("session.v1.request.list", {"correlation_id": "c1"}, "session.v1.response.list.c1"),
        ("session.v1.request.list.c1", {"correlation_id": "c2"}, "session.v1.response.list.c1"),
        ("session.v1.request.list", {"correlation_id": 7}, "session.v1.response.list"),
        ("my.ask", {}, None),
    ],
)
def test_where_an_answer_comes_by_convention(
    topic: str, payload: dict[str, object], answer: str | None
) -> None:
    assert default_reply_topic(topic, payload) == answer


def test_a_request_that_nobody_answers(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": {}}):
        ended = run_aos("events", "request", "session.v1.request.x", "{}", "--timeout", "0.2", "--json")
    assert (ended.status, ended.error["code"]) == (1, "no-answer")
    assert ended.error["message"] == "no message on session.v1.response.x within 0.2 s"


def test_a_request_without_a_known_reply_topic_is_a_usage_error(run_aos: RunAos, home: Home) -> None:
    assert run_aos("events", "request", "my.ask", "{}").status == 2


def test_a_call_as_a_waterfall(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, lambda topic, payload: {"status": "Success", "data": CALL}) as daemon:
        ended = run_aos("trace")
        assert run_aos("trace", "c1", "--json").json == CALL
    bars = ["·", "·", "      ████████████", "       █", "       ·", "       ·", " " * 23 + "·"]
    said = [
        "the daemon received a call of hello",
        "host → router tool.v1.request.execute  12 B  {x}",
        "  router ran go: continue",
        "    router called kv-get",
        "    router was refused to publish no.way: capability-denied",
        "      a.b did not reach hello: its queue was full",
        "the daemon answered: ok",
    ]
    at = ["0.0 us", "10.0 us", "250.0 us", "300.0 us", "310.0 us", "320.0 us", "1.00 ms"]
    times = [("", ""), ("", ""), ("240.0 us", "500.0 us"), ("", "5.0 us"), ("", ""), ("", ""), ("", "")]
    lines = [
        f"{when:>9}  {waited:>9}  {took:>9}  {bar:24}  {step}"
        for when, (waited, took), bar, step in zip(at, times, bars, said, strict=True)
    ]
    head = "tool hello, call c1, principal default: ok after 1.00 ms"
    title = f"{'AT':>9}  {'WAITED':>9}  {'TOOK':>9}  {'':24}  STEP"
    assert ended.out == "\n".join([head, "", title, *lines]) + "\n"
    asked = [payload["params"] for _, payload in daemon.requests]
    assert [one["call_id"] for one in asked] == [None, "c1"]


class Counting:
    """Answers `top` with calls that rise by ten a reading, a second apart."""

    def __init__(self, denied: bool = False) -> None:
        self.readings = 0
        self.denied = denied

    def __call__(self, topic: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.denied and payload["params"]["everybody"]:
            text = "permission denied for principal x: missing capability system:status"
            return {"status": "Error", "data": text}
        self.readings += 1
        calls = 10 * self.readings
        row = {"principal": "default", "capsule": "hello", "calls": calls, "errors": 0, "latency": [0, calls],
               "queue_depth": 2, "drops": 1, "memory_bytes": 1048576}  # fmt: skip
        process = {} if self.denied else {"pid": 9, "uptime_s": 61, "memory_bytes": 2097152, "clients": 1,
                                          "calls_in_flight": 0, "threads": 2}  # fmt: skip
        data = {"monotonic_ns": self.readings * 10**9, "process": process, "latency_bounds_us": [100, 200]}
        return {"status": "Success", "data": {**data, "capsules": [row]}}


def test_top_once(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Counting()):
        ended = run_aos("top", "--once", "--interval", "0.1")
    assert ended.out == (
        "aos daemon (pid 9): up 1m01s, memory 2.0 MiB, 1 client, 0 tool calls in flight, 2 workers\n"
        "\n"
        "PRINCIPAL  CAPSULE  CALLS/S  ERRORS/S     P50     P95  QUEUE  DROPS   MEMORY  CALLS  ERRORS\n"
        "default    hello       10.0       0.0  150 us  195 us      2      1  1.0 MiB     20       0\n"
    )
    assert ended.status == 0


def test_top_as_one_document(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Counting()):
        document = run_aos("top", "--json", "--interval", "0.1").json
    assert document["interval_s"] == 1.0
    assert document["process"]["pid"] == 9
    assert [(row["capsule"], row["calls_per_s"]) for row in document["capsules"]] == [("hello", 10.0)]


def test_top_without_the_operators_right_shows_ones_own(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Counting(denied=True)):
        ended = run_aos("top", "--once", "--interval", "0.1")
    assert ended.err == "Only your own capsules: the others need system:status.\n"
    assert ended.out.startswith("PRINCIPAL  CAPSULE")


@pytest.mark.parametrize("command", [["events", "tail"], ["events", "pub", "a", "{}"], ["trace"], ["top"]])
def test_nothing_is_started_where_no_daemon_runs(run_aos: RunAos, home: Home, command: list[str]) -> None:
    ended = run_aos(*command, "--json")
    assert (ended.status, ended.error["code"]) == (1, "daemon-not-running")
    assert not home.root.exists()
