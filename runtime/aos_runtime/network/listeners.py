"""Sockets that a guest listens on: TCP on this machine, and a Unix socket of its own beside the daemon's.

Source: host-abi.md 1.7, daemon-kernel.md 2.2 (the handshake is that of the daemon's socket).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aos_runtime.errors import PeerFault
from aos_runtime.network.faults import Fault, NetworkFault, fault_of
from aos_runtime.network.links import Link, is_ready
from aos_runtime.network.peer import peer_uid
from aos_runtime.network.tcp import TcpStream, address_text
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address
from aos_runtime.wire.frames import MAX_HANDSHAKE_BYTES
from aos_runtime.wire.handshake import SERVER_TIMEOUT_S, Identity, Rejected, ServerHandshake

BACKLOG = 64
_LENGTH = struct.Struct(">I")


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
            return TcpStream(Link(_accepted(self._socket, wait)), release)
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


class UnixDoor(NamedTuple):
    """Where one capsule listens for clients of its home, and how they prove who they are."""

    path: Path
    handshake: Callable[[], ServerHandshake]


class UnixListener:
    """The capsule's own Unix socket: a client is of this user, shows the token, and may prove a principal.

    One that fails is closed and the wait goes on.  `slot` takes a place for a stream before it is accepted.
    """

    def __init__(
        self, door: UnixDoor, slot: Callable[[], Callable[[], None]], release: Callable[[], None]
    ) -> None:
        self._door = door
        self._slot = slot
        self._release = release
        self._socket = _listen_unix(door.path)
        self._inode = door.path.stat().st_ino

    def accept(self, wait: Wait) -> TcpStream:
        """The next client that proved itself.  NetworkFault TIMEOUT, CUT, CLOSED, CROWDED."""
        release = self._slot()
        try:
            while True:
                link = Link(_accepted(self._socket, wait))
                identity = self._admit(link, wait)
                if identity is not None:
                    principal = principal_of(identity)
                    owner = None if principal is None else str(uuid.uuid4())
                    return TcpStream(link, release, owner=owner, principal=principal)
        except BaseException:
            release()
            raise

    def is_ready(self) -> bool:
        return is_ready(self._socket.fileno(), select.POLLIN)

    def descriptor(self) -> tuple[int, int] | None:
        return None if self._socket.fileno() < 0 else (self._socket.fileno(), select.POLLIN)

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            if self._door.path.stat().st_ino == self._inode:  # else another instance listens there by now
                self._door.path.unlink()
        self._release()

    def _admit(self, link: Link, wait: Wait) -> Identity | None:
        """Who a client is; None for one that is not let in, which is closed."""
        try:
            if peer_uid(link.socket) == os.geteuid():
                outcome = _shake(link, self._door.handshake(), wait.at_most(SERVER_TIMEOUT_S))
                if isinstance(outcome, Identity):
                    return outcome
        except PeerFault:
            pass  # it speaks another language: closed without a word
        except NetworkFault:
            wait.check()  # it was slow or is gone; or the call is over
        except BaseException:
            link.close()
            raise
        link.close()
        return None


def principal_of(identity: Identity) -> str | None:
    """Who a client proved to be; None where it did not, or with a device that may do only some things."""
    device = identity.device
    if device is None or device.allow is not None or device.deny:
        return None
    return identity.principal


def _shake(link: Link, handshake: ServerHandshake, wait: Wait) -> Identity | Rejected:
    while True:
        (size,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, wait))
        if size > MAX_HANDSHAKE_BYTES:
            raise NetworkFault(Fault.PROTOCOL)
        reply = handshake.receive(_exactly(link, size, wait))
        link.send_all(_LENGTH.pack(len(reply.frame)) + reply.frame, wait)
        if reply.outcome is not None:
            return reply.outcome


def _exactly(link: Link, size: int, wait: Wait) -> bytes:
    data = b""
    while len(data) < size:
        part = link.receive(size - len(data), wait)
        if not part:
            raise NetworkFault(Fault.CLOSED)
        data += part
    return data


def _accepted(listening: socket.socket, wait: Wait) -> socket.socket:
    while True:
        try:
            return listening.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            wait.for_socket(listening.fileno(), select.POLLIN)
        except OSError as error:
            raise fault_of(error) from error


def _listen_unix(path: Path) -> socket.socket:
    """Bound for this user alone; what another instance of the capsule left there is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        bound.bind(str(path))  # the folder is private: nobody else reaches it before its mode is set
        path.chmod(0o600)
        bound.listen(BACKLOG)
        bound.setblocking(False)
        return bound
    except OSError as error:
        bound.close()
        raise fault_of(error) from error


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
