"""Kernel and leader on real threads: order, one thread per instance, nothing lost (CMP-14, BUS-09)."""

from __future__ import annotations

import threading
from collections import defaultdict

from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.idle import IdleSweep
from aos_runtime.kernel.leader import Leader
from aos_runtime.names import CapsuleName, PrincipalName
from tests.runtime.kernel.test_leader import FakeSource
from tests.support.kernels import ALICE, Bench, Call

WAIT_S = 10.0
CAPSULES = 4
PUBLISHERS = 4
MESSAGES = 40


def test_cmp_14_an_instance_is_never_entered_twice_and_keeps_the_order_of_each_publisher() -> None:
    bench = Bench()
    leader = Leader(FakeSource(), slow_s=0.0005)
    bench.kernel._ready = leader.ready
    inside: dict[str, int] = defaultdict(int)
    seen: dict[str, list[tuple[str, int]]] = defaultdict(list)
    done = threading.Semaphore(0)
    faults: list[str] = []

    def guest(call: Call) -> None:
        name = call.action
        inside[name] += 1
        if inside[name] != 1:
            faults.append(f"two threads in {name}")
        publisher, number = call.payload.decode().strip('"').split(":")
        seen[name].append((publisher, int(number)))
        if int(number) % 7 == 0:
            leader.before_block()
        inside[name] -= 1
        done.release()

    for index in range(CAPSULES):
        bench.capsule(f"c{index}", guest, subscribe={"n.v1": f"c{index}"})
    bench.lifecycle.load_all(ALICE)
    leader.start()
    room = threading.Semaphore(16 * CAPSULES)  # stays below the depth of the queues

    def publish(publisher: int) -> None:
        for number in range(MESSAGES):
            for _ in range(CAPSULES):
                assert room.acquire(timeout=WAIT_S)
            bench.publish("n.v1", f'"{publisher}:{number}"'.encode())

    def relieve() -> None:
        for _ in range(PUBLISHERS * MESSAGES * CAPSULES):
            assert done.acquire(timeout=WAIT_S)
            room.release()
            leader.relieve()

    threads = [threading.Thread(target=publish, args=(index,)) for index in range(PUBLISHERS)]
    threads.append(threading.Thread(target=relieve))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert leader.stop(WAIT_S)
    assert faults == []
    for index in range(CAPSULES):
        rows = seen[f"c{index}"]
        for publisher in range(PUBLISHERS):
            assert [number for who, number in rows if who == str(publisher)] == list(range(MESSAGES))
        resident = bench.lifecycle.view(ALICE).residents[CapsuleName(f"c{index}")]
        assert (resident.actor.meter.calls, resident.actor.mailbox.drops) == (PUBLISHERS * MESSAGES, 0)


def test_bus_06_a_slow_failing_or_denying_member_of_a_fan_out_delays_nobody() -> None:
    """A hundred rounds; the slow member does not come back before the four good ones have answered."""
    bench = Bench()
    leader = Leader(FakeSource(), slow_s=0.0005)
    bench.kernel._ready = leader.ready
    answered = threading.Semaphore(0)
    release = threading.Semaphore(0)

    def slow(call: Call) -> None:
        leader.before_block()
        assert release.acquire(timeout=WAIT_S)

    def trapping(call: Call) -> None:
        raise GuestTrap(TrapReason.TRAP, "unreachable")

    bench.capsule("slow", slow, subscribe={"tool.v1.request.describe": "tool_describe"})
    bench.capsule("traps", trapping, subscribe={"tool.v1.request.describe": "tool_describe"})
    bench.capsule(
        "denies",
        lambda call: HookResult("deny", b"no"),
        subscribe={"tool.v1.request.describe": "tool_describe"},
    )
    for index in range(4):
        bench.capsule(
            f"good{index}",
            lambda call: answered.release(),
            subscribe={"tool.v1.request.describe": "tool_describe"},
        )
    bench.lifecycle.load_all(ALICE)
    leader.start()
    for _ in range(100):
        bench.publish("tool.v1.request.describe")
        for _ in range(4):
            assert answered.acquire(timeout=0.5), "inside the describe window"
        release.release()
    assert leader.stop(WAIT_S)


