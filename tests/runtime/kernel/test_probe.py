"""The describe probe: whom it reaches (nobody), and what it makes of odd answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.kernel.probe import MAX_TOOLS, Described, Tool, describe, unrouted
from tests.support.kernels import ALICE, Bench, Call, Guest

HELLO = {
    "name": "hello",
    "description": "Greet someone.",
    "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "mutable": True},
}


def probe(guest: Guest) -> tuple[Described, Bench]:
    bench = Bench()
    loaded = bench.capsule("probed", guest, publish=["tool.v1.response.describe.*"])
    generation = loaded.generation
    port = GuestPort(bench.kernel, ("tool.v1.response.describe.*",), "source", system_cause(ALICE))
    generation.context.publish = port.publish
    port.bind(generation.context)
    return describe(generation, port), bench


def returns(value: Any) -> Guest:
    return lambda call: HookResult("continue", json.dumps(value).encode())


def test_what_a_capsule_says_while_it_is_probed_reaches_nobody() -> None:
    calls: list[Call] = []

    def guest(call: Call) -> HookResult:
        calls.append(call)
        assert call.speak("tool.v1.response.describe.self", json.dumps({"tools": [HELLO]}).encode()) is None
        assert call.speak("not.mine", b"{}") == "capability-denied"
        return HookResult("continue", json.dumps({"tools": [HELLO]}).encode())

    described, bench = probe(guest)
    assert bench.heard == []
    assert [(call.action, call.payload, call.envelope.topic) for call in calls] == [
        ("tool_describe", b"{}", "tool.v1.request.describe")
    ]
    assert described == Described(
        tools=(
            Tool(
                name="hello",
                description="Greet someone.",
                input_schema=HELLO["input_schema"],  # type: ignore[arg-type]  # the test's own constant
                mutable=True,
            ),
        )
    )


@pytest.mark.parametrize("last", ["self", "probed", "5f2bd008-3e2a-5198-af52-bd17f4886034"])
def test_a_capsule_that_only_publishes_its_tools_is_heard_too(last: str) -> None:
    def guest(call: Call) -> None:
        call.speak(f"tool.v1.response.describe.{last}", json.dumps({"data": {"tools": [HELLO]}}).encode())

    described, _ = probe(guest)
    assert [tool.name for tool in described.tools or ()] == ["hello"]


def test_a_capsule_that_only_returns_its_tools_is_understood_too() -> None:
    described, _ = probe(returns({"tools": [HELLO]}))
    assert [tool.name for tool in described.tools or ()] == ["hello"]


@pytest.mark.parametrize(
    "guest",
    [
        lambda call: HookResult("deny", b"unknown action: tool_describe"),
        lambda call: None,
        returns("text"),
        returns({"tools": "none"}),
        lambda call: HookResult("continue", b"\xff"),
        lambda call: HookResult("continue", b"[" * 100_000),
    ],
)
def test_a_capsule_without_tools_has_none(guest: Guest) -> None:
    assert probe(guest)[0] == Described(tools=())


def test_a_capsule_that_traps_has_unknown_tools() -> None:
    def guest(call: Call) -> HookResult:
        raise GuestTrap(TrapReason.DEADLINE, "too long")

    assert probe(guest)[0] == Described(
        tools=None, warnings=("tool_describe failed: interceptor exceeded its execution deadline",)
    )


@pytest.mark.parametrize(
    ("row", "warning"),
    [
        ({"name": ""}, "describes a tool without a usable name"),
        ({"name": 7}, "describes a tool without a usable name"),
        ("hello", "describes a tool without a usable name"),
        ({"name": "x" * 201}, "describes a tool without a usable name"),
        ({"name": "result"}, "describes a tool named 'result', which no call can reach"),
        ({"name": "a.b"}, "describes a tool named 'a.b', which no call can reach"),
    ],
)
def test_an_entry_that_cannot_be_called_is_left_out(row: object, warning: str) -> None:
    described, _ = probe(returns({"tools": [row, HELLO]}))
    assert [tool.name for tool in described.tools or ()] == ["hello"]
    assert described.warnings == (warning,)


def test_a_missing_schema_is_an_object_without_properties() -> None:
    described, _ = probe(returns({"tools": [{"name": "bare", "description": None}]}))
    assert described.tools == (
        Tool(name="bare", description="", input_schema={"type": "object", "properties": {}}, mutable=False),
    )


def test_a_description_keeps_its_schema_as_it_is() -> None:
    odd = {"type": "nonsense", "$ref": "#/nowhere", "properties": {"a": {"enum": []}}, "x": [None, 1.5]}
    described, _ = probe(returns({"tools": [{**HELLO, "input_schema": odd}]}))
    assert [tool.input_schema for tool in described.tools or ()] == [odd]
    assert described.warnings == ()


def test_the_first_of_two_tools_with_one_name_counts() -> None:
    described, _ = probe(returns({"tools": [HELLO, {**HELLO, "description": "other"}]}))
    assert [tool.description for tool in described.tools or ()] == ["Greet someone."]
    assert described.warnings == ("describes tool 'hello' twice; the first one counts",)


def test_more_tools_than_the_bound_are_cut_off() -> None:
    rows = [{"name": f"tool-{number}"} for number in range(MAX_TOOLS + 1)]
    described, _ = probe(returns({"tools": rows}))
    assert len(described.tools or ()) == MAX_TOOLS
    assert described.warnings == (f"describes {MAX_TOOLS + 1} tools; only the first {MAX_TOOLS} count",)


def test_bus_04_a_described_tool_without_its_row_is_a_warning_with_the_row() -> None:
    tool = Tool(name="hello", description="", input_schema={}, mutable=False)
    assert unrouted((tool,), ["tool.v1.request.describe"]) == (
        "tool 'hello' is described but no [subscribe] row handles tool.v1.execute.hello; "
        'add: "tool.v1.execute.hello" = { wit = "opaque", handler = "tool_execute_hello" }',
    )
    assert unrouted((tool,), ["tool.v1.execute.hello"]) == ()
