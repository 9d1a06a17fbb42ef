from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.wire.client import Event, decode_event
from aos_runtime.wire.egress import decide_egress, encode_event, is_for_clients
from aos_runtime.wire.ingress import ConnectionFacts

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/wire/egress_topics.json").read_text())
FACTS = ConnectionFacts("default", "owner-1", True, "key-1", turn_session="s1")
STATUS = "astrid.v1.response.status.c"


@dataclass(frozen=True)
class Sent:
    topic: str = STATUS
    body: bytes = b"{}"
    principal: str | None = "default"
    device_key_id: str | None = None
    request_owner: str | None = None


@pytest.mark.parametrize("topic", GOLDEN["delivered"])
def test_topics_that_leave_the_daemon(topic: str) -> None:
    assert is_for_clients(topic)
    assert decide_egress(Sent(topic, b'{"session_id":"s1"}'), FACTS)


@pytest.mark.parametrize("topic", GOLDEN["kept"])
def test_topics_that_stay_inside(topic: str) -> None:
    assert not is_for_clients(topic)
    assert not decide_egress(Sent(topic, b'{"session_id":"s1"}'), FACTS)


@pytest.mark.parametrize(
    ("event", "delivered"),
    [
        (Sent(), True),
        (Sent(principal="bob"), False),
        (Sent(principal=None), False),
        (Sent("registry.v1.active_model_changed", principal=None), True),
        (Sent("registry.v1.active_model_changed", principal="bob"), False),
        (Sent(device_key_id="key-1"), True),
        (Sent(device_key_id="key-2"), False),
        (Sent(request_owner="owner-1"), True),
        (Sent(request_owner="owner-2"), False),
        (Sent("agent.v1.response", b'{"session_id":"s1"}'), True),
        (Sent("agent.v1.response", b'{"session_id":"s2"}'), False),
        (Sent("agent.v1.stream.delta", b"{}"), False),
        (Sent("agent.v1.stream.delta", b"[]"), False),
    ],
)
def test_a_connection_sees_only_what_is_its_own(event: Sent, delivered: bool) -> None:
    assert decide_egress(event, FACTS) is delivered


def test_bus_15_replies_for_two_principals_do_not_mix() -> None:
    alice, bob = ConnectionFacts("alice", "a"), ConnectionFacts("bob", "b")
    for principal in ("alice", "bob"):
        seen = [name.principal for name in (alice, bob) if decide_egress(Sent(principal=principal), name)]
        assert seen == [principal]


def test_a_frame_has_the_recorded_keys() -> None:
    assert encode_event("agent.v1.response", b'{"a":1}', "0-0", "default", "owner-1") == (
        b'{"topic":"agent.v1.response","payload":{"a":1},"source_id":"0-0",'
        b'"principal":"default","request_owner":"owner-1"}'
    )
    assert encode_event(STATUS, b"5", "0-0", None) == (
        b'{"topic":"astrid.v1.response.status.c","payload":5,"source_id":"0-0"}'
    )


safe_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(safe_text, st.dictionaries(safe_text, safe_text, max_size=3), st.none() | safe_text)
def test_what_is_encoded_the_client_reads_back(
    topic: str, payload: dict[str, str], owner: str | None
) -> None:
    data = encode_event(topic, json.dumps(payload).encode(), "s", "p", owner)
    assert decode_event(data) == Event(topic, payload, "s", "p", owner)
