"""Subscriptions of guests in the kernel: who receives what, waiting, and letting go."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from aos_runtime.bus.envelope import Envelope
from aos_runtime.bus.inbox import ROUTE_BUDGET_BYTES, Scope
from aos_runtime.bus.routes import RouteTable
from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.kernel.ports import Submission
from aos_runtime.kernel.receipts import receipt_topic
from aos_runtime.kernel.subscriptions import Owner, Subscription
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.publish import OTHERS_RECEIPTS
from aos_runtime.wire.methods import NIL_SOURCE
from aos_runtime.wire.payloads import TOOL_EXECUTE_REQUEST, encode_tool_request
from tests.support.kernels import ALICE, Bench, Call, cause

BOB = PrincipalName("bob")
ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def subscribed(
    bench: Bench, pattern: str, principal: PrincipalName = ALICE, *, name: str = "ear", system: bool = True
) -> Subscription:
    owner = Owner(CapsuleName(name), principal)
    return bench.kernel.subscriptions.open(owner, pattern, Scope(principal, system))


def numbers(subscription: Subscription) -> list[bytes]:
    return [envelope.body for envelope in iter(subscription.poll, None)]


def test_nobody_subscribed_costs_nothing(bench: Bench) -> None:
    assert bench.kernel.subscriptions.count == 0
    one = subscribed(bench, "a.*")
    one.close()
    one.close()
    assert bench.kernel.subscriptions.count == 0


def test_bus_10_a_thousand_messages_in_the_order_of_publishing(bench: Bench) -> None:
    one = subscribed(bench, "n.v1")
    for number in range(1, 1001):
        bench.publish("n.v1", str(number).encode())
    got: list[Envelope] = list(iter(one.poll, None))
    assert [int(envelope.body) for envelope in got] == list(range(1, 1001))
    assert [envelope.seq for envelope in got] == sorted(envelope.seq for envelope in got)


def test_bus_15_each_principal_gets_only_its_own(bench: Bench) -> None:
    for _ in range(3):
        alice = subscribed(bench, "x.v1.response.*", ALICE)
        bob = subscribed(bench, "x.v1.response.*", BOB)
        for number in range(20):
            bench.publish(f"x.v1.response.r{number}", b'"a"', principal="alice")
            bench.publish(f"x.v1.response.r{number}", b'"b"', principal="bob")
        assert numbers(alice) == [b'"a"'] * 20
        assert numbers(bob) == [b'"b"'] * 20
        alice.close()
        bob.close()


def test_the_systems_messages_reach_a_run_loop_and_no_interceptor(bench: Bench) -> None:
    loop = subscribed(bench, "a.v1", system=True)
    hook = subscribed(bench, "a.v1", system=False)
    bench.publish("a.v1", b"1", principal=None)
    assert (numbers(loop), numbers(hook)) == ([b"1"], [])


def test_a_flood_of_one_principal_never_delays_another(bench: Bench) -> None:
    """A subscription of everybody's messages: bob's one message comes after at most one of alice's."""

    class Everybody(Scope, frozen=True):
        def admits(self, principal: str | None) -> bool:
            return True

    owner = Owner(CapsuleName("ear"), ALICE)
    one = bench.kernel.subscriptions.open(owner, "n.v1", Everybody(None, True))
    for _ in range(10_000):
        bench.publish("n.v1", b'"flood"', principal="alice")
    bench.publish("n.v1", b'"bob"', principal="bob")
    started = time.perf_counter()
    first_two = [one.poll(), one.poll()]
    took_s = time.perf_counter() - started
    assert b'"bob"' in [envelope.body for envelope in first_two if envelope is not None]
    assert took_s < 0.05


def test_a_message_counts_its_payload_and_its_topic(bench: Bench) -> None:
    """The budget of one subscription is 1 MiB: exactly that fits, a byte more never does."""
    one = subscribed(bench, "n.v1")
    room = ROUTE_BUDGET_BYTES - len("n.v1")
    for size, is_taken in ((room, True), (room + 1, False)):
        bench.publish("n.v1", b'"' + b"x" * (size - 2) + b'"')
        assert (len(one.inbox), one.lost) == (int(is_taken), int(not is_taken))
        one.poll()


