from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.errors import PeerFault
from aos_runtime.wire.frames import MAX_PAYLOAD_BYTES
from aos_runtime.wire.ingress import Accepted, ConnectionFacts, Refused, decide_ingress, topic_refusal
from aos_runtime.wire.methods import NIL_SOURCE

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/wire/ingress_topics.json").read_text())
FACTS = ConnectionFacts("default", "owner-1", verified=True, device_key_id="key-1")
NOT_ALLOWED = "topic is not allowed from local clients"
REQUEST_ID = "123e4567-e89b-12d3-a456-426614174000"


def frame(topic: object, payload: object, **extra: object) -> bytes:
    return json.dumps({"topic": topic, "payload": payload, "source_id": NIL_SOURCE, **extra}).encode()


def disconnect(reason: str) -> dict[str, object]:
    return {
        "topic": "client.v1.disconnect",
        "payload": {"type": "disconnect", "reason": reason},
        "source_id": NIL_SOURCE,
        "principal": "default",
        "request_owner": "owner-1",
    }


def chat_refusal(reason: str, session: str) -> dict[str, object]:
    return {
        "topic": "agent.v1.response",
        "payload": {
            "type": "agent_response",
            "text": f"Request refused: {reason}",
            "is_final": True,
            "session_id": session,
        },
        "source_id": NIL_SOURCE,
        "principal": "default",
        "request_owner": "owner-1",
    }


def refused(data: bytes, facts: ConnectionFacts = FACTS) -> tuple[str, object, bool]:
    decision = decide_ingress(data, facts)
    assert isinstance(decision, Refused)
    return decision.reason, json.loads(decision.frame), decision.close


@pytest.mark.parametrize("topic", GOLDEN["allowed"])
def test_allowed_topics(topic: str) -> None:
    assert topic_refusal(topic) is None


@pytest.mark.parametrize("topic", GOLDEN["forbidden"])
def test_forbidden_topics_close_the_connection(topic: str) -> None:
    assert refused(frame(topic, {"type": "connect"})) == (NOT_ALLOWED, disconnect(NOT_ALLOWED), True)


@pytest.mark.parametrize("topic", GOLDEN["misshapen"])
def test_misshapen_topics_close_the_connection(topic: str) -> None:
    reason = "invalid topic shape"
    assert refused(frame(topic, {"type": "connect"})) == (reason, disconnect(reason), True)


@pytest.mark.parametrize(
    ("longer", "deeper"), [(False, False), (True, False), (False, True)], ids=["bounds", "longer", "deeper"]
)
def test_a_clients_topic_has_at_most_256_bytes_and_8_segments(longer: bool, deeper: bool) -> None:
    topic = "cli.v1.command.run.e.f.g" if not deeper else "cli.v1.command.run.e.f.g.h"
    topic = f"{topic}.".ljust(256 + longer, "x")
    decision = decide_ingress(frame(topic, {"type": "connect"}), FACTS)
    if longer or deeper:
        assert isinstance(decision, Refused) and decision.reason == "invalid topic shape"
    else:
        assert (len(topic.encode()), topic.count(".")) == (256, 7)
        assert isinstance(decision, Accepted)


def test_a_request_is_taken_and_what_it_says_about_itself_is_not() -> None:
    forged = {"principal": "admin", "seq": 7, "timestamp": "x", "signature": [1], "request_owner": "other"}
    data = frame("astrid.v1.request.status.7f3c", {"type": "raw_json", "method": "GetStatus"}, **forged)
    assert decide_ingress(data, FACTS) == Accepted(
        "astrid.v1.request.status.7f3c", b'{"method":"GetStatus"}', "raw_json"
    )


def test_origin_says_whether_a_signature_was_checked() -> None:
    assert FACTS.origin == "local_socket"
    assert ConnectionFacts("anonymous", "o").origin == "system"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        frame("a.b", {}) + b" x",
        frame("a.b", 5),
        frame("a.b", [1]),
        frame("a.b", None),
        frame(5, {}),
        json.dumps({"topic": "a.b", "payload": {}}).encode(),
        json.dumps({"topic": "a.b", "payload": {}, "source_id": "me"}).encode(),
        b'{"topic":"a.b","payload":{"a":NaN},"source_id":"%b"}' % NIL_SOURCE.encode(),
        b'{"topic":"a.b","payload":{"a":"\xff"},"source_id":"%b"}' % NIL_SOURCE.encode(),
        b'{"topic":"a.b","payload":%b,"source_id":"%b"}' % (b'{"a":' * 99_999, NIL_SOURCE.encode()),
    ],
)
def test_what_is_no_message_is_a_fault_that_repeats_nothing(data: bytes) -> None:
    with pytest.raises(PeerFault) as fault:
        decide_ingress(data, FACTS)
    assert (fault.value.code, fault.value.message) == ("message-invalid", "invalid IPC message")
    assert fault.value.context == {}


@given(st.binary(max_size=120))
def test_garbage_is_only_a_fault(data: bytes) -> None:
    with pytest.raises(PeerFault):
        decide_ingress(data, FACTS)


@given(st.text(max_size=40), st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=3))
def test_any_message_is_taken_or_refused(topic: str, payload: dict[str, str]) -> None:
    decision = decide_ingress(frame(topic, payload), FACTS)
    if isinstance(decision, Refused):
        assert json.loads(decision.frame)["principal"] == "default"
    else:
        assert topic_refusal(decision.topic) is None


