"""Run loops on their threads: readiness, restarts, stopping, and taking over from another version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from aos_runtime.bus.inbox import Scope
from aos_runtime.errors import Unavailable
from aos_runtime.host import GuestTrap, TrapReason
from aos_runtime.kernel import runloop as module
from aos_runtime.kernel.answers import status
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.loading import Loaded
from aos_runtime.kernel.runloop import Attempt, LoopState, RunLoop
from aos_runtime.kernel.subscriptions import Subscription
from aos_runtime.names import CapsuleName
from tests.runtime.kernel.test_answers import PROCESS
from tests.support.kernels import ALICE, Bench

Run = Callable[[Attempt], None]
NAME = CapsuleName("looper")


class FakeLoop:
    """Runs a Python function as the guest's `run`."""

    def __init__(self, run: Run, attempt: Attempt) -> None:
        self.run = run
        self.attempt = attempt
        self.closes = 0

    def run_loop(self, *, window_s: float, is_stopping: Callable[[], bool]) -> None:
        self.run(self.attempt)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.closes += 1


class Loops:
    """Makes loops on a bench and ends them all."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.made: list[RunLoop] = []
        self.instances: list[FakeLoop] = []
        self.failures: list[tuple[str, float | None]] = []
        self.pauses: list[float] = []

    def make(self, run: Run, *, version: str = "0.1.0") -> RunLoop:
        def open_instance(attempt: Attempt) -> FakeLoop:
            self.instances.append(FakeLoop(run, attempt))
            return self.instances[-1]

        def pause(stop: threading.Event, delay_s: float) -> bool:
            self.pauses.append(delay_s)
            return stop.wait(0.0)

        loop = RunLoop(
            name=NAME,
            version=version,
            principal=ALICE,
            open_instance=open_instance,
            subscriptions=self.bench.kernel.subscriptions,
            pause=pause,
        )
        loop.on_failed = lambda _loop, reason, delay_s: self.failures.append((reason, delay_s))
        self.made.append(loop)
        return loop

    def listen(self, attempt: Attempt, topic: str) -> Subscription:
        return self.bench.kernel.subscriptions.open(attempt.owner, topic, Scope(ALICE, True))


@pytest.fixture
def loops() -> Iterator[Loops]:
    made = Loops()
    yield made
    for loop in made.made:
        loop.close()
        assert loop.join(5), "its thread ends"


def steady(attempt: Attempt) -> None:
    attempt.signal_ready()
    while attempt.sleep(60):
        pass


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_times_are_the_published_ones() -> None:
    assert (module.READY_S, module.ACTIVATION_S) == (0.5, 30.0)
    assert module.WINDOW_S == 3 * 50 * 0.1, "three windows of 50 ticks"


def test_a_loop_that_signals_is_ready_and_runs_on_its_own_thread(loops: Loops) -> None:
    loop = loops.make(steady)
    assert loop.start(is_staged=False) is None
    assert loop.state is LoopState.READY
    assert not loop.join(0.0)
    loop.close()
    assert loop.join(5)
    assert (loop.state, loops.instances[0].closes, loops.failures) == (LoopState.STOPPED, 1, [])


def test_log_07_one_that_ends_before_says_what_the_guest_said(loops: Loops) -> None:
    def run(attempt: Attempt) -> None:
        attempt.note("warn", "not this")
        attempt.note("error", "run loop exited with error: no config\nand more")
        attempt.note("error", "stopped (trap): it panicked\nwasm backtrace")

    loop = loops.make(run)
    reason = "exited before signaling ready: it ended: run loop exited with error: no config"
    assert loop.start(is_staged=False) == reason
    assert loop.join(5) and loops.failures == [], "a load that fails is not supervised"


def test_one_that_never_signals_is_not_ready(loops: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_S", 0.01)

    def mute(attempt: Attempt) -> None:
        while attempt.sleep(60):
            pass

    loop = loops.make(mute)
    assert loop.start(is_staged=False) == "did not signal ready within 500ms"
    assert loop.join(5), "and is really stopped"


def test_one_that_cannot_be_made_is_not_ready(loops: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loops.make(steady)

    def fail(attempt: Attempt) -> FakeLoop:
        raise Unavailable("x", "no memory left", hint="h")

    loop._open_instance = fail
    assert loop.start(is_staged=False) == "exited before signaling ready: no memory left"
    monkeypatch.setattr(module, "ACTIVATION_S", 0.01)
    release = threading.Event()
    slow = loops.make(steady)
    slow._open_instance = lambda attempt: (
        FakeLoop(lambda _: None, attempt) if release.wait(5) else fail(attempt)
    )
    assert slow.start(is_staged=False) == "did not activate within 30000ms"
    release.set()
    assert slow.join(5)


def trapping(reason: TrapReason) -> Run:
    def run(attempt: Attempt) -> None:
        attempt.signal_ready()
        raise GuestTrap(reason, "it panicked or aborted")

    return run


def test_cmp_13_one_that_fails_at_once_is_disabled_after_five_restarts(loops: Loops) -> None:
    loop = loops.make(trapping(TrapReason.TRAP))
    assert loop.start(is_staged=False) is None
    assert loop.join(5)
    assert loops.pauses == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert [delay_s for _, delay_s in loops.failures] == [2.0, 4.0, 8.0, 16.0, 32.0, None]
    assert (loop.state, loop.reason) == (LoopState.DISABLED, "it panicked or aborted")
    assert [one.closes for one in loops.instances] == [1] * 6, "old instances really stop"


def test_one_that_comes_back_is_ready_again(loops: Loops) -> None:
    runs: list[Attempt] = []

    def run(attempt: Attempt) -> None:
        runs.append(attempt)
        attempt.signal_ready()
        if len(runs) > 1:
            steady(attempt)
        attempt.note("error", "hiccup")

    loop = loops.make(run)
    assert loop.start(is_staged=False) is None
    wait_for(lambda: len(runs) == 2 and loop.state is LoopState.READY)
    assert (loop.reason, loop.restarts.count) == ("it ended: hiccup", 1)


def test_a_spinning_loop_is_said_to_spin(loops: Loops) -> None:
    loop = loops.make(trapping(TrapReason.DEADLINE))
    loop.start(is_staged=False)
    assert loop.join(5)
    assert loop.reason == "it ran too long without a wait"


def test_a_bug_of_ours_ends_that_loop_only(loops: Loops) -> None:
    def run(attempt: Attempt) -> None:
        raise ZeroDivisionError("host")

    assert "internal fault: ZeroDivisionError" in str(loops.make(run).start(is_staged=False))


def test_a_restart_that_never_signals_has_failed(loops: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Attempt] = []

    def run(attempt: Attempt) -> None:
        runs.append(attempt)
        if len(runs) == 1:
            attempt.signal_ready()
        else:
            attempt.sleep(60)

    loop = loops.make(run)
    assert loop.start(is_staged=False) is None
    wait_for(lambda: len(runs) == 2 and loop.attempt.opened.is_set())
    assert loop.state is LoopState.RESTARTING
    loop.sweep(time.monotonic())
    assert not loop.attempt.is_stopping()
    monkeypatch.setattr(module, "READY_S", -1.0)
    loop.sweep(time.monotonic())
    wait_for(lambda: len(loops.failures) == 2)
    assert loops.failures[1] == ("it ended: did not signal ready within 500ms", 4.0)


def test_its_subscriptions_end_with_the_attempt(loops: Loops) -> None:
    held: list[Subscription] = []

    def run(attempt: Attempt) -> None:
        held.append(loops.listen(attempt, "a.v1"))
        attempt.signal_ready()
        held[-1].wait(60)

    loop = loops.make(run)
    assert loop.start(is_staged=False) is None
    assert loop.receives("a.v1") and not loop.receives("b.v1")
    loop.close()
    assert loop.join(5)
    assert held[0].is_closed and loops.bench.kernel.subscriptions.count == 0


# with the lifecycle


def loaded(loops: Loops, run: Run, *, version: str = "0.1.0", **manifest: object) -> RunLoop:
    """Put a capsule with a run loop where the next load finds it."""
    return crew(loops, [run], version=version, **manifest)[0]


def crew(loops: Loops, runs: list[Run], *, version: str = "0.1.0", **manifest: object) -> tuple[RunLoop, ...]:
    """The same with a worker for each of `runs`."""
    made = loops.bench.capsule(NAME, version=version, **manifest)  # type: ignore[arg-type]  # the test's own
    workers = tuple(loops.make(run, version=version) for run in runs)
    loops.bench.loads[ALICE, NAME] = Loaded(
        installed=made.installed,
        source_id=made.source_id,
        generation=made.generation,
        tools=made.tools,
        warnings=made.warnings,
        loops=workers,
    )
    return workers


def lifecycle(loops: Loops) -> Lifecycle:
    return loops.bench.lifecycle


def recorder(loops: Loops, got: list[bytes], topic: str = "a.v1") -> Run:
    def run(attempt: Attempt) -> None:
        subscription = loops.listen(attempt, topic)
        attempt.signal_ready()
        while not subscription.is_closed:
            envelope = subscription.wait(60)
            if envelope is not None:
                got.append(envelope.body)

    return run


def test_a_capsule_with_a_run_loop_hears_through_it_and_its_rows_are_not_called(loops: Loops) -> None:
    got: list[bytes] = []
    loaded(loops, recorder(loops, got), subscribe={"a.v1": "go", "b.v1": "go"})
    view = lifecycle(loops).load_all(ALICE)
    resident = view.residents[NAME]
    assert resident.unheard == ("b.v1",)
    loops.bench.publish("a.v1", b"1")
    loops.bench.publish("b.v1", b"2")
    wait_for(lambda: got == [b"1"])
    assert not loops.bench.ready, "nothing was queued for a handler"
    assert lifecycle(loops).unload(ALICE, NAME)
    assert resident.loops[0].join(5)


def test_one_that_is_not_ready_is_a_row_with_a_reason_and_the_others_serve(loops: Loops) -> None:
    loaded(loops, lambda attempt: None)
    loops.bench.capsule("other", subscribe={"c.v1": "go"})
    view = lifecycle(loops).load_all(ALICE)
    assert view.names == ("other",)
    assert view.unready[NAME].state == "failed"
    assert view.unready[NAME].reason == (
        "run loop of capsule 'looper' 0.1.0 exited before signaling ready: it ended"
    )
    lines = [line for line in loops.bench.journal.lines if line[0] == "_daemon" and "looper" in line[2]]
    assert [(level, text) for _, level, text in lines] == [("error", view.unready[NAME].reason)]


def test_a_new_version_takes_over_without_loss_and_the_old_one_ends(loops: Loops) -> None:
    old_got: list[bytes] = []
    new_got: list[bytes] = []
    old = loaded(loops, recorder(loops, old_got))
    lifecycle(loops).load_all(ALICE)
    loops.bench.publish("a.v1", b"1")
    wait_for(lambda: old_got == [b"1"])
    new = loaded(loops, recorder(loops, new_got), version="0.2.0")
    lifecycle(loops).reload(ALICE, NAME)
    assert old.join(5) and new.state is LoopState.READY
    for number in range(2, 50):
        loops.bench.publish("a.v1", str(number).encode())
    wait_for(lambda: len(old_got) + len(new_got) == 49)
    assert [*old_got, *new_got] == [str(number).encode() for number in range(1, 50)]


def test_a_new_version_that_is_not_ready_is_rolled_back(loops: Loops) -> None:
    got: list[bytes] = []
    old = loaded(loops, recorder(loops, got))
    lifecycle(loops).load_all(ALICE)
    bad = loaded(loops, lambda attempt: None, version="0.2.0")
    with pytest.raises(Unavailable, match=r"'looper' 0\.2\.0 exited before signaling ready"):
        lifecycle(loops).reload(ALICE, NAME)
    assert bad.join(5) and old.state is LoopState.READY
    view = lifecycle(loops).view(ALICE)
    assert (view.residents[NAME].version, view.unready[NAME].version) == ("0.1.0", "0.2.0")
    loops.bench.publish("a.v1", b"still here")
    wait_for(lambda: got == [b"still here"])


def test_one_that_is_disabled_comes_back_with_a_reload(loops: Loops) -> None:
    got: list[bytes] = []
    broken = loaded(loops, trapping(TrapReason.TRAP))
    lifecycle(loops).load_all(ALICE)
    assert broken.join(5) and broken.state is LoopState.DISABLED
    lifecycle(loops).sweep(1e9)
    loops.bench.publish("a.v1", b"lost")
    assert (broken.state, len(loops.made)) == (LoopState.DISABLED, 1), "nothing else starts it"
    mended = loaded(loops, recorder(loops, got))
    lifecycle(loops).reload(ALICE, NAME)
    assert mended.state is LoopState.READY
    loops.bench.publish("a.v1", b"heard")
    wait_for(lambda: got == [b"heard"])


def test_a_loop_that_replaces_a_capsule_without_one_receives_once(loops: Loops) -> None:
    got: list[bytes] = []
    loops.bench.capsule(NAME)
    lifecycle(loops).load_all(ALICE)
    loaded(loops, recorder(loops, got), version="0.2.0")
    lifecycle(loops).reload(ALICE, NAME)
    loops.bench.publish("a.v1", b"1")
    loops.bench.publish("a.v1", b"2")
    wait_for(lambda: len(got) >= 2)
    assert got == [b"1", b"2"]


def test_stopping_the_daemon_ends_every_loop_and_starts_none(loops: Loops) -> None:
    loop = loaded(loops, steady)
    lifecycle(loops).load_all(ALICE)
    lifecycle(loops).stop_loops()
    assert lifecycle(loops).join_loops(5)
    lifecycle(loops).sweep(time.monotonic())
    assert loop.state is LoopState.STOPPED and lifecycle(loops)._loops == set()
    with pytest.raises(Unavailable, match="stopping"):
        lifecycle(loops).load_all(CapsuleName("bob"))  # type: ignore[arg-type]  # a principal's name


def test_a_principal_that_goes_is_left_by_its_loops_first(loops: Loops) -> None:
    """Its files are removed next."""
    ended: list[bool] = []

    def slow_to_end(attempt: Attempt) -> None:
        steady(attempt)
        time.sleep(0.2)
        ended.append(True)

    loaded(loops, slow_to_end)
    lifecycle(loops).load_all(ALICE)
    assert lifecycle(loops).forget(ALICE, 5.0) == (NAME,)
    assert ended == [True]


def test_a_loop_that_a_stop_has_not_seen_is_not_started(loops: Loops) -> None:
    loop = loaded(loops, steady)
    life = lifecycle(loops)

    class Seen(set[RunLoop]):
        def add(self, one: RunLoop) -> None:
            life.stop_loops()  # it looks just before the loop is there
            super().add(one)

    life._loops = Seen()
    with pytest.raises(Unavailable, match="stopping"):
        life.load_all(ALICE)
    assert life.join_loops(5) and loops.instances == [] and loop.join(0.0)


def test_workers_run_side_by_side_and_come_and_go_together(loops: Loops) -> None:
    old = crew(loops, [steady, steady, steady], subscribe={"a.v1": "go"})
    view = lifecycle(loops).load_all(ALICE)
    (row,) = status(view, PROCESS)["capsules"]  # type: ignore[misc]  # a JSON value
    assert [one.state for one in old] == [LoopState.READY] * 3
    assert (row["state"], row["workers"], row["restarts"]) == ("ready", 3, 0)
    got: list[bytes] = []
    new = crew(loops, [recorder(loops, got), steady], version="0.2.0")
    lifecycle(loops).reload(ALICE, NAME)
    assert all(one.join(5) for one in old)
    assert [one.state for one in new] == [LoopState.READY] * 2
    loops.bench.publish("a.v1", b"1")
    wait_for(lambda: got == [b"1"])
    assert lifecycle(loops).unload(ALICE, NAME)
    assert all(one.join(5) for one in new)


def test_one_worker_that_is_not_ready_fails_them_all(loops: Loops) -> None:
    old = loaded(loops, steady)
    lifecycle(loops).load_all(ALICE)
    new = crew(loops, [steady, lambda attempt: None, steady], version="0.2.0")
    with pytest.raises(Unavailable, match=r"'looper' 0\.2\.0 exited before signaling ready"):
        lifecycle(loops).reload(ALICE, NAME)
    assert all(one.join(5) and one.state is LoopState.STOPPED for one in new)
    assert old.state is LoopState.READY


def test_the_status_shows_the_worker_that_is_worst_off(loops: Loops) -> None:
    bad = crew(loops, [steady, trapping(TrapReason.TRAP)])[1]
    view = lifecycle(loops).load_all(ALICE)
    assert bad.join(5)
    (row,) = status(view, PROCESS)["capsules"]  # type: ignore[misc]  # a JSON value
    assert (row["state"], row["restarts"], row["reason"]) == ("disabled", 5, "it panicked or aborted")
