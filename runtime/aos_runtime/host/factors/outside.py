"""What the factors that reach outside share: one way to wait, and to hand a guest what it holds.

No factor itself.  `attempt` is the only way to the network: the leader goes on without this thread first, the
gate counts who waits, and what fails on the way comes back as the interface's own error case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aos_runtime.host import wit
from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors.factor import Published
from aos_runtime.host.streams import POLLABLE, Pollable
from aos_runtime.host.waiting import waiting_at
from aos_runtime.network import Fault, NetworkDoor, NetworkFault

_T = TypeVar("_T")


def attempt(
    context: GuestContext, run: Callable[[NetworkDoor], _T], as_err: Callable[[NetworkFault], Err]
) -> _T | Err:
    """Run something that may wait, with the door of this guest; `as_err` says what a fault is called."""
    door = context.network
    if door is None:
        return Err("capability-denied")
    with waiting_at(None if context.is_loop else context.gate) as is_admitted:
        if not is_admitted:
            return Err("quota")
        context.before_block()
        try:
            return run(door)
        except NetworkFault as fault:
            return as_err(fault)
        finally:
            context.yielded()


def added(context: GuestContext, kind: str, resource: Any) -> int:
    """A handle of a new resource; it is closed, and NetworkFault CROWDED, where there is no room for it."""
    handle = context.resources.add(kind, resource)
    if handle is None:
        resource.close()
        raise NetworkFault(Fault.CROWDED)
    return handle


def held(context: GuestContext, kind: str, handle: int) -> Any:
    """What a handle stands for, in a function that has no error to answer with."""
    resource = context.resources.get(kind, handle)
    if resource is None:
        raise AbiViolation(f"the guest passed a handle of a {kind} that it does not hold")
    return resource


def gives(kind: str, made: str, make: Callable[[Any], Any]) -> Callable[..., int]:
    """A method of `kind` that makes a handle of `made` and has no error to answer with."""

    def call(context: GuestContext, handle: int) -> int:
        given = context.resources.add(made, make(held(context, kind, handle)))
        if given is None:
            raise AbiViolation(f"the guest holds too many handles for one more {made}")
        return given

    return call


def gives_pollable(kind: str) -> Callable[..., int]:
    """A method of `kind` that gives a pollable of what it stands for, which is its own source."""
    return gives(kind, POLLABLE, Pollable)


def method(run: Callable[..., Any], result: wit.Type | None, **params: wit.Type) -> Published:
    """A method of a resource; `params` in order, by WIT name with `_` for `-`."""
    named = tuple((name.replace("_", "-"), kind) for name, kind in params.items())
    return Published(run, wit.Signature((("self", wit.BORROW), *named), result))
