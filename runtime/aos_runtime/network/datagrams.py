"""UDP as a guest holds it: datagrams to peers that the airlock admits, and from those alone.

A peer is admitted by host and port, once for each address; what comes from anybody else is dropped, so that a
socket that can send is no server.  Source: host-abi.md 1.7, the WIT's `udp-socket`.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from aos_runtime.network.faults import Fault, NetworkFault, fault_of
from aos_runtime.network.tcp import address_text
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address
from aos_runtime.policy.hosts import parse_address

MAX_DATAGRAM = 65_507
MAX_PEERS = 256
MAX_NAMES = 256
IDLE_S = 3600.0
NAME_S = 30.0
"""How long the address of a name that was looked up and checked is used again."""

FindPeer = Callable[[str, int], Sequence[Address]]
"""The checked addresses of a peer that the capsule may reach; NetworkFault."""


class Datagram(NamedTuple):
    """One that came, and from whom."""

    data: bytes
    host: str
    port: int


class UdpSocket:
    """Bound to an address; `release` is called once, when it is closed."""

    def __init__(self, address: Address, port: int, release: Callable[[], None]) -> None:
        self.read_timeout_ms: int | None = None
        self._release = release
        self._peers: dict[tuple[Address, int], None] = {}
        self._names: dict[tuple[str, int], tuple[Address, float]] = {}
        self._peer: tuple[Address, int] | None = None
        self._waiting: Datagram | None = None
        """What a look for readiness has received."""
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind((str(address), port))
        except OSError as error:
            self._socket.close()
            raise fault_of(error) from error

    def send_to(self, data: bytes, host: str, port: int, find_peer: FindPeer, wait: Wait) -> int:
        """Send a datagram; how many bytes."""
        return self._send(data, self._admitted(host, port, find_peer), wait)

    def connect(self, host: str, port: int, find_peer: FindPeer) -> None:
        """Send to and hear one peer only from now on."""
        self._peer = self._admitted(host, port, find_peer)

    def disconnect(self) -> None:
        self._peer = None

    def send(self, data: bytes, wait: Wait) -> int:
        """Send to the peer that was connected."""
        if self._peer is None:
            raise NetworkFault(Fault.OTHER, "the socket is not connected to a peer")
        return self._send(data, self._peer, wait)

    def receive(self, size: int, wait: Wait) -> Datagram:
        """The next datagram of an admitted peer, cut to `size`.  NetworkFault TIMEOUT, CUT, CLOSED."""
        while not self.is_ready():
            wait.for_socket(self._socket.fileno(), select.POLLIN)
            wait.check()
        datagram, self._waiting = self._waiting, None
        if datagram is None:
            raise NetworkFault(Fault.CLOSED, "the socket is closed")
        return datagram._replace(data=datagram.data[:size])

    def check_connected(self) -> None:
        """NetworkFault OTHER unless there is one peer."""
        if self._peer is None:
            raise NetworkFault(Fault.OTHER, "the socket is not connected to a peer")

    def peer_address(self) -> str | None:
        return None if self._peer is None else address_text((str(self._peer[0]), self._peer[1]))

    def local_address(self) -> str:
        try:
            return address_text(self._socket.getsockname())
        except OSError as error:
            raise fault_of(error) from error

    def is_ready(self) -> bool:
        """Whether a datagram of an admitted peer is here; others are dropped on the way."""
        while self._waiting is None and self._socket.fileno() >= 0:
            try:
                data, name = self._socket.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                return False
            except ConnectionRefusedError:
                continue  # an earlier datagram of ours was not wanted: that says nothing of this one
            except OSError as error:
                raise fault_of(error) from error
            source = parse_address(str(name[0]))
            if source is not None and self._hears(source, name[1]):
                self._waiting = Datagram(data, str(source), name[1])
        return True

    def descriptor(self) -> tuple[int, int] | None:
        return None if self._socket.fileno() < 0 else (self._socket.fileno(), select.POLLIN)

    def close(self) -> None:
        self._socket.close()
        self._release()

    def _hears(self, source: Address, port: int) -> bool:
        if self._peer is not None:
            return (source, port) == self._peer
        return (source, port) in self._peers

    def _admitted(self, host: str, port: int, find_peer: FindPeer) -> tuple[Address, int]:
        known = self._names.get((host, port))
        if known is not None and known[1] > monotonic():
            return known[0], port
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        address = self._reachable(find_peer(host, port))
        self._names[host, port] = address, monotonic() + NAME_S
        if len(self._peers) >= MAX_PEERS:
            self._peers.pop(next(iter(self._peers)))
        self._peers[address, port] = None
        return address, port

    def _reachable(self, addresses: Sequence[Address]) -> Address:
        """The first address of the kind that this socket is bound to."""
        version = 4 if self._socket.family == socket.AF_INET else 6
        for address in addresses:
            if address.version == version:
                return address
        raise NetworkFault(Fault.NOT_AVAILABLE, f"the socket is bound to IPv{version}, and the peer has none")

    def _send(self, data: bytes, peer: tuple[Address, int], wait: Wait) -> int:
        if len(data) > MAX_DATAGRAM:
            raise NetworkFault(Fault.OTHER, f"a datagram has at most {MAX_DATAGRAM} bytes")
        while True:
            try:
                return self._socket.sendto(data, (str(peer[0]), peer[1]))
            except BlockingIOError:
                wait.for_socket(self._socket.fileno(), select.POLLOUT)
            except OSError as error:
                raise fault_of(error) from error
