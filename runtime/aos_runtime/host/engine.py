"""The engine, its limits and its clock.

One engine serves the whole process.  A thread advances its epoch, because Python cannot run a signal
handler or a timer while a guest holds the thread (case CMP-15); at every tick a guest that runs asks its
instance whether it may go on.  Everything that belongs to the engine is closed in order, at the latest
before the interpreter goes (case CMP-16).
"""

from __future__ import annotations

import atexit
import hashlib
import platform
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from wasmtime import Config, Engine, FuncType, Module, ValType

from aos_runtime.host import edge, raw
from aos_runtime.host.waiting import WaitGate

_CODE_FORMAT = 4
"""Raised when what is kept beside precompiled code changes its form, or a check before it is added."""
_CLOSE_WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What one instance may use.  Fuel is instructions, near enough."""

    memory_bytes: int = 64 << 20
    table_elements: int = 1 << 16
    fuel_per_call: int = 10_000_000_000
    call_timeout_s: float = 300.0
    epoch_tick_s: float = 0.1


class Tenant(Protocol):
    """What lives in an engine and is closed before it: an instance."""

    def close(self, *, wait_s: float) -> None: ...


class HostEngine:
    """An engine and its running clock.  Safe to use from many threads; `close` ends it."""

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self.settings = settings or EngineSettings()
        self.engine = _make_engine()
        self.edge = Module(self.engine, edge.EDGE)
        self.trampoline = Module(self.engine, edge.TRAMPOLINE)
        # A function type belongs to the first engine that uses it; with another it aborts the process.
        self.publish_type = FuncType([ValType.i32(), ValType.i32()], [ValType.i32()])
        self.interruptions = 0
        """How often `interrupt_all` was called: a call that began before the last time is stopped."""
        self._instances: weakref.WeakSet[Tenant] = weakref.WeakSet()
        self._instances_lock = threading.Lock()
        self._address = raw.address_of_engine(self.engine)
        self._closing = threading.Event()
        self._woken = threading.Condition()
        self.gate = WaitGate()
        """Over everything that guests wait for inside a call."""
        self._ticker = threading.Thread(target=self._tick, name="aos-epoch", daemon=True)
        self._ticker.start()
        atexit.register(self.close)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with everything precompiled code depends on."""
        basis = (_CODE_FORMAT, version("wasmtime"), sorted(_FEATURES.items()), _cpu())
        return hashlib.blake2s(repr(basis).encode(), digest_size=8).hexdigest()

    def adopt(self, instance: Tenant) -> None:
        """Remember an instance, to be closed before the engine."""
        with self._instances_lock:
            self._instances.add(instance)

    def interrupt_all(self) -> None:
        """Stop every guest that runs or sleeps now, as if its time were up."""
        self.interruptions += 1
        self.nudge()

    def nudge(self) -> None:
        """Let every guest that runs or sleeps now ask whether it may go on.  The others are not touched."""
        raw.increment_epoch(self._address)
        with self._woken:
            self._woken.notify_all()

    def pause(self, duration_s: float, is_cut: Callable[[], bool] = lambda: False) -> bool:
        """Wait that many seconds; False when it was cut short, or too many wait already.

        `interrupt_all` and `close` cut every wait, a `nudge` those whose `is_cut` is true then.
        """
        if not self.gate.enter():
            return False
        before = self.interruptions

        def is_over() -> bool:
            return self._closing.is_set() or self.interruptions != before or is_cut()

        try:
            with self._woken:
                return not self._woken.wait_for(is_over, duration_s)
        finally:
            self.gate.leave()

    def close(self) -> None:
        """Stop the clock and every guest, then free instances, modules and engine, in that order.

        RuntimeError where a host function has not come back after 10 seconds; then the rest is left as it is.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self.interrupt_all()
        self._ticker.join()
        for instance in self._living():
            instance.close(wait_s=_CLOSE_WAIT_S)
        self.edge.close()
        self.trampoline.close()
        self.engine.close()
        atexit.unregister(self.close)

    def _living(self) -> list[Tenant]:
        with self._instances_lock:
            return list(self._instances)

    def _tick(self) -> None:
        wait, advance, address = self._closing.wait, raw.increment_epoch, self._address
        period_s = self.settings.epoch_tick_s
        while not wait(period_s):
            advance(address)


_FEATURES = {
    "epoch_interruption": True,
    "consume_fuel": True,
    "wasm_threads": False,
    "wasm_gc": False,
    "wasm_function_references": False,
    "wasm_exceptions": False,
    "wasm_memory64": False,
    "wasm_stack_switching": False,
    "wasm_relaxed_simd": False,
    "wasm_multi_memory": True,  # the edge has two
    "memory_may_move": False,  # an address stays good for the life of its store; only the size changes
}


def _make_engine() -> Engine:
    config = Config()
    for name, value in _FEATURES.items():
        setattr(config, name, value)
    return Engine(raw.without_concurrency(config))


def _cpu() -> str:
    """What distinguishes this processor for compiled code, as far as the system tells."""
    features = ""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.system()} {platform.machine()} {features.strip()}"
