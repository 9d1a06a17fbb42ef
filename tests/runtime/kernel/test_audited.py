"""kernel.audited: what enters the trail, in what words, and what never does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from blake3 import blake3

from aos_runtime.bus.inbox import Scope
from aos_runtime.errors import Unavailable
from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel import audited_calls
from aos_runtime.kernel.audit import HostCall
from aos_runtime.kernel.audited import ADMITTED, AuditedSpace, Requests, sanitised
from aos_runtime.kernel.audited_calls import LOOP_ANSWER_S, ToolCalls
from aos_runtime.kernel.audited_views import Capsules
from aos_runtime.kernel.subscriptions import Owner
from aos_runtime.names import CapsuleName
from aos_runtime.store.kv import KvCase, KvRefused
from aos_runtime.wire.payloads import TOOL_EXECUTE_REQUEST, encode_tool_request, encode_tool_result
from tests.support.audit_trails import FakeTrail
from tests.support.guests import FakeKv
from tests.support.kernels import ALICE, Bench, Call

MARKER = "m4rk3r"
REQUEST = encode_tool_request("call-1", "x", {"text": MARKER})
ARGS_HASH = blake3(f'{{"text":"{MARKER}"}}'.encode()).hexdigest()


@pytest.fixture
def trail() -> FakeTrail:
    return FakeTrail()


@pytest.fixture
def bench(trail: FakeTrail) -> Bench:
    calls = ToolCalls(trail)
    return Bench(executions=calls)


def answer(call: Call, content: str = "done", *, is_error: bool = False, topic: str = "") -> None:
    body = encode_tool_result("call-1", content, is_error=is_error)
    assert call.speak(topic or "tool.v1.execute.x.result", body) is None


def run_tool(bench: Bench, guest: object, *, before: str = "go.v1.nowhere") -> None:
    bench.capsule(
        "tool",
        guest,  # type: ignore[arg-type]  # the test's own function
        tools=["x"],
        subscribe={"tool.v1.execute.x": "tool_execute_x"},
        publish=["tool.v1.execute.*.result", "tool.v1.execute.result"],
    )
    bench.lifecycle.load_all(ALICE)
    bench.publish(before)
    bench.run()
    bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.run()


def trap(call: Call) -> HookResult:
    raise GuestTrap(TrapReason.FUEL, MARKER)


def quiet(call: Call) -> None:
    return None


@pytest.mark.parametrize(
    ("guest", "outcome"),
    [
        (answer, {"status": "success"}),
        (lambda call: answer(call, topic="tool.v1.execute.result"), {"status": "success"}),
        (
            lambda call: answer(call, MARKER, is_error=True),
            {"status": "failure", "error": "tool reported an error"},
        ),
        (quiet, {"status": "failure", "error": "no result published"}),
        (trap, {"status": "failure", "error": "fuel"}),
        (
            lambda call: HookResult("deny", MARKER.encode()),
            {"status": "failure", "error": "denied by the capsule"},
        ),
    ],
)
def test_a_tool_call_is_one_entry(
    bench: Bench, trail: FakeTrail, guest: object, outcome: Mapping[str, object]
) -> None:
    run_tool(bench, guest)
    action = {
        "type": "capsule_tool_call",
        "capsule_id": "tool",
        "tool": "x",
        "args_hash": ARGS_HASH,
        "call_id": "call-1",
    }
    assert trail.entries == [("record", ALICE, action, outcome)]
    assert MARKER not in str(trail.entries)


def test_a_result_counts_only_for_the_capsule_that_was_called(bench: Bench, trail: FakeTrail) -> None:
    bench.capsule(
        "liar",
        answer,
        subscribe={"go.v1.lie": "lie"},
        publish=["tool.v1.execute.*.result"],
    )
    run_tool(bench, quiet, before="go.v1.lie")
    assert [entry[3] for entry in trail.entries] == [{"status": "failure", "error": "no result published"}]


class Loop:
    """A run loop's subscription to a tool's topic, and a clock."""

    def __init__(self, trail: FakeTrail) -> None:
        self.now = 0.0
        self.calls = ToolCalls(trail, clock=lambda: self.now)
        self.bench = Bench(executions=self.calls)
        owner = Owner(CapsuleName("looper"), ALICE)
        self.bench.kernel.subscriptions.open(owner, "tool.v1.execute.x", Scope(ALICE, True))

    def call(self, call_id: str = "call-1") -> None:
        body = encode_tool_request(call_id, "x", {"text": MARKER})
        self.bench.publish("tool.v1.execute.x", body, TOOL_EXECUTE_REQUEST)

    def answer(self, *, is_error: bool = False) -> None:
        body = encode_tool_result("call-1", MARKER, is_error=is_error)
        self.bench.publish("tool.v1.execute.x.result", body, "tool_execute_result")


@pytest.mark.parametrize(
    ("is_error", "outcome"),
    [
        (False, {"status": "success"}),
        (True, {"status": "failure", "error": "tool reported an error"}),
    ],
)
def test_a_run_loops_call_is_one_entry_when_its_result_comes(
    trail: FakeTrail, is_error: bool, outcome: Mapping[str, object]
) -> None:
    loop = Loop(trail)
    loop.call()
    assert trail.entries == []
    loop.answer(is_error=is_error)
    loop.answer(is_error=is_error)
    [(_, principal, action, ended)] = trail.entries
    assert (principal, action["capsule_id"], action["args_hash"]) == (ALICE, "looper", ARGS_HASH)
    assert ended == outcome


def test_a_run_loop_that_never_answers_is_on_record_as_such(trail: FakeTrail) -> None:
    loop = Loop(trail)
    loop.call()
    loop.calls.sweep(LOOP_ANSWER_S - 1)
    assert trail.entries == []
    loop.calls.sweep(LOOP_ANSWER_S)
    assert [entry[3] for entry in trail.entries] == [{"status": "failure", "error": "no result published"}]


def test_calls_of_run_loops_are_bounded(trail: FakeTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited_calls, "MAX_ANSWERS", 2)
    loop = Loop(trail)
    for number in range(5):
        loop.call(f"call-{number}")
    assert [entry[2]["call_id"] for entry in trail.entries] == ["call-0", "call-1", "call-2"]


def test_what_is_no_tool_request_is_recorded_without_an_id(bench: Bench, trail: FakeTrail) -> None:
    run_tool(bench, answer)
    bench.publish("tool.v1.execute.x", b'{"other":1}')
    bench.run()
    assert trail.entries[1][2]["call_id"] == ""
    assert trail.entries[1][2]["args_hash"] == blake3(b'{"other":1}').hexdigest()


def test_a_command_is_one_entry(bench: Bench, trail: FakeTrail) -> None:
    bench.capsule("cli", subscribe={"cli.v1.command.run.cli": "run"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("cli.v1.command.run.cli", REQUEST)
    bench.run()
    action = {
        "type": "capsule_command_run",
        "capsule_id": "cli",
        "command": "cli",
        "args_hash": blake3(REQUEST).hexdigest(),
    }
    assert trail.entries == [("record", ALICE, action, {"status": "success"})]


def test_other_messages_are_not_recorded(bench: Bench, trail: FakeTrail) -> None:
    bench.capsule("mine", subscribe={"a.v1.b": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("a.v1.b")
    bench.run()
    assert trail.entries == []


class RefusingKv(FakeKv):
    def set(self, key: str, value: bytes) -> None:
        raise KvRefused(KvCase.QUOTA, MARKER)


def test_writes_to_keys_are_recorded_and_reads_are_not(trail: FakeTrail) -> None:
    space = AuditedSpace(FakeKv(), trail, ALICE, CapsuleName("demo"))
    space.set(MARKER, MARKER.encode())
    assert space.get(MARKER) == MARKER.encode()
    assert space.cas("other", None, b"1") and not space.cas("other", None, b"2")
    assert space.list_keys("") == (MARKER, "other")
    assert space.list_page("", None, 1) == ((MARKER,), MARKER)
    space.delete(MARKER)
    assert space.clear_prefix("") == 1
    assert [(call.call, call.error) for call in trail.calls] == [
        ("kv.set", None),
        ("kv.cas", None),
        ("kv.delete", None),
        ("kv.clear", None),
    ]
    assert MARKER not in str(trail.calls)


def test_a_refused_write_is_recorded_by_its_case(trail: FakeTrail) -> None:
    space = AuditedSpace(RefusingKv(), trail, ALICE, CapsuleName("demo"))
    with pytest.raises(KvRefused):
        space.set("key", b"value")
    assert trail.calls == [HostCall(ALICE, "demo", "kv.set", None, "quota")]


def test_values_of_unknown_parameters_never_enter() -> None:
    params = {
        "id": "demo",
        "env": [{"key": "TOKEN", "value": MARKER, "kind": "Secret"}],
        "value": MARKER,
        "token": MARKER,
        "public_key": MARKER,
        "anything": {"deep": MARKER},
        "absent": None,
    }
    kept = sanitised(params)
    assert MARKER not in str(kept)
    assert kept == {
        "id": "demo",
        "env": "<redacted>",
        "value": "<redacted>",
        "token": "<redacted>",
        "public_key": "<redacted>",
        "anything": "<redacted>",
    }


def test_a_change_is_on_record_before_it_is_done(trail: FakeTrail) -> None:
    requests = Requests(trail)
    requests.admit("alice", "ReloadCapsule", {"id": "demo"}, ("self:capsule:reload",))
    requests.finish("alice", "ReloadCapsule", {"id": "demo"}, "reload-failed")
    action = {"type": "admin_request", "method": "ReloadCapsule", "params": {"id": "demo"}}
    assert trail.entries == [
        ("require", "alice", action, ADMITTED),
        ("record", "alice", action, {"status": "failure", "error": "reload-failed"}),
    ]
    assert trail.authorizations[0] == {"type": "capability", "capabilities": ["self:capsule:reload"]}


def test_reading_is_not_recorded_but_its_denial_is(trail: FakeTrail) -> None:
    requests = Requests(trail)
    requests.admit("alice", "GetStatus", {}, ("system:status",))
    requests.finish("alice", "GetStatus", {}, None)
    assert trail.entries == []
    requests.deny("alice", "GetStatus", {}, "permission denied")
    assert trail.entries[0][3] == {"status": "failure", "error": "permission denied"}
    assert trail.authorizations == [{"type": "denied"}]


def test_a_full_disk_stops_a_change_but_never_a_shutdown(trail: FakeTrail) -> None:
    requests, trail.is_full = Requests(trail), True
    with pytest.raises(Unavailable):
        requests.admit("alice", "RemoveCapsule", {"id": "demo"}, ())
    requests.admit("alice", "Shutdown", {}, ())
    assert [entry[0] for entry in trail.entries] == ["record"]


def test_capsules_that_begin_and_end_to_serve_are_recorded(bench: Bench, trail: FakeTrail) -> None:
    capsules = Capsules(trail)
    bench.capsule("one")
    capsules.note(bench.lifecycle.load_all(ALICE))
    capsules.note(bench.lifecycle.view(ALICE))
    bench.capsule("one", version="0.2.0")
    capsules.note(bench.lifecycle.reload(ALICE, CapsuleName("one")))
    bench.lifecycle.unload(ALICE, CapsuleName("one"))
    capsules.note(bench.lifecycle.view(ALICE))
    assert [(entry[2]["type"], entry[2]["version"]) for entry in trail.entries] == [
        ("capsule_loaded", "0.1.0"),
        ("capsule_loaded", "0.2.0"),
        ("capsule_unloaded", "0.2.0"),
    ]
