"""What the capsules of this daemon reach outside of it: one dialer for all, a door for each instance.

The operator's exemptions come from `etc/config.toml` alone, and each is told in the daemon's log at every
start: what opens this machine to a capsule is never silent (SEC-09).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aos_runtime.config import Settings
from aos_runtime.kernel.guest_env import GuestEnv
from aos_runtime.network import Dialer, NetworkDoor
from aos_runtime.policy.egress import Airlock, EgressDenial
from aos_runtime.store.installed import Installed

Note = Callable[[str, str, str | None], None]
"""`(function, target, error case)`: one effect, done or refused."""


class Outside:
    """One per daemon.  `local_egress` are the exempted `host:port`, by capsule."""

    def __init__(self, dialer: Dialer, local_egress: Mapping[str, tuple[str, ...]]) -> None:
        self._dialer = dialer
        self._local_egress = local_egress

    @classmethod
    def of(cls, settings: Settings, tell: Callable[[str, str], None]) -> Outside:
        """As the operator set it; `tell(level, message)` hears of every exemption."""
        for capsule, entries in settings.local_egress.items():
            if entries:
                tell(
                    "warn",
                    f"capsule '{capsule}' may reach {', '.join(entries)} on this machine or its networks "
                    "([security.capsule_local_egress] of etc/config.toml)",
                )
        return cls(Dialer(), settings.local_egress)

    def door(
        self, installed: Installed, env: GuestEnv, note: Note, denied: Callable[[EgressDenial], None]
    ) -> NetworkDoor:
        """The network of one instance of an installed capsule."""
        held = installed.receipt.capabilities
        exempt = self._local_egress.get(installed.name, ())
        return NetworkDoor(
            airlock=Airlock(installed.name, held, exempt),
            dialer=self._dialer,
            denied=denied,
            note=note,
            secret=env.placeholder,
        )
