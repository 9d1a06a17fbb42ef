"""What the kernel itself says on the bus: capsules that come and go, that time passes, what was lost.

Each event goes to the capsules of the principal that it is about, under that principal.  Source:
daemon-kernel.md 3.4 and 3.6.  Nothing here decides anything: it looks, compares and publishes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec

from aos_runtime.kernel.answers import capsules_loaded
from aos_runtime.kernel.elicits import env_field
from aos_runtime.kernel.views import View
from aos_runtime.names import PrincipalName
from aos_runtime.wire.payloads import OnboardingRequired

LIFECYCLE_PREFIX = "astrid.v1.lifecycle."
LOADED_TOPIC = "astrid.v1.capsules_loaded"
WATCHDOG_TOPIC = "astrid.v1.watchdog.tick"
ONBOARDING_TOPIC = "astrid.v1.onboarding.required"
LAGGED_TOPIC = "astrid.v1.event_bus.lagged"
WATCHDOG_PERIOD_S = 5.0
LAGGED_PERIOD_S = 10.0
"""Losses are told at most once in this time."""

Announce = Callable[[PrincipalName, str, bytes], None]
"""`(principal, topic, body)`: publish an event of the daemon's own."""

_encode = msgspec.json.Encoder().encode


class KernelEvents:
    """One per daemon.

    `views` gives what is loaded now, `lost` how many messages subscriptions lost since the start, by
    principal.
    """

    def __init__(
        self,
        announce: Announce,
        views: Callable[[], Mapping[PrincipalName, View]],
        lost: Callable[[], Mapping[PrincipalName, int]],
    ) -> None:
        self._announce = announce
        self._views = views
        self._lost = lost
        self._known: dict[PrincipalName, View] = {}
        self._changing = threading.Lock()
        self._watchdog_at = 0.0
        self._lagged_at = 0.0
        self._told: dict[PrincipalName, int] = {}

    def started(self, boot_id: str) -> None:
        """The daemon serves."""
        for principal in self._views():
            self._tell(principal, "kernel_started", {"boot_id": boot_id})

    def stopping(self) -> None:
        """The daemon is about to stop; nobody waits for what a capsule makes of it."""
        for principal in self._views():
            self._tell(principal, "kernel_shutdown", {})

    def changed(self, view: View) -> None:
        """A principal's capsules are now those of `view`: one event for each that came, went or failed."""
        with self._changing:
            before = self._known.get(view.principal)
            self._known[view.principal] = view
        known = before or View(principal=view.principal)
        for name in known.residents.keys() - view.residents.keys():
            gone = {"capsule_id": name, "version": known.residents[name].version}
            self._tell(view.principal, "capsule_unloaded", gone)
        for name, resident in view.residents.items():
            old = known.residents.get(name)
            if old is None or old.loaded is not resident.loaded:
                loaded = {"capsule_id": name, "version": resident.version}
                self._tell(view.principal, "capsule_loaded", loaded)
        for text, unready in view.unready.items():
            if known.unready.get(text) != unready:
                failed = {"capsule_id": text, "version": unready.version, "reason": unready.reason}
                self._tell(view.principal, "capsule_failed", failed)
                if unready.missing:
                    fields = [env_field(row) for row in unready.missing]
                    body = _encode(OnboardingRequired(text, fields))
                    self._announce(view.principal, ONBOARDING_TOPIC, body)
        if before is None:
            self._announce(view.principal, LOADED_TOPIC, capsules_loaded(view))

    def forget(self, principal: PrincipalName) -> None:
        """It was deleted: one that gets its name is told of its capsules as any other."""
        with self._changing:
            self._known.pop(principal, None)
        self._told.pop(principal, None)

    def sweep(self, now: float) -> None:
        """A chore: the watchdog's tick, and what was lost."""
        if now >= self._watchdog_at:
            self._watchdog_at = now + WATCHDOG_PERIOD_S
            for principal in self._views():
                self._announce(principal, WATCHDOG_TOPIC, b"{}")
        if now >= self._lagged_at:
            self._lagged_at = now + LAGGED_PERIOD_S
            self._tell_losses()

    def _tell_losses(self) -> None:
        subscriptions = self._lost()
        for principal, view in self._views().items():
            total = subscriptions.get(principal, 0) + sum(_drops(view))
            new = total - self._told.get(principal, 0)
            self._told[principal] = total  # an unloaded capsule takes its count along
            if new > 0:
                self._announce(principal, LAGGED_TOPIC, _encode({"lagged_count": new}))

    def _tell(self, principal: PrincipalName, event: str, facts: Mapping[str, object]) -> None:
        body = _encode({"event": event, "principal": principal, **facts})
        self._announce(principal, LIFECYCLE_PREFIX + event, body)


def _drops(view: View) -> Iterable[int]:
    return (resident.actor.mailbox.drops for resident in view.residents.values())
