"""The kernel: one sequence, one order lock, and the way of every message from publish to its handlers.

It stamps an envelope, asks `Routing` where it goes, queues it, and carries out what `bus.chain` decides about
a hook's result.  It never looks inside a payload but for the id under which a failure is reported, and never
waits.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from aos_runtime.bus.chain import Chain, Outcome, Verdict, returned, trapped
from aos_runtime.bus.envelope import Envelope
from aos_runtime.bus.mailbox import Offer
from aos_runtime.bus.routes import RouteTable
from aos_runtime.capsule.topics import user_invocable
from aos_runtime.errors import AosError, LimitExceeded
from aos_runtime.host import GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.access_gate import AccessGate
from aos_runtime.kernel.actor import Actor, Delivery, Step
from aos_runtime.kernel.failures import CANCELLED, call_of, failure_message, failure_sentence
from aos_runtime.kernel.meter import use_of
from aos_runtime.kernel.ports import Submission
from aos_runtime.kernel.receipts import DeliveryFailure, receipt_body, receipt_topic
from aos_runtime.kernel.routing import Native, Plan, Routing
from aos_runtime.kernel.subscriptions import Subscriptions
from aos_runtime.kernel.trace import Recorder
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.access import UNRESTRICTED, Standing
from aos_runtime.wire.methods import NIL_SOURCE

MAX_REASON_CHARS = 500

DENIED = "denied by the capsule"
"""The guest's own reason stays in its log: it may say what it was called with."""

DROP_WARNING_S = 1.0
"""At most one warning per capsule in this time while its queue is full."""


class Executions(Protocol):
    """Who keeps account of what was executed on user-invocable surfaces."""

    def answered(self, envelope: Envelope, cause: Envelope) -> None:
        """A result of a tool was published by whoever serves `cause`."""
        ...

    def executed(self, actor: Actor, delivery: Delivery, error: str | None) -> None: ...

    def delivered(self, envelope: Envelope, capsule: CapsuleName) -> None:
        """(order) No handler has it, but a subscription of `capsule`: its run loop will see to it."""
        ...


class Journal(Protocol):
    """Where the kernel and its capsules write lines."""

    def daemon(self, level: str, message: str) -> None: ...

    def capsule(self, principal: PrincipalName, capsule: CapsuleName, level: str, message: str) -> None: ...


def system_cause(principal: str | None, request_owner: str | None = None) -> Envelope:
    """What a message that the daemon itself starts inherits."""
    return Envelope(0, "", b"", None, NIL_SOURCE, principal, None, request_owner, "system", None, 0)


