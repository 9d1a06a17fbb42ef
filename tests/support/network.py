"""A network of a test's own: names that resolve as it says, public addresses that lead to its servers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.network import Dialer, NetworkDoor
from aos_runtime.network.dialer import connect_to
from aos_runtime.network.listeners import UnixDoor
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address
from aos_runtime.policy.egress import Airlock, EgressDenial

PUBLIC = "93.184.216.34"
OTHER = "93.184.216.35"


class Net:
    """`names` gives each name its answers, one for each look-up, the last for all that follow.

    `routes` leads an address and any port to a port of loopback.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[Sequence[str]]] = {},
        routes: Mapping[str, int] = {},
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.names = {name: list(answers) for name, answers in names.items()}
        self.routes = dict(routes)
        self.asked: list[str] = []
        self.dialled: list[str] = []
        self.denials: list[EgressDenial] = []
        self.notes: list[tuple[str, str, str | None]] = []
        self.secrets: dict[str, str | None] = {}
        self.unix: UnixDoor | None = None
        self.dialer = Dialer(look_up=self._look_up, connect=self._connect, tls=tls)

    def door(self, *exempt: str, **held: tuple[str, ...]) -> NetworkDoor:
        """A guest's door that holds these capabilities."""
        return NetworkDoor(
            airlock=Airlock("guest", Capabilities(**held), exempt),  # type: ignore[arg-type]
            dialer=self.dialer,
            denied=self.denials.append,
            note=lambda call, target, error: self.notes.append((call, target, error)),
            secret=lambda name: self.secrets[name],
            unix=self.unix,
        )

    def _look_up(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answers = self.names.get(name)
        if answers is None:
            raise socket.gaierror("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _connect(self, address: Address, port: int, wait: Wait) -> socket.socket:
        self.dialled.append(f"{address}:{port}")
        routed = self.routes.get(str(address))
        if routed is not None:
            return connect_to(ip_address("127.0.0.1"), routed, wait)
        assert address.is_loopback, "a test never dials the internet"
        return connect_to(address, port, wait)
