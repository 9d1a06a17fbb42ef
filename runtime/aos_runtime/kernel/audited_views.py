"""Which capsules serve, as the audit trail tells it."""

from __future__ import annotations

import threading

from aos_runtime.kernel.audited import Trail
from aos_runtime.kernel.views import View
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.audit_entry import SUCCESS, SYSTEM


class Capsules:
    """Which capsules serve, for every principal: an entry when one begins and when one ends."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._known: dict[PrincipalName, dict[CapsuleName, tuple[str, str | None]]] = {}
        self._lock = threading.Lock()

    def note(self, view: View) -> None:
        """A principal's capsules are now those of `view`."""
        now = {
            name: (one.version, one.loaded.installed.meta.wasm_hash) for name, one in view.residents.items()
        }
        with self._lock:
            before = self._known.get(view.principal, {})
            self._known[view.principal] = now
        for name, (version, digest) in now.items():
            if before.get(name) != (version, digest):
                self._record("capsule_loaded", view.principal, name, version, digest)
        for name in before.keys() - now.keys():
            self._record("capsule_unloaded", view.principal, name, *before[name])

    def _record(
        self, kind: str, principal: PrincipalName, name: CapsuleName, version: str, digest: str | None
    ) -> None:
        action = {"type": kind, "capsule_id": name, "version": version, "wasm_hash": digest}
        self._trail.record(principal, action, SUCCESS, SYSTEM)
