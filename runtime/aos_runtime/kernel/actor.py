"""One capsule of one principal, running: its queue, its live generation, its counts.

An actor outlives its generations: a reload swaps the generation and keeps the queue, so no queued call is
lost. Exactly one thread at a time runs an actor (the mailbox's busy flag, under the kernel's order lock), so
an instance is never entered by two.  This module decides nothing about routing; it reports each outcome to
its `Desk`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Protocol

import msgspec

from aos_runtime.bus.chain import Chain
from aos_runtime.bus.envelope import Envelope
from aos_runtime.bus.mailbox import Mailbox
from aos_runtime.errors import AosError
from aos_runtime.host import GuestContext, GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.budget import Budget, unbounded
from aos_runtime.kernel.meter import LATENCY_BOUNDS_NS, MEMORY_SAMPLE_CALLS, Meter
from aos_runtime.kernel.trace import HANDLED, Recorder
from aos_runtime.names import CapsuleName, PrincipalName

LARGE_BYTES = 64 * 1024
"""A payload over this takes a while: others get the socket before the call, not at the next tick."""

MAX_WAITING = 1024
MAX_WAITING_BYTES = 16 * 1024 * 1024
"""Client messages that may wait for room in a full queue: so many, until they hold so much."""


class Step(msgspec.Struct, frozen=True):
    """One handler that a message goes to."""

    actor: Actor
    action: bytes
    priority: int


class Delivery(msgspec.Struct, frozen=True):
    """One message on its way into one handler."""

    envelope: Envelope
    action: bytes
    body: bytes
    is_sole: bool
    """Nobody else gets the message: if this handler fails, its caller is told."""
    chain: Chain[Step] | None = None
    """The sequential chain whose current link this handler is; None in a fan-out."""
    is_invocable: bool = False
    """It came by a user-invocable surface: the desk hears however the handler ended."""
    queued_s: float = math.inf
    """When it was queued, by a monotonic clock: the wait counts as time of the call.  Infinity: just now."""


class GuestInstance(Protocol):
    """The part of `host.Instance` that an actor needs."""

    @property
    def dead(self) -> bool: ...

    def hook(
        self, action: bytes, payload: bytes, *, timeout_s: float | None = None, fuel: int | None = None
    ) -> HookResult: ...

    def fuel_used(self) -> int: ...

    def memory_bytes(self) -> int: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Generation:
    """One loaded version of a capsule: how to make its instance, and the instance."""

    __slots__ = ("_holds_files", "_instance", "_is_stale", "_workspace", "context", "open_instance")

    def __init__(self, context: GuestContext, open_instance: Callable[[], GuestInstance]) -> None:
        self.context = context
        self.open_instance = open_instance
        self._instance: GuestInstance | None = None
        self._is_stale = False
        self._workspace: str | None = None
        self._holds_files = bool(context.capabilities.fs_read or context.capabilities.fs_write)

    def renew(self) -> None:
        """Serve the next call from a new instance, made with the limits of then; from any thread.

        One that holds handles beyond its calls is kept until it holds none.
        """
        self._is_stale = True

    def memory_bytes(self) -> int:
        """What the instance's memory holds; only while no thread is inside it."""
        return 0 if self._instance is None else self._instance.memory_bytes()

    def instance(self, workspace: str | None = None) -> GuestInstance:
        """The live instance, made now if there is none.  A dead one is closed and replaced.

        So is one that could carry files of one workspace into another.
        """
        instance = self._instance
        if (
            instance is not None
            and not instance.dead
            and not (self._is_stale and self._may_end())
            and (workspace == self._workspace or not self._holds_files)
        ):
            return instance
        self._is_stale = False
        self._workspace = workspace
        self.close()
        self._instance = instance = self.open_instance()
        return instance

    def _may_end(self) -> bool:
        """Whether nothing goes with the instance that outlives its calls: programs that run beside them."""
        return not (self.context.keeps_resources and self.context.resources.live)

    def cancel(self, invocation: Envelope) -> None:
        """Stop the guest if it serves this very invocation, now or in a moment; safe from any thread."""
        self.context.cancelled = invocation
        instance = self._instance
        if instance is not None:
            instance.wake()

    def detach(self) -> GuestInstance | None:
        """Give the instance away, to be closed; only while no thread is inside it."""
        instance, self._instance = self._instance, None
        return instance

    def close(self) -> None:
        """Drop the instance; only while no thread is inside it."""
        instance = self.detach()
        if instance is not None:
            instance.close()


class Desk(Protocol):
    """What an actor reports to: the kernel."""

    @property
    def order(self) -> AbstractContextManager[bool]:
        """The one lock over sequence numbers and all mailboxes."""
        ...

    @property
    def trace(self) -> Recorder:
        """Where each invocation leaves a step."""
        ...

    def before_block(self) -> None: ...

    def handled(self, actor: Actor, delivery: Delivery, result: HookResult) -> None:
        """The handler returned; not told of a plain `continue` outside of chains and invocable surfaces."""
        ...

    def failed(self, actor: Actor, delivery: Delivery, error: GuestTrap | AosError) -> None:
        """The handler trapped, or its instance could not be made."""
        ...