def test_an_overflow_is_counted_for_its_principal(bench: Bench) -> None:
    one = subscribed(bench, "n.v1")
    body = b'"' + b"x" * 300_000 + b'"'
    for _ in range(5):
        bench.publish("n.v1", body)
    assert (len(numbers(one)), one.lost) == (3, 2)
    assert bench.kernel.subscriptions.lost_by_principal() == {ALICE: 2}


def waiting(subscription: Subscription, timeout_s: float) -> tuple[threading.Thread, list[Envelope | None]]:
    got: list[Envelope | None] = []
    thread = threading.Thread(target=lambda: got.append(subscription.wait(timeout_s)))
    thread.start()
    deadline = time.monotonic() + 5
    while not subscription._is_waiting and thread.is_alive():
        assert time.monotonic() < deadline
    return thread, got


def ended(thread: threading.Thread) -> bool:
    thread.join(5)
    return not thread.is_alive()


def test_a_wait_ends_with_the_message(bench: Bench) -> None:
    one = subscribed(bench, "n.v1")
    thread, got = waiting(one, 60)
    bench.publish("n.v1", b"1")
    assert ended(thread)
    assert [envelope and envelope.body for envelope in got] == [b"1"]


def test_a_wait_ends_when_its_time_is_up(bench: Bench) -> None:
    assert subscribed(bench, "n.v1").wait(0.0) is None


@pytest.mark.parametrize("how", ["close", "stop", "retire"])
def test_a_wait_ends_when_its_subscription_does(bench: Bench, how: str) -> None:
    one = subscribed(bench, "n.v1")
    thread, got = waiting(one, 60)
    if how == "close":
        one.close()
    elif how == "stop":
        bench.kernel.subscriptions.stop()
    else:
        with bench.kernel.order:
            bench.kernel.subscriptions.retire(one.owner)
    assert ended(thread)
    assert (got, one.is_closed, bench.kernel.subscriptions.count) == ([None], True, 0)
    assert one.wait(60) is None
    if how != "close":
        assert bench.kernel.subscriptions.open(one.owner, "n.v1", one.scope).is_closed


def test_a_staged_version_takes_over_without_loss_and_without_doubles(bench: Bench) -> None:
    hub = bench.kernel.subscriptions
    old = subscribed(bench, "n.v1")
    other = hub.open(old.owner, "gone.v1", old.scope)
    fresh = Owner(old.owner.capsule, ALICE, is_staged=True)
    new = hub.open(fresh, "n.v1", old.scope)
    bench.publish("n.v1", b"1")
    bench.publish("n.v1", b"2")
    assert numbers(new) == []
    assert old.poll() is not None
    with bench.kernel.order:
        hub.promote(fresh, old.owner)
    bench.publish("n.v1", b"3")
    assert numbers(new) == [b"2", b"3"]
    assert (old.is_closed, other.is_closed, numbers(old)) == (True, True, [])
    assert hub.count == 1


def test_a_client_is_told_that_a_subscriber_took_its_message(bench: Bench) -> None:
    message = msgspec.structs.replace(cause(), topic="user.v1.prompt", body=b"1")
    assert bench.kernel.submit(message) is Submission.UNAVAILABLE
    one = subscribed(bench, "user.v1.*")
    assert bench.kernel.submit(message) is Submission.ACCEPTED
    assert numbers(one) == [b"1"]


@pytest.mark.parametrize(
    ("pattern", "capsule", "answer"),
    [
        ("tool.v1.execute.x", "anybody", None),
        ("tool.v1.execute.*", "provider", None),
        ("tool.v1.execute.*", "observer", "unknown:no capsule handles tool.v1.execute.x"),
        ("other.v1", "provider", "unknown:no capsule handles tool.v1.execute.x"),
    ],
)
def test_who_subscribes_to_a_tool_serves_it_unless_it_only_listens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, pattern: str, capsule: str, answer: str | None
) -> None:
    outcome: list[str | None] = []

    def router(call: Call) -> None:
        outcome.append(call.speak("tool.v1.execute.x", encode_tool_request("c1", "x", {})))

    bench.capsule("router", router, subscribe={"go.v1": "go"}, publish=["tool.v1.execute.*"])
    bench.lifecycle.load_all(ALICE)
    monkeypatch.setattr(RouteTable, "provider", lambda *_: CapsuleName("provider"))
    subscribed(bench, pattern, name=capsule)
    bench.publish("go.v1")
    bench.run()
    assert outcome == [answer]


