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
import threading
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


class Ports:
    """What the instances of one capsule and principal listen on: those that name one port share its socket.

    So the workers of a run loop take connections side by side, and a new version listens while the old one
    still does.  One instance cannot bind a port twice, and port 0 is a port of its own each time.  Used by
    the threads of all of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[Address, int], list[tuple[object, socket.socket]]] = {}

    def bind(self, holder: object, address: Address, port: int) -> socket.socket:
        """A socket that listens, for the instance `holder`.  NetworkFault as the system has it."""
        with self._lock:
            held = self._held.setdefault((address, port), []) if port else []
            if any(owner is holder for owner, _ in held):
                raise NetworkFault(Fault.IN_USE)
            bound = held[0][1].dup() if held else _listen(address, port)
            held.append((holder, bound))
            return bound

    def close(self, bound: socket.socket) -> None:
        """The system lets go of the port once nobody holds it."""
        with self._lock:
            bound.close()
            for key in tuple(self._held):
                self._held[key] = [one for one in self._held[key] if one[1] is not bound]
                if not self._held[key]:
                    del self._held[key]


class TcpListener:
    """Bound to an address of this machine.  `slot` takes a place for a stream before it is accepted."""

    def __init__(
        self,
        ports: Ports,
        holder: object,
        address: Address,
        port: int,
        slot: Callable[[], Callable[[], None]],
        release: Callable[[], None],
    ) -> None:
        self._ports = ports
        self._slot = slot
        self._release = release
        self._socket = ports.bind(holder, address, port)

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
        self._ports.close(self._socket)
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
