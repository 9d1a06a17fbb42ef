"""One guest's way to the network: what it names is checked, looked up, checked again, and only then dialled.

Every attempt is put on record, done or refused, and a refusal says in the capsule's log which line would
allow it.  Source: host-abi.md 1.6 and 1.7, architecture section 4 (gate, act, audit, result).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import NoReturn

from aos_runtime.network.dialer import Dialer
from aos_runtime.network.faults import Fault, NetworkFault
from aos_runtime.network.links import Link
from aos_runtime.network.listeners import Ports, UnixDoor
from aos_runtime.network.slots import Slots
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address
from aos_runtime.policy.egress import Airlock, EgressCase, EgressDenial
from aos_runtime.policy.hosts import Host, host_of, parse_host
from aos_runtime.policy.urls import Url

Secret = Callable[[str], str | None]
"""The value of a secret of this capsule and principal, None where it is not set; KeyError: it has none."""

_FAULTS = {EgressCase.DENIED: Fault.DENIED, EgressCase.REJECTED: Fault.REJECTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDoor:
    """See the module's text.  `note(call, target, error)` puts an effect on record."""

    airlock: Airlock
    dialer: Dialer
    denied: Callable[[EgressDenial], None]
    note: Callable[[str, str, str | None], None]
    secret: Secret
    unix: UnixDoor | None = None
    """Where `bind-unix` listens; None: nowhere."""
    ports: Ports = field(default_factory=Ports)
    exchanges: Slots = field(default_factory=lambda: Slots(4, "HTTP streams"))
    streams: Slots = field(default_factory=lambda: Slots(8, "connections"))
    listeners: Slots = field(default_factory=lambda: Slots(4, "listeners"))
    unix_listeners: Slots = field(default_factory=lambda: Slots(1, "Unix listeners"))
    datagrams: Slots = field(default_factory=lambda: Slots(4, "UDP sockets"))

    def admit_url(self, url: Url, operation: str) -> None:
        """NetworkFault DENIED where `net` does not list the host."""
        self._check(self.airlock.check_request(url.host, url.port, operation))

    def open_url(self, url: Url, operation: str, wait: Wait) -> Link:
        """A connection to the host of an address that was admitted, TLS for https."""
        link = self.dialer.dial(self._vetted(url.host, url.port, operation, wait), url.port, wait)
        if not url.is_secure:
            return link
        try:
            self.dialer.secure(link, url.host.text, wait)
        except BaseException:
            link.close()
            raise
        return link

    def connect(self, host: Host, port: int, wait: Wait) -> Link:
        """A TCP connection that `net_connect` lists."""
        operation = "connect-tcp"
        self._check(self.airlock.check_connect(host, port, operation))
        return self.dialer.dial(self._vetted(host, port, operation, wait), port, wait)

    def find_peer(self, host: Host, port: int, operation: str, wait: Wait) -> tuple[Address, ...]:
        """The addresses that datagrams for a peer may go to, which `net_connect` must list."""
        self._check(self.airlock.check_connect(host, port, operation))
        return self._vetted(host, port, operation, wait)

    def look_up(self, host: Host, wait: Wait) -> tuple[Address, ...]:
        """The addresses of a host that may be dialled; `net_connect` must list it with every port."""
        self._check(self.airlock.check_connect(host, 0, "lookup-host"))
        found = self._addresses(host, wait)
        good = self.airlock.vetted(host, 0, found, "lookup-host")
        return () if isinstance(good, EgressDenial) else good

    def admit_bind(self, host: Host, port: int) -> Address:
        """The address of this machine to listen at, which `net_bind` must list."""
        self._check(self.airlock.check_bind(host, port, "bind-tcp"))
        return _own_address(host)

    def admit_datagrams(self, host: Host, port: int) -> Address:
        """The address that a UDP socket is bound to."""
        self._check(self.airlock.check_datagrams(host, port))
        return _own_address(host)

    def admit_unix(self) -> UnixDoor:
        """Where to listen for clients of this home, which needs a `unix:` entry in `net_bind`."""
        self._check(self.airlock.check_unix("bind-unix"))
        if self.unix is None:
            raise NetworkFault(Fault.NOT_AVAILABLE, "there is no daemon whose clients could come")
        return self.unix

    def refuse(self, denial: EgressDenial) -> NoReturn:
        """Tell the capsule's log why, and fail."""
        self.denied(denial)
        raise NetworkFault(_FAULTS[denial.case], denial.rule)

    def _check(self, denial: EgressDenial | None) -> None:
        if denial is not None:
            self.refuse(denial)

    def _vetted(self, host: Host, port: int, operation: str, wait: Wait) -> tuple[Address, ...]:
        """The checked addresses of a host, at least one."""
        good = self.airlock.vetted(host, port, self._addresses(host, wait), operation)
        if isinstance(good, EgressDenial):
            self.refuse(good)
        if not good:
            raise NetworkFault(Fault.UNRESOLVED, f"{host.text} has no address")
        return good

    def _addresses(self, host: Host, wait: Wait) -> tuple[Address, ...]:
        return (host.address,) if host.address is not None else self.dialer.resolve(host.text, wait)


def host_named(text: str) -> Host:
    """The host that a guest names.  NetworkFault INVALID where it is none."""
    host = parse_host(text)
    if host is None:
        raise NetworkFault(Fault.INVALID, "that is no host name and no address")
    return host


def _own_address(host: Host) -> Address:
    """Where this machine is bound: `localhost` is not looked up."""
    return IPv4Address("127.0.0.1") if host.address is None else host.address


def shown(address: Address, port: int) -> str:
    """`ip:port`, an IPv6 address in brackets."""
    return host_of(address).with_port(port)
