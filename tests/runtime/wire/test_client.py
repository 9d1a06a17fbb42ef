from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.errors import Denied, InvalidInput, LimitExceeded, PeerFault
from aos_runtime.wire import requests as wire
from aos_runtime.wire.client import (
    Event,
    Exchange,
    Reply,
    admin_exchange,
    decode_event,
    encode_message,
    kernel_exchange,
    tools_exchange,
)
from aos_runtime.wire.ingress import Accepted, ConnectionFacts, decide_ingress
from aos_runtime.wire.methods import NIL_SOURCE

RUNTIME = Path(__file__).parents[3] / "runtime"
FACTS = ConnectionFacts("default", "owner-1", verified=True)


def event(topic: str, payload: object, **extra: object) -> bytes:
    return json.dumps({"topic": topic, "payload": payload, **extra}).encode()


def test_a_kernel_request_is_what_the_daemon_takes() -> None:
    exchange = kernel_exchange("ReloadCapsule", {"id": "hello"}, "c1")
    assert exchange.topic == "astrid.v1.response.reload_capsule.c1"
    assert json.loads(exchange.request) == {
        "topic": "astrid.v1.request.reload_capsule.c1",
        "payload": {"type": "raw_json", "method": "ReloadCapsule", "params": {"id": "hello"}},
        "source_id": NIL_SOURCE,
    }
    assert isinstance(decide_ingress(exchange.request, FACTS), Accepted)


def test_a_unit_method_has_no_params() -> None:
    payload = json.loads(kernel_exchange("GetStatus", None, "c1").request)["payload"]
    assert payload == {"type": "raw_json", "method": "GetStatus"}


def test_a_tools_request_goes_through_the_door() -> None:
    exchange = tools_exchange("call", {"name": "hello", "arguments": {}}, "c1")
    assert exchange.topic == "astrid.v1.response.tools.call.c1"
    taken = decide_ingress(exchange.request, FACTS)
    assert taken == Accepted(
        "astrid.v1.request.tools.call.c1",
        b'{"method":"ToolsCall","params":{"name":"hello","arguments":{}}}',
        "raw_json",
    )


def test_working_is_no_answer_and_the_answer_ends_it() -> None:
    exchange = kernel_exchange("GetStatus", None, "c1")
    working = exchange.receive(event(exchange.topic, {"status": "Working"}))
    assert working == Reply("Working", None)
    assert (working.is_final, working.is_error) == (False, False)
    final = exchange.receive(event(exchange.topic, {"status": "Status", "data": {"pid": 1}}))
    assert final == Reply("Status", {"pid": 1})
    assert (final.is_final, final.is_error) == (True, False)
    assert Reply("Error", "no").is_error


def test_a_failure_brings_the_code_and_the_hint_of_its_error() -> None:
    exchange = kernel_exchange("GetStatus", None, "c1")
    failed = msgspec.json.decode(wire.failed(Denied("not-now", "it is closed", hint="come back")))
    assert failed == {
        "status": "Error",
        "data": "it is closed",
        "error": {"code": "not-now", "hint": "come back"},
    }
    told = exchange.receive(event(exchange.topic, failed))
    assert told == Reply("Error", "it is closed", "not-now", "come back")
    for odd in (None, "text", {"code": 5, "hint": ["x"]}):
        assert exchange.receive(event(exchange.topic, failed | {"error": odd})) == Reply(
            "Error", "it is closed"
        )


def test_an_admin_reply_is_told_by_its_request_id() -> None:
    exchange = admin_exchange("AgentList", None, "r1")
    assert exchange.topic == "astrid.v1.admin.response.agent.list"
    assert json.loads(exchange.request)["payload"]["request_id"] == "r1"
    reply = {"status": "AgentList", "data": []}
    assert exchange.receive(event(exchange.topic, {**reply, "request_id": "r2"})) is None
    assert exchange.receive(event(exchange.topic, reply)) is None
    assert exchange.receive(event(exchange.topic, {**reply, "request_id": "r1"})) == Reply("AgentList", [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"5",
        b"[" * 100_000,
        b"\xff",
        event("astrid.v1.response.status.other", {"status": "Status"}),
        event("no.such.kind", {"type": "from_the_future", "x": 1}, extra=[1]),
        event("astrid.v1.response.status.c1", "text"),
        event("astrid.v1.response.status.c1", {"status": 5}),
        event("astrid.v1.response.status.c1", {"data": 5}),
        event("client.v1.disconnect", {"type": "other"}),
        json.dumps({"topic": 5, "payload": {}}).encode(),
        json.dumps({"topic": "a"}).encode(),
    ],
)
def test_dmn_16_odd_frames_are_skipped(data: bytes) -> None:
    assert kernel_exchange("GetStatus", None, "c1").receive(data) is None


@given(st.binary(max_size=80))
def test_garbage_is_skipped(data: bytes) -> None:
    assert Exchange(b"", "a.b").receive(data) is None


def test_dmn_16_absent_optional_fields_default() -> None:
    assert decode_event(event("a.b", {"x": 1}, timestamp="t", source_id=5)) == Event(
        "a.b", {"x": 1}, None, None, None
    )


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"type": "disconnect", "reason": "topic is not allowed"}, "topic is not allowed"),
        ({"type": "disconnect"}, "no reason given"),
    ],
)
def test_a_refusal_is_a_fault_with_its_reason(payload: dict[str, object], reason: str) -> None:
    with pytest.raises(PeerFault) as fault:
        Exchange(b"", "a.b").receive(event("client.v1.disconnect", payload))
    assert (fault.value.code, fault.value.context) == ("request-refused", {"reason": reason})


def test_dmn_14_what_is_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(LimitExceeded) as refusal:
        tools_exchange("call", {"name": "x", "arguments": {"text": "y" * 1_048_576}}, "c1")
    assert refusal.value.code == "payload-too-large"
    assert refusal.value.context["limit_bytes"] == 1_048_576
    assert refusal.value.context["size_bytes"] == 1_048_576 + 86


@pytest.mark.parametrize("payload", [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud800"}])
def test_what_json_cannot_say_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        encode_message("a.b", payload)
    assert refusal.value.code == "payload-not-json"


def test_the_client_side_needs_only_the_standard_library() -> None:
    """`aos status` pays for every import: neither msgspec nor nacl nor a network module may come along."""
    code = "import sys, aos_runtime.wire.client, aos_runtime.wire.handshake_client; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(RUNTIME)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & {"msgspec", "nacl", "blake3", "hmac", "hashlib", "uuid", "socket", "asyncio"} == set()
