"""The access gate: whether a capsule in a principal's view may be called there (daemon-kernel.md 4.5, 7).

Asked once per topic and principal, when a plan is made; what a profile allows is decided in `policy.access`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.topics import user_invocable
from aos_runtime.kernel.routing import access_refusal
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.access import DESCRIBE_SURFACES, Standing

LINE_S = 1.0
"""At most one line per principal and capsule in this time: a guest may ask without end."""


class DaemonLog(Protocol):
    def daemon(self, level: str, message: str) -> None: ...


class AccessGate:
    """`bundled` are the capsules that need no grant, by whom they serve."""

    def __init__(
        self,
        standing: Callable[[PrincipalName], Standing],
        journal: DaemonLog,
        clock: Callable[[], float],
    ) -> None:
        self.bundled: frozenset[tuple[PrincipalName, CapsuleName]] = frozenset()
        self._standing = standing
        self._journal = journal
        self._clock = clock
        self._told: dict[tuple[str, CapsuleName], float] = {}

    def admits(self, topic: str, principal: PrincipalName, capsule: CapsuleName) -> bool:
        """Whether the capsule may have this message of the principal."""
        is_bundled = (principal, capsule) in self.bundled
        if user_invocable(topic) is not None:
            return self._standing(principal).may_call(capsule, is_bundled=is_bundled)
        if topic in DESCRIBE_SURFACES:
            return self._standing(principal).may_see(capsule, is_bundled=is_bundled)
        return True

    def note_denied(self, capsule: CapsuleName, envelope: Envelope) -> None:
        """A line in the log that says what would allow it."""
        key, now = (envelope.principal or "", capsule), self._clock()
        if now - self._told.get(key, -LINE_S) >= LINE_S:
            self._told[key] = now
            self._journal.daemon("warn", f"{envelope.topic}: {access_refusal(key[0], capsule)}")