def test_dmn_14_a_too_large_request_is_answered_with_size_and_limit() -> None:
    payload = {"type": "raw_json", "method": "X", "params": "x" * MAX_PAYLOAD_BYTES}
    size = len(json.dumps({"method": "X", "params": payload["params"]}, separators=(",", ":")))
    text = f"payload exceeds IPC limit: {size} bytes, limit 1048576"
    reason, sent, close = refused(frame("astrid.v1.request.tools.call.c1", payload))
    assert (reason, close) == (text, False)
    assert sent == {
        "topic": "astrid.v1.response.tools.call.c1",
        "payload": {"status": "Error", "data": text},
        "source_id": NIL_SOURCE,
        "principal": "default",
    }


def test_dmn_14_elsewhere_a_too_large_payload_closes_with_size_and_limit() -> None:
    text = "payload exceeds IPC limit: 1048578 bytes, limit 1048576"
    payload = {"a": "x" * (MAX_PAYLOAD_BYTES - 7)}
    assert refused(frame("cli.v1.command.execute", payload)) == (text, disconnect(text), True)


def test_a_payload_at_the_limit_is_taken() -> None:
    payload = json.dumps({"a": "x" * (MAX_PAYLOAD_BYTES - 8)}, separators=(",", ":")).encode()
    assert len(payload) == MAX_PAYLOAD_BYTES
    data = b'{"topic":"cli.v1.command.execute","payload":%b,"source_id":"%b"}' % (
        payload,
        NIL_SOURCE.encode(),
    )
    assert decide_ingress(data, FACTS) == Accepted("cli.v1.command.execute", payload, None)


def chat(**fields: object) -> bytes:
    return frame("user.v1.prompt", {"type": "user_input", "text": "hi", **fields})


def test_a_prompt_opens_a_turn_of_its_session() -> None:
    body = b'{"type":"user_input","text":"hi","session_id":"s1"}'
    taken = Accepted("user.v1.prompt", body, "user_input", "s1", cancels=False)
    assert decide_ingress(chat(session_id="s1"), FACTS) == taken
    default = decide_ingress(chat(), FACTS)
    assert isinstance(default, Accepted)
    assert default.session == "default"


def test_a_second_turn_is_refused_in_chat_and_the_connection_stays() -> None:
    facts = ConnectionFacts("default", "owner-1", turn_session="s1")
    reason = "this principal or connection already has an active turn"
    assert refused(chat(session_id="s2"), facts) == (reason, chat_refusal(reason, "s2"), False)


@pytest.mark.parametrize("payload", [{"type": "user_input", "text": "hi", "session_id": ""}, {"text": "hi"}])
def test_a_prompt_without_a_session_is_refused(payload: dict[str, object]) -> None:
    reason = "chat request is missing a session ID"
    decision = refused(frame("user.v1.prompt", payload))
    assert decision == (reason, chat_refusal(reason, "default"), False)


def test_a_cancellation_must_be_for_the_active_session() -> None:
    facts = ConnectionFacts("default", "owner-1", turn_session="s1")
    cancel = {"context": {"action": "cancel_turn"}}
    taken = decide_ingress(chat(session_id="s1", **cancel), facts)
    assert isinstance(taken, Accepted)
    assert (taken.session, taken.cancels) == ("s1", True)
    reason = "cancellation does not match this connection's active session"
    assert refused(chat(session_id="s2", **cancel), facts) == (reason, chat_refusal(reason, "s2"), False)
    assert refused(chat(session_id="s1", **cancel), FACTS)[0] == reason


APPROVAL = "astrid.v1.approval.response.r1"
ELICIT = f"astrid.v1.elicit.response.{REQUEST_ID}"
SELECTION = "registry.v1.selection.r1"
ASKED = ConnectionFacts("default", "owner-1", human_requests=(APPROVAL, ELICIT, SELECTION))
DECISION = {"type": "approval_response", "request_id": "r1", "decision": "approve"}
VALUE = {"type": "elicit_response", "request_id": REQUEST_ID, "value": "v"}


@pytest.mark.parametrize(
    ("topic", "payload"),
    [(APPROVAL, DECISION), (ELICIT, VALUE), (SELECTION, {"type": "raw_json", "id": "1"})],
)
def test_a_human_reply_counts_only_where_it_was_asked(topic: str, payload: dict[str, object]) -> None:
    taken = decide_ingress(frame(topic, payload), ASKED)
    assert isinstance(taken, Accepted)
    assert taken.topic == topic
    reason = "human reply is no longer available on this connection"
    assert refused(frame(topic, payload)) == (reason, disconnect(reason), True)


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        (APPROVAL, {"request_id": "r1"}, "human reply requires a typed response"),
        (APPROVAL, VALUE, "human reply requires a typed response"),
        (ELICIT, DECISION, "human reply requires a typed response"),
        (APPROVAL, {**DECISION, "request_id": "r2"}, "human reply request ID does not match its topic"),
    ],
)
def test_a_human_reply_has_its_type_and_id(topic: str, payload: dict[str, object], reason: str) -> None:
    assert refused(frame(topic, payload), ASKED) == (reason, disconnect(reason), True)
