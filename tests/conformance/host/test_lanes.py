"""What holds for a guest in either lane: what it may do, and how it ends when it does what it may not.

Each guest is one core module; for the component lane the same one gets a second module that nothing uses.
"""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.errors import InvalidInput, LimitExceeded
from aos_runtime.host import ComponentCode, EdgeCode, GuestTrap, HookResult, HostEngine, Instance, TrapReason
from aos_runtime.host.code import compile_component
from aos_runtime.host.edge import WINDOW_BYTES
from tests.support import abi
from tests.support.guests import (
    CONTINUE,
    ECHO,
    IPC,
    KV,
    PUBLISH_IMPORT,
    SYS,
    FakeInflow,
    Recorder,
    component_of,
    envelope_from,
    guest_text,
    in_component_lane,
    publish_call,
    world_of,
)
from tests.support.relay import LANES

PAGE = 65536
LOG_IMPORT = f'(import "{SYS}" "log" (func $log (param i32 i32 i32)))'
SLEEP_IMPORT = f'(import "{SYS}" "sleep-ns" (func $sleep (param i64 i32)))'
SUBSCRIPTION_IMPORTS = f"""
 (import "{IPC}" "subscribe" (func $subscribe (param i32 i32 i32)))
 (import "{IPC}" "[method]subscription.recv" (func $recv (param i32 i64 i32)))
 (import "{IPC}" "[resource-drop]subscription" (func $drop (param i32)))"""
