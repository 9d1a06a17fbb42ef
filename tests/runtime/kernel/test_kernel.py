"""The way of a message: stamping, routing, queues, chains, and handlers that do not answer."""

from __future__ import annotations

import json
import time

import pytest

from aos_runtime.bus.mailbox import MAILBOX_DEPTH
from aos_runtime.errors import Unavailable
from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel import actor as actor_module
from aos_runtime.kernel import kernel as kernel_module
from aos_runtime.kernel.ports import Submission
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import (
    TOOL_EXECUTE_REQUEST,
    TOOL_EXECUTE_RESULT,
    encode_tool_request,
    encode_tool_result,
)
from tests.support.kernels import ALICE, Bench, Call, cause

REQUEST = encode_tool_request("call-1", "x", {})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def load(bench: Bench) -> None:
    bench.lifecycle.load_all(ALICE)


def failures(bench: Bench) -> list[tuple[str, str]]:
    prefix = "astrid.v1.response.failure."
    return [
        (envelope.topic.removeprefix(prefix), json.loads(envelope.body)["reason"])
        for envelope in bench.heard
        if envelope.topic.startswith(prefix)
    ]


def test_a_message_is_stamped_and_inherits_who_it_is_from_its_cause(bench: Bench) -> None:
    bench.publish("a.v1.b", b'{"n":1}', None)
    bench.publish("a.v1.c")
    first, second = bench.heard
    assert (first.seq, second.seq) == (1, 2)
    assert (first.topic, first.body, first.source_id) == ("a.v1.b", b'{"n":1}', "client")
    assert (first.principal, first.device_key_id, first.request_owner) == (ALICE, "key-1", "owner-1")
    assert (first.origin, first.workspace) == ("local_socket", "/work")
    assert 0 <= time.time() * 1000 - first.timestamp_ms < 60_000
    assert first.timestamp_ms <= second.timestamp_ms
    assert first.event_id(bench.kernel.boot_id) == f"{bench.kernel.boot_id}-1"


def test_all_messages_are_counted_in_one_sequence_from_one(bench: Bench) -> None:
    bench.capsule(
        "echo",
        lambda call: void(call.speak("out.v1.x", b"{}")),
        subscribe={"in.v1.x": "go"},
        publish=["out.v1.x"],
    )
    load(bench)
    for principal in ("alice", "bob", None):
        bench.publish("in.v1.x", principal=principal)
    bench.kernel.submit(message("in.v1.x", b"{}"))
    bench.run()
    assert [one.seq for one in bench.heard] == [1, 2, 3, 4, 5, 6]


def test_a_storm_of_messages_is_no_reason_for_a_line(bench: Bench) -> None:
    load(bench)
    for _ in range(5_000):
        bench.publish("storm.v1")
    assert bench.journal.lines == []


def test_a_guest_speaks_in_the_name_of_the_call_that_it_serves(bench: Bench) -> None:
    bench.capsule(
        "echo",
        lambda call: void(call.speak("out.v1.x", b"{}")),
        subscribe={"in.v1.x": "go"},
        publish=["out.v1.x"],
    )
    load(bench)
    bench.publish("in.v1.x", owner="somebody")
    bench.run()
    spoken = bench.heard[-1]
    assert (spoken.topic, spoken.source_id) == ("out.v1.x", "source-of-echo")
    assert (spoken.principal, spoken.request_owner, spoken.device_key_id) == (ALICE, "somebody", "key-1")
    assert (spoken.origin, spoken.workspace) == ("local_socket", "/work")


def void(_: object) -> None:
    return None


def test_another_principals_capsules_hear_nothing(bench: Bench) -> None:
    calls: list[Call] = []
    bench.capsule("mine", calls.append, subscribe={"a.v1.b": "go"})
    load(bench)
    bench.publish("a.v1.b", principal="bob")
    bench.publish("a.v1.b", principal=None)
    bench.run()
    assert calls == []


