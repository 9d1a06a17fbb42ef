"""What is remembered of a call, and how it is put together again."""

from __future__ import annotations

from aos_runtime.bus.inbox import Scope
from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.subscriptions import Owner
from aos_runtime.kernel.trace import KEPT_BODY_BYTES, Recorder
from aos_runtime.kernel.waterfall import Moment, Waterfall, find_call
from aos_runtime.names import CapsuleName
from aos_runtime.wire.payloads import encode_tool_request, encode_tool_result
from tests.support.kernels import ALICE, Bench, Call, cause

EXECUTE, RESULT = "tool.v1.request.execute", "tool.v1.execute.result"


def bench_with(tool: object) -> Bench:
    """A router and a tool `x`."""
    bench = Bench()

    def route(call: Call) -> None:
        if call.action == "request":
            call.speak("tool.v1.execute.x", call.payload)
        else:
            call.speak(RESULT, call.payload)

    bench.capsule(
        "router",
        route,
        subscribe={EXECUTE: "request", "tool.v1.execute.*.result": "result"},
        publish=["tool.v1.execute.*", RESULT],
    )
    bench.capsule(
        "tools",
        tool,  # type: ignore[arg-type]  # a guest function
        subscribe={"tool.v1.execute.x": "go"},
        publish=["tool.v1.execute.*.result"],
    )
    bench.lifecycle.load_all(ALICE)
    return bench


def call(bench: Bench, call_id: str = "c1", arguments: object = None) -> None:
    body = encode_tool_request(call_id, "x", arguments or {})
    bench.publish(EXECUTE, body, "tool_execute_request")
    bench.run()


def answer(call: Call) -> None:
    call.speak("tool.v1.execute.x.result", encode_tool_result("c1", '"ok"', is_error=False))


def found(bench: Bench, call_id: str | None = None, principal: str | None = ALICE) -> Waterfall:
    waterfall = find_call(bench.kernel.trace.steps(), call_id, principal)
    assert waterfall is not None
    return waterfall


def said(moment: Moment) -> tuple[object, ...]:
    return (moment.depth, moment.what, moment.capsule, moment.name, moment.outcome, moment.targets)


def test_a_call_is_the_tree_below_its_request() -> None:
    bench = bench_with(answer)
    bench.publish("other.topic")
    call(bench)
    bench.publish("other.topic")
    waterfall = found(bench)
    assert (waterfall.call_id, waterfall.tool, waterfall.principal) == ("c1", "x", "alice")
    assert [said(moment) for moment in waterfall.moments] == [
        (0, "published", None, EXECUTE, None, ("router",)),
        (1, "handled", "router", "request", "continue", ()),
        (2, "published", None, "tool.v1.execute.x", None, ("tools",)),
        (3, "handled", "tools", "go", "continue", ()),
        (4, "published", None, "tool.v1.execute.x.result", None, ("router",)),
        (5, "handled", "router", "result", "continue", ()),
        (6, "published", None, RESULT, None, ()),
    ]
    times = [moment.at_ns for moment in waterfall.moments]
    assert times == sorted(times) and times[0] == 0
    handled = [moment for moment in waterfall.moments if moment.what == "handled"]
    assert all((one.waited_ns or 0) > 0 and (one.duration_ns or 0) > 0 for one in handled)


def test_the_last_call_and_one_by_its_id() -> None:
    bench = bench_with(answer)
    call(bench, "first")
    call(bench, "second")
    assert found(bench).call_id == "second"
    assert found(bench, "first").call_id == "first"
    assert find_call(bench.kernel.trace.steps(), "third", ALICE) is None


def test_another_principals_call_is_not_found_but_for_everybody() -> None:
    bench = bench_with(answer)
    call(bench)
    assert find_call(bench.kernel.trace.steps(), None, "bob") is None
    assert find_call(bench.kernel.trace.steps(), "c1", "bob") is None
    assert found(bench, principal=None).call_id == "c1"