class Kernel:
    """Implements `actor.Desk` and `ports.Ingress`."""

    def __init__(
        self,
        *,
        ready: Callable[[Actor], None],
        before_block: Callable[[], None],
        journal: Journal,
        executions: Executions | None = None,
        standing: Callable[[PrincipalName], Standing] = lambda principal: UNRESTRICTED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.order = threading.Lock()
        self.boot_id = uuid.uuid4().hex
        """With `seq` it makes the id of an event, unique over restarts."""
        self.before_block = before_block
        self.journal = journal
        self._executions = executions
        self.trace = Recorder()
        self._note_published = self.trace.published
        self._ready = ready
        self._gate = AccessGate(standing, journal, clock)
        self.on_access_denied: Callable[[CapsuleName, Envelope], None] = self._gate.note_denied
        """Told of each message that a capsule did not get for want of access."""
        self._clock, self._seq = clock, 0
        self._natives: tuple[Native, ...] = ()
        self._table = RouteTable((), {})
        self._actors: dict[tuple[PrincipalName, CapsuleName], Actor] = {}
        self._routing = Routing(self._table, {})
        self._warned: dict[tuple[PrincipalName, CapsuleName], float] = {}
        self.subscriptions = Subscriptions(self.order)
        self._live = self.subscriptions.table

    # what is loaded

    def on(
        self, wants: Callable[[str], bool], receive: Callable[[Envelope], None], *, answers: bool = False
    ) -> None:
        """Add a native subscriber; see `routing.Native`."""
        with self.order:
            self._natives = (*self._natives, Native(wants=wants, receive=receive, answers=answers))
            self._renew_routing()

    def install_routes(
        self,
        table: RouteTable,
        actors: dict[tuple[PrincipalName, CapsuleName], Actor],
        bundled: frozenset[tuple[PrincipalName, CapsuleName]] = frozenset(),
    ) -> None:
        """(order held by the caller) Replace all routes at once.  `bundled` need no grant."""
        self._table, self._actors, self._gate.bundled = table, actors, bundled
        self._renew_routing()

    def apply_standings(self) -> None:
        """What principals may call has changed: decide anew, from the next message on."""
        with self.order:
            self._renew_routing()

    def measure(self, principal: PrincipalName) -> tuple[int, int, int]:
        """A principal's guests: bytes of memory now (lately, where one runs) and at most, and fuel."""
        with self.order:
            mine = [actor for (owner, _), actor in self._actors.items() if owner == principal]
            for actor in mine:
                if not actor.mailbox.busy:  # no thread is inside, and none can enter meanwhile
                    actor.meter.note_memory(actor.generation.memory_bytes())
        return use_of(actor.meter for actor in mine)

    def _renew_routing(self) -> None:
        self._routing = Routing(self._table, self._actors, self._natives, self._gate.admits)

    def is_handled(self, topic: str, principal: str | None) -> bool:
        """Whether a ready capsule of `principal` handles `topic`, by a row or through a subscription."""
        with self.order:
            plan = self._routing.plan(topic, principal)
            return bool(plan.steps) or (not plan.denied and self._is_received(topic, principal))

    def _is_received(self, topic: str, principal: str | None) -> bool:
        """(order) Whether a subscription stands for a handler of this user-invocable topic."""
        return self.subscriptions.serves(topic, principal, self._table.provider(topic, principal))

    def targets(self, topic: str, principal: str | None) -> tuple[str, ...]:
        """The capsules that a message on `topic` goes to now: by their rows, then by their subscriptions."""
        with self.order:
            return self._all_targets(self._routing.plan(topic, principal), topic, principal)

    def _all_targets(self, plan: Plan, topic: str, principal: str | None) -> tuple[str, ...]:
        """(order) Those of the plan, then those that receive by a subscription."""
        return (*plan.targets, *self.subscriptions.receivers(topic, principal))

    def _note_received(self, envelope: Envelope) -> None:
        """(order) A run loop got what somebody invoked."""
        topic, principal = envelope.topic, envelope.principal
        capsule = self.subscriptions.server(topic, principal, self._table.provider(topic, principal))
        if self._executions is not None and capsule is not None:
            self._executions.delivered(envelope, capsule)

    # publishing

    def publish(
        self,
        topic: str,
        body: bytes,
        kind: str | None,
        source_id: str,
        cause: Envelope,
        delivery_id: str | None = None,
    ) -> Plan:
        """Stamp and deliver one message that inherits who it is from `cause`; returns where it went.

        A full queue drops the message for that handler, with a warning and a counter (seed).
        """
        dropped: list[tuple[Actor, Delivery]] = []
        with self.order:
            plan = self._routing.plan(topic, cause.principal)
            envelope = self._stamp(topic, body, kind, source_id, cause, delivery_id)
            received = not plan.denied and self._live.count and self.subscriptions.deliver(envelope)
            if received and plan.is_invocable and not plan.steps:
                self._note_received(envelope)
            targets = self._all_targets(plan, topic, cause.principal) if received else plan.targets
            self._note_published(envelope, cause.seq, targets)
            for actor, delivery in self._deliveries(envelope, plan):
                offer = actor.mailbox.offer(delivery)
                if offer is Offer.WOKE:
                    self._ready(actor)
                elif offer is not Offer.QUEUED:
                    dropped.append((actor, delivery))
        if plan.is_answer and self._executions is not None:
            self._executions.answered(envelope, cause)
        for receive in plan.natives:
            receive(envelope)
        for actor, delivery in dropped:
            self._report_drop(actor, delivery)
        for capsule in plan.denied:
            self.on_access_denied(capsule, envelope)
        if delivery_id is not None and not plan.steps and not received:
            self._send_receipt(envelope, DeliveryFailure.NO_CONSUMER)
        return plan

    def submit(self, message: Envelope) -> Submission:
        """Publish for a client: what finds a full queue waits for room in it (FULL beyond the bound)."""
        topic, body = message.topic, message.body
        with self.order:
            plan = self._routing.plan(topic, message.principal)
            envelope = self._stamp(topic, body, message.kind, message.source_id, message)
            pairs = self._deliveries(envelope, plan)
            for actor, _ in pairs:
                if actor.waiting and actor.is_crowded():
                    return Submission.FULL
            is_taken, received = plan.is_taken, False
            if self._live.count and not plan.denied:
                received = self.subscriptions.deliver(envelope)
                if received and plan.is_invocable and not plan.steps:
                    self._note_received(envelope)
                if not is_taken:
                    is_taken = self._is_received(topic, message.principal) if plan.is_invocable else received
            targets = self._all_targets(plan, topic, message.principal) if received else plan.targets
            self._note_published(envelope, 0, targets)
            for actor, delivery in pairs:
                if actor.waiting or not actor.mailbox.has_room():
                    actor.waiting.append(delivery)
                elif actor.mailbox.offer(delivery) is Offer.WOKE:
                    self._ready(actor)
        for receive in plan.natives:
            receive(envelope)
        for capsule in plan.denied:
            self.on_access_denied(capsule, envelope)
        return Submission.ACCEPTED if is_taken else Submission.UNAVAILABLE

    def cancel(self, principal: str | None, call_ids: Container[str]) -> None:
        """Stop the handlers of these tool calls, wherever they are; whoever waits for one is told.

        Calls of other principals, and other work of the same capsules, go on untouched.
        """

        def is_meant(envelope: Envelope) -> bool:
            return envelope.principal == principal and call_of(envelope) in call_ids

        with self.order:
            actors = [actor for actor in self._actors.values() if actor.principal == principal]
            removed = [one for actor in actors for one in actor.cancel(lambda one: is_meant(one.envelope))]
            self.subscriptions.discard(is_meant)
        for delivery in removed:
            self._answer_failure(delivery, CANCELLED, DeliveryFailure.FAILED)

    def _stamp(
        self,
        topic: str,
        body: bytes,
        kind: str | None,
        source_id: str,
        cause: Envelope,
        delivery_id: str | None = None,
    ) -> Envelope:
        """(order) The envelope of a message; fields by place, which is twice as fast."""
        self._seq = seq = self._seq + 1
        return Envelope(
            seq,
            topic,
            body,
            kind,
            source_id,
            cause.principal,
            cause.device_key_id,
            cause.request_owner,
            cause.origin,
            cause.workspace,
            time.time_ns() // 1_000_000,
            delivery_id,
        )

    def _deliveries(self, envelope: Envelope, plan: Plan) -> Sequence[tuple[Actor, Delivery]]:
        steps = plan.steps
        if not steps:
            return ()
        body, now = envelope.body, time.monotonic()
        if plan.is_chain:
            chain = Chain(steps, body)
            first = Delivery(envelope, steps[0].action, body, False, chain, plan.is_invocable, now)
            return ((steps[0].actor, first),)
        is_invocable = plan.is_invocable
        if len(steps) == 1:
            step = steps[0]
            return ((step.actor, Delivery(envelope, step.action, body, True, None, is_invocable, now)),)
        return [
            (step.actor, Delivery(envelope, step.action, body, False, None, is_invocable, now))
            for step in steps
        ]

    # outcomes (Desk)

    def handled(self, actor: Actor, delivery: Delivery, result: HookResult) -> None:
        outcome = returned(result.action, result.data)
        if outcome.verdict is Verdict.DENY:
            actor.meter.denied += 1
            self._note(actor, "warn", delivery, f"denied: {outcome.reason[:MAX_REASON_CHARS]}")
        if delivery.is_invocable:
            self._account(actor, delivery, DENIED if outcome.verdict is Verdict.DENY else None)
        self._settle(actor, delivery, outcome, DeliveryFailure.DENIED)

    def failed(self, actor: Actor, delivery: Delivery, error: GuestTrap | AosError) -> None:
        is_cancelled = isinstance(error, GuestTrap) and error.reason is TrapReason.CANCELLED
        self._note(actor, "info" if is_cancelled else "error", delivery, failure_sentence(error))
        if isinstance(error, LimitExceeded):
            if delivery.is_invocable:
                self._account(actor, delivery, error.code)
            self._settle(actor, delivery, Outcome(Verdict.DENY, reason=error.message), DeliveryFailure.FAILED)
            return
        reason = "trap" if isinstance(error, AosError) else error.reason.value
        if delivery.is_invocable:
            self._account(actor, delivery, error.code if isinstance(error, AosError) else reason)
        self._settle(actor, delivery, trapped(reason, error.message), DeliveryFailure.FAILED)

    def abandon(self, actor: Actor, delivery: Delivery) -> None:
        """A message that waited for a capsule which is gone."""
        self._note_loss(actor, delivery, "the capsule was unloaded")
        reason = f"capsule '{actor.name}' was unloaded"
        self._answer_failure(delivery, reason, DeliveryFailure.UNLOADED)

    def _account(self, actor: Actor, delivery: Delivery, error: str | None) -> None:
        if self._executions is not None:
            self._executions.executed(actor, delivery, error)

    def _settle(self, actor: Actor, delivery: Delivery, outcome: Outcome, why: DeliveryFailure) -> None:
        """Go on along the chain, or tell who waits that there will be no answer."""
        chain = delivery.chain
        if chain is not None:
            chain.advance(outcome)
            if chain.link is not None:
                self._deliver_link(delivery.envelope, chain, chain.link)
        denied = outcome.reason if chain is None else chain.denied
        if denied:
            reason = f"capsule '{actor.name}' gave no answer: {denied[:MAX_REASON_CHARS]}"
            self._answer_failure(delivery, reason, why)

    def _deliver_link(self, envelope: Envelope, chain: Chain[Step], step: Step) -> None:
        """Hand a chained message to its next handler.  A full queue ends the chain: it may hold a gate."""
        is_invocable = user_invocable(envelope.topic) is not None
        delivery = Delivery(
            envelope, step.action, chain.payload, False, chain, is_invocable, time.monotonic()
        )
        with self.order:
            offer = step.actor.mailbox.offer(delivery)
            if offer is Offer.WOKE:
                self._ready(step.actor)
        if offer is Offer.FULL or offer is Offer.CLOSED:
            self._report_drop(step.actor, delivery)

    def _report_drop(self, actor: Actor, delivery: Delivery) -> None:
        if actor.mailbox.closed:
            self.abandon(actor, delivery)
            return
        self._note_loss(actor, delivery, "its queue was full")
        reason = f"the queue of capsule '{actor.name}' is full"
        self._answer_failure(delivery, reason, DeliveryFailure.QUEUE_FULL)
        now = self._clock()
        if now - self._warned.get((actor.principal, actor.name), -DROP_WARNING_S) >= DROP_WARNING_S:
            self._warned[actor.principal, actor.name] = now
            lost = f"dropped {delivery.envelope.topic} ({actor.mailbox.drops} so far)"
            self.journal.daemon("warn", f"queue of capsule '{actor.name}' is full: {lost}")

    def _answer_failure(self, delivery: Delivery, reason: str, why: DeliveryFailure) -> None:
        """Tell whoever waits for an answer to this message that none will come (daemon-kernel.md 3.3)."""
        if not delivery.is_sole and delivery.chain is None:
            return
        envelope = delivery.envelope
        message = failure_message(envelope, reason)
        if message is not None:
            self.publish(message.topic, message.body, None, NIL_SOURCE, envelope)
        if envelope.delivery_id is not None:
            self._send_receipt(envelope, why)

    def _send_receipt(self, envelope: Envelope, why: DeliveryFailure) -> None:
        """Tell the publisher of a message with a delivery id, and nobody else, that it was not taken."""
        self.publish(receipt_topic(envelope), receipt_body(envelope, why), None, NIL_SOURCE, envelope)

    def _note_loss(self, actor: Actor, delivery: Delivery, reason: str) -> None:
        lost = delivery.envelope
        self.trace.dropped(lost.seq, actor.principal, actor.name, lost.topic, reason)

    def _note(self, actor: Actor, level: str, delivery: Delivery, text: str) -> None:
        self.journal.capsule(actor.principal, actor.name, level, f"{delivery.envelope.topic}: {text}")
