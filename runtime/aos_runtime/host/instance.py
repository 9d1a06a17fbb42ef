"""One guest in one store, for one (capsule, principal) for life.

A hook is one C call; `publish` comes back from inside it through the window, and every other import through
`boundary`.  An instance that has trapped is dead: drop it and make another.  A store is used by one thread
at a time; a second one is a bug and is refused, loudly (case CMP-14).
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Callable
from ctypes import addressof, c_size_t, c_uint64, c_void_p
from typing import Literal

import msgspec
from wasmtime import Trap, WasmtimeError

from aos_runtime.errors import AosError, InvalidInput, LimitExceeded
from aos_runtime.host import raw
from aos_runtime.host.assembly import Assembly, assemble
from aos_runtime.host.boundary import Boundary
from aos_runtime.host.code import Code
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation, GuestMemory
from aos_runtime.host.edge import (
    FAULTS,
    PUBLISH_CASES,
    PUBLISH_OK,
    PUBLISH_UNKNOWN,
    WINDOW_BYTES,
    WINDOW_START,
)
from aos_runtime.host.factors.ipc import UNKNOWN_PREFIX
from aos_runtime.host.patience import Patience
from aos_runtime.host.raw import call_unchecked, get_fuel, set_epoch_deadline, set_fuel
from aos_runtime.host.stopping import classify, detail_of
from aos_runtime.host.traps import STOPPED_PREFIX, GuestTrap, TrapReason

LIFECYCLE_TIMEOUT_S = 600.0
_PAGE_BYTES = 65536
_MAX_UNKNOWN_BYTES = 4096
_HEADER = struct.Struct("<III")
_TEXT_LENGTH = struct.Struct("<I")
_TEXT_LENGTH_AT = 12
_STATUS = {case: 1 + i for i, case in enumerate(PUBLISH_CASES)}
_PUBLISH_ARGUMENTS = ctypes.c_uint32 * 8
"""Two raw values; an `i32` is the first word of its four."""
_ONE_TICK = c_uint64(1)
_FOUR, _TWO, _NONE = c_size_t(4), c_size_t(2), c_size_t(0)


class HookResult(msgspec.Struct, frozen=True, gc=False):
    """What a hook returned.  `action` is the guest's word (`continue`, `deny`), `data` valid UTF-8."""

    action: str
    data: bytes | None


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
        self._left_pointer = _address(self._fuel_left)
        self._words, self._trap = (c_uint64 * 8)(), c_void_p(0)
        self._words_pointer, self._trap_pointer = _address(self._words), _address(self._trap)
        self._realloc_words, self._realloc_trap = (c_uint64 * 8)(), c_void_p(0)
        self._closed = False
        self._assembly = self._assemble(code)
        self._context = raw.context_of(self._assembly.store)
        self._hook = raw.pointer_to_func(self._assembly.hook)
        self._realloc_func = raw.pointer_to_func(self._assembly.realloc)
        self._window, self._window_size = memoryview(b""), 0
        self._refresh_window()
        self._memory = GuestMemory(self._guest_bytes, self._realloc)
        self._boundary.memory = self._memory
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
            view, payload_at = self._window, WINDOW_START + len(action)
            end = payload_at + len(payload)
            if end > self._window_size:
                view = self._grow_window(end)
            view[WINDOW_START:payload_at] = action
            view[payload_at:end] = payload
            self._words[0], self._words[2] = len(action), len(payload)
            self._run(self._hook, _TWO, timeout_s, fuel)
            return self._read_result()
        finally:
            resources = self.context.resources
            if resources.opened != resources.closed and not self.context.keeps_resources:
                resources.clear()
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
        export = self._assembly.lifecycle.get(name)
        if export is None:
            raise InvalidInput(
                "lifecycle-missing",
                f"the capsule has no {name} of its own",
                hint="look at Code.implemented first",
            )
        self._enter()
        try:
            self._run(raw.pointer_to_func(export), _NONE, timeout_s, None)
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
        """Size of the guest's memory now."""
        return 0 if self._closed else self._memory.size_bytes()

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
                self._window = memoryview(b"")
                self._memory.close()
                self._assembly.store.close()
                self._assembly.callbacks.clear()
        finally:
            self._lock.release()

    def _assemble(self, code: Code) -> Assembly:
        try:
            guarded = self._boundary.guard(self._on_publish)
            return assemble(code, self._boundary, guarded, self._at_epoch, memory_bytes=self._memory_limit)
        except Trap as cause:
            raise self._fault_verdict() or classify(cause, near_memory_limit=False) from cause
        except WasmtimeError as cause:
            raise self._fault_verdict() or LimitExceeded(
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

    def _run(self, func: c_void_p, count: c_size_t, timeout_s: float | None, fuel: int | None) -> None:
        """Arm deadline and fuel, call, and raise what stopped the guest."""
        self._boundary.has_complained = False
        self._patience.begin(timeout_s)
        context, fuel = self._context, fuel or self._engine.settings.fuel_per_call
        if fuel != self._given_fuel:
            self._given_fuel, self._fuel = fuel, c_uint64(fuel)
        set_epoch_deadline(context, _ONE_TICK)
        set_fuel(context, self._fuel)
        error = call_unchecked(context, func, self._words_pointer, count, self._trap_pointer)
        if error or self._trap.value:
            raise self._stopped(error)

    def _at_epoch(self) -> bytes | None:
        """Whether the running call must end now.  One that need not is asked again at the next tick."""
        verdict = self._patience.verdict()
        if verdict is None:
            return None
        self._boundary.fault = verdict
        return b"interrupted"

    def _read_result(self) -> HookResult:
        view = self._window  # a publish may have replaced it
        action_size, has_data, data_size = _HEADER.unpack_from(view)
        data_at = WINDOW_START + action_size
        end = data_at + data_size
        if end > self._window_size:
            view = self._refresh_window()
        try:
            action = str(view[WINDOW_START:data_at], "utf-8")
            if not has_data:
                return HookResult(action, None)
            data = bytes(view[data_at:end])
            if not data.isascii():
                data.decode()
            return HookResult(action, data)
        except UnicodeDecodeError:
            verdict = GuestTrap(TrapReason.TRAP, "the guest returned a string that is not UTF-8")
            raise self._dies(verdict) from None

    def _on_publish(self, address: int) -> None:
        """The edge's `publish(topic length, payload length) -> status`; both are in the window."""
        words = _PUBLISH_ARGUMENTS.from_address(address)
        payload_at = WINDOW_START + words[0]
        end = payload_at + words[4]
        view = self._window if end <= self._window_size else self._refresh_window()
        payload = bytes(view[payload_at:end])
        try:
            topic = str(view[WINDOW_START:payload_at], "utf-8")
            if not payload.isascii():
                payload.decode()
        except UnicodeDecodeError:
            raise AbiViolation("the guest published a string that is not UTF-8") from None
        refusal = self.context.publish(topic, payload)
        words[0] = PUBLISH_OK if refusal is None else self._refuse(refusal)

    def _refuse(self, refusal: str) -> int:
        """The edge's status for an error case; the text of `unknown` goes into the window."""
        if not refusal.startswith(UNKNOWN_PREFIX):
            return _STATUS[refusal]
        text = (
            refusal.removeprefix(UNKNOWN_PREFIX)
            .encode()[:_MAX_UNKNOWN_BYTES]
            .decode("utf-8", "ignore")
            .encode()
        )
        self._window[WINDOW_START : WINDOW_START + len(text)] = text
        _TEXT_LENGTH.pack_into(self._window, _TEXT_LENGTH_AT, len(text))
        return PUBLISH_UNKNOWN

    def _realloc(self, align: int, size: int) -> int:
        """The guest's `cabi_realloc(0, 0, align, size)`, from inside one of its calls."""
        words = self._realloc_words
        words[0] = words[2] = 0
        words[4], words[6] = align, size
        trap = self._realloc_trap
        error = call_unchecked(self._context, self._realloc_func, _address(words), _FOUR, _address(trap))
        if error or trap.value:
            cause = raw.own_error(error) if error else raw.own_trap(trap.value or 0)
            trap.value = None
            raise self._verdict(cause)
        return words[0] & 0xFFFFFFFF

    def _stopped(self, error: int) -> GuestTrap:
        """Own what the call left, free it, mark the instance dead; raises what is no trap of the guest."""
        self.dead = True
        cause = raw.own_error(error) if error else raw.own_trap(self._trap.value or 0)
        self._trap.value = None
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
        if not isinstance(fault, Exception):
            raise fault
        verdict = GuestTrap(TrapReason.HOST, "a host function failed", f"{type(fault).__name__}: {fault}")
        verdict.__cause__ = fault
        return verdict

    def _own_verdict(self, cause: Trap | WasmtimeError) -> GuestTrap:
        """Why wasm itself stopped: the edge's reason where it has one, else the trap's."""
        assembly = self._assembly
        why = FAULTS.get(assembly.fault.value(assembly.store))
        if why is not None:
            return GuestTrap(TrapReason.TRAP, why, str(cause))
        grown = self._memory.size_bytes() * 2 >= self._memory_limit
        return classify(cause, near_memory_limit=grown and not self._boundary.has_complained)

    def _guest_bytes(self) -> memoryview:
        assembly = self._assembly
        return raw.memory_bytes(assembly.store, assembly.memory)

    def _grow_window(self, end: int) -> memoryview:
        """The window, large enough for `end` bytes."""
        if end > WINDOW_BYTES:
            raise _payload_too_large(WINDOW_BYTES, end)
        assembly = self._assembly
        missing = -(-end // _PAGE_BYTES) - assembly.window.size(assembly.store)
        if missing > 0:
            try:
                assembly.window.grow(assembly.store, missing)
            except WasmtimeError as error:
                raise _payload_too_large(self._memory_limit, end) from error
        return self._refresh_window()

    def _refresh_window(self) -> memoryview:
        assembly = self._assembly
        self._window = raw.memory_bytes(assembly.store, assembly.window)
        self._window_size = len(self._window)
        return self._window


def _payload_too_large(limit_bytes: int, size_bytes: int) -> LimitExceeded:
    return LimitExceeded(
        "hook-payload",
        f"a hook takes at most {limit_bytes} bytes, and was given {size_bytes}",
        hint="send less",
    )


def _address(value: object) -> c_void_p:
    return c_void_p(addressof(value))  # type: ignore[arg-type]
