"""Queues and budgets as callers meet them: whose queue it is, what a call may use, the words of a denial."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from aos_runtime.bus.mailbox import MAILBOX_DEPTH
from aos_runtime.errors import LimitExceeded
from aos_runtime.host import HookResult
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.kernel import Kernel
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.ports import Submission
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.quotas import Quotas
from aos_runtime.wire.payloads import TOOL_EXECUTE_REQUEST, encode_tool_request
from tests.support.kernels import ALICE, Bench, Call, FakeInstance, cause

BOB = PrincipalName("bob")
ONE, TWO = CapsuleName("one"), CapsuleName("two")
REQUEST = encode_tool_request("call-1", "x", {})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def held_to(bench: Bench, budget: Budget) -> Lifecycle:
    """The bench's lifecycle, all of its capsules under this budget."""
    bench.lifecycle = Lifecycle(bench.kernel, bench, bench._names, budget_of=lambda principal: budget)
    return bench.lifecycle


def failures(bench: Bench) -> list[str]:
    return [
        json.loads(one.body)["reason"]
        for one in bench.heard
        if one.topic.startswith("astrid.v1.response.failure.")
    ]


def test_each_principal_has_a_queue_of_its_own(bench: Bench) -> None:
    seen: list[str | None] = []
    for principal in (ALICE, BOB):
        bench.capsule(
            "one",
            lambda call: seen.append(call.envelope.principal),
            subscribe={"n.v1": "go"},
            principal=principal,
        )
        bench.lifecycle.load_all(principal)
    for _ in range(MAILBOX_DEPTH + 3):
        bench.publish("n.v1", principal="alice")
    for _ in range(MAILBOX_DEPTH):
        bench.publish("n.v1", principal="bob")
    drops = {p: bench.lifecycle.view(p).residents[ONE].actor.mailbox.drops for p in (ALICE, BOB)}
    bench.run()
    assert (seen.count("alice"), seen.count("bob"), drops) == (
        MAILBOX_DEPTH,
        MAILBOX_DEPTH,
        {ALICE: 3, BOB: 0},
    )