def test_a_refused_publish_a_denial_and_a_trap_are_steps() -> None:
    def refused(call: Call) -> HookResult:
        call.speak("not.mine", b"{}")
        return HookResult("deny", b"no")

    waterfall = found_after(refused)
    assert (4, "refused", "tools", "not.mine", "capability-denied", ()) in waterfall
    assert (3, "handled", "tools", "go", "deny", ()) in waterfall

    def trap(call: Call) -> None:
        raise GuestTrap(TrapReason.FUEL, "out of fuel")

    assert (3, "handled", "tools", "go", "fuel", ()) in found_after(trap)


def found_after(tool: object) -> list[tuple[object, ...]]:
    bench = bench_with(tool)
    call(bench)
    return [said(moment) for moment in found(bench).moments]


def test_a_message_to_a_full_queue_is_a_step() -> None:
    def flood(call: Call) -> None:
        for _ in range(70):
            call.speak("tool.v1.execute.x.result", b"{}")

    assert (5, "dropped", "router", "tool.v1.execute.x.result", "its queue was full", ()) in found_after(
        flood
    )


def test_a_capsule_that_publishes_what_looks_like_a_call_does_not_fake_one() -> None:
    bench = bench_with(answer)
    call(bench)
    forged = b'{"x":{"type":"tool_execute_request","call_id":"c9","tool_name":"x","arguments":{}}}'
    bench.publish(EXECUTE, forged)
    bench.run()
    assert found(bench).call_id == "c1"


def test_large_payloads_are_kept_in_part_and_counted_whole() -> None:
    bench = bench_with(answer)
    call(bench, arguments={"text": "x" * 100_000})
    first = found(bench).moments[0]
    assert first.message is not None
    assert len(first.message.body) == KEPT_BODY_BYTES
    assert (first.size_bytes or 0) > 100_000
    assert found(bench, "c1").tool == "x"


def test_the_ring_is_bounded() -> None:
    recorder = Recorder(8)
    for _ in range(100):
        recorder.published(cause(), 0, ())
    assert len(recorder.steps()) == 8


def test_the_door_gives_start_end_and_outcome() -> None:
    bench = bench_with(answer)
    bench.kernel.trace.began(ALICE, "c1", "x")
    call(bench)
    bench.kernel.trace.ended(ALICE, "c1", "ok")
    bench.kernel.trace.ended(ALICE, "c2", "error")
    waterfall = found(bench)
    assert said(waterfall.moments[0]) == (0, "received", None, "x", None, ())
    assert said(waterfall.moments[-1]) == (0, "answered", None, "", "ok", ())
    assert waterfall.outcome == "ok"
    assert waterfall.duration_ns == waterfall.moments[-1].at_ns > waterfall.moments[1].at_ns > 0


def test_a_call_without_an_answer_still_runs() -> None:
    bench = bench_with(lambda call: None)
    call(bench)
    assert found(bench).outcome == "running"


def test_a_host_call_is_a_step_of_the_invocation_that_made_it() -> None:
    def kv(call: Call) -> None:
        observe = bench.instances[-1].context.observe
        assert observe is not None
        observe("kv-get", 5, None)
        observe("kv-set", 6, "quota")

    bench = bench_with(kv)
    call(bench)
    called = [said(moment) for moment in found(bench).moments if moment.what == "called"]
    assert called == [
        (4, "called", "tools", "kv-get", "ok", ()),
        (4, "called", "tools", "kv-set", "quota", ()),
    ]


def test_who_receives_by_a_subscription_is_among_the_targets() -> None:
    bench = bench_with(answer)
    owner = Owner(CapsuleName("listener"), ALICE)
    for pattern in ("tool.v1.*", "tool.v1.request.*"):
        bench.kernel.subscriptions.open(owner, pattern, Scope(ALICE, False))
    assert bench.kernel.targets(EXECUTE, ALICE) == ("router", "listener")
    assert bench.kernel.targets("other.topic", ALICE) == ()
    call(bench)
    published = [moment for moment in found(bench).moments if moment.what == "published"]
    assert [moment.targets for moment in published] == [
        ("router", "listener"),
        ("tools", "listener"),
        ("router", "listener"),
        ("listener",),
    ]