SUBSCRIBE = "(call $subscribe (i32.const 0) (i32.const 1) (i32.const 512))"
RECV = "(call $recv (i32.load (i32.const 516)) (i64.const 5) (i32.const 600))"
DROP = "(call $drop (i32.load (i32.const 516)))"
ARMS = """(i32.store8 (i32.const 100) (i32.load8_u (i32.const 600)))
 (i32.store8 (i32.const 101) (i32.load8_u (i32.const 608)))
 (i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 2))
 (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
"""Returns which arm the result at 600 is, and its error case."""
SPIN = "(loop $l (br $l)) unreachable"


class Stand:
    """Makes instances of guests in one lane."""

    def __init__(self, engine: HostEngine, lane: str) -> None:
        self.engine, self.lane = engine, lane
        self.recorder = Recorder()
        self._made: list[Instance] = []

    def guest(
        self, hook: str = CONTINUE, *, imports: str = "", context: dict[str, Any] | None = None, **parts: str
    ) -> Instance:
        code = self.code(guest_text(hook, imports=imports, **parts), imports)
        instance = Instance(code, self.recorder.context(**(context or {})))
        self._made.append(instance)
        return instance

    def code(self, text: str, imports: str) -> EdgeCode | ComponentCode:
        used = [interface for interface in (IPC, KV, SYS) if interface in imports]
        component = component_of(text, world_of(*used, packages=abi.packages()))
        code = compile_component(
            self.engine, component if self.lane == "edge" else in_component_lane(component)
        )
        assert isinstance(code, EdgeCode if self.lane == "edge" else ComponentCode)
        return code

    def close(self) -> None:
        for instance in self._made:
            instance.close()


@pytest.fixture(params=LANES)
def stand(request: pytest.FixtureRequest, engine: HostEngine) -> Iterator[Stand]:
    stand = Stand(engine, request.param)
    yield stand
    stand.close()


@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 1_000_000])
def test_action_and_payload_cross_both_ways(stand: Stand, size: int) -> None:
    payload = ("é" * (size // 2) + "x" * (size % 2)).encode()
    assert stand.guest(ECHO).hook("größe".encode(), payload) == HookResult("größe", payload)


def test_post_return_runs_once_a_hook(stand: Stand) -> None:
    count = "(i32.store8 (i32.const 900) (i32.add (i32.load8_u (i32.const 900)) (i32.const 1)))"
    show = """(i32.store8 (i32.const 100) (i32.load8_u (i32.const 900)))
     (i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 1))
     (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
    guest = stand.guest(show, post=count)
    assert [guest.hook(b"", b"").action for _ in range(4)] == ["\0", "\1", "\2", "\3"]


def test_a_payload_that_is_too_large_is_refused_before_the_call(stand: Stand) -> None:
    guest = stand.guest(ECHO)
    with pytest.raises(LimitExceeded) as caught:
        guest.hook(b"", bytes(WINDOW_BYTES))
    assert (caught.value.code, guest.dead) == ("hook-payload", False)
    assert guest.hook(b"a", b"b").action == "a"


TRAPS: dict[str, tuple[str, TrapReason, str]] = {
    "unreachable": ("unreachable", TrapReason.TRAP, "it panicked or aborted"),
    "division": ("(i32.div_u (i32.const 1) (i32.const 0))", TrapReason.TRAP, "it divided by zero"),
    "overflow": (
        "(i32.div_s (i32.const 0x80000000) (i32.const -1))",
        TrapReason.TRAP,
        "an integer overflowed",
    ),
    "conversion": ("(i32.trunc_f32_s (f32.const nan))", TrapReason.TRAP, "a float did not fit an integer"),
    "memory": ("(i32.load (i32.const -4))", TrapReason.TRAP, "it reached outside its memory"),
    "table": (
        "(call_indirect $t (type $v) (i32.const 9)) unreachable",
        TrapReason.TRAP,
        "it reached outside a table",
    ),
    "null": (
        "(call_indirect $t (type $v) (i32.const 1)) unreachable",
        TrapReason.TRAP,
        "it called a function that is not there",
    ),
    "type": (
        "(call_indirect $t (type $v) (i32.const 0)) unreachable",
        TrapReason.TRAP,
        "it called a function of another type",
    ),
    "stack": ("(call $again (i32.const 0))", TrapReason.TRAP, "it exhausted its call stack"),
    "fuel": (SPIN, TrapReason.FUEL, "it ran more instructions than one call may"),
}
TRAPPING = """(type $v (func)) (table $t 2 2 funcref) (elem (table $t) (i32.const 0) func $again)
 (func $again (param i32) (result i32)
  (i32.add (call $again (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))"""


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_has_its_reason_and_ends_the_instance_alone(stand: Stand, name: str) -> None:
    hook, reason, message = TRAPS[name]
    guest, other = stand.guest(hook, more=TRAPPING), stand.guest(ECHO)
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"", b"")
    assert (caught.value.reason, caught.value.message, guest.dead) == (reason, message, True)
    with pytest.raises(GuestTrap, match="has stopped before"):
        guest.hook(b"", b"")
    assert other.hook(b"still", b"").action == "still"