@pytest.mark.parametrize(
    ("topic", "payload", "answer"),
    [
        ("out.v1.x", b"{}", None),
        ("other.v1.x", b"{}", "capability-denied"),
        ("other.v1.x", b"{", "capability-denied"),
        ("out.v1.x", b"{", "invalid-input"),
        ("out.v1.x", b'"\xff"', "invalid-input"),
        ("out.v1.x", b'"' + b"x" * (1 << 20) + b'"', "invalid-input"),
        ("out..x", b"{}", "invalid-input"),
        ("astrid.v1.response.failure.call-1", b"{}", "capability-denied"),
        ("tool.v1.execute.nope", b"{}", "unknown:no capsule handles tool.v1.execute.nope"),
        ("cli.v1.command.run.nope", b"{}", "unknown:no capsule handles cli.v1.command.run.nope"),
        ("tool.v1.execute.result", b"{}", None),
    ],
)
def test_what_a_guest_may_publish(bench: Bench, topic: str, payload: bytes, answer: str | None) -> None:
    answers: list[str | None] = []
    bench.capsule(
        "guest",
        lambda call: answers.append(call.speak(topic, payload)),
        subscribe={"in.v1.x": "go"},
        publish=["out.v1.*", "out.*", "astrid.*", "tool.v1.execute.*", "cli.v1.command.run.*"],
    )
    load(bench)
    bench.publish("in.v1.x")
    bench.run()
    assert answers == [answer]


def test_bus_10_a_slow_subscriber_gets_a_burst_in_order(bench: Bench) -> None:
    """1 to 1000 on one topic, the subscriber running whenever the scheduler comes round to it."""
    seen: list[tuple[int, int]] = []
    bench.capsule(
        "slow", lambda call: seen.append((int(call.payload), call.envelope.seq)), subscribe={"n.v1": "go"}
    )
    load(bench)
    for number in range(1, 1001):
        bench.publish("n.v1", str(number).encode())
        if number % 50 == 0:
            bench.run()
    assert [number for number, _ in seen] == list(range(1, 1001))
    assert [seq for _, seq in seen] == sorted({seq for _, seq in seen})


def test_bus_09_a_queue_that_went_idle_takes_the_next_messages(bench: Bench) -> None:
    calls: list[Call] = []
    bench.capsule("once", calls.append, subscribe={"n.v1": "go"})
    load(bench)
    for _ in range(100):
        bench.publish("n.v1")
        bench.run()
    assert len(calls) == 100
    assert not bench.lifecycle.view(ALICE).residents["once"].actor.mailbox.busy


def test_a_full_queue_drops_the_newest_with_one_warning_and_a_count(bench: Bench) -> None:
    seen: list[int] = []
    bench.capsule("full", lambda call: seen.append(int(call.payload)), subscribe={"n.v1": "go"})
    load(bench)
    for number in range(MAILBOX_DEPTH + 3):
        bench.publish("n.v1", str(number).encode())
    bench.run()
    assert seen == list(range(MAILBOX_DEPTH))
    assert bench.lifecycle.view(ALICE).residents["full"].actor.mailbox.drops == 3
    warnings = [line for line in bench.journal.lines if "queue of capsule 'full' is full" in line[2]]
    assert len(warnings) == 1
    bench.now += kernel_module.DROP_WARNING_S


