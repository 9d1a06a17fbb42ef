from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.authority import capability_problem
from aos_runtime.wire import requests
from aos_runtime.wire.methods import (
    ADMIN_METHODS,
    METHODS,
    TOOLS_VERBS,
    ToolsTopic,
    parse_tools_topic,
    reply_topic,
    tools_topic,
)
from aos_runtime.wire.requests import (
    BadRequest,
    Request,
    decode_admin_request,
    decode_request,
    decode_tools_request,
    required_capabilities,
)

INSTALL: dict[str, Any] = {
    "source": "/x.capsule",
    "workspace": False,
    "target_principal": None,
    "provenance": None,
    "authority": "automatic",
    "env": [],
    "expected_generation": None,
    "batch": None,
}


def body(method: object, **params: object) -> bytes:
    return json.dumps({"method": method, "params": params} if params else {"method": method}).encode()


def taken(method: str, **params: object) -> Request:
    request = decode_request(body(method, **params))
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("GetStatus", {}, {}),
        ("GetStatus", {"ignored": 1}, {}),
        ("Shutdown", {}, {"reason": None}),
        ("Shutdown", {"reason": "upgrade"}, {"reason": "upgrade"}),
        ("ReloadCapsule", {"id": "hello"}, {"id": "hello"}),
        ("RemoveCapsule", {"id": "hello"}, {"id": "hello", "force": False, "purge": False}),
        ("InstallCapsule", {"source": "/x.capsule"}, INSTALL),
        (
            "InstallCapsule",
            {"source": "/x.capsule", "env": [{"key": "K", "value": "v"}]},
            {**INSTALL, "env": [{"key": "K", "value": "v", "kind": "Text"}]},
        ),
        ("ActivateStage", {"stage_id": "s", "principal": "p"}, {"stage_id": "s", "principal": "p"}),
    ],
)
def test_parameters_are_checked_and_complete(
    method: str, params: dict[str, object], expected: dict[str, object]
) -> None:
    assert decode_request(body(method, **params)) == Request(METHODS[method], expected)


@pytest.mark.parametrize(
    "data", [b"{}", b"[]", b"5", b'"GetStatus"', b'{"method":5}', b'{"params":{}}', b"{", b""]
)
def test_a_payload_without_a_method_is_ignored(data: bytes) -> None:
    assert decode_request(data) is None
    assert decode_admin_request(data) is None


@pytest.mark.parametrize("kind", [None, "tool_execute_request"])
def test_only_raw_json_is_a_request(kind: str | None) -> None:
    assert decode_request(b'{"method":"GetStatus"}', kind) is None
    assert decode_admin_request(b'{"method":"AgentList"}', kind) is None


def test_an_unknown_method_is_answered() -> None:
    assert decode_request(body("NoSuchMethod")) == BadRequest("unknown method 'NoSuchMethod'")
    assert decode_admin_request(b'{"method":"X","request_id":"r"}') == BadRequest("unknown method 'X'", "r")


