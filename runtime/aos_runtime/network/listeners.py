"""Sockets that a guest listens on: TCP on this machine, and the Unix door of its home.

The daemon serves the home's socket itself, so a capsule that waits at the Unix door waits until its call is
over, as it does under the published daemon.  Source: host-abi.md 1.7.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from aos_runtime.network.faults import Fault, NetworkFault, fault_of
from aos_runtime.network.links import Link, is_ready
from aos_runtime.network.tcp import TcpStream, address_text
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address

BACKLOG = 64


class TcpListener:
    """Bound to an address of this machine.  `slot` takes a place for a stream before it is accepted."""

    def __init__(
        self,
        address: Address,
        port: int,
        slot: Callable[[], Callable[[], None]],
        release: Callable[[], None],
    ) -> None:
        self._slot = slot
        self._release = release
        self._socket = _listen(address, port)

    def accept(self, wait: Wait) -> TcpStream:
        """The next connection.  NetworkFault TIMEOUT, CUT, CLOSED, CROWDED."""
        release = self._slot()
        try:
            return TcpStream(Link(self._accept(wait)), release)
        except BaseException:
            release()
            raise

    def local_address(self) -> str:
        try:
            return address_text(self._socket.getsockname())
        except OSError as error:
            raise fault_of(error) from error

    def is_ready(self) -> bool:
        return is_ready(self._socket.fileno(), select.POLLIN)

    def descriptor(self) -> tuple[int, int] | None:
        return None if self._socket.fileno() < 0 else (self._socket.fileno(), select.POLLIN)

    def close(self) -> None:
        self._socket.close()
        self._release()

    def _accept(self, wait: Wait) -> socket.socket:
        while True:
            try:
                return self._socket.accept()[0]
            except (BlockingIOError, ConnectionAbortedError):
                wait.for_socket(self._socket.fileno(), select.POLLIN)
            except OSError as error:
                raise fault_of(error) from error


class UnixListener:
    """The door of the home, which somebody else answers: nobody ever comes to this one."""

    def accept(self, wait: Wait) -> TcpStream:
        """NetworkFault TIMEOUT where the wait has an end of its own, CLOSED when the call is over."""
        pipe = select.poll()
        while not wait.is_over():
            if not wait.left_s():
                raise NetworkFault(Fault.TIMEOUT, "nobody came")
            pipe.poll(min(0.02, wait.left_s()) * 1000)
        raise NetworkFault(Fault.CLOSED, "the listener is closed")

    def is_ready(self) -> bool:
        return False

    def descriptor(self) -> tuple[int, int] | None:
        return None

    def close(self) -> None:
        return None


def _listen(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((str(address), port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
        return bound
    except OSError as error:
        bound.close()
        raise fault_of(error) from error