class Actor:
    """Runnable by `kernel.leader`.  All methods marked (order) are called with the desk's order lock held."""

    __slots__ = (
        "_delivery",
        "_desk",
        "_order",
        "_record",
        "_retired",
        "_running",
        "budget",
        "generation",
        "mailbox",
        "meter",
        "name",
        "principal",
        "waiting",
    )

    def __init__(
        self,
        name: CapsuleName,
        principal: PrincipalName,
        generation: Generation,
        desk: Desk,
        budget: Budget | None = None,
    ) -> None:
        self.budget = budget if budget is not None else unbounded(principal)
        """What the principal may use; shared by all of its actors."""
        self.name = name
        self.principal = principal
        self.generation = generation
        self.meter = Meter()
        self.mailbox: Mailbox[Delivery] = Mailbox()
        self.waiting: deque[Delivery] = deque()
        """Client messages that wait for room; a guest's message is dropped instead."""
        self._desk = desk
        self._order = desk.order
        self._record = desk.trace.add
        self._retired: list[Generation] = []
        self._delivery: Delivery | None = None
        self._running = generation
        """The generation that serves `_delivery`; set before it."""

    @property
    def depth(self) -> int:
        """Messages that wait: queued, and those of clients that wait for room in the queue."""
        return len(self.mailbox) + len(self.waiting)

    def is_crowded(self) -> bool:
        """(order) Whether no further message of a client may wait."""
        waiting = self.waiting
        return len(waiting) >= MAX_WAITING or sum(len(one.body) for one in waiting) >= MAX_WAITING_BYTES

    def take_idle_instance(self) -> GuestInstance | None:
        """(order) The instance, for the caller to close, where no thread is inside it or about to be."""
        generation = self.generation
        if self.mailbox.busy or generation.context.keeps_resources:
            return None
        return generation.detach()

    def swap(self, generation: Generation) -> Generation | None:
        """(order) Serve from `generation` from the next message on.

        Returns the old one if it can be closed now.
        """
        if generation is self.generation:
            return None
        old, self.generation = self.generation, generation
        return self._retire(old)

    def retire(self) -> Generation | None:
        """(order) Serve no more.  Returns the generation if it can be closed now."""
        return self._retire(self.generation)

    def _retire(self, generation: Generation) -> Generation | None:
        """Close it now, or, while a thread may be inside it, when that thread is between two calls."""
        if self.mailbox.busy:
            self._retired.append(generation)
            return None
        return generation

    def close(self) -> tuple[Delivery, ...]:
        """(order) Take no more; returns what nobody will run: the capsule is going away."""
        self.budget.fuel_retired += self.meter.fuel
        left = (*self.mailbox.close(), *self.waiting)
        self.waiting.clear()
        return left

    def cancel(self, is_meant: Callable[[Delivery], bool]) -> tuple[Delivery, ...]:
        """(order) Forget what is meant: it leaves the queue, or is stopped where it runs.

        Returns what nobody will run.  The instance of a stopped one is lost, the queue goes on.
        """
        serving = self._delivery
        if serving is not None and is_meant(serving):
            self._running.cancel(serving.envelope)
        waiting = tuple(delivery for delivery in self.waiting if is_meant(delivery))
        for delivery in waiting:
            self.waiting.remove(delivery)
        return (*self.mailbox.remove(is_meant), *waiting)

    def run_one(self) -> bool:
        with self._order:
            if self.waiting and self.mailbox.has_room():
                self.mailbox.offer(self.waiting.popleft())
            delivery = self.mailbox.take()
            retired = self._retired
            if retired:
                self._retired = []
        for generation in retired:  # no thread is inside: this one is between two calls
            generation.close()
        if delivery is None:
            return False
        self._invoke(delivery)
        return True

    def recover(self, error: Exception) -> bool:
        """A bug of ours broke the call in hand: fail that call, drop the instance, go on with the next."""
        delivery, self._delivery = self._delivery, None
        self.generation.close()
        if delivery is not None:
            self.meter.errors += 1
            self._desk.failed(
                self, delivery, AosError("kernel-fault", "internal fault", hint="see the daemon log")
            )
        return True

    def _invoke(self, delivery: Delivery) -> None:
        if len(delivery.body) > LARGE_BYTES:
            self._desk.before_block()
        self._running = self.generation
        self._delivery = delivery
        meter = self.meter
        meter.calls += 1
        started = perf_counter_ns()
        try:
            result = self._call(delivery)
        except (GuestTrap, AosError) as error:
            if not (isinstance(error, GuestTrap) and error.reason is TrapReason.CANCELLED):
                meter.errors += 1  # a caller that gave up is no fault of the capsule
            self._ended(delivery, started, error.reason.value if isinstance(error, GuestTrap) else error.code)
            self._desk.failed(self, delivery, error)
        else:
            self._ended(delivery, started, result.action)
            if delivery.chain is not None or result.action != "continue" or delivery.is_invocable:
                self._desk.handled(self, delivery, result)
        self._delivery = None

    def _ended(self, delivery: Delivery, started: int, outcome: str) -> None:
        """Measure an invocation that has ended, and leave a step of it."""
        now = perf_counter_ns()
        self.meter.latency[bisect_left(LATENCY_BOUNDS_NS, now - started)] += 1
        seq = delivery.envelope.seq
        self._record((HANDLED, started, seq, now, self.principal, self.name, delivery.action, outcome))

    def _call(self, delivery: Delivery) -> HookResult:
        """Call the guest within its principal's budget, and settle what it used."""
        budget, generation, meter = self.budget, self.generation, self.meter
        timeout_s = budget.time_left(delivery.queued_s)
        is_exempt = budget.is_exempt
        reserved = budget.fuel_ceiling if is_exempt else budget.reserve(timeout_s, self._desk.before_block)
        used = 0
        try:
            # Before an instance may start: what was cancelled is the call before, and its start is not that.
            generation.context.current = delivery.envelope
            instance = generation.instance(delivery.envelope.workspace)
            try:
                return instance.hook(delivery.action, delivery.body, timeout_s=timeout_s, fuel=reserved)
            finally:
                used = instance.fuel_used()
                meter.fuel += used
                if instance.dead or meter.calls % MEMORY_SAMPLE_CALLS == 1:
                    meter.note_memory(instance.memory_bytes())
        finally:
            if not is_exempt:
                budget.settle(reserved, used)
