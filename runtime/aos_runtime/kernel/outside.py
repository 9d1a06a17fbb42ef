"""What the capsules of this daemon reach outside of it: one dialer for all, a door for each instance.

The operator's exemptions come from `etc/config.toml` alone, and each is told in the daemon's log at every
start: what opens this machine to a capsule is never silent (SEC-09).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial

from aos_runtime import HOST_VERSION
from aos_runtime.config import Settings
from aos_runtime.home import Home
from aos_runtime.kernel.guest_env import GuestEnv
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.network import Dialer, NetworkDoor
from aos_runtime.network.listeners import Ports, UnixDoor
from aos_runtime.policy.bounds import Bounds, unbound
from aos_runtime.policy.egress import Airlock, EgressDenial
from aos_runtime.store.installed import Installed
from aos_runtime.wire.handshake import KeyEntry, ServerHandshake

FindKeys = Callable[[PrincipalName], tuple[KeyEntry, ...] | None]
Note = Callable[[str, str, str | None], None]
"""`(function, target, error case)`: one effect, done or refused."""


class Outside:
    """One per daemon.  `local_egress` are the exempted `host:port`, by capsule; `find_keys` are those that a
    client of a capsule's own socket may prove a principal with; `bounds_of` is the most that one may reach.
    """

    def __init__(
        self,
        dialer: Dialer,
        local_egress: Mapping[str, tuple[str, ...]],
        home: Home,
        find_keys: FindKeys,
        bounds_of: Callable[[PrincipalName], Bounds] = unbound,
    ) -> None:
        self._bounds_of = bounds_of
        self._dialer = dialer
        self._local_egress = local_egress
        self._home = home
        self._find_keys = find_keys
        self._ports: dict[tuple[PrincipalName, CapsuleName], Ports] = {}

    @classmethod
    def of(
        cls,
        settings: Settings,
        home: Home,
        find_keys: FindKeys,
        tell: Callable[[str, str], None],
        bounds_of: Callable[[PrincipalName], Bounds] = unbound,
    ) -> Outside:
        """As the operator set it; `tell(level, message)` hears of every exemption."""
        for capsule, entries in settings.local_egress.items():
            if entries:
                tell(
                    "warn",
                    f"capsule '{capsule}' may reach {', '.join(entries)} on this machine or its networks "
                    "([security.capsule_local_egress] of etc/config.toml)",
                )
        return cls(Dialer(), settings.local_egress, home, find_keys, bounds_of)

    def door(
        self, installed: Installed, env: GuestEnv, note: Note, denied: Callable[[EgressDenial], None]
    ) -> NetworkDoor:
        """The network of one instance of an installed capsule."""
        held = installed.receipt.capabilities
        exempt = self._local_egress.get(installed.name, ())
        return NetworkDoor(
            airlock=Airlock(installed.name, held, exempt, partial(self._bounds_of, installed.principal)),
            dialer=self._dialer,
            denied=denied,
            note=note,
            secret=env.placeholder,
            ports=self._ports.setdefault((installed.principal, installed.name), Ports()),
            unix=UnixDoor(self._home.capsule_socket(installed.principal, installed.name), self._handshake),
        )

    def _handshake(self) -> ServerHandshake:
        """That of the daemon's own socket, with the token that lies there now."""
        token = self._home.token_file.read_text(encoding="ascii").strip()
        return ServerHandshake(token, HOST_VERSION, self._find_keys, secrets.token_bytes(32))
