"""How every function of astrid:process runs: with the door, at the gate where it waits, faults as cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.waiting import waiting_at
from aos_runtime.policy.process_rules import ProcessCase, ProcessRefused
from aos_runtime.programs import Child, Kept, ProcessDoor

HANDLE = "process-handle"
MAX_HELD = 32
"""Handles of one instance, of children that ended too: each keeps what was not read."""
_T = TypeVar("_T")
_Find = Callable[[ProcessDoor], "Held"]


class Held:
    """The resource behind a handle.  An own child ends with it, one of the registry does not."""

    __slots__ = ("child", "kept")

    def __init__(self, child: Child, kept: Kept | None = None) -> None:
        self.child = child
        self.kept = kept

    def close(self) -> None:
        if self.kept is None:
            self.child.let_go()


class Operation(NamedTuple):
    """What may be done to one child, however the guest names it.

    `run(context, held, *arguments)`; `waits`: it may; `recorded` is what it is called on record, None: it has
    no effect.
    """

    run: Callable[..., Any]
    waits: bool = False
    recorded: str | None = None


def door_of(context: GuestContext) -> ProcessDoor:
    """The guest's door.  ProcessRefused CAPABILITY_DENIED where it has none."""
    if context.processes is None:
        raise ProcessRefused(ProcessCase.CAPABILITY_DENIED)
    return context.processes


def at_once(context: GuestContext, run: Callable[[ProcessDoor], _T]) -> _T | Err:
    """Run something that never waits."""
    try:
        return run(door_of(context))
    except ProcessRefused as refused:
        if refused.why:
            context.log("warn", f"process: refused: {refused.why}")
        return Err(refused.case.value, refused.why if refused.case is ProcessCase.UNKNOWN else None)


def waits(context: GuestContext, run: Callable[[ProcessDoor], _T]) -> _T | Err:
    """Run something that may wait, at the gate of waiting guests."""

    def waiting(door: ProcessDoor) -> _T:
        with waiting_at(None if context.is_loop else context.gate) as is_admitted:
            if not is_admitted:
                raise ProcessRefused(ProcessCase.UNKNOWN, "too many guests wait at once")
            context.before_block()
            try:
                return run(door)
            finally:
                context.yielded()

    return at_once(context, waiting)


def added(context: GuestContext, held: Held) -> int:
    """A handle of it.  ProcessRefused QUOTA where the guest has no room for one."""
    is_full = context.resources.count(HANDLE) >= MAX_HELD
    handle = None if is_full else context.resources.add(HANDLE, held)
    if handle is None:
        held.close()
        raise ProcessRefused(ProcessCase.QUOTA, "it holds too many handles")
    return handle


def by_handle(operation: Operation) -> Callable[..., Any]:
    """A method of `process-handle`."""

    def call(context: GuestContext, handle: int, *arguments: Any) -> Any:
        held: Any = context.resources.get(HANDLE, handle)
        if held is None:
            return Err(ProcessCase.CLOSED.value)

        def find(door: ProcessDoor) -> Held:
            return held if held.kept is None else Held(held.child, door.registry.touch(held.kept))

        return _run(operation, context, find, arguments)

    return call


def by_id(operation: Operation) -> Callable[..., Any]:
    """The same operation on a child of the registry."""

    def call(context: GuestContext, name: str, *arguments: Any) -> Any:
        def find(door: ProcessDoor) -> Held:
            kept = door.registry.find(door.owner, name)
            return Held(kept.child, kept)

        return _run(operation, context, find, arguments)

    return call


def _run(operation: Operation, context: GuestContext, find: _Find, arguments: tuple[Any, ...]) -> Any:
    def act(door: ProcessDoor) -> Any:
        held = find(door)
        answer = operation.run(context, held, *arguments)
        if operation.recorded is not None:
            door.note(operation.recorded, held.child.launch.line, None)
        return answer

    return waits(context, act) if operation.waits else at_once(context, act)