def test_a_full_queue_of_one_capsule_takes_no_room_from_another(bench: Bench) -> None:
    bench.capsule("one", subscribe={"n.v1": "go", "m.v1": "go"})
    bench.capsule("two", subscribe={"m.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    for _ in range(MAILBOX_DEPTH):
        bench.publish("n.v1")
    bench.publish("m.v1")
    residents = bench.lifecycle.view(ALICE).residents
    assert [residents[name].actor.mailbox.drops for name in (ONE, TWO)] == [1, 0]
    assert residents[TWO].actor.depth == 1


def test_1024_messages_of_clients_wait_for_a_capsule_and_no_more(bench: Bench) -> None:
    seen: list[int] = []
    bench.capsule("one", lambda call: seen.append(int(call.payload)), subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    room = MAILBOX_DEPTH + 1024
    said = [
        bench.kernel.submit(msgspec.structs.replace(cause(), topic="n.v1", body=str(number).encode()))
        for number in range(room + 2)
    ]
    assert said == [Submission.ACCEPTED] * room + [Submission.FULL] * 2
    bench.run()
    assert seen == list(range(room))


def test_nobody_hears_what_a_principal_without_capsules_says(bench: Bench) -> None:
    calls: list[Call] = []
    bench.capsule("one", calls.append, subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("n.v1", principal="nobody-at-all")
    bench.run()
    assert (calls, bench.topics(), bench.journal.lines) == ([], ["n.v1"], [])


def test_a_call_is_given_its_share_of_fuel_and_its_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[float | None, int | None]] = []

    def hook(
        self: FakeInstance,
        action: bytes,
        payload: bytes,
        *,
        timeout_s: float | None = None,
        fuel: int | None = None,
    ) -> HookResult:
        given.append((timeout_s, fuel))
        return HookResult("continue", None)

    monkeypatch.setattr(FakeInstance, "hook", hook)
    bench.capsule("one", subscribe={"n.v1": "go"})
    for is_exempt in (False, True):
        held_to(bench, Budget("alice", Quotas(), is_exempt=is_exempt)).load_all(ALICE)
        bench.publish("n.v1")
        bench.run()
    assert given == [(300.0, 500_000_000), (300.0, 10_000_000_000)]


def test_capsules_of_a_principal_share_its_fuel_of_a_second(bench: Bench) -> None:
    served: list[str] = []
    for name in (ONE, TWO):
        bench.capsule(name, lambda call, name=name: served.append(name), subscribe={f"{name}.v1": "go"})
    clock = [0.0]
    quotas = Quotas(max_cpu_fuel_per_sec=1000, max_in_flight_calls=1)  # a fake guest uses 1000
    held_to(bench, Budget("alice", quotas, is_exempt=False, clock=lambda: clock[0])).load_all(ALICE)
    for topic in ("one.v1", "two.v1"):
        bench.publish(topic)
        bench.run()
    assert served == ["one"]
    clock[0] = 1.0
    bench.publish("two.v1")
    bench.run()
    assert served == ["one", "two"]


def test_a_call_over_the_budget_is_denied_in_the_published_words(bench: Bench) -> None:
    bench.capsule("one", subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    quotas = Quotas(max_cpu_fuel_per_sec=7, max_in_flight_calls=1)
    budget = Budget("alice", quotas, is_exempt=False, clock=lambda: 0.0)
    budget.settle(budget.reserve(0.0, lambda: None), 7)
    held_to(bench, budget).load_all(ALICE)
    bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.run()
    words = "principal 'alice' exceeded CPU budget of 7 fuel/sec"
    assert failures(bench) == [f"capsule 'one' gave no answer: {words}"]
    assert bench.instances == [], "the guest was not even made"


def test_a_link_over_the_budget_ends_its_chain(bench: Bench) -> None:
    seen: list[str] = []
    for place, name in enumerate((ONE, TWO)):
        bench.capsule(name, lambda call, name=name: seen.append(name), subscribe={"a.v1": ("go", 10 + place)})
    quotas = Quotas(max_cpu_fuel_per_sec=1000, max_in_flight_calls=1)  # a fake guest uses 1000
    held_to(bench, Budget("alice", quotas, is_exempt=False, clock=lambda: 0.0)).load_all(ALICE)
    bench.publish("a.v1")
    bench.run()
    assert seen == ["one"]
    assert [level for name, level, _ in bench.journal.lines if name == TWO] == ["error"]


def test_a_call_that_waited_its_whole_time_is_denied_in_the_published_words(bench: Bench) -> None:
    bench.capsule("one", subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    late = Budget("alice", Quotas(), is_exempt=False, clock=lambda: time.monotonic() + 300.0)
    held_to(bench, late).load_all(ALICE)
    bench.publish("tool.v1.execute.x", REQUEST, TOOL_EXECUTE_REQUEST)
    bench.run()
    words = "invocation deadline expired waiting for capsule instance"
    assert (failures(bench), bench.instances) == ([f"capsule 'one' gave no answer: {words}"], [])


def test_one_instance_serves_all_calls_of_a_capsule_and_principal(bench: Bench) -> None:
    bench.capsule("one", subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    for _ in range(MAILBOX_DEPTH):
        bench.publish("n.v1")
    bench.run()
    assert len(bench.instances) == 1


def test_the_number_of_calls_at_once_is_a_divisor_and_no_limit() -> None:
    """A share is cut to the ceiling of a call, so more than `max_in_flight_calls` fit into the rate."""
    quotas = Quotas(max_cpu_fuel_per_sec=1000, max_in_flight_calls=2)
    budget = Budget("alice", quotas, is_exempt=False, fuel_ceiling=100, clock=lambda: 0.0)
    assert [budget.reserve(0.0, lambda: None) for _ in range(10)] == [100] * 10
    with pytest.raises(LimitExceeded):
        budget.reserve(0.0, lambda: None)


def test_a_kernel_that_nobody_serves_yet_keeps_nothing(bench: Bench) -> None:
    """No queue is made for a topic, a principal or a capsule that is not there: nothing grows."""
    for number in range(1000):
        bench.publish(f"n{number}.v1", principal=f"p{number}")
    kernel: Kernel = bench.kernel
    assert (kernel._actors, kernel.subscriptions.count, len(bench.ready)) == ({}, 0, 0)
