"""One guest in one store, for one (capsule, principal) for life.

The lane takes arguments to the guest and back; here is what holds for a guest in any lane: its deadline, its
fuel, and what becomes of whatever stopped it.  An instance that has trapped is dead: drop it and make
another.  A store is used by one thread at a time; a second one is a bug and is refused, loudly (CMP-14).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from ctypes import addressof, c_uint64, c_void_p
from typing import Literal

from wasmtime import Trap, WasmtimeError

from aos_runtime.errors import AosError, InvalidInput, LimitExceeded
from aos_runtime.host import raw
from aos_runtime.host.boundary import Boundary
from aos_runtime.host.code import Code, EdgeCode
from aos_runtime.host.component_lane import ComponentLane
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.edge_lane import EdgeLane
from aos_runtime.host.lane import HookResult, Lane, Stop
from aos_runtime.host.patience import Patience
from aos_runtime.host.raw import get_fuel, set_epoch_deadline, set_fuel
from aos_runtime.host.stopping import classify, detail_of, verdict_of
from aos_runtime.host.traps import STOPPED_PREFIX, GuestTrap, TrapReason

LIFECYCLE_TIMEOUT_S = 600.0
_ONE_TICK = c_uint64(1)


class Instance:
    """See the module's text.  Threads may take turns; `close` frees it at once."""

    def __init__(self, code: Code, context: GuestContext, *, memory_bytes: int | None = None) -> None:
        """Instantiate; runs the guest's start function, if any.

        `memory_bytes` None: as the engine's settings.

        GuestTrap where that traps, LimitExceeded `instance-too-large` where the guest starts with more memory
        or tables than it may have, InvalidInput `component-exports` where its exports are not what a capsule
        has.
        """
        settings = code.engine.settings
        if context.gate is None:
            context.gate = code.engine.gate
        self.context = context
        self.dead = False
        self._engine = code.engine
        self._patience = Patience(code.engine, context, settings.call_timeout_s)
        self._lock = threading.Lock()
        self._boundary = Boundary(context)
        self._memory_limit = settings.memory_bytes if memory_bytes is None else memory_bytes
        self._fuel, self._given_fuel = c_uint64(settings.fuel_per_call), settings.fuel_per_call
        self._fuel_left = c_uint64(0)
        self._left_pointer = c_void_p(addressof(self._fuel_left))
        self._closed = False
        self._lane = self._open_lane(code)
        self._context = raw.context_of(self._lane.store)
        code.engine.adopt(self)

    def hook(
        self, action: bytes, payload: bytes, *, timeout_s: float | None = None, fuel: int | None = None
    ) -> HookResult:
        """Call `astrid-hook-trigger`.  `action` must be UTF-8; the guest gets `payload` as it is.

        `timeout_s` and `fuel` None: as the engine's settings.

        GuestTrap kills the instance.  LimitExceeded `hook-payload` for more than 12 MiB.  KeyboardInterrupt
        and the like, raised in a host function, come out here and kill it too.
        """
        self._enter()
        try:
            self._arm(timeout_s, fuel)
            return self._lane.hook(action, payload)
        except Stop as cause:
            verdict = self._stopped(cause)
            raise verdict from verdict.__cause__
        finally:
            resources = self.context.resources
            if resources.opened != resources.closed and not self.context.keeps_resources:
                resources.sweep()
            self._lock.release()

    def lifecycle(
        self,
        name: Literal["astrid-install", "astrid-upgrade", "run"],
        *,
        timeout_s: float = LIFECYCLE_TIMEOUT_S,
    ) -> None:
        """Run a lifecycle export, on an instance made for it.  GuestTrap as in `hook`.

        InvalidInput `lifecycle-missing` where the author wrote none (`Code.implemented`).
        """
        if not self._lane.has_lifecycle(name):
            raise InvalidInput(
                "lifecycle-missing",
                f"the capsule has no {name} of its own",
                hint="look at Code.implemented first",
            )
        self._enter()
        try:
            self._arm(timeout_s, None)
            self._lane.lifecycle(name)
        except Stop as cause:
            verdict = self._stopped(cause)
            raise verdict from verdict.__cause__
        finally:
            self._lock.release()

    def run_loop(self, *, window_s: float, is_stopping: Callable[[], bool]) -> None:
        """Run the guest's `run` until it returns, on the thread of its own that calls this.

        GuestTrap as in `hook`, also where it goes `window_s` without a wait (recv, accept, sleep), and soon
        after `is_stopping` where it does not return by itself.  InvalidInput `lifecycle-missing` as in
        `lifecycle`.
        """

        def renew() -> None:
            if not is_stopping():
                self._patience.renew(window_s)
                set_fuel(self._context, self._fuel)

        self.context.yielded = renew
        self._patience.is_stopping = is_stopping
        try:
            self.lifecycle("run", timeout_s=window_s)
        finally:
            self.context.resources.clear()

    def wake(self) -> None:
        """Let the running call see at once that it was cancelled; safe from any thread, at any time."""
        inflow = self.context.waiting
        if inflow is not None:
            inflow.wake()
        self._engine.nudge()

    def fuel_used(self) -> int:
        """Fuel that the last call used; asked by the thread that made it, before `close`."""
        if not self._closed:
            get_fuel(self._context, self._left_pointer)
        return self._given_fuel - self._fuel_left.value

    def memory_bytes(self) -> int:
        """Size of the guest's memory now; in the component lane what it started with."""
        return 0 if self._closed else self._lane.memory_bytes()

    def close(self, *, wait_s: float = 0.0) -> None:
        """Free the store.  A call that is running on another thread is waited for, `wait_s` seconds.

        RuntimeError where it has not ended by then; nothing is freed.
        """
        if not (self._lock.acquire(timeout=wait_s) if wait_s else self._lock.acquire(False)):
            raise RuntimeError("instance closed while another thread runs it")
        try:
            if not self._closed:
                self._closed = self.dead = True
                self.context.resources.clear()
                self._lane.close()
        finally:
            self._lock.release()

    def _open_lane(self, code: Code) -> Lane:
        boundary, limit = self._boundary, self._memory_limit
        try:
            if isinstance(code, EdgeCode):
                return EdgeLane(code, boundary, self._at_epoch, memory_bytes=limit)
            return ComponentLane(code, boundary, self._at_epoch, memory_bytes=limit)
        except (Trap, WasmtimeError) as cause:
            verdict = self._fault_verdict() or verdict_of(cause)
            if verdict is not None:
                raise verdict from cause
            raise LimitExceeded(
                "instance-too-large",
                f"cannot start the capsule: {str(cause).strip().splitlines()[0][:200]}",
                hint="lower what the capsule's module asks for at its start",
            ) from cause
        except TypeError as cause:
            raise InvalidInput(
                "component-exports",
                f"the capsule's exports are wrong: {cause}",
                hint="build it with astrid-sdk",
            ) from cause

    def _enter(self) -> None:
        if not self._lock.acquire(False):
            raise RuntimeError("two threads in one instance")
        if self.dead:
            self._lock.release()
            raise GuestTrap(TrapReason.TRAP, "the instance has stopped before")

    def _arm(self, timeout_s: float | None, fuel: int | None) -> None:
        """Give the call that follows its deadline and its fuel."""
        self._boundary.has_complained = False
        self._patience.begin(timeout_s)
        context, fuel = self._context, fuel or self._engine.settings.fuel_per_call
        if fuel != self._given_fuel:
            self._given_fuel, self._fuel = fuel, c_uint64(fuel)
        set_epoch_deadline(context, _ONE_TICK)
        set_fuel(context, self._fuel)

    def _at_epoch(self) -> bytes | None:
        """Whether the running call must end now.  One that need not is asked again at the next tick."""
        verdict = self._patience.verdict()
        if verdict is None:
            return None
        self._boundary.fault = verdict
        return b"interrupted"

    def _stopped(self, cause: Trap | WasmtimeError | AbiViolation) -> GuestTrap:
        """Mark the instance dead and say why; raises what is no trap of the guest."""
        self.dead = True
        if isinstance(cause, AbiViolation):
            return self._dies(GuestTrap(TrapReason.TRAP, str(cause)))
        try:
            return self._dies(self._verdict(cause))
        finally:
            cause.close()

    def _dies(self, verdict: GuestTrap) -> GuestTrap:
        """The end of this instance, with the whole story in its log."""
        self.dead = True
        self.context.resources.clear()
        with contextlib.suppress(AosError, OSError):
            level = "info" if verdict.reason is TrapReason.CANCELLED else "error"
            self.context.log(level, f"{STOPPED_PREFIX}{verdict.reason}): {verdict.message}\n{verdict.detail}")
        return verdict

    def _verdict(self, cause: Trap | WasmtimeError) -> GuestTrap:
        verdict = self._fault_verdict()
        if verdict is None:
            return self._own_verdict(cause)
        if verdict.reason in (TrapReason.DEADLINE, TrapReason.CANCELLED):
            verdict.detail = detail_of(cause)  # where it was when it was stopped
        return verdict

    def _fault_verdict(self) -> GuestTrap | None:
        """What a callback left behind, if the guest was stopped by one."""
        fault, self._boundary.fault = self._boundary.fault, None
        if fault is None or isinstance(fault, GuestTrap):
            return fault
        if isinstance(fault, AbiViolation):
            return GuestTrap(TrapReason.TRAP, str(fault))
        if isinstance(fault, Trap | WasmtimeError):  # the guest's realloc, called by a callback
            return self._own_verdict(fault)
        if not isinstance(fault, Exception):
            raise fault
        verdict = GuestTrap(TrapReason.HOST, "a host function failed", f"{type(fault).__name__}: {fault}")
        verdict.__cause__ = fault
        return verdict

    def _own_verdict(self, cause: Trap | WasmtimeError) -> GuestTrap:
        """Why wasm itself stopped: the lane's reason where it has one, else the trap's."""
        why = self._lane.why_stopped()
        if why is not None:
            return GuestTrap(TrapReason.TRAP, why, str(cause))
        grown = self._lane.memory_bytes() * 2 >= self._memory_limit
        return classify(cause, near_memory_limit=grown and not self._boundary.has_complained)