@pytest.mark.parametrize(
    ("hook", "imports", "parts"),
    [
        (publish_call(-16, 8, 0, 0) + CONTINUE, PUBLISH_IMPORT, {}),
        (publish_call(0, 1, PAGE - 6, 7) + CONTINUE, PUBLISH_IMPORT, {}),
        (publish_call(0, -8, 0, 16) + CONTINUE, PUBLISH_IMPORT, {}),
        ("(i32.const -8)", "", {}),
        ("(i32.const 18)", "", {}),
        ("(i32.store8 (i32.const 24) (i32.const 2)) (i32.const 16)", "", {}),
        ("(i32.store (i32.const 20) (i32.const -1)) (i32.const 16)", "", {}),
        (
            "(i32.store8 (i32.const 64) (i32.const 255)) (i32.store (i32.const 16) (i32.const 64))"
            "(i32.store (i32.const 20) (i32.const 1)) (i32.const 16)",
            "",
            {},
        ),
        (
            "(i32.store8 (i32.const 64) (i32.const 255))" + publish_call(64, 1, 0, 0) + CONTINUE,
            PUBLISH_IMPORT,
            {},
        ),
        ("(call $log (i32.const 9) (i32.const 0) (i32.const 0))" + CONTINUE, LOG_IMPORT, {}),
        ("(call $log (i32.const 1) (i32.const -1) (i32.const 1))" + CONTINUE, LOG_IMPORT, {}),
        (CONTINUE, "", {"realloc": "(return (i32.const -1))"}),
        (CONTINUE, PUBLISH_IMPORT, {"realloc": publish_call(0, 0, 0, 0)}),
        (CONTINUE, PUBLISH_IMPORT, {"post": publish_call(0, 0, 0, 0)}),
        (CONTINUE, LOG_IMPORT, {"realloc": "(call $log (i32.const 1) (i32.const 0) (i32.const 0))"}),
        (CONTINUE, LOG_IMPORT, {"post": "(call $log (i32.const 1) (i32.const 0) (i32.const 0))"}),
    ],
)
def test_a_lie_is_a_trap_of_that_instance_alone(
    stand: Stand, hook: str, imports: str, parts: dict[str, str]
) -> None:
    guest, other = stand.guest(hook, imports=imports, **parts), stand.guest(ECHO)
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"act", b"{}")
    assert (caught.value.reason, guest.dead) == (TrapReason.TRAP, True)
    assert stand.recorder.published == []
    assert {level for level, _ in stand.recorder.logged} <= {"error"}, "only why it was stopped"
    assert other.hook(b"still", b"").action == "still"


@pytest.mark.parametrize("area", [-4, 514])
def test_a_lie_about_where_a_result_goes_is_a_trap(stand: Stand, area: int) -> None:
    """The edge looks before the call has its effect; wasmtime's own lowering only afterwards."""
    guest = stand.guest(publish_call(0, 1, 0, 1, area) + CONTINUE, imports=PUBLISH_IMPORT)
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"", b"")
    assert (caught.value.reason, guest.dead) == (TrapReason.TRAP, True)
    assert len(stand.recorder.published) == (0 if stand.lane == "edge" else 1)


def test_memory_and_tables_stop_at_their_limits(stand: Stand) -> None:
    grow = "(if (i32.ne (memory.grow (i32.const 16384)) (i32.const -1)) (then unreachable))"
    table = """(if (i32.ne (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1))
     (then unreachable))"""
    assert stand.guest(grow + table + ECHO, more="(table $t 1 funcref)").hook(b"a", b"").action == "a"


def test_a_guest_that_starts_too_large_does_not_start(stand: Stand) -> None:
    with pytest.raises(LimitExceeded) as caught:
        stand.guest(pages="1000")
    assert caught.value.code == "instance-too-large"


def test_a_start_function_may_trap_and_has_no_host(stand: Stand) -> None:
    with pytest.raises(GuestTrap, match="panicked"):
        stand.guest(more="(func $start unreachable) (start $start)")
    call = "(func $start (call $log (i32.const 0) (i32.const 0) (i32.const 0))) (start $start)"
    with pytest.raises(GuestTrap):
        stand.guest(more=call, imports=LOG_IMPORT)
    assert stand.recorder.logged == []


def test_the_deadline_stops_a_guest_that_spins(stand: Stand) -> None:
    guest = stand.guest(SPIN)
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"", b"", timeout_s=0.05, fuel=1 << 50)
    assert (caught.value.reason, guest.dead) == (TrapReason.DEADLINE, True)
    assert guest.fuel_used() > 0


def test_a_cancelled_call_stops(stand: Stand) -> None:
    guest = stand.guest(SPIN, context={"current": envelope_from("a")})
    cancel = threading.Timer(0.05, lambda: setattr(guest.context, "cancelled", guest.context.current))
    cancel.start()
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"", b"", fuel=1 << 50)
    cancel.join()
    assert caught.value.reason is TrapReason.CANCELLED


def test_fuel_is_counted(stand: Stand) -> None:
    guest = stand.guest(ECHO)
    guest.hook(b"a", b"b")
    small = guest.fuel_used()
    guest.hook(b"a", b"b", fuel=5000)
    assert 0 < small == guest.fuel_used() < 5000