def test_another_principal_and_another_capsule_are_served_while_one_call_runs() -> None:
    bench = Bench()
    leader = Leader(FakeSource(), slow_s=0.0005)
    bench.kernel._ready = leader.ready
    entered, release = threading.Event(), threading.Event()
    done = threading.Semaphore(0)

    def slow(call: Call) -> None:
        leader.before_block()
        entered.set()
        assert release.wait(WAIT_S)

    bench.capsule("one", slow, subscribe={"n.v1": "go"})
    bench.capsule("two", lambda call: done.release(), subscribe={"m.v1": "go"})
    bob = PrincipalName("bob")
    bench.capsule("one", lambda call: done.release(), subscribe={"n.v1": "go"}, principal=bob)
    for principal in (ALICE, bob):
        bench.lifecycle.load_all(principal)
    leader.start()
    bench.publish("n.v1")
    assert entered.wait(WAIT_S)
    bench.publish("n.v1", principal="bob")
    bench.publish("m.v1")
    served = [done.acquire(timeout=WAIT_S) for _ in range(2)]
    release.set()
    assert leader.stop(WAIT_S)
    assert served == [True, True]


def test_a_chain_and_a_fan_out_through_one_capsule_never_overlap() -> None:
    """Links of many chains and single messages meet in one capsule: one at a time, each chain in order."""
    bench = Bench()
    leader = Leader(FakeSource(), slow_s=0.0005)
    bench.kernel._ready = leader.ready
    inside: list[str] = []
    faults: list[str] = []
    seen: list[str] = []
    done = threading.Semaphore(0)

    def both(call: Call) -> HookResult:
        inside.append(call.action)
        if len(inside) != 1:
            faults.append(f"{inside} at once")
        leader.before_block()
        seen.append(call.payload.decode())
        inside.pop()
        done.release()
        return HookResult("continue", b'"second of ' + call.payload[1:])

    bench.capsule("both", both, subscribe={"chain.v1": ("first", 10), "fan.v1": "fan"})
    bench.capsule(
        "last",
        lambda call: seen.append(call.payload.decode()) or done.release(),
        subscribe={"chain.v1": ("second", 20)},
    )
    bench.lifecycle.load_all(ALICE)
    leader.start()
    for number in range(40):
        bench.publish("chain.v1", f'"chain {number}"'.encode())
        bench.publish("fan.v1", f'"fan {number}"'.encode())
        for _ in range(3):
            assert done.acquire(timeout=WAIT_S)
    assert leader.stop(WAIT_S)
    assert faults == []
    for number in range(40):
        assert seen.index(f'"chain {number}"') < seen.index(f'"second of chain {number}"')
    assert seen.count('"fan 39"') == 1 and len(seen) == 120


def test_bus_09_a_hundred_callers_at_once_after_an_eviction() -> None:
    bench = Bench()
    leader = Leader(FakeSource(), slow_s=0.0005)
    bench.kernel._ready = leader.ready
    done = threading.Semaphore(0)
    bench.capsule("one", lambda call: done.release(), subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    leader.start()
    idle = IdleSweep(bench.kernel.order, lambda: bench.lifecycle.views)
    for round_ in range(10):
        threads = [threading.Thread(target=bench.publish, args=("n.v1",)) for _ in range(60)]
        for thread in threads:
            thread.start()
        for second in range(5):
            idle.sweep(round_ * 10_000 + second * 100.0)
        for thread in threads:
            thread.join(WAIT_S)
        for _ in range(60):
            assert done.acquire(timeout=WAIT_S)
    assert leader.stop(WAIT_S)
    assert [one for one in bench.instances if not one.closed] in ([], bench.instances[-1:])
