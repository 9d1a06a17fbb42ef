"""The engine's clock, its end, and what is left when everything is gone."""

from __future__ import annotations

import gc
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from wasmtime import WasmtimeError

from aos_runtime.errors import LimitExceeded
from aos_runtime.host import EngineSettings, GuestTrap, HostEngine, Instance
from aos_runtime.host.waiting import WaitGate
from tests.support.guests import CONTINUE, Recorder, code_of, guest_text, publish_call

ROOT = Path(__file__).resolve().parents[3]
LEAVE = """
import sys
from aos_runtime.host import HostEngine, Instance
from tests.support.guests import CONTINUE, Recorder, code_of, guest_text
engine = HostEngine()
text = guest_text("unreachable" if "trap" in sys.argv else CONTINUE)
instance = Instance(code_of(engine, text), Recorder().context())
try:
    instance.hook(b"", b"")
except Exception as error:
    print(type(error).__name__)
if "close" in sys.argv:
    engine.close()
if "exit" in sys.argv:
    sys.exit(3)
if "interrupt" in sys.argv:
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [([], 0), (["close"], 0), (["trap"], 0), (["exit"], 3), (["interrupt"], 130)],
    ids=lambda value: " ".join(value) or "plain" if isinstance(value, list) else None,
)
def test_cmp_16_nothing_is_said_at_the_end(arguments: list[str], status: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LEAVE, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in run.stderr.splitlines() if "Exception ignored" in line or "Fatal" in line]
    assert (said, run.returncode if run.returncode >= 0 else 128 - run.returncode) == ([], status)
    assert run.stdout == ("GuestTrap\n" if "trap" in arguments else "")


def test_the_limits_are_the_published_ones() -> None:
    assert EngineSettings() == EngineSettings(
        memory_bytes=64 * 1024 * 1024,
        table_elements=65_536,
        fuel_per_call=10_000_000_000,
        call_timeout_s=300.0,
        epoch_tick_s=0.1,
    )


def test_48_guests_may_wait_at_once() -> None:
    gate = WaitGate()
    assert [gate.enter() for _ in range(49)] == [True] * 48 + [False]
    gate.leave()
    assert gate.enter()


def test_close_ends_the_clock_and_may_be_repeated() -> None:
    before = threading.active_count()
    engine = HostEngine()
    assert threading.active_count() == before + 1
    engine.close()
    engine.close()
    assert threading.active_count() == before


def test_close_closes_instances(recorder: Recorder) -> None:
    engine = HostEngine()
    instance = Instance(code_of(engine, guest_text()), recorder.context())
    engine.close()
    assert instance.dead
    with pytest.raises(ValueError, match="already closed"):
        Instance(code_of(engine, guest_text()), recorder.context())


def test_a_pause_ends_by_itself_or_is_cut_short() -> None:
    engine = HostEngine()
    assert engine.pause(0.001)
    assert not engine.pause(60, lambda: True)
    engine.close()
    assert not engine.pause(60)


def test_only_so_many_may_sleep_at_once() -> None:
    engine = HostEngine()
    engine.gate.limit = 1
    ends: list[bool] = []
    thread = threading.Thread(target=lambda: ends.append(engine.pause(60)))
    thread.start()
    while engine.gate.count == 0:
        threading.Event().wait(0.001)
    assert not engine.pause(60)
    engine.interrupt_all()
    thread.join(10)
    assert (ends, engine.pause(0.001)) == ([False], True)
    engine.close()


def test_the_fingerprint_names_this_engine(engine: HostEngine) -> None:
    assert re.fullmatch("[0-9a-f]{16}", engine.fingerprint)
    other = HostEngine()
    try:
        assert other.fingerprint == engine.fingerprint
    finally:
        other.close()


def _resident_kb() -> int:
    gc.collect()
    status = Path("/proc/self/status")
    if not status.exists():
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


@pytest.mark.slow
def test_cmp_20_traps_and_failed_instances_leave_nothing_behind(
    engine: HostEngine, recorder: Recorder
) -> None:
    trapping = code_of(engine, guest_text(publish_call(0, 1, 0, 0) + CONTINUE))
    too_large = code_of(engine, guest_text(pages="1000"))

    def fail(_topic: str, _payload: bytes) -> str | None:
        raise ValueError

    def churn(times: int) -> None:
        for _ in range(times):
            instance = Instance(trapping, recorder.context())
            with pytest.raises(GuestTrap):
                instance.hook(b"", b"")
            instance.close()
            with pytest.raises((LimitExceeded, WasmtimeError)):
                Instance(too_large, recorder.context())
        recorder.published.clear()
        recorder.logged.clear()

    recorder.answers = fail
    churn(300)
    before = _resident_kb()
    churn(1500)
    assert _resident_kb() - before < 4096
