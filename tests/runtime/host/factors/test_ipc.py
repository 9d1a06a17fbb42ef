"""astrid:ipc: its functions on plain values."""

from __future__ import annotations

from typing import Any

import pytest

from aos_runtime.host import Case, Err
from aos_runtime.host.context import Binding
from aos_runtime.host.factors.ipc import FUNCTIONS
from aos_runtime.host.waiting import WaitGate
from tests.support.guests import FakeInflow, Recorder, envelope_from


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (None, None),
        ("rate-limited", Err("rate-limited")),
        ("unknown:no capsule handles x", Err("unknown", "no capsule handles x")),
    ],
)
def test_publish(recorder: Recorder, refusal: str | None, answer: Err | None) -> None:
    recorder.answers = lambda _topic, _payload: refusal
    assert FUNCTIONS["publish"].run(recorder.context(), "a.b", "ü") == answer
    assert recorder.published == [("a.b", "ü".encode())]


def received(recorder: Recorder, inflow: FakeInflow, name: str, *arguments: int, **ports: Any) -> Any:
    context = recorder.context(**ports)
    handle = context.resources.add("subscription", inflow)
    assert handle == 1
    return FUNCTIONS[f"[method]subscription.{name}"].run(context, 1, *arguments)


def test_an_uplink_speaks_for_others_through_its_own_port(recorder: Recorder) -> None:
    said: list[tuple[str, bytes, str]] = []

    def publish_as(topic: str, payload: bytes, principal: str) -> str | None:
        said.append((topic, payload, principal))
        return "capability-denied"

    context = recorder.context(publish_as=publish_as)
    assert FUNCTIONS["publish-as"].run(context, "a.b", "ü", "eve") == Err("capability-denied")
    assert said == [("a.b", "ü".encode(), "eve")]
    assert FUNCTIONS["publish-as"].run(recorder.context(), "a.b", "1", "eve") == Err("capability-denied")


@pytest.mark.parametrize("case", ["capability-denied", "invalid-input", "quota"])
def test_a_refused_subscription_is_its_case(recorder: Recorder, case: str) -> None:
    context = recorder.context(subscribe=lambda _pattern: case)
    assert FUNCTIONS["subscribe"].run(context, "a.b") == Err(case)
    assert context.resources.live == 0


def test_a_subscription_is_a_handle_and_a_full_table_closes_it(recorder: Recorder) -> None:
    inflow = FakeInflow()
    context = recorder.context(subscribe=lambda _pattern: inflow)
    assert FUNCTIONS["subscribe"].run(context, "a.b") == 1
    context.resources.limit = 1
    assert FUNCTIONS["subscribe"].run(context, "a.b") == Err("quota")
    assert inflow.closes == 1


@pytest.mark.parametrize(("name", "arguments"), [("poll", ()), ("recv", (0,)), ("recv", (5,))])
def test_a_message_crosses_with_who_it_is_from(
    recorder: Recorder, name: str, arguments: tuple[int, ...]
) -> None:
    first, second = envelope_from("alice"), envelope_from(None)
    inflow = FakeInflow(first, second)
    inflow.lost = 7
    context = recorder.context()
    context.resources.add("subscription", inflow)
    answers = [FUNCTIONS[f"[method]subscription.{name}"].run(context, 1, *arguments) for _ in range(3)]
    assert [answer["messages"] for answer in answers] == [
        [
            {
                "topic": "tool.v1.execute.x",
                "payload": "{}",
                "source-id": "99999999-2222-3333-4444-555555555555",
                "principal": attribution,
            }
        ]
        for attribution in (Case("verified", "alice"), Case("system"))
    ] + [[]]
    assert [(answer["dropped"], answer["lagged"]) for answer in answers] == [(7, 7)] * 3
    assert context.current is None, "only a run loop takes over who it hears"


def test_a_wait_is_cut_to_a_minute_and_makes_way_first(recorder: Recorder) -> None:
    ways: list[str] = []
    inflow = FakeInflow()
    received(recorder, inflow, "recv", 2**63, before_block=lambda: ways.append("way"))
    assert (inflow.waits, ways) == ([60.0], ["way"])
    inflow = FakeInflow(envelope_from("alice"))
    received(recorder, inflow, "recv", 1000, before_block=lambda: ways.append("way"))
    assert (inflow.waits, ways) == ([], ["way"]), "what waits already is no wait"


def test_nobody_waits_for_a_cancelled_call(recorder: Recorder) -> None:
    inflow = FakeInflow()
    call = envelope_from("alice")
    assert received(recorder, inflow, "recv", 1000, current=call, cancelled=call)["messages"] == []
    assert inflow.waits == []
    context = recorder.context(current=call, cancelled=envelope_from("alice"))
    assert not context.is_cancelled, "another invocation was"


def test_what_is_waited_for_is_known_while_it_is(recorder: Recorder) -> None:
    inflow = FakeInflow()
    context = recorder.context(before_block=lambda: None)
    context.resources.add("subscription", inflow)
    seen: list[object] = []
    inflow.wait = lambda _timeout_s: seen.append(context.waiting)  # type: ignore[method-assign]
    FUNCTIONS["[method]subscription.recv"].run(context, 1, 1000)
    assert (seen, context.waiting) == ([inflow], None)


def test_every_receive_of_a_run_loop_is_a_yield_and_takes_over_its_sender(recorder: Recorder) -> None:
    yields: list[str] = []
    context = recorder.context(is_loop=True, yielded=lambda: yields.append("yield"))
    context.resources.add("subscription", FakeInflow(envelope_from("alice")))
    for timeout_ms in (0, 5):
        FUNCTIONS["[method]subscription.recv"].run(context, 1, timeout_ms)
    assert context.current == envelope_from("alice"), "an empty receive keeps it"
    assert yields == ["yield", "yield"]


def test_cmp_21_an_unknown_or_closed_handle_is_a_typed_error(recorder: Recorder) -> None:
    inflow = FakeInflow()
    inflow.is_closed = True
    assert received(recorder, inflow, "poll") == Err("closed")
    assert received(recorder, inflow, "recv", 5) == Err("closed")
    for name, arguments in (("poll", ()), ("recv", (5,))):
        run = FUNCTIONS[f"[method]subscription.{name}"].run
        assert run(recorder.context(), 77, *arguments) == Err("closed")


def test_a_wait_that_ends_with_the_subscription_is_closed(recorder: Recorder) -> None:
    inflow = FakeInflow()
    inflow.wait = lambda timeout_s: inflow.close()  # type: ignore[method-assign]  # stopped while it waits
    assert received(recorder, inflow, "recv", 5) == Err("closed")


def test_bindings_are_the_handler_rows(recorder: Recorder) -> None:
    rows = tuple(Binding(action=f"do_{number}", topic=f"a.{number}") for number in range(70))
    found = FUNCTIONS["get-interceptor-bindings"].run(recorder.context(bindings=rows))
    assert len(found) == 64
    assert found[0] == {"handle-id": 1, "action": "do_0", "topic": "a.0"}


def test_too_many_waiting_guests_are_told_and_run_loops_do_not_count(recorder: Recorder) -> None:
    gate = WaitGate(limit=0)
    assert received(recorder, FakeInflow(), "recv", 5, gate=gate) == Err("backpressure")
    assert received(recorder, FakeInflow(), "recv", 5, gate=gate, is_loop=True)["messages"] == []
    gate.limit = 1
    for _ in range(3):
        assert received(recorder, FakeInflow(), "recv", 5, gate=gate)["messages"] == []
    assert gate.count == 0
