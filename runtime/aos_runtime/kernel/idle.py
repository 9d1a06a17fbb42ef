"""Drops the instances of capsules that nobody has called for a while: their memory, not their place.

The next call makes a new one from code that is mapped already.  A guest keeps nothing between calls that it
may rely on but its keys, so none can tell; those whose handles outlive a call keep their instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from aos_runtime.kernel.actor import Actor
from aos_runtime.kernel.views import View
from aos_runtime.names import PrincipalName

IDLE_PERIOD_S = 30.0
"""An instance goes when no call began for one to two of these."""


class IdleSweep:
    """A chore.  `evicted` counts instances dropped."""

    def __init__(
        self, order: AbstractContextManager[bool], views: Callable[[], Mapping[PrincipalName, View]]
    ) -> None:
        self._order = order
        self._views = views
        self._next_at = 0.0
        self._calls: dict[Actor, int] = {}
        """What each capsule's count of calls was at the last look."""
        self.evicted = 0

    def sweep(self, now: float) -> None:
        """Look every `IDLE_PERIOD_S`."""
        if now < self._next_at:
            return
        self._next_at = now + IDLE_PERIOD_S
        actors = [one.actor for view in self._views().values() for one in view.residents.values()]
        before, self._calls = self._calls, {actor: actor.meter.calls for actor in actors}
        for actor, calls in self._calls.items():
            if before.get(actor) == calls:
                self._evict(actor)

    def _evict(self, actor: Actor) -> None:
        with self._order:
            instance = actor.take_idle_instance()
        if instance is not None:
            instance.close()
            self.evicted += 1
