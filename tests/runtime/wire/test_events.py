"""The events door's parameters, rights and topics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aos_runtime.wire import requests as wire
from aos_runtime.wire.events import decode_events_request, needed_rights, publish_problem
from aos_runtime.wire.methods import EVENTS_VERBS, events_topic, parse_events_topic


def decoded(verb: str, params: dict[str, Any]) -> Any:
    return decode_events_request(verb, json.dumps({"params": params}).encode(), "raw_json")


def rights(verb: str, caller: str = "alice", **params: Any) -> tuple[str, ...]:
    found = decoded(verb, params)
    assert isinstance(found, dict)
    return needed_rights(verb, found, caller)


def test_topics_go_both_ways() -> None:
    for verb in EVENTS_VERBS:
        assert parse_events_topic(events_topic(verb, "x")) == (verb, "x")
    for topic in ("astrid.v1.request.events.tail", "astrid.v1.request.events.tail.a.b",
                  "astrid.v1.request.events.x.y", "astrid.v1.request.tools.list.x"):  # fmt: skip
        assert parse_events_topic(topic) is None


def test_defaults_are_filled_in() -> None:
    assert decoded("tail", {}) == {
        "pattern": None, "principal": None, "capsule": None, "payloads": False, "limit": None
    }  # fmt: skip
    assert decoded("trace", {}) == {"call_id": None, "principal": None, "payloads": False}
    assert decoded("top", {}) == {"everybody": False}


@pytest.mark.parametrize(
    ("verb", "params"),
    [
        ("tail", {"pattern": "a..b"}),
        ("tail", {"limit": 0}),
        ("tail", {"limit": 10**9}),
        ("tail", {"payloads": "yes"}),
        ("publish", {"topic": "a.b"}),
        ("publish", {"topic": "a.b", "payload": [1]}),
        ("stop", {}),
    ],
)
def test_what_does_not_fit_is_said(verb: str, params: dict[str, Any]) -> None:
    found = decoded(verb, params)
    assert isinstance(found, wire.BadRequest)
    assert found.text.startswith(f"bad parameters for events.{verb}: ")


def test_a_request_is_a_raw_json_payload() -> None:
    assert isinstance(decode_events_request("top", b"{}", None), wire.BadRequest)


def test_ones_own_bus_needs_the_own_right_and_others_the_operators() -> None:
    for verb in ("tail", "trace"):
        assert rights(verb) == ("self:audit:read",)
        assert rights(verb, principal="alice", payloads=True) == ("self:audit:read",)
        assert rights(verb, principal="bob") == rights(verb, principal="*") == ("audit:read_all",)
        assert rights(verb, principal="*", payloads=True) == ("audit:read_all", "audit:read_payloads")
    assert rights("top") == ("self:capsule:list",)
    assert rights("top", everybody=True) == ("system:status",)
    assert rights("stop", corr="x") == ()


def test_speaking_where_clients_may_needs_nothing_more_and_elsewhere_an_operator() -> None:
    assert rights("publish", topic="cli.v1.command.run.x", payload={}) == ()
    assert rights("publish", topic="my.topic", payload={}) == ("capsule:access:any",)


@pytest.mark.parametrize(
    "topic",
    ["astrid.v1.response.failure.x", "astrid.v1.admin.response.x", "astrid.v1.capsules_loaded", "astrid",
     "client.v1.connect"],
)  # fmt: skip
def test_nobody_speaks_for_the_system(topic: str) -> None:
    assert publish_problem(topic) == "topics below astrid. and client. are the system's own words"


def test_other_topics_are_free_where_their_shape_is_right() -> None:
    assert publish_problem("astrids.v1.x") is None
    assert publish_problem("tool.v1.execute.hello") is None
    assert publish_problem("a..b") == "topic has an empty segment"
