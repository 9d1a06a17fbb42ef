"""What one instance may say: the order of the checks, in whose name, and that saying it never waits."""

from __future__ import annotations

import pytest

from aos_runtime.bus.mailbox import MAILBOX_DEPTH
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.host import GuestContext
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.names import CapsuleName
from aos_runtime.policy.publish import MAX_PAYLOAD_BYTES
from aos_runtime.policy.quotas import Quotas
from tests.support.guests import FakeKv
from tests.support.kernels import ALICE, Bench, Call

ONE = CapsuleName("one")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("topic", "payload", "with_rate", "without"),
    [
        ("a.b", b"{}", None, "rate-limited"),
        ("astrid.v1.delivery.failure.x" + ".x" * 300, b"{", "capability-denied", "capability-denied"),
        ("b." + "b" * 255, b"{", "invalid-input", "invalid-input"),
        ("b..b", b"{", "invalid-input", "rate-limited"),
        (".".join("bbbbbbbbb"), b"{", "invalid-input", "rate-limited"),
        ("b.b", b'"' + b"x" * MAX_PAYLOAD_BYTES, "capability-denied", "rate-limited"),
        ("a.b", b'"' + b"x" * MAX_PAYLOAD_BYTES, "invalid-input", "rate-limited"),
        ("a.b", b"{", "invalid-input", "rate-limited"),
    ],
    ids=["fine", "reserved", "long", "empty-segment", "deep", "no-row", "large", "no-json"],
)
def test_a_spent_rate_comes_after_namespace_and_length_and_before_the_rest(
    bench: Bench, topic: str, payload: bytes, with_rate: str | None, without: str
) -> None:
    """Each broken thing is answered by the first check that it fails; most cases fail several."""
    for rate, answer in ((1 << 40, with_rate), (1, without)):
        budget = Budget("alice", Quotas(max_ipc_throughput_bytes=rate), is_exempt=False)
        budget.admit(1)
        port = GuestPort(bench.kernel, ("a.*",), "source", system_cause(ALICE), budget=budget)
        assert port.publish(topic, payload) == answer


def test_one_payload_over_5_mib_is_a_matter_of_the_rate(bench: Bench) -> None:
    budget = Budget("alice", Quotas(max_ipc_throughput_bytes=1 << 40), is_exempt=False)
    port = GuestPort(bench.kernel, ("a.*",), "source", system_cause(ALICE), budget=budget)
    assert port.publish("a.b", b" " * (5 << 20)) == "invalid-input"
    assert port.publish("a.b", b" " * ((5 << 20) + 1)) == "rate-limited"


def test_all_capsules_of_a_principal_publish_at_one_rate(bench: Bench) -> None:
    clock = [0.0]
    quotas = Quotas(max_ipc_throughput_bytes=10)
    budget = Budget("alice", quotas, is_exempt=False, clock=lambda: clock[0])
    one, two = (
        GuestPort(bench.kernel, ("a.*",), source, system_cause(ALICE), budget=budget)
        for source in ("one", "two")
    )
    assert [one.publish("a.b", b"123456"), two.publish("a.b", b"123456")] == [None, "rate-limited"]
    assert two.publish("a.b", b"1234") is None
    clock[0] = 1.0
    assert two.publish("a.b", b"123456") is None


def test_a_capsule_that_speaks_to_itself_never_waits(bench: Bench) -> None:
    answers: list[str | None] = []
    calls: list[bytes] = []

    def guest(call: Call) -> None:
        calls.append(call.payload)
        if call.payload == b'"go"':
            answers.extend(call.speak("n.v1", str(number).encode()) for number in range(MAILBOX_DEPTH + 6))

    bench.capsule("one", guest, subscribe={"n.v1": "go"}, publish=["n.v1"])
    bench.lifecycle.load_all(ALICE)
    bench.publish("n.v1", b'"go"')
    bench.run()
    assert answers == [None] * (MAILBOX_DEPTH + 6)
    assert calls == [b'"go"', *(str(number).encode() for number in range(MAILBOX_DEPTH))]
    assert bench.lifecycle.view(ALICE).residents[ONE].actor.mailbox.drops == 6


def test_what_a_payload_says_of_its_sender_is_only_payload(bench: Bench) -> None:
    claim = b'{"principal":"admin","source_id":"x","origin":"system","device_key_id":"k","request_owner":"o"}'
    answers: list[str | None] = []
    bench.capsule(
        "one",
        lambda call: answers.append(call.speak("out.v1", claim)),
        subscribe={"in.v1": "go"},
        publish=["out.v1"],
    )
    bench.lifecycle.load_all(ALICE)
    bench.publish("in.v1")
    bench.run()
    asked, said = bench.heard
    assert (answers, said.body, said.source_id) == ([None], claim, "source-of-one")
    for name in ("principal", "device_key_id", "request_owner", "origin", "workspace"):
        assert getattr(said, name) == getattr(asked, name)


def test_an_uplink_speaks_for_the_connection_that_it_read_last(bench: Bench) -> None:
    port = GuestPort(bench.kernel, ("a.*",), "source", system_cause(ALICE), is_uplink=True)
    context = GuestContext(
        capsule=ONE,
        principal=ALICE,
        source_id="source",
        capabilities=Capabilities(uplink=True),
        kv=FakeKv(),
        publish=port.publish,
        config={}.get,
        log=lambda level, message: None,
    )
    port.bind(context)
    for speaker in (None, "carol", "dave"):
        context.speaks_for = speaker
        assert port.publish_as("a.b", b"1", "admin") is None
    assert [one.principal for one in bench.heard] == ["anonymous", "carol", "dave"]


def test_what_runs_while_its_capsule_is_unloaded_may_finish_and_is_called_no_more(bench: Bench) -> None:
    answers: list[str | None] = []

    def guest(call: Call) -> None:
        assert bench.lifecycle.unload(ALICE, ONE)
        answers.append(call.speak("out.v1", b"1"))

    bench.capsule("one", guest, subscribe={"in.v1": "go"}, publish=["out.v1"])
    bench.lifecycle.load_all(ALICE)
    bench.publish("in.v1")
    bench.publish("in.v1")
    bench.run()
    assert (answers, bench.topics()) == ([None], ["in.v1", "in.v1", "out.v1"])
    assert [one.closed for one in bench.instances] == [True]