def test_a_host_fault_is_the_hosts_and_hits_nobody_else(stand: Stand) -> None:
    fault = ZeroDivisionError("a bug")

    def fail(_level: str, _message: str) -> None:
        raise fault

    hook = "(call $log (i32.const 1) (i32.const 0) (i32.const 0))" + CONTINUE
    guest, other = stand.guest(hook, imports=LOG_IMPORT), stand.guest(hook, imports=LOG_IMPORT)
    guest.context.log = fail
    with pytest.raises(ZeroDivisionError):  # also by the last line in its log, which is the same port
        guest.hook(b"", b"")
    assert guest.dead and other.hook(b"", b"").action == ""


def test_a_host_fault_is_chained(stand: Stand) -> None:
    def fail(_topic: str, _payload: bytes) -> str | None:
        raise ZeroDivisionError("a bug")

    guest = stand.guest(publish_call(0, 0, 0, 0) + CONTINUE, imports=PUBLISH_IMPORT)
    guest.context.publish = fail
    with pytest.raises(GuestTrap) as caught:
        guest.hook(b"", b"")
    assert (caught.value.reason, caught.value.message) == (TrapReason.HOST, "a host function failed")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_cmp_08_what_is_no_exception_comes_out_of_the_hook(stand: Stand, raised: type[BaseException]) -> None:
    def leave(_topic: str, _payload: bytes) -> str | None:
        raise raised

    guest = stand.guest(publish_call(0, 0, 0, 0) + CONTINUE, imports=PUBLISH_IMPORT)
    guest.context.publish = leave
    with pytest.raises(raised):
        guest.hook(b"", b"")
    assert guest.dead


def test_publish_and_its_refusals(stand: Stand) -> None:
    """Returns the arm and the case; `unknown` has a text."""
    show = """(i32.store8 (i32.const 600) (i32.load8_u (i32.const 512)))
     (i32.store8 (i32.const 608) (i32.load8_u (i32.const 516)))"""
    guest = stand.guest(
        publish_call(64, 5, 80, 2) + show + ARMS,
        imports=PUBLISH_IMPORT,
        more='(data (i32.const 64) "topic") (data (i32.const 80) "{}")',
    )
    assert guest.hook(b"", b"").action == "\0\0"
    for number, case in enumerate(("capability-denied", "invalid-input", "closed", "rate-limited")):
        stand.recorder.answers = lambda _topic, _payload, case=case: case  # type: ignore[misc]
        assert guest.hook(b"", b"").action == "\1" + chr(number)
    stand.recorder.answers = lambda _topic, _payload: "unknown:" + "x" * 10_000
    assert guest.hook(b"", b"").action == "\1\7"
    assert stand.recorder.published == [("topic", b"{}")] * 6