def test_bus_02_each_refusal_is_said_with_its_row(bench: Bench) -> None:
    asked = ["a.*.b", "*.x", "a..b", "a.*.*", "a.b.c.d.e.f.g.h.i", "*", "a.b.*"]
    found: list[str] = []

    def guest(call: Call) -> None:
        for pattern in asked:
            answer = call.listen(pattern)
            found.append(answer if isinstance(answer, str) else "ok")

    bench.capsule("ear", guest, subscribe={"go.v1": "go"}, extra='[subscribe."a.b.*"]\nwit = "opaque"\n')
    bench.lifecycle.load_all(ALICE)
    bench.publish("go.v1")
    bench.run()
    assert found == ["invalid-input"] * 5 + ["capability-denied", "ok"]
    assert [denial.topic for denial in bench.denials] == asked[:-1]
    assert bench.denials[-1].allow == '[subscribe] "*" = { wit = "opaque" }'


def test_bus_02_the_129th_is_refused(bench: Bench) -> None:
    found: list[str] = []

    def guest(call: Call) -> None:
        answers = [call.listen("a.b.c") for _ in range(129)]
        found.extend(answer if isinstance(answer, str) else "ok" for answer in answers)

    bench.capsule("ear", guest, subscribe={"go.v1": "go"}, extra='[subscribe."a.b.*"]\nwit = "opaque"\n')
    bench.lifecycle.load_all(ALICE)
    bench.publish("go.v1")
    bench.run()
    assert found == ["ok"] * 128 + ["quota"]
    assert "128" in bench.denials[-1].rule


def receipts(bench: Bench) -> list[tuple[str, object]]:
    prefix = "astrid.v1.delivery.failure."
    return [
        (envelope.topic.removeprefix(prefix), msgspec.json.decode(envelope.body))
        for envelope in bench.heard
        if envelope.topic.startswith(prefix)
    ]


def deliver(bench: Bench, topic: str, times: int = 1) -> None:
    body = b'{"_astrid_delivery_id":"' + ID.encode() + b'","n":1}'
    said: list[str | None] = []
    bench.capsule(
        "mouth",
        lambda call: said.extend(call.speak(topic, body) for _ in range(times)),
        subscribe={"go.v1": "go"},
        publish=["out.*"],
    )
    bench.lifecycle.load_all(ALICE)
    bench.publish("go.v1")
    bench.run()
    assert said == [None] * times


@pytest.mark.parametrize(
    ("guest", "reason"),
    [
        (lambda call: None, None),
        (lambda call: HookResult("deny", b"secret text"), "denied"),
        (lambda call: (_ for _ in ()).throw(GuestTrap(TrapReason.TRAP, "secret text")), "failed"),
    ],
)
def test_a_delivery_receipt_says_why_and_never_what_a_guest_said(
    bench: Bench, guest: object, reason: str | None
) -> None:
    seen: list[bytes] = []

    def consumer(call: Call) -> object:
        seen.append(call.payload)
        return guest(call)  # type: ignore[operator]

    bench.capsule("consumer", consumer, subscribe={"out.v1": "take"})  # type: ignore[arg-type]
    deliver(bench, "out.v1")
    assert seen == [b'{"n":1}'], "the mark is stripped before delivery"
    expected = {"delivery_id": ID, "request_topic": "out.v1", "reason": reason}
    assert receipts(bench) == ([] if reason is None else [(f"sourceofmouth.{ID}", expected)])


def test_where_several_take_a_delivery_one_that_fails_makes_no_receipt(bench: Bench) -> None:
    def trap(call: Call) -> None:
        raise GuestTrap(TrapReason.TRAP, "unreachable")

    bench.capsule("broken", trap, subscribe={"out.v1": "take"})
    bench.capsule("sound", subscribe={"out.v1": "take"})
    deliver(bench, "out.v1")
    assert receipts(bench) == []


def test_a_delivery_that_nobody_takes_is_told(bench: Bench) -> None:
    deliver(bench, "out.v1")
    assert [body["reason"] for _, body in receipts(bench)] == ["no-consumer"]  # type: ignore[index]


