"""Where a message goes, computed once per (topic, principal) and kept in a bounded table.

A `Routing` is replaced whole when what is loaded changes; messages in flight keep the actors they were queued
for. It holds the decisions of `bus` and `policy` beside the live actors they speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.bus.routes import Handler, RouteTable
from aos_runtime.capsule.topics import is_tool_answer, user_invocable
from aos_runtime.kernel.actor import Actor, Step
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.publish import DELIVERY_FAILURE

_NEVER_DISPATCHED = f"{DELIVERY_FAILURE}."
"""Receipts go to subscriptions of the publisher only, whatever rows a manifest has."""

MAX_PLANS = 4096
"""Topics are made by guests: the table must stay bounded."""


Access = Callable[[str, PrincipalName, CapsuleName], bool]
"""`(topic, principal, capsule)`: whether the principal may have its capsule called there."""


def open_access(topic: str, principal: PrincipalName, capsule: CapsuleName) -> bool:
    """Everything may be called."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """A subscriber inside the daemon.  `wants` is asked once per topic; `receive` must not block or raise.

    One that `answers` counts as somebody who takes a client's message; a mere listener does not.
    """

    wants: Callable[[str], bool]
    receive: Callable[[Envelope], None]
    answers: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What happens to a message on one topic for one principal."""

    steps: tuple[Step, ...]
    is_chain: bool
    """True: one after another in this order; False: each on its own."""
    natives: tuple[Callable[[Envelope], None], ...]
    is_taken: bool
    """Whether a capsule or a part of the daemon takes it."""
    is_invocable: bool
    """A user-invocable surface: what nobody handles is an error there, and failures are answered."""
    targets: tuple[str, ...] = ()
    """The names of the capsules of `steps`."""
    refusal: str | None = None
    """Why nobody is called on a user-invocable surface; None elsewhere, and where somebody is."""
    is_answer: bool = False
    """What a tool's handler answers on."""
    denied: tuple[CapsuleName, ...] = ()
    """Capsules that would have been called there, had the principal access to them."""


class Routing:
    """All routes of one moment."""

    __slots__ = ("_access", "_actors", "_natives", "_plans", "_table")

    def __init__(
        self,
        table: RouteTable,
        actors: Mapping[tuple[PrincipalName, CapsuleName], Actor],
        natives: Iterable[Native] = (),
        access: Access = open_access,
    ) -> None:
        self._table = table
        self._access = access
        self._actors = dict(actors)
        self._natives = tuple(natives)
        self._plans: dict[tuple[str, str | None], Plan] = {}

    def plan(self, topic: str, principal: str | None) -> Plan:
        """The plan for `topic`; the common case is one dictionary lookup."""
        found = self._plans.get((topic, principal))
        return found if found is not None else self._remember(topic, principal)

    def _remember(self, topic: str, principal: str | None) -> Plan:
        handlers = self._handlers(topic, principal)
        admitted = tuple(one for one in handlers if self._access(topic, one.principal, one.capsule))
        is_invocable = user_invocable(topic) is not None
        denied = self._denied(topic, principal) if is_invocable else ()
        steps = tuple(self._steps(admitted))
        natives = tuple(native for native in self._natives if native.wants(topic))
        plan = Plan(
            steps=steps,
            is_chain=len({step.priority for step in steps}) > 1,
            natives=tuple(native.receive for native in natives),
            is_taken=bool(steps) or any(native.answers for native in natives),
            is_invocable=is_invocable,
            refusal=_refusal(topic, principal, denied) if is_invocable and not steps else None,
            denied=denied,
            is_answer=is_tool_answer(topic),
            targets=tuple(step.actor.name for step in steps),
        )
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self._plans[topic, principal] = plan
        return plan

    def _denied(self, topic: str, principal: str | None) -> tuple[CapsuleName, ...]:
        """The capsule that serves the topic, by a row or by receiving, if the principal may not call it."""
        provider = self._table.provider(topic, principal)
        if principal is None or provider is None or self._access(topic, PrincipalName(principal), provider):
            return ()
        return (provider,)

    def _steps(self, handlers: Iterable[Handler]) -> Iterable[Step]:
        for handler in handlers:
            actor = self._actors.get((handler.principal, handler.capsule))
            if actor is not None:
                yield Step(actor=actor, action=handler.action.encode(), priority=handler.priority)

    def _handlers(self, topic: str, principal: str | None) -> tuple[Handler, ...]:
        if topic.startswith(_NEVER_DISPATCHED):
            return ()
        if principal is None:
            return ()  # no capsule serves everybody yet: an unstamped message reaches native subscribers only
        return self._table.targets(topic, PrincipalName(principal))


def _refusal(topic: str, principal: str | None, denied: tuple[CapsuleName, ...]) -> str:
    if not denied:
        return f"no capsule handles {topic}"
    return access_refusal(principal, denied[0])


def access_refusal(principal: str | None, capsule: CapsuleName) -> str:
    """Why a capsule was not called, and what would allow it."""
    allow = f"allow it with `aos agent modify {principal} --add-capsule {capsule}`"
    return f"principal '{principal}' has no access to capsule '{capsule}'; {allow}"