def test_a_dropped_tool_call_is_answered(bench: Bench) -> None:
    bench.capsule("tool", subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    load(bench)
    for number in range(MAILBOX_DEPTH + 1):
        bench.publish(
            "tool.v1.execute.x", encode_tool_request(f"call-{number}", "x", {}), TOOL_EXECUTE_REQUEST
        )
    assert failures(bench) == [(f"call-{MAILBOX_DEPTH}", "the queue of capsule 'tool' is full")]


def test_a_clients_message_waits_for_room_and_keeps_its_place(bench: Bench) -> None:
    seen: list[int] = []
    bench.capsule("busy", lambda call: seen.append(int(call.payload)), subscribe={"n.v1": "go"})
    load(bench)
    for number in range(MAILBOX_DEPTH + 10):
        assert bench.kernel.submit(message("n.v1", str(number).encode())) is Submission.ACCEPTED
    actor = bench.lifecycle.view(ALICE).residents["busy"].actor
    assert (actor.depth, actor.mailbox.drops) == (MAILBOX_DEPTH + 10, 0)
    bench.run()
    assert seen == list(range(MAILBOX_DEPTH + 10))


def test_a_call_that_is_cancelled_leaves_the_queue_and_what_waits_for_it(bench: Bench) -> None:
    seen: list[bytes] = []
    bench.capsule("busy", lambda call: seen.append(call.payload), subscribe={"tool.v1.execute.x": "go"})
    load(bench)
    for number in range(MAILBOX_DEPTH + 2):
        request = encode_tool_request(f"call-{number}", "x", {})
        bench.kernel.submit(message("tool.v1.execute.x", request, TOOL_EXECUTE_REQUEST))
    bench.kernel.submit(message("tool.v1.execute.x", b'{"call_id":"call-5"}'))
    bench.kernel.cancel(ALICE, {"call-5", f"call-{MAILBOX_DEPTH + 1}"})
    bench.kernel.cancel("bob", {"call-6"})
    bench.run()
    left = [n for n in range(MAILBOX_DEPTH + 1) if n != 5]
    assert seen == [encode_tool_request(f"call-{n}", "x", {}) for n in left] + [b'{"call_id":"call-5"}']
    assert failures(bench) == [
        ("call-5", "the call was cancelled"),
        (f"call-{MAILBOX_DEPTH + 1}", "the call was cancelled"),
    ]


def test_a_guest_that_serves_a_cancelled_call_is_stopped_and_the_next_call_is_served(bench: Bench) -> None:
    served: list[bytes] = []

    def go(call: Call) -> None:
        served.append(call.payload)
        if len(served) == 1:
            bench.kernel.cancel(ALICE, {"call-1"})

    bench.capsule("tools", go, subscribe={"tool.v1.execute.x": "go"})
    load(bench)
    other = encode_tool_request("call-2", "x", {})
    bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.publish("tool.v1.execute.x", other, TOOL_EXECUTE_REQUEST)
    bench.run()
    assert served == [REQUEST, other]
    assert failures(bench) == [("call-1", "capsule 'tools' gave no answer: the call was cancelled")]
    assert [(one.dead, one.wakes) for one in bench.instances] == [(True, 1), (False, 0)]
    meter = bench.lifecycle.view(ALICE).residents["tools"].actor.meter
    assert meter.to_json() == {"calls": 2, "errors": 0, "denied": 0}
    assert [level for _, level, _ in bench.journal.lines] == ["info"]


def test_beyond_the_bound_a_client_is_told_that_it_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_module, "MAX_WAITING", 2)
    bench.capsule("busy", subscribe={"n.v1": "go"})
    load(bench)
    outcomes = [bench.kernel.submit(message("n.v1", b"1")) for _ in range(MAILBOX_DEPTH + 3)]
    assert outcomes[:-1] == [Submission.ACCEPTED] * (MAILBOX_DEPTH + 2)
    assert outcomes[-1] is Submission.FULL


def test_what_waits_for_clients_is_bounded_in_bytes_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_module, "MAX_WAITING_BYTES", 1000)
    bench.capsule("busy", subscribe={"n.v1": "go"})
    load(bench)
    for _ in range(MAILBOX_DEPTH):
        assert bench.kernel.submit(message("n.v1", b"1" * 600)) is Submission.ACCEPTED
    outcomes = [bench.kernel.submit(message("n.v1", b"1" * 600)) for _ in range(3)]
    assert outcomes == [Submission.ACCEPTED, Submission.ACCEPTED, Submission.FULL]
    bench.run()
    assert bench.kernel.submit(message("n.v1", b"1" * 600)) is Submission.ACCEPTED


def message(topic: str, body: bytes, kind: str | None = None) -> object:
    import msgspec

    return msgspec.structs.replace(cause(), topic=topic, body=body, kind=kind)