@pytest.mark.parametrize("last", ["*", ID])
def test_only_its_publisher_hears_a_receipt(bench: Bench, last: str) -> None:
    """Both subscribe to the same words, and to the very topic of the other's receipt."""
    alias = f"astrid.v1.delivery.failure.{last}"
    heard: dict[str, list[str]] = {"mouth": [], "nosy": []}
    held: dict[str, list[Subscription]] = {"mouth": [], "nosy": []}

    def guest(call: Call, name: str) -> None:
        for pattern in (alias, f"astrid.v1.delivery.failure.sourceofmouth.{ID}", "astrid.v1.*"):
            inflow = call.listen(pattern)
            if not isinstance(inflow, str):
                held[name].append(inflow)

    row = '[subscribe."astrid.*"]\nwit = "opaque"\n'
    for name in heard:
        bench.capsule(
            name, lambda call, name=name: guest(call, name), subscribe={f"{name}.v1": "go"}, extra=row
        )
    bench.lifecycle.load_all(ALICE)
    for name in heard:
        bench.publish(f"{name}.v1")
    bench.run()
    receipt = msgspec.structs.replace(cause(), source_id="source-of-mouth", delivery_id=ID)
    bench.kernel.publish(receipt_topic(receipt), b"{}", None, NIL_SOURCE, cause())
    for name, inflows in held.items():
        heard[name] = [one.topic for inflow in inflows for one in iter(inflow.poll, None)]
    assert heard["mouth"] and set(heard["mouth"]) == {f"astrid.v1.delivery.failure.sourceofmouth.{ID}"}
    assert heard["nosy"] == []
    assert {denial.rule for denial in bench.denials} == {OTHERS_RECEIPTS}
    assert [denial.allow for denial in bench.denials] == [None, None]


def test_a_subscriber_takes_a_delivery(bench: Bench) -> None:
    one = subscribed(bench, "out.v1")
    deliver(bench, "out.v1")
    assert (numbers(one), receipts(bench)) == ([b'{"n":1}'], [])


def test_a_receipt_is_never_dispatched_whatever_a_manifest_says(bench: Bench) -> None:
    called: list[str] = []
    bench.capsule(
        "nosy",
        lambda call: called.append(call.envelope.topic),
        subscribe={"astrid.v1.delivery.failure.*.*": "take"},
    )
    deliver(bench, "out.v1")
    assert (called, len(receipts(bench))) == ([], 1)


@pytest.mark.parametrize(
    "topic",
    [
        "astrid.v1.delivery.failure.x",
        "astrid.v1.response.failure.x",
        "astrid.v1.approval.response.x",
        "astrid.v1.elicit.response.x",
    ],
)
def test_no_row_opens_a_reserved_namespace(bench: Bench, topic: str) -> None:
    said: list[str | None] = []
    bench.capsule(
        "forger",
        lambda call: said.append(call.speak(topic, b"{}")),
        subscribe={"go.v1": "go"},
        publish=["astrid.*", topic],
    )
    bench.lifecycle.load_all(ALICE)
    bench.publish("go.v1")
    bench.run()
    assert said == ["capability-denied"]
    assert bench.denials[0].rule == "the namespace is the kernel's own"


def test_publish_as_is_for_uplinks_and_never_believes_the_name(bench: Bench) -> None:
    plain = GuestPort(bench.kernel, ("a.*",), "source", system_cause(ALICE), denied=bench.denials.append)
    assert plain.publish_as("a.b", b"1", "bob") == "capability-denied"
    assert bench.denials[0].allow == "[capabilities] uplink = true"
    uplink = GuestPort(bench.kernel, ("a.*",), "source", system_cause(ALICE), is_uplink=True)
    assert uplink.publish_as("a.b", b"1", "bob") is None
    assert uplink.publish_as("b.b", b"1", "bob") == "capability-denied"
    assert [(one.topic, one.principal) for one in bench.heard] == [("a.b", "anonymous")]


def test_a_request_that_a_run_loop_takes_counts_as_taken(bench: Bench) -> None:
    request = encode_tool_request("c1", "x", {})
    message = msgspec.structs.replace(
        cause(), topic="tool.v1.execute.x", body=request, kind=TOOL_EXECUTE_REQUEST
    )
    subscribed(bench, "tool.v1.execute.*", name="observer")
    assert bench.kernel.submit(message) is Submission.UNAVAILABLE
    subscribed(bench, "tool.v1.execute.x", name="server")
    assert bench.kernel.submit(message) is Submission.ACCEPTED