def test_an_unknown_method_is_quoted_escaped_and_cut() -> None:
    answer = decode_request(body("\x1b[31m" + "x" * 500))
    assert answer == BadRequest("unknown method '\\x1b[31m" + "x" * 123 + "'")


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("ReloadCapsule", {}, "bad parameters for ReloadCapsule: Object missing required field `id`"),
        (
            "ReloadCapsule",
            {"id": 5},
            "bad parameters for ReloadCapsule: Expected `str`, got `int` - at `$.id`",
        ),
        (
            "InstallCapsule",
            {"source": "/x", "authority": "root"},
            "bad parameters for InstallCapsule: Invalid enum value 'root' - at `$.authority`",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_answered(method: str, params: dict[str, object], text: str) -> None:
    assert decode_request(body(method, **params)) == BadRequest(text)


def test_params_that_are_no_object_are_answered() -> None:
    answer = decode_request(b'{"method":"GetStatus","params":5}')
    assert answer == BadRequest("bad parameters for GetStatus: Expected `object`, got `int`")
    assert decode_request(b'{"method":"GetStatus","params":null}') == Request(METHODS["GetStatus"], {})


@given(st.binary(max_size=60))
def test_garbage_is_ignored(data: bytes) -> None:
    assert decode_request(data) is None


def test_an_admin_request_keeps_its_id() -> None:
    request = decode_admin_request(b'{"method":"AgentList","request_id":"r1"}')
    assert request == Request(ADMIN_METHODS["AgentList"], {}, "r1")
    assert decode_admin_request(b'{"method":"AgentList"}') == Request(ADMIN_METHODS["AgentList"], {})


def test_an_id_that_is_no_text_is_not_echoed() -> None:
    request = decode_admin_request(b'{"method":"AgentList","request_id":5}')
    assert request == Request(ADMIN_METHODS["AgentList"], {})


@pytest.mark.parametrize(
    ("verb", "params", "expected"),
    [
        ("list", {}, {}),
        ("show", {"name": "hello"}, {"name": "hello"}),
        ("call", {"name": "hello"}, {"name": "hello", "arguments": {}, "timeout_s": 60.0}),
        (
            "call",
            {"name": "hello", "arguments": {"name": "Ada"}, "timeout_s": 5},
            {"name": "hello", "arguments": {"name": "Ada"}, "timeout_s": 5.0},
        ),
        ("calls", {}, {}),
        ("cancel", {"corr": "c1"}, {"corr": "c1", "call_id": None}),
        ("cancel", {"call_id": "1"}, {"corr": None, "call_id": "1"}),
    ],
)
def test_the_tools_door_reads_its_parameters(verb: str, params: object, expected: object) -> None:
    assert decode_tools_request(verb, json.dumps({"params": params}).encode()) == expected


@pytest.mark.parametrize(
    ("verb", "params", "text"),
    [
        ("show", {}, "bad parameters for tools.show: Object missing required field `name`"),
        (
            "call",
            {"name": "x", "arguments": [1]},
            "bad parameters for tools.call: Expected `object`, got `array` - at `$.arguments`",
        ),
        (
            "call",
            {"name": "x", "timeout_s": 0},
            "bad parameters for tools.call: timeout_s must be over 0 and at most 3600",
        ),
        (
            "call",
            {"name": "x", "timeout_s": 3601},
            "bad parameters for tools.call: timeout_s must be over 0 and at most 3600",
        ),
    ],
)
def test_the_tools_door_says_what_does_not_fit(verb: str, params: object, text: str) -> None:
    assert decode_tools_request(verb, json.dumps({"params": params}).encode()) == BadRequest(text)


def test_the_tools_door_takes_only_raw_json() -> None:
    text = "a request to the tools door is a raw_json payload with `params`"
    assert decode_tools_request("list", b"{}", None) == BadRequest(text)
    assert decode_tools_request("list", b"[]") == BadRequest(text)


@pytest.mark.parametrize(
    ("request_", "caller", "needed"),
    [
        (taken("GetStatus"), "bob", ("system:status",)),
        (taken("Shutdown"), "bob", ("system:shutdown",)),
        (taken("ListCapsules"), "bob", ("self:capsule:list",)),
        (taken("ReloadCapsules"), "bob", ("capsule:reload",)),
        (taken("ReloadCapsule", id="x"), "bob", ("self:capsule:reload",)),
        (taken("GetCapsuleMetadataForPrincipal", target_principal="bob"), "bob", ("self:capsule:list",)),
        (taken("GetCapsuleMetadataForPrincipal", target_principal="amy"), "bob", ("capsule:list",)),
        (taken("InstallCapsule", source="/x"), "bob", ("self:capsule:install",)),
        (taken("InstallCapsule", source="/x", target_principal="bob"), "bob", ("self:capsule:install",)),
        (taken("InstallCapsule", source="/x", target_principal="amy"), "bob", ("capsule:install",)),
        (taken("ActivateStage", stage_id="s", principal="bob"), "bob", ("self:capsule:install",)),
        (taken("ActivateStage", stage_id="s", principal="amy"), "bob", ("capsule:install",)),
        (
            taken("InstallCapsule", source="/x", env=[{"key": "K", "value": "v", "kind": "Secret"}]),
            "bob",
            ("self:capsule:install", "self:env:write"),
        ),
        (
            taken(
                "InstallCapsule",
                source="/x",
                target_principal="amy",
                env=[{"key": "K", "value": "v", "kind": "Secret"}],
            ),
            "bob",
            ("capsule:install", "env:write"),
        ),
    ],
)
def test_what_a_request_needs(request_: Request, caller: str, needed: tuple[str, ...]) -> None:
    assert required_capabilities(request_, caller) == needed


def test_replies_have_the_published_shape() -> None:
    assert (
        requests.ok("Success", {"status": "reloaded"}) == b'{"status":"Success","data":{"status":"reloaded"}}'
    )
    assert requests.ok("Success", None) == b'{"status":"Success","data":null}'
    assert requests.ok("AgentList", [], "r") == b'{"request_id":"r","status":"AgentList","data":[]}'
    assert requests.error("no") == b'{"status":"Error","data":"no"}'
    assert requests.error("no", "r") == b'{"request_id":"r","status":"Error","data":"no"}'
    assert requests.working() == b'{"status":"Working"}'


def test_the_method_tables_hold_together() -> None:
    for table in (METHODS, ADMIN_METHODS):
        assert len({method.suffix for method in table.values()}) == len(table)
        for name, method in table.items():
            assert name == method.name
            assert capability_problem(method.own) is None
            assert method.others is None or method.own == f"self:{method.others}"
    assert not any(method.suffix == "tools" for method in METHODS.values())


def test_rates_are_the_published_ones_but_for_changes_of_one_capsule() -> None:
    assert {name: method.rate_per_minute for name, method in METHODS.items() if method.rate_per_minute} == {
        "Shutdown": 1,
        "ReloadCapsules": 14,
        "ReloadCapsule": 120,
        "UnloadCapsule": 120,
        "RemoveCapsule": 14,
        "PromoteWorkspace": 14,
        "RollbackWorkspace": 14,
        "InstallCapsule": 10,
        "BeginCapsuleInstallBatch": 2,
        "FinishCapsuleInstallBatch": 4,
        "ApproveCapability": 10,
    }


@pytest.mark.parametrize(
    ("topic", "answer"),
    [
        ("astrid.v1.request.status.c", "astrid.v1.response.status.c"),
        ("astrid.v1.request.status", "astrid.v1.response.status"),
        ("astrid.v1.request.tools.call.c", "astrid.v1.response.tools.call.c"),
        ("astrid.v1.admin.agent.list", "astrid.v1.admin.response.agent.list"),
        ("astrid.v1.admin.response.agent.list", None),
        ("astrid.v1.response.status.c", None),
        ("user.v1.prompt", None),
    ],
)
def test_reply_topics(topic: str, answer: str | None) -> None:
    assert reply_topic(topic) == answer


@pytest.mark.parametrize("verb", TOOLS_VERBS)
def test_tools_topics_parse_back(verb: str) -> None:
    assert parse_tools_topic(tools_topic(verb, "c1")) == ToolsTopic(verb, "c1")


@pytest.mark.parametrize(
    "topic",
    [
        "astrid.v1.request.tools.list",
        "astrid.v1.request.tools.run.c",
        "astrid.v1.request.tools.call.c.d",
        "astrid.v1.request.tools.call.",
        "astrid.v1.request.status.c",
    ],
)
def test_other_topics_are_no_tools_topics(topic: str) -> None:
    assert parse_tools_topic(topic) is None
