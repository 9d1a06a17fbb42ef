"""Hooks, publishes, lifecycle and death of one instance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from aos_runtime.errors import Conflict, InvalidInput, LimitExceeded
from aos_runtime.host import (
    Code,
    EngineSettings,
    GuestTrap,
    HookResult,
    HostEngine,
    Instance,
    TrapReason,
    patience,
)
from tests.support.guests import (
    CONTINUE,
    ECHO,
    KV,
    SYS,
    FakeInflow,
    Recorder,
    code_of,
    envelope_from,
    guest_text,
    publish_call,
)

Instantiate = Callable[..., Instance]
ANSWERED = """(i32.store8 (i32.const 100) (i32.load8_u (i32.const 512)))
 (i32.store8 (i32.const 101) (i32.load8_u (i32.const 516)))
 (i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 2))
 (i32.store8 (i32.const 24) (i32.load8_u (i32.const 512)))
 (i32.store (i32.const 28) (i32.load (i32.const 520))) (i32.store (i32.const 32) (i32.load (i32.const 524)))
 (i32.const 16)"""
"""Returns what `publish` answered: the two discriminants as action, the text of unknown as data."""


@pytest.mark.parametrize("size", [0, 1, 65_000, 65_472, 65_473, 200_000, 1_000_000])
def test_action_and_payload_reach_the_guest_and_come_back(instantiate: Instantiate, size: int) -> None:
    payload = b"x" * size
    instance = instantiate(guest_text(ECHO))
    assert instance.hook("tün".encode(), payload) == HookResult("tün", payload)
    assert instance.hook(b"", b"y") == HookResult("", b"y")


def test_a_result_without_data(instantiate: Instantiate) -> None:
    assert instantiate(guest_text(CONTINUE)).hook(b"a", b"b") == HookResult("", None)


def test_guest_memory_is_kept_between_calls(instantiate: Instantiate) -> None:
    count = """(i32.store8 (i32.const 64) (i32.add (i32.load8_u (i32.const 64)) (i32.const 1)))
     (i32.store (i32.const 16) (i32.const 64)) (i32.store (i32.const 20) (i32.const 1)) (i32.const 16)"""
    instance = instantiate(guest_text(count))
    assert [instance.hook(b"", b"").action for _ in range(3)] == ["\x01", "\x02", "\x03"]


@pytest.mark.parametrize(
    ("refusal", "discriminants", "text"),
    [
        (None, "\0\0", None),
        ("capability-denied", "\x01\x00", b""),
        ("timeout", "\x01\x06", b""),
        ("unknown:no capsule handles tool.v1.execute.x", "\x01\x07", b"no capsule handles tool.v1.execute.x"),
        ("unknown:", "\x01\x07", b""),
        ("unknown:ü" + "ü" * 4096, "\x01\x07", ("ü" * 2048).encode()),
    ],
)
def test_the_answer_of_publish(
    instantiate: Instantiate, recorder: Recorder, refusal: str | None, discriminants: str, text: bytes | None
) -> None:
    recorder.answers = lambda _topic, _payload: refusal
    instance = instantiate(guest_text(publish_call(0, 1, 0, 1) + ANSWERED))
    result = instance.hook(b"", b"")
    assert (result.action, result.data) == (discriminants, text)
    assert recorder.published == [("\0", b"\0")]


def test_a_publish_that_the_window_cannot_hold_is_rate_limited(
    engine: HostEngine, recorder: Recorder
) -> None:
    settings = EngineSettings(memory_bytes=64 << 20)
    large = HostEngine(settings)
    try:
        text = guest_text(publish_call(0, 1, 0, 13 << 20) + ANSWERED, pages="256")
        instance = Instance(code_of(large, text), recorder.context())
        assert instance.hook(b"", b"").action == "\x01\x03"
        assert recorder.published == []
    finally:
        large.close()


def test_a_payload_that_the_window_cannot_hold_is_refused_and_kills_nobody(instantiate: Instantiate) -> None:
    instance = instantiate(guest_text(ECHO))
    with pytest.raises(LimitExceeded) as caught:
        instance.hook(b"", bytes(13 << 20))
    assert caught.value.code == "hook-payload"
    assert instance.hook(b"a", b"") == HookResult("a", b"")


def test_a_payload_over_the_memory_limit_is_refused(instantiate: Instantiate) -> None:
    with pytest.raises(LimitExceeded, match="at most 4194304 bytes"):
        instantiate(guest_text(ECHO)).hook(b"", bytes(5 << 20))


def test_fuel_ends_a_spinning_guest(instantiate: Instantiate) -> None:
    with pytest.raises(GuestTrap) as caught:
        instantiate(guest_text("(loop $l (br $l)) unreachable")).hook(b"", b"")
    assert caught.value.reason is TrapReason.FUEL


def test_each_call_has_its_own_fuel(instantiate: Instantiate) -> None:
    loop = """(local.set $i (i32.const 2000000))
     (loop $l (local.set $i (i32.sub (local.get $i) (i32.const 1))) (br_if $l (local.get $i)))"""
    instance = instantiate(guest_text(loop + CONTINUE))
    for _ in range(4):
        instance.hook(b"", b"")


def test_cmp_15_the_deadline_ends_a_guest_that_fuel_does_not(recorder: Recorder) -> None:
    engine = HostEngine(EngineSettings(fuel_per_call=1 << 62, call_timeout_s=30, epoch_tick_s=0.005))
    try:
        instance = Instance(code_of(engine, guest_text("(loop $l (br $l)) unreachable")), recorder.context())
        with pytest.raises(GuestTrap) as caught:
            instance.hook(b"", b"", timeout_s=0.01)
        assert (caught.value.reason, caught.value.message) == (
            TrapReason.DEADLINE,
            "it ran longer than one call may",
        )
    finally:
        engine.close()


@pytest.mark.parametrize("timeout_s", [None, 3600.0])
def test_closing_the_engine_ends_a_guest_that_runs(recorder: Recorder, timeout_s: float | None) -> None:
    engine = HostEngine(EngineSettings(fuel_per_call=1 << 62, epoch_tick_s=60))
    started, reasons = threading.Event(), []
    recorder.answers = lambda _topic, _payload: started.set()
    text = guest_text(publish_call(0, 1, 0, 0) + "(loop $l (br $l)) unreachable")
    instance = Instance(code_of(engine, text), recorder.context())

    def spin() -> None:
        try:
            instance.hook(b"", b"", timeout_s=timeout_s)
        except GuestTrap as trap:
            reasons.append(trap.reason)

    thread = threading.Thread(target=spin)
    thread.start()
    assert started.wait(10)
    engine.close()
    thread.join(10)
    assert reasons == [TrapReason.DEADLINE]


def test_closing_the_engine_wakes_a_guest_that_sleeps(recorder: Recorder) -> None:
    engine = HostEngine(EngineSettings(epoch_tick_s=60))
    asleep, ends = threading.Event(), []
    sleep = f'(import "{SYS}" "sleep-ns" (func $sleep (param i64 i32)))'
    text = guest_text("(call $sleep (i64.const 60000000000) (i32.const 512))" + CONTINUE, imports=sleep)
    instance = Instance(code_of(engine, text), recorder.context(sleep=None, before_block=asleep.set))

    def doze() -> None:
        try:
            ends.append(instance.hook(b"", b"").action)
        except GuestTrap as trap:
            ends.append(trap.reason)

    thread = threading.Thread(target=doze)
    thread.start()
    assert asleep.wait(10)
    engine.close()
    thread.join(10)
    assert ends == [TrapReason.DEADLINE]


def test_cancelling_an_invocation_stops_the_guest_that_serves_it_and_no_other(recorder: Recorder) -> None:
    engine = HostEngine(EngineSettings(fuel_per_call=1 << 62, epoch_tick_s=60))
    text = guest_text(publish_call(0, 1, 0, 0) + "(loop $l (br $l)) unreachable")
    started = threading.Semaphore(0)
    recorder.answers = lambda _topic, _payload: started.release()
    instances = [Instance(code_of(engine, text), recorder.context(current=envelope_from("a"))) for _ in "ab"]
    ends: list[tuple[int, TrapReason]] = []

    def spin(which: int) -> None:
        with pytest.raises(GuestTrap) as caught:
            instances[which].hook(b"", b"", timeout_s=3600.0)
        ends.append((which, caught.value.reason))

    threads = [threading.Thread(target=spin, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert started.acquire(timeout=10)
    context = instances[0].context
    context.cancelled = envelope_from("a")  # an equal one, but not this invocation
    instances[0].wake()
    context.cancelled = context.current
    instances[0].wake()
    threads[0].join(10)
    assert ends == [(0, TrapReason.CANCELLED)] and threads[1].is_alive()
    assert [one.dead for one in instances] == [True, False]
    engine.close()
    threads[1].join(10)
    assert ends == [(0, TrapReason.CANCELLED), (1, TrapReason.DEADLINE)]


def test_a_late_cancel_stops_nothing(instantiate: Instantiate) -> None:
    instance = instantiate(guest_text(CONTINUE))
    old, new = envelope_from("a"), envelope_from("a")
    instance.context.current = old
    instance.hook(b"", b"")
    instance.context.current, instance.context.cancelled = new, old
    instance.context.waiting = inflow = FakeInflow()
    instance.wake()
    assert inflow.wakes == 1
    assert instance.hook(b"", b"").action == ""


def test_a_cancelled_guest_that_sleeps_is_woken(recorder: Recorder) -> None:
    engine = HostEngine(EngineSettings(epoch_tick_s=60))
    asleep, ends = threading.Event(), []
    sleep = f'(import "{SYS}" "sleep-ns" (func $sleep (param i64 i32)))'
    text = guest_text("(call $sleep (i64.const 60000000000) (i32.const 512))" + CONTINUE, imports=sleep)
    context = recorder.context(sleep=None, before_block=asleep.set, current=envelope_from("a"))
    instance = Instance(code_of(engine, text), context)

    def doze() -> None:
        with pytest.raises(GuestTrap) as caught:
            instance.hook(b"", b"")
        ends.append(caught.value.reason)

    thread = threading.Thread(target=doze)
    thread.start()
    assert asleep.wait(10)
    context.cancelled = context.current
    instance.wake()
    thread.join(10)
    engine.close()
    assert ends == [TrapReason.CANCELLED]


def test_a_sleep_ends_with_the_time_of_its_call(recorder: Recorder) -> None:
    engine = HostEngine(EngineSettings(epoch_tick_s=0.005))
    sleep = f'(import "{SYS}" "sleep-ns" (func $sleep (param i64 i32)))'
    text = guest_text("(call $sleep (i64.const 60000000000) (i32.const 512))" + CONTINUE, imports=sleep)
    try:
        instance = Instance(code_of(engine, text), recorder.context(sleep=None))
        with pytest.raises(GuestTrap) as caught:
            instance.hook(b"", b"", timeout_s=0.02)
        assert caught.value.reason is TrapReason.DEADLINE
    finally:
        engine.close()


def test_cmp_07_an_abort_after_growing_to_the_limit_is_reported_as_memory(instantiate: Instantiate) -> None:
    grow = "(drop (memory.grow (i32.const 40)))"
    with pytest.raises(GuestTrap) as caught:
        instantiate(guest_text(grow + "unreachable")).hook(b"", b"")
    assert (caught.value.reason, caught.value.message) == (TrapReason.MEMORY, "it ran out of memory")


def test_a_panic_that_was_logged_is_no_lack_of_memory(instantiate: Instantiate) -> None:
    log = f'(import "{SYS}" "log" (func $log (param i32 i32 i32)))'
    complain = "(call $log (i32.const 4) (i32.const 0) (i32.const 0))"
    hook = f"(drop (memory.grow (i32.const 40))) {complain} unreachable"
    with pytest.raises(GuestTrap) as caught:
        instantiate(guest_text(hook, imports=log)).hook(b"", b"")
    assert caught.value.reason is TrapReason.TRAP


def test_cmp_12_the_message_outward_has_no_backtrace_and_the_log_has_it(
    instantiate: Instantiate, recorder: Recorder
) -> None:
    with pytest.raises(GuestTrap) as caught:
        instantiate(guest_text("unreachable")).hook(b"", b"")
    assert str(caught.value) == "it panicked or aborted"
    [(level, record)] = recorder.logged
    assert level == "error"
    assert record.startswith("stopped (trap): it panicked or aborted\n")
    assert "wasm backtrace" in record


def test_a_dead_instance_refuses(instantiate: Instantiate) -> None:
    instance = instantiate(guest_text("unreachable"))
    for message in ("it panicked or aborted", "the instance has stopped before"):
        with pytest.raises(GuestTrap, match=message):
            instance.hook(b"", b"")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_cmp_08_what_is_no_exception_comes_out_of_the_hook(
    instantiate: Instantiate, recorder: Recorder, raised: type[BaseException]
) -> None:
    def interrupt(_topic: str, _payload: bytes) -> None:
        raise raised

    recorder.answers = interrupt
    instance = instantiate(guest_text(publish_call(0, 1, 0, 0) + CONTINUE))
    with pytest.raises(raised):
        instance.hook(b"", b"")
    assert instance.dead


def test_cmp_08_a_fault_of_the_host_is_a_trap_with_its_cause(
    instantiate: Instantiate, recorder: Recorder
) -> None:
    fault = Conflict("some-code", "a port failed", hint="look")

    def fail(_topic: str, _payload: bytes) -> None:
        raise fault

    recorder.answers = fail
    with pytest.raises(GuestTrap) as caught:
        instantiate(guest_text(publish_call(0, 1, 0, 0) + CONTINUE)).hook(b"", b"")
    trap = caught.value
    assert (trap.reason, trap.message, trap.__cause__) == (TrapReason.HOST, "a host function failed", fault)
    assert trap.detail == "Conflict: a port failed"


def test_a_fault_of_one_capsule_does_not_reach_another(instantiate: Instantiate, recorder: Recorder) -> None:
    healthy, sick = instantiate(guest_text(ECHO)), instantiate(guest_text("unreachable"))
    with pytest.raises(GuestTrap):
        sick.hook(b"", b"")
    assert healthy.hook(b"a", b"b") == HookResult("a", b"b")


def test_cmp_14_a_second_thread_is_refused(instantiate: Instantiate, recorder: Recorder) -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait(_topic: str, _payload: bytes) -> None:
        inside.set()
        leave.wait(10)

    recorder.answers = wait
    instance = instantiate(guest_text(publish_call(0, 1, 0, 0) + CONTINUE))
    thread = threading.Thread(target=instance.hook, args=(b"", b""))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(RuntimeError, match="two threads"):
        instance.hook(b"", b"")
    with pytest.raises(RuntimeError, match="another thread runs it"):
        instance.close()
    leave.set()
    thread.join(10)
    assert not instance.dead


def test_a_hook_may_not_enter_its_own_instance(instantiate: Instantiate, recorder: Recorder) -> None:
    instances: list[Instance] = []
    recorder.answers = lambda _topic, _payload: instances[0].hook(b"", b"").action
    instances.append(instantiate(guest_text(publish_call(0, 1, 0, 0) + CONTINUE)))
    with pytest.raises(GuestTrap) as caught:
        instances[0].hook(b"", b"")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_lifecycle_runs_the_export(instantiate: Instantiate, recorder: Recorder) -> None:
    instance = instantiate(guest_text(install=publish_call(0, 1, 0, 0)))
    instance.lifecycle("astrid-install")
    assert recorder.published == [("\0", b"")]
    with pytest.raises(InvalidInput) as caught:
        instance.lifecycle("astrid-upgrade")
    assert caught.value.code == "lifecycle-missing"


def test_a_lifecycle_export_may_take_ten_minutes(
    instantiate: Instantiate, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []
    arm = Instance._arm
    monkeypatch.setattr(
        Instance, "_arm", lambda self, timeout_s, fuel: given.append(timeout_s) or arm(self, timeout_s, fuel)
    )
    instantiate(guest_text(install="nop")).lifecycle("astrid-install")
    assert given == [600.0]


def test_a_trap_in_a_lifecycle_export_is_reported(instantiate: Instantiate) -> None:
    instance = instantiate(guest_text(install="unreachable"))
    with pytest.raises(GuestTrap, match="panicked"):
        instance.lifecycle("astrid-install")
    assert instance.dead


def test_the_context_carries_the_invocation(instantiate: Instantiate) -> None:
    seen = []
    instance = instantiate(guest_text(publish_call(0, 1, 0, 0) + CONTINUE))
    instance.context.publish = lambda _topic, _payload: seen.append(instance.context.current)
    instance.context.current = envelope_from("alice")
    instance.hook(b"", b"")
    assert [envelope.principal for envelope in seen if envelope] == ["alice"]


def test_a_start_function_that_traps_is_a_trap(engine: HostEngine, recorder: Recorder) -> None:
    code = code_of(engine, guest_text(more="(func $start unreachable) (start $start)"))
    with pytest.raises(GuestTrap, match="panicked"):
        Instance(code, recorder.context())


def test_a_start_function_that_spins_is_stopped(engine: HostEngine, recorder: Recorder) -> None:
    code = code_of(engine, guest_text(more="(func $start (loop $l (br $l))) (start $start)"))
    with pytest.raises(GuestTrap) as caught:
        Instance(code, recorder.context())
    assert caught.value.reason is TrapReason.FUEL


def test_a_start_function_has_no_host(engine: HostEngine, recorder: Recorder) -> None:
    call = f"(func $start {publish_call(0, 0, 0, 0)}) (start $start)"
    with pytest.raises(GuestTrap, match="a function that is not there"):
        Instance(code_of(engine, guest_text(more=call)), recorder.context())
    log = f'(import "{SYS}" "log" (func $log (param i32 i32 i32)))'
    call = "(func $start (call $log (i32.const 0) (i32.const 0) (i32.const 0))) (start $start)"
    with pytest.raises(GuestTrap, match="before it was ready"):
        Instance(code_of(engine, guest_text(more=call, imports=log)), recorder.context())
    assert (recorder.published, recorder.logged) == ([], [])


def test_cmp_07_a_module_that_starts_too_large_does_not_start(engine: HostEngine, recorder: Recorder) -> None:
    with pytest.raises(LimitExceeded) as caught:
        Instance(code_of(engine, guest_text(pages="1000")), recorder.context())
    assert caught.value.code == "instance-too-large"


def test_exports_of_the_wrong_kind_are_refused(engine: HostEngine, recorder: Recorder) -> None:
    text = guest_text().replace(
        '(memory (export "memory")', '(global (export "memory") i32 (i32.const 0)) (memory'
    )
    with pytest.raises(InvalidInput) as caught:
        Instance(code_of(engine, text), recorder.context())
    assert caught.value.code == "component-exports"


def test_close_frees_and_may_be_repeated(instantiate: Instantiate) -> None:
    instance = instantiate(guest_text(ECHO))
    instance.hook(b"a", b"b")
    instance.close()
    instance.close()
    with pytest.raises(GuestTrap, match="has stopped before"):
        instance.hook(b"a", b"b")
    assert instance.memory_bytes() == 0


def test_cmp_14_many_threads_with_an_instance_each(engine: HostEngine) -> None:
    code = code_of(engine, guest_text(publish_call(64, 5, 80, 2) + ECHO))

    def work(number: int) -> int:
        published = 0
        for turn in range(20):
            recorder = Recorder()
            instance = Instance(code, recorder.context())
            for _ in range(20):
                payload = f"{number}-{turn}".encode() * 50
                assert instance.hook(b"act", payload) == HookResult("act", payload)
            published += len(recorder.published)
            instance.close()
        return published

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8), timeout=60)) == [400] * 8


def test_cmp_18_a_large_value_crosses_whole(recorder: Recorder) -> None:
    large = HostEngine(EngineSettings())
    try:
        get = f'(import "{KV}" "kv-get" (func $get (param i32 i32 i32)))'
        set_ = f'(import "{KV}" "kv-set" (func $set (param i32 i32 i32 i32 i32)))'
        copy = """(call $get (i32.const 64) (i32.const 1) (i32.const 512))
         (call $set (i32.const 65) (i32.const 1) (i32.load (i32.const 520)) (i32.load (i32.const 524))
          (i32.const 512))"""
        text = guest_text(copy + CONTINUE, imports=get + set_, more='(data (i32.const 64) "kl")')
        recorder.kv.values["k"] = bytes(range(256)) * 40_000
        Instance(code_of(large, text), recorder.context()).hook(b"", b"")
        assert recorder.kv.values["l"] == recorder.kv.values["k"]
    finally:
        large.close()


def looping(engine: HostEngine, body: str) -> Code:
    """A guest whose `run` does `body`."""
    imports = f'(import "{SYS}" "sleep-ns" (func $sleep (param i64 i32)))'
    text = guest_text(CONTINUE, imports=imports).replace(
        '(func (export "run"))', f'(func (export "run") (local $i i32) {body})'
    )
    return code_of(engine, text, implemented=("run",))


SLEEP = "(call $sleep (i64.const 1000000) (i32.const 512))"


def test_a_run_loop_may_go_on_for_ever_as_long_as_it_waits(engine: HostEngine, recorder: Recorder) -> None:
    """Each wait renews deadline and fuel: 50 waits of 10 ms, in windows of 100 ms."""
    work = """(local.set $i (i32.const 200000))
     (loop $w (local.set $i (i32.sub (local.get $i) (i32.const 1))) (br_if $w (local.get $i)))"""
    body = f"(loop $l {work} {SLEEP} (br_if $l (i32.eqz (i32.load8_u (i32.const 512)))))"
    rounds: list[float] = []

    def sleep(duration_s: float) -> bool:
        rounds.append(duration_s)
        threading.Event().wait(0.01)
        return len(rounds) < 50

    instance = Instance(looping(engine, body), recorder.context(sleep=sleep, is_loop=True))
    instance.run_loop(window_s=0.1, is_stopping=lambda: False)
    assert (len(rounds), instance.dead) == (50, False)
    instance.close()


def test_a_run_loop_that_never_waits_is_stopped(engine: HostEngine, recorder: Recorder) -> None:
    large = HostEngine(EngineSettings(memory_bytes=4 << 20, epoch_tick_s=0.01))
    try:
        spin = looping(large, "(loop $l (br $l))")
        instance = Instance(spin, recorder.context(is_loop=True))
        with pytest.raises(GuestTrap) as caught:
            instance.run_loop(window_s=0.1, is_stopping=lambda: False)
        assert caught.value.reason is TrapReason.DEADLINE
    finally:
        large.close()


def test_a_run_loop_that_is_stopping_gets_no_more_time(engine: HostEngine, recorder: Recorder) -> None:
    body = f"(loop $l {SLEEP} (br $l))"
    instance = Instance(looping(engine, body), recorder.context(sleep=lambda _s: False, is_loop=True))
    with pytest.raises(GuestTrap) as caught:
        instance.run_loop(window_s=0.1, is_stopping=lambda: True)
    assert caught.value.reason in (TrapReason.CANCELLED, TrapReason.FUEL)


def test_a_spinning_run_loop_that_is_asked_to_stop_is_stopped_soon(
    engine: HostEngine, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STOP_GRACE_S", 0.02)
    large = HostEngine(EngineSettings(memory_bytes=4 << 20, epoch_tick_s=0.005))
    try:
        instance = Instance(looping(large, "(loop $l (br $l))"), recorder.context(is_loop=True))
        with pytest.raises(GuestTrap) as caught:
            instance.run_loop(window_s=3600.0, is_stopping=lambda: True)
        assert caught.value.reason is TrapReason.CANCELLED
    finally:
        large.close()
