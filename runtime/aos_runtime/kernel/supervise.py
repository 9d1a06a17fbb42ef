"""What the rest of the system hears of a run loop that failed: a line in the log and an event on the bus.

Source: daemon-kernel.md 3.6 (`astrid.v1.health.failed`) and 6.8.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aos_runtime.kernel.kernel import Journal
from aos_runtime.kernel.restarts import MAX_RESTARTS
from aos_runtime.kernel.runloop import RunLoop
from aos_runtime.names import PrincipalName

HEALTH_TOPIC = "astrid.v1.health.failed"

Announce = Callable[[PrincipalName, str, bytes], None]
"""`(principal, topic, body)`: publish an event of the daemon's own."""


class Supervisor:
    """Reports failures; restarting is the loop's own work."""

    def __init__(self, journal: Journal, announce: Announce) -> None:
        self._journal = journal
        self._announce = announce

    def failed(self, loop: RunLoop, reason: str, delay_s: float | None) -> None:
        """A loop that served has ended; `delay_s` until its next start, None when it is disabled."""
        sentence = f"run loop of capsule '{loop.name}' {loop.version} failed: {reason}"
        if delay_s is None:
            sentence += (
                f"; disabled after {MAX_RESTARTS} restarts, until it is installed anew or aos restarts"
            )
        else:
            sentence += f"; restart {loop.restarts.count} of {MAX_RESTARTS} in {delay_s:g} s"
        self._journal.daemon("error", sentence)
        body = {"capsule_id": loop.name, "principal": loop.principal, "reason": reason}
        self._announce(loop.principal, HEALTH_TOPIC, msgspec.json.encode(body))
