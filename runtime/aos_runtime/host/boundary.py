"""Where a guest's call becomes a Python call and its outcome becomes the guest's result.

An expected failure is a returned `Err`, which the guest sees as its err arm.  What a factor raises is a bug
of ours, or the guest's lie found by a codec: it ends the instance.  Nothing ever propagates out of a
callback, because the C caller would take that for success: it is kept as the boundary's `fault`, a trap is
returned, and whoever called the guest raises it again outside (cases CMP-08).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from aos_runtime.host import raw, wit
from aos_runtime.host.codecs import LOW32, Case, Err
from aos_runtime.host.compound_values import FunctionValues
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation, GuestMemory
from aos_runtime.host.factors import Factor
from aos_runtime.host.functions import FunctionCodec
from aos_runtime.host.raw_component import ComponentFunction, Destructor
from aos_runtime.host.values import ValueCrossing

__all__ = ["Boundary", "Case", "Err", "unavailable"]

_TRAP_MESSAGE = b"stopped by the host"


class Boundary:
    """One instance's side of every import: its context, its memory, and what went wrong last."""

    __slots__ = ("context", "crossing", "fault", "has_complained", "memory")

    def __init__(self, context: GuestContext) -> None:
        self.context = context
        self.memory: GuestMemory | None = None
        """The way to an edge guest's memory, once it is ready."""
        self.crossing: ValueCrossing | None = None
        """The way of values to a guest in the component lane, once it is ready."""
        self.fault: BaseException | None = None
        self.has_complained = False
        """Whether the guest has logged an error in this call: a panic does, running out of memory does
        not.
        """

    def guard(self, run: Callable[[int], None]) -> raw.HostFunction:
        """The callback that runs `run(address of raw values)` and keeps what it raises."""

        def call(_environment: object, _caller: object, address: int, _count: int) -> int:
            try:
                run(address)
                return 0
            except BaseException as fault:  # noqa: BLE001 - C takes anything that escapes for success
                return self._stop(fault)

        return call

    def serve(self, codec: FunctionCodec, factor: Factor) -> raw.HostFunction:
        """The callback that runs `factor` for this instance."""
        context, lift, lower = self.context, codec.lift_arguments, codec.lower_result
        slots_at = raw.slots_type(max(len(codec.core_params), len(codec.core_results))).from_address

        def call(_environment: object, _caller: object, address: int, _count: int) -> int:
            try:
                memory = self.memory
                if memory is None:
                    raise AbiViolation("the guest called the host before it was ready")
                memory.begin()
                slots = slots_at(address)
                words = slots[::2]
                result = lower(memory, words, factor(context, *lift(memory, words)))
                if result is not None:
                    slots[0] = result
                return 0
            except BaseException as fault:  # noqa: BLE001 - C takes anything that escapes for success
                return self._stop(fault)

        return call

    def serve_values(self, codec: FunctionValues, factor: Factor) -> ComponentFunction:
        """As `serve`, for a guest in the component lane."""
        context, lift, lower = self.context, codec.lift_arguments, codec.lower_result

        def call(
            _environment: object,
            _store: object,
            _type: object,
            arguments: int,
            _count: int,
            results: int,
            _result_count: int,
        ) -> int:
            try:
                crossing = self.crossing
                if crossing is None:
                    raise AbiViolation("the guest called the host before it was ready")
                crossing.renew()
                lower(crossing, results, factor(context, *lift(crossing, arguments)))
                return 0
            except BaseException as fault:  # noqa: BLE001 - C takes anything that escapes for success
                self._keep(fault)
                return raw.new_error(_TRAP_MESSAGE)

        return call

    def destroy(self, kind: str) -> Destructor:
        """As `drop`, for a guest in the component lane."""
        resources = self.context.resources

        def call(_environment: object, _store: object, handle: int) -> int:
            try:
                resources.drop(kind, handle)
                return 0
            except BaseException as fault:  # noqa: BLE001 - C takes anything that escapes for success
                self._keep(fault)
                return raw.new_error(_TRAP_MESSAGE)

        return call

    def drop(self, kind: str) -> raw.HostFunction:
        """The callback for the guest's drop of a handle of resource `kind`."""
        resources = self.context.resources
        slots_at = raw.slots_type(1).from_address

        def drop(address: int) -> None:
            if self.memory is not None:
                self.memory.check_may_leave()
            resources.drop(kind, slots_at(address)[0] & LOW32)

        return self.guard(drop)

    def _stop(self, fault: BaseException) -> int:
        self._keep(fault)
        return raw.new_trap(_TRAP_MESSAGE)

    def _keep(self, fault: BaseException) -> None:
        """The first fault of a call is the cause of those around it."""
        if self.fault is None:
            self.fault = fault

    def observed(self, name: str, factor: Factor) -> Factor:
        """`factor`, with each call reported to the context's `observe`, where it has one."""
        observe = self.context.observe
        if observe is None:
            return factor

        def call(context: GuestContext, *arguments: Any) -> Any:
            started = perf_counter_ns()
            result = factor(context, *arguments)
            observe(name, started, str(result.case) if type(result) is Err else None)
            return result

        return call

    def note_complaint(self, factor: Factor) -> Factor:
        """Wrap sys.log so that an error level is remembered."""

        def log(context: GuestContext, level: str, message: str) -> Any:
            if level == "error":
                self.has_complained = True
            return factor(context, level, message)

        return log


def unavailable(path: str, result: wit.Type | None) -> Factor:
    """A factor for an import that is not built: answers `unknown(text)`, or stops the guest where it
    cannot.
    """
    text = f"{path} is not available in this runtime"

    def refuse(_context: GuestContext, *_arguments: Any) -> Any:
        raise AbiViolation(text)

    def answer_case(_context: GuestContext, *_arguments: Any) -> Err:
        return Err("unknown", text)

    def answer_text(_context: GuestContext, *_arguments: Any) -> Err:
        return Err(None, text)

    match result:
        case wit.Result(_, wit.Variant(cases)) if ("unknown", wit.STRING) in cases:
            return answer_case
        case wit.Result(_, wit.Primitive("string")):
            return answer_text
        case _:
            return refuse