def test_the_text_of_a_refusal_is_cut(stand: Stand) -> None:
    """Returns the low half of the text's length."""
    show = """(i32.store16 (i32.const 100) (i32.load (i32.const 524)))
     (i32.store (i32.const 16) (i32.const 100))
     (i32.store (i32.const 20) (i32.const 2)) (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
    stand.recorder.answers = lambda _topic, _payload: "unknown:" + "é" * 10_000
    guest = stand.guest(publish_call(0, 0, 0, 0) + show, imports=PUBLISH_IMPORT)
    assert guest.hook(b"", b"").action == "\0\x10", "4096 bytes"


def test_what_the_host_calls_are_seen_as(stand: Stand) -> None:
    seen: list[tuple[str, str | None]] = []
    context = {"observe": lambda name, _started, case: seen.append((name, case))}
    hook = (
        publish_call(0, 0, 0, 0)
        + "(call $log (i32.const 1) (i32.const 0) (i32.const 0))"
        + "(call $sleep (i64.const -1) (i32.const 512))"
        + CONTINUE
    )
    imports = PUBLISH_IMPORT + LOG_IMPORT + SLEEP_IMPORT
    stand.guest(hook, imports=imports, context=context).hook(b"", b"")
    assert seen == [("log", None), ("sleep-ns", "too-large")]


def test_a_wait_gives_way_first(stand: Stand) -> None:
    order: list[str] = []
    context = {
        "before_block": lambda: order.append("before_block"),
        "sleep": lambda _s: bool(order.append("sleep") or True),
    }
    hook = "(call $sleep (i64.const 1) (i32.const 512))" + CONTINUE
    stand.guest(hook, imports=SLEEP_IMPORT, context=context).hook(b"", b"")
    assert order == ["before_block", "sleep"]


def test_cmp_21_handles_cross_and_what_is_not_dropped_is_a_leak(stand: Stand) -> None:
    inflow = FakeInflow(envelope_from("alice"))
    guest = stand.guest(
        SUBSCRIBE + RECV + ARMS, imports=SUBSCRIPTION_IMPORTS, context={"subscribe": lambda _p: inflow}
    )
    resources = guest.context.resources
    assert guest.hook(b"", b"").action[0] == "\0"
    assert (inflow.closes, resources.live, resources.leaked) == (1, 0, 1)


def test_cmp_21_a_dropped_handle_is_closed_and_no_leak(stand: Stand) -> None:
    inflow = FakeInflow()
    guest = stand.guest(
        SUBSCRIBE + RECV + DROP + ARMS, imports=SUBSCRIPTION_IMPORTS, context={"subscribe": lambda _p: inflow}
    )
    assert guest.hook(b"", b"").action[0] == "\0"
    assert (inflow.closes, guest.context.resources.leaked) == (1, 0)


def test_cmp_21_a_handle_that_outlived_its_resource_answers_closed(stand: Stand) -> None:
    """The first hook subscribes; the host closes that at its end; the second asks the old handle."""
    hook = f"(if (i32.eqz (local.get $action_size)) (then {SUBSCRIBE}) (else {RECV}))" + ARMS
    guest = stand.guest(hook, imports=SUBSCRIPTION_IMPORTS, context={"subscribe": lambda _p: FakeInflow()})
    guest.hook(b"", b"")
    assert guest.hook(b"x", b"").action == "\1\2"
    assert guest.hook(b"x", b"").action == "\1\2"


def test_handles_outlive_a_hook_where_they_may_and_end_with_the_instance(stand: Stand) -> None:
    inflow = FakeInflow()
    context = {"subscribe": lambda _p: inflow, "keeps_resources": True}
    guest = stand.guest(SUBSCRIBE + CONTINUE, imports=SUBSCRIPTION_IMPORTS, context=context)
    guest.hook(b"", b"")
    assert (inflow.closes, guest.context.resources.live) == (0, 1)
    guest.close()
    assert (inflow.closes, guest.context.resources.live) == (1, 0)


def test_a_trap_lets_go_of_every_handle(stand: Stand) -> None:
    inflow = FakeInflow()
    context = {"subscribe": lambda _p: inflow, "keeps_resources": True}
    guest = stand.guest(SUBSCRIBE + "unreachable", imports=SUBSCRIPTION_IMPORTS, context=context)
    with pytest.raises(GuestTrap):
        guest.hook(b"", b"")
    assert (inflow.closes, guest.context.resources.live, guest.context.resources.leaked) == (1, 0, 0)


def test_lifecycle_runs_what_the_author_wrote(stand: Stand) -> None:
    install = "(call $log (i32.const 2) (i32.const 0) (i32.const 0))"
    guest = stand.guest(install=install, imports=LOG_IMPORT)
    guest.lifecycle("astrid-install")
    assert stand.recorder.logged == [("info", "")]
    with pytest.raises(InvalidInput) as caught:
        guest.lifecycle("astrid-upgrade")
    assert caught.value.code == "lifecycle-missing"


def test_a_run_loop_goes_on_as_long_as_it_waits(stand: Stand) -> None:
    text = guest_text(imports=SLEEP_IMPORT).replace(
        '(func (export "run"))',
        """(func (export "run") (loop $l (call $sleep (i64.const 1000000) (i32.const 512))
         (br_if $l (i32.eqz (i32.load8_u (i32.const 512))))))""",
    )
    rounds: list[float] = []

    def sleep(duration_s: float) -> bool:
        rounds.append(duration_s)
        return len(rounds) < 50

    code = stand.code(text, SLEEP_IMPORT)
    assert "run" in code.implemented
    instance = Instance(code, stand.recorder.context(sleep=sleep, is_loop=True))
    instance.run_loop(window_s=5.0, is_stopping=lambda: False)
    assert (len(rounds), instance.dead) == (50, False)
    instance.close()


def test_a_run_loop_that_is_asked_to_stop_is_stopped(stand: Stand) -> None:
    text = guest_text().replace('(func (export "run"))', f'(func (export "run") {SPIN})')
    code = stand.code(text.replace(PUBLISH_IMPORT, ""), "")
    instance = Instance(code, stand.recorder.context(is_loop=True))
    with pytest.raises(GuestTrap) as caught:
        instance.run_loop(window_s=0.1, is_stopping=lambda: True)
    assert caught.value.reason in (TrapReason.CANCELLED, TrapReason.FUEL)


def test_cmp_14_threads_do_not_mix_their_guests(stand: Stand) -> None:
    """Four threads with a guest each; every second call is refused, and every guest gets its own answers."""
    show = """(i32.store8 (i32.const 600) (i32.load8_u (i32.const 512)))
     (i32.store8 (i32.const 608) (i32.load8_u (i32.const 516)))"""
    code = stand.code(guest_text(publish_call(0, 0, 0, 0) + show + ARMS), PUBLISH_IMPORT)
    wrong: list[tuple[int, str]] = []

    def serve(number: int) -> None:
        answers = ["closed", "quota", "timeout", "unknown:text"]
        given = iter([None, answers[number]] * 150)
        instance = Instance(code, Recorder().context(publish=lambda _topic, _payload: next(given)))
        wanted = ["\0", "\1" + chr((2, 5, 6, 7)[number])] * 150
        found = [instance.hook(b"", b"").action for _ in wanted]
        wrong.extend((number, one) for one, two in zip(found, wanted, strict=True) if not one.startswith(two))
        instance.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)


def test_cmp_20_traps_faults_and_instances_leave_nothing(stand: Stand) -> None:
    """300 of each, after as many to warm up: resident memory, threads and files level off."""

    def fail(_topic: str, _payload: bytes) -> str | None:
        raise ZeroDivisionError("a bug")

    hook = f"(if (local.get $action_size) (then {publish_call(0, 0, 0, 0)})) unreachable"
    code = stand.code(guest_text(hook), PUBLISH_IMPORT)

    def lap() -> tuple[int, int, int]:
        for i in range(300):
            instance = Instance(code, stand.recorder.context(publish=fail, log=lambda _level, _text: None))
            with pytest.raises(GuestTrap):
                instance.hook(b"x" * (i & 1), b"")
            instance.close()
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files = len(list(Path("/proc/self/fd").iterdir()))
        return pages * resource.getpagesize(), threading.active_count(), files

    lap()
    before, after = lap(), lap()
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 8 << 20


def test_two_threads_are_refused_and_a_closed_instance_is_dead(stand: Stand) -> None:
    refusals: list[str] = []

    def entered() -> None:
        try:
            guest.hook(b"", b"")
        except RuntimeError as refusal:
            refusals.append(str(refusal))

    hook = "(call $sleep (i64.const 1) (i32.const 512))" + CONTINUE
    guest = stand.guest(hook, imports=SLEEP_IMPORT, context={"before_block": entered})
    guest.hook(b"", b"")
    assert refusals == ["two threads in one instance"]
    guest.close()
    with pytest.raises(GuestTrap, match="has stopped before"):
        guest.hook(b"", b"")
