"""How every function of astrid:net runs: with the door, on record where it reaches out, faults as cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.outside import attempt
from aos_runtime.network import Fault, NetworkDoor, NetworkFault

_T = TypeVar("_T")

_CASES: Mapping[Fault, str] = {
    Fault.DENIED: "capability-denied",
    Fault.REJECTED: "airlock-rejected",
    Fault.INVALID: "address-not-available",
    Fault.UNRESOLVED: "name-unresolvable",
    Fault.REFUSED: "connection-refused",
    Fault.RESET: "connection-reset",
    Fault.TIMEOUT: "timeout",
    Fault.CLOSED: "closed",
    Fault.CROWDED: "quota",
    Fault.IN_USE: "address-in-use",
    Fault.NOT_AVAILABLE: "address-not-available",
    Fault.NOT_TCP: "not-tcp",
}
"""`unknown` carries the text of every other fault."""


def run_call(context: GuestContext, run: Callable[[NetworkDoor], _T]) -> _T | Err:
    return attempt(context, run, _err)


def noted(context: GuestContext, call: str, target: str, run: Callable[[NetworkDoor], _T]) -> _T | Err:
    """As `_attempt`, and put on record."""

    def noted(door: NetworkDoor) -> _T:
        try:
            answer = run(door)
        except NetworkFault as fault:
            door.note(call, target, fault.fault.value)
            raise
        door.note(call, target, None)
        return answer

    return run_call(context, noted)


def _err(fault: NetworkFault) -> Err:
    case = _CASES.get(fault.fault)
    return Err("unknown", fault.text) if case is None else Err(case)


def waits(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A method that may wait."""

    def call(context: GuestContext, handle: int, *arguments: Any) -> Any:
        held: Any = context.resources.get(kind, handle)
        if held is None:
            return Err("invalid-handle")
        return run_call(context, lambda _door: run(context, held, *arguments))

    return call


def at_once(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A method that never waits."""

    def call(context: GuestContext, handle: int, *arguments: Any) -> Any:
        held: Any = context.resources.get(kind, handle)
        if held is None:
            return Err("invalid-handle")
        try:
            return run(held, *arguments)
        except NetworkFault as fault:
            return _err(fault)

    return call