def trap(reason: TrapReason, text: str = "unreachable") -> object:
    def guest(call: Call) -> HookResult:
        raise GuestTrap(reason, text)

    return guest


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (TrapReason.TRAP, "interceptor execution failed: unreachable"),
        (TrapReason.FUEL, "interceptor exhausted its fuel budget"),
        (TrapReason.DEADLINE, "interceptor exceeded its execution deadline"),
    ],
)
def test_a_tool_that_traps_is_answered_and_gets_a_new_instance(
    bench: Bench, reason: TrapReason, sentence: str
) -> None:
    bench.capsule("bad", trap(reason), subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    load(bench)
    for _ in range(2):
        bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.run()
    expected = ("call-1", f"capsule 'bad' gave no answer: {sentence}")
    assert failures(bench) == [expected, expected]
    assert [(one.dead, one.closed) for one in bench.instances] == [(True, True), (True, False)]
    actor = bench.lifecycle.view(ALICE).residents["bad"].actor
    assert actor.meter.to_json() == {"calls": 2, "errors": 2, "denied": 0}
    assert ("bad", "error", f"tool.v1.execute.x: {sentence}") in bench.journal.lines


def test_a_tool_that_denies_is_answered_with_its_reason(bench: Bench) -> None:
    bench.capsule(
        "no",
        lambda call: HookResult("deny", b"not today"),
        subscribe={"tool.v1.execute.x": "go"},
        tools=["x"],
    )
    load(bench)
    bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.run()
    assert failures(bench) == [("call-1", "capsule 'no' gave no answer: not today")]
    assert bench.lifecycle.view(ALICE).residents["no"].actor.meter.denied == 1


def test_a_router_that_traps_on_a_result_answers_the_call(bench: Bench) -> None:
    bench.capsule("router", trap(TrapReason.TRAP), subscribe={"tool.v1.execute.*.result": "go"})
    load(bench)
    bench.publish(
        "tool.v1.execute.x.result", encode_tool_result("call-7", "y", is_error=False), TOOL_EXECUTE_RESULT
    )
    bench.run()
    assert [call for call, _ in failures(bench)] == ["call-7"]


def test_a_command_that_traps_is_answered_under_its_req_id(bench: Bench) -> None:
    bench.capsule("cli", trap(TrapReason.TRAP), subscribe={"cli.v1.command.run.cli": "go"})
    load(bench)
    bench.publish("cli.v1.command.run.cli", b'{"req_id":"r1","command":"x"}')
    bench.run()
    assert failures(bench) == [
        ("r1", "capsule 'cli' gave no answer: interceptor execution failed: unreachable")
    ]


def test_an_observer_that_traps_beside_others_answers_for_nobody(bench: Bench) -> None:
    bench.capsule("router", subscribe={"tool.v1.request.execute": "go"})
    bench.capsule("watcher", trap(TrapReason.TRAP), subscribe={"tool.v1.request.execute": "go"})
    load(bench)
    bench.publish("tool.v1.request.execute", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.run()
    assert failures(bench) == []


def test_a_failed_message_of_nobodys_interest_is_only_logged(bench: Bench) -> None:
    bench.capsule("bad", trap(TrapReason.TRAP), subscribe={"a.v1.b": "go"})
    load(bench)
    bench.publish("a.v1.b", b'{"req_id":"r1"}')
    bench.run()
    assert failures(bench) == []


@pytest.mark.parametrize(
    ("topic", "source", "owner", "request_id", "is_told"),
    [
        ("session.v1.request.list", NIL_SOURCE, "owner-1", "0" * 31 + "a", True),
        ("session.v1.request.list", NIL_SOURCE, "owner-1", "r1", False),
        ("session.v1.request.list", "a-capsule", "owner-1", "0" * 31 + "a", False),
        ("session.v1.request.list", NIL_SOURCE, None, "0" * 31 + "a", False),
        ("astrid.v1.response.failure.x", NIL_SOURCE, "owner-1", "0" * 31 + "a", False),
    ],
    ids=["client", "no-uuid", "capsule", "daemon", "receipt"],
)
def test_a_clients_request_that_traps_is_answered_under_its_req_id(
    bench: Bench, topic: str, source: str, owner: str | None, request_id: str, is_told: bool
) -> None:
    bench.capsule("bad", trap(TrapReason.TRAP), subscribe={topic: "go"})
    load(bench)
    body = json.dumps({"req_id": request_id, "reason": "it was asked"}).encode()
    bench.kernel.publish(topic, body, None, source, cause(ALICE, owner))
    bench.run()
    sentence = "capsule 'bad' gave no answer: interceptor execution failed: unreachable"
    told = [one for one in failures(bench) if one[1] != "it was asked"]
    assert told == ([(request_id, sentence)] if is_told else [])


def test_equal_priorities_fan_out_with_the_original_payload(bench: Bench) -> None:
    seen: list[tuple[str, bytes]] = []

    def guest(name: str) -> object:
        def run(call: Call) -> HookResult:
            seen.append((name, call.payload))
            return HookResult("final", b'"changed"')

        return run

    bench.capsule("one", guest("one"), subscribe={"a.v1": "go"})
    bench.capsule("two", guest("two"), subscribe={"a.v1": "go"})
    load(bench)
    bench.publish("a.v1", b'"original"')
    bench.run()
    assert sorted(seen) == [("one", b'"original"'), ("two", b'"original"')]


def chain(bench: Bench, *results: HookResult | TrapReason) -> list[tuple[int, bytes]]:
    seen: list[tuple[int, bytes]] = []

    def guest(place: int, result: HookResult | TrapReason) -> object:
        def run(call: Call) -> HookResult:
            seen.append((place, call.payload))
            if isinstance(result, TrapReason):
                raise GuestTrap(result, "unreachable")
            return result

        return run

    for place, result in enumerate(results):
        bench.capsule(f"link-{place}", guest(place, result), subscribe={"a.v1": ("go", 10 + place)})
    load(bench)
    bench.publish("a.v1", b'"in"')
    bench.run()
    return seen


def test_a_chain_hands_on_what_a_link_returned(bench: Bench) -> None:
    seen = chain(
        bench, HookResult("continue", b'"one"'), HookResult("continue", None), HookResult("final", None)
    )
    assert seen == [(0, b'"in"'), (1, b'"one"'), (2, b'"one"')]


@pytest.mark.parametrize(
    "stop",
    [
        HookResult("final", None),
        HookResult("deny", b"no"),
        HookResult("abort", None),
        TrapReason.FUEL,
        TrapReason.TRAP,
    ],
)
def test_a_chain_stops_at_final_deny_and_traps(bench: Bench, stop: HookResult | TrapReason) -> None:
    assert [
        place for place, _ in chain(bench, HookResult("continue", None), stop, HookResult("continue", None))
    ] == [0, 1]


def test_a_chain_stops_where_a_link_cannot_be_called(bench: Bench) -> None:
    """What guards a topic must not open it by failing to start."""
    seen: list[str] = []
    for place in range(3):
        bench.capsule(
            f"link-{place}",
            lambda call, place=place: seen.append(f"link-{place}"),
            subscribe={"cli.v1.command.run.x": ("go", 10 + place), "a.v1": ("go", 10 + place)},
        )
    load(bench)

    def fail() -> object:
        raise Unavailable("no-instance", "no memory is left for it", hint="wait")

    bench.lifecycle.view(ALICE).residents["link-1"].actor.generation.open_instance = fail
    bench.publish("a.v1", b'"in"')
    bench.run()
    assert seen == ["link-0"]
    assert ("link-1", "error", "a.v1: no memory is left for it") in bench.journal.lines


def test_a_large_payload_gives_the_socket_away_first(bench: Bench) -> None:
    bench.capsule("big", subscribe={"a.v1": "go"})
    load(bench)
    bench.publish("a.v1", b'"' + b"x" * (64 * 1024) + b'"')
    bench.publish("a.v1", b'"small"')
    bench.run()
    assert bench.blocks == 1


def test_a_bug_of_ours_fails_that_call_and_no_other(bench: Bench) -> None:
    seen: list[bytes] = []

    def guest(call: Call) -> None:
        seen.append(call.payload)
        if len(seen) == 1:
            raise ZeroDivisionError

    bench.capsule("odd", guest, subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    load(bench)
    for _ in range(2):
        bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    actor = bench.ready.popleft()
    with pytest.raises(ZeroDivisionError):
        actor.run_one()
    assert actor.recover(ZeroDivisionError())
    bench.ready.append(actor)
    bench.run()
    assert len(seen) == 2
    assert failures(bench) == [
        ("call-1", "capsule 'odd' gave no answer: interceptor execution failed: internal fault")
    ]
    assert [one.closed for one in bench.instances] == [True, False]
