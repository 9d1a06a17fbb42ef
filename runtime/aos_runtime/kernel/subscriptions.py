"""Guests' subscriptions, live: who made each, what waits for it, and who waits for that.

`bus` decides who receives a message and what an overflow costs; this adds the lock, which is the kernel's
order lock, and the waiting, which is the only thing here that can block.  A subscription whose owner is
*staged* (a new version beside the one that serves) receives nothing until `promote` hands it what waits for
the old version's, so that no message is lost and none is handled twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from aos_runtime.bus.envelope import Envelope
from aos_runtime.bus.inbox import Inbox, Scope
from aos_runtime.bus.subscriptions import SubscriptionTable
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.publish import MAX_SUBSCRIPTIONS, RECEIPTS

Order = AbstractContextManager[bool]


class Owner:
    """One running instance that may subscribe; all fields but the names are under the order lock."""

    __slots__ = ("capsule", "held", "is_closed", "is_staged", "principal")

    def __init__(self, capsule: CapsuleName, principal: PrincipalName, *, is_staged: bool = False) -> None:
        self.capsule = capsule
        self.principal = principal
        self.is_staged = is_staged
        self.is_closed = False
        self.held: list[Subscription] = []

    @property
    def is_full(self) -> bool:
        return len(self.held) >= MAX_SUBSCRIPTIONS


class Subscription:
    """Implements `host.context.Inflow`."""

    __slots__ = ("_arrived", "_hub", "_is_waiting", "inbox", "is_closed", "owner", "pattern", "scope")

    def __init__(self, hub: Subscriptions, owner: Owner, pattern: str, scope: Scope) -> None:
        self.owner = owner
        self.pattern = pattern
        self.scope = scope
        self.inbox: Inbox[Envelope] = Inbox()
        self.is_closed = False
        self._hub = hub
        self._arrived = threading.Event()
        self._is_waiting = False

    @property
    def lost(self) -> int:
        return self.inbox.evicted + self.inbox.rejected

    @property
    def has_message(self) -> bool:
        with self._hub.order:
            return len(self.inbox) > 0

    def poll(self) -> Envelope | None:
        with self._hub.order:
            return self.inbox.take()

    def wait(self, timeout_s: float) -> Envelope | None:
        with self._hub.order:
            envelope = self.inbox.take()
            if envelope is not None or self.is_closed or self._hub.is_stopping:
                return envelope
            self._arrived.clear()
            self._is_waiting = True
        self._arrived.wait(timeout_s)
        with self._hub.order:
            self._is_waiting = False
            return self.inbox.take()

    def close(self) -> None:
        self._hub.close(self)

    def receive(self, envelope: Envelope) -> None:
        """(order) Queue a message and wake who waits for it."""
        lost_before = self.lost
        size_bytes = len(envelope.body) + len(envelope.topic)
        self.inbox.offer(envelope.principal, size_bytes, envelope)
        if self.lost > lost_before:
            self._hub.note_loss(self.owner.principal, self.lost - lost_before)
        if self._is_waiting:
            self._arrived.set()

    def wake(self) -> None:
        """Cut a wait short; safe from any thread."""
        self._arrived.set()


class Subscriptions:
    """All of one daemon.  `count` is read without the lock: a stale zero only delays the first message."""

    __slots__ = ("_lost", "_owners", "is_stopping", "order", "table")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.is_stopping = False
        self.table: SubscriptionTable[Subscription] = SubscriptionTable()
        self._owners: set[Owner] = set()
        """Those that hold a subscription."""
        self._lost: dict[PrincipalName, int] = {}

    @property
    def count(self) -> int:
        return self.table.count

    def open(self, owner: Owner, pattern: str, scope: Scope) -> Subscription:
        """A subscription that receives from now on; one of an owner that is closed is born closed."""
        subscription = Subscription(self, owner, pattern, scope)
        with self.order:
            if owner.is_closed or self.is_stopping:
                subscription.is_closed = True
                return subscription
            owner.held.append(subscription)
            self._owners.add(owner)
            if not owner.is_staged:
                self.table.add(subscription)
        return subscription

    def close(self, subscription: Subscription) -> None:
        """The guest let go of it.  Closing twice is nothing."""
        with self.order:
            self._close(subscription)

    def deliver(self, envelope: Envelope) -> bool:
        """(order) Queue a message for everybody that receives it; whether that is anybody."""
        found = self._matching(envelope.topic, envelope.principal)
        for subscription in found:
            subscription.receive(envelope)
        return bool(found)

    def _matching(self, topic: str, principal: str | None) -> Sequence[Subscription]:
        """(order) Who receives a message; a receipt only who asked for its own, however wide others are."""
        found = self.table.matching(topic, principal)
        if topic.startswith(RECEIPTS):
            return [one for one in found if one.pattern.startswith(RECEIPTS)]
        return found

    def discard(self, is_meant: Callable[[Envelope], bool]) -> None:
        """(order) Let nobody receive any more what is meant."""
        for owner in self._owners:
            for subscription in owner.held:
                subscription.inbox.remove(is_meant)

    def receivers(self, topic: str, principal: str | None) -> tuple[CapsuleName, ...]:
        """(order) The capsules that receive a message on `topic`, each once."""
        found = self._matching(topic, principal) if self.count else ()
        return tuple(dict.fromkeys(one.owner.capsule for one in found))

    def serves(self, topic: str, principal: str | None, provider: CapsuleName | None) -> bool:
        """(order) Whether a subscription takes a message on this user-invocable topic as its handler."""
        return self.server(topic, principal, provider) is not None

    def server(self, topic: str, principal: str | None, provider: CapsuleName | None) -> CapsuleName | None:
        """(order) The capsule whose subscription takes a message on this user-invocable topic.

        Only one that names the topic, or one of the capsule that is bound to it: a mere listener does not.
        """
        return next(
            (
                one.owner.capsule
                for one in self.table.matching(topic, principal)
                if one.pattern == topic or one.owner.capsule == provider
            ),
            None,
        )

    def promote(self, owner: Owner, before: Owner | None) -> None:
        """(order) Let a staged owner receive, beginning with what waits for its predecessor's
        subscriptions to the same patterns; those are closed, as is everything else that it held.
        """
        if owner.is_staged:
            owner.is_staged = False
            for subscription in owner.held:
                self.table.add(subscription)
        if before is None or before is owner:
            return
        heirs = {subscription.pattern: subscription for subscription in owner.held}
        for old in before.held:
            heir = heirs.get(old.pattern)
            if heir is not None:
                for envelope in old.inbox.drain():
                    heir.receive(envelope)
        self.retire(before)

    def retire(self, owner: Owner) -> None:
        """(order) Close everything that `owner` holds and all that it may still open; its waits end."""
        owner.is_closed = True
        for subscription in tuple(owner.held):
            self._close(subscription)

    def stop(self) -> None:
        """The daemon is stopping: every wait ends now, and those to come end at once."""
        with self.order:
            self.is_stopping = True
            for owner in tuple(self._owners):
                self.retire(owner)

    def note_loss(self, principal: PrincipalName, count: int) -> None:
        """(order) Count messages that a subscription of `principal`'s capsules did not get."""
        self._lost[principal] = self._lost.get(principal, 0) + count

    def lost_by_principal(self) -> dict[PrincipalName, int]:
        """Messages that subscriptions have lost since the start, by the principal of their capsules."""
        with self.order:
            return dict(self._lost)

    def _close(self, subscription: Subscription) -> None:
        if subscription.is_closed:
            return
        subscription.is_closed = True
        owner = subscription.owner
        owner.held.remove(subscription)
        if not owner.held:
            self._owners.discard(owner)
        if not owner.is_staged:
            self.table.remove(subscription)
        subscription.inbox.drain()
        subscription.wake()
