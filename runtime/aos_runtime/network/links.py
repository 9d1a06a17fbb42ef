"""One connection: bytes both ways, plain or TLS, never blocking longer than the wait that it is given."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl

from aos_runtime.network.faults import NetworkFault, NothingYet, fault_of
from aos_runtime.network.waits import Wait

READABLE, WRITABLE = select.POLLIN, select.POLLOUT


class Link:
    """Owns a connected socket.  Faults of the system come out as NetworkFault."""

    __slots__ = ("_is_tls", "_socket", "is_closed")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._is_tls = False
        self.is_closed = False

    @property
    def socket(self) -> socket.socket:
        """For the options and addresses of a TCP connection; nobody else reads or writes."""
        return self._socket

    def start_tls(self, context: ssl.SSLContext, server_name: str, wait: Wait) -> None:
        """Speak TLS from here on, with a peer that proves to be `server_name`."""
        try:
            wrapped = context.wrap_socket(
                self._socket, server_hostname=server_name, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:
            raise fault_of(error if isinstance(error, OSError) else OSError()) from error
        self._socket, self._is_tls = wrapped, True
        while True:
            try:
                return wrapped.do_handshake()
            except ssl.SSLWantReadError:
                wait.for_socket(self.fileno(), READABLE)
            except ssl.SSLWantWriteError:
                wait.for_socket(self.fileno(), WRITABLE)
            except OSError as error:
                raise fault_of(error) from error

    def receive(self, size_bytes: int, wait: Wait) -> bytes:
        """Up to so many bytes, at least one; empty where the peer has ended."""
        while True:
            try:
                return self.receive_now(size_bytes)
            except NothingYet:
                wait.for_socket(self.fileno(), READABLE)

    def receive_now(self, size_bytes: int) -> bytes:
        """As `receive`; NothingYet where there is nothing now."""
        try:
            return self._socket.recv(size_bytes)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise NothingYet from None
        except OSError as error:
            raise fault_of(error) from error

    def peek(self, size_bytes: int, wait: Wait) -> bytes:
        """As `receive`, and the bytes stay to be received; plain connections only."""
        while True:
            try:
                return self._socket.recv(size_bytes, socket.MSG_PEEK)
            except BlockingIOError:
                wait.for_socket(self.fileno(), READABLE)
            except OSError as error:
                raise fault_of(error) from error

    def send(self, data: bytes | memoryview, wait: Wait) -> int:
        """Send some of the bytes, at least one; how many."""
        while True:
            try:
                return self.send_now(data)
            except NothingYet:
                wait.for_socket(self.fileno(), WRITABLE)

    def send_now(self, data: bytes | memoryview) -> int:
        """As `send`; NothingYet where none are taken now."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise NothingYet from None
        except OSError as error:
            raise fault_of(error) from error

    def send_all(self, data: bytes, wait: Wait) -> None:
        """Send all of the bytes."""
        view = memoryview(data)
        while view:
            view = view[self.send(view, wait) :]

    def shutdown(self, how: int) -> None:
        """Close one or both directions (`socket.SHUT_*`)."""
        try:
            self._socket.shutdown(how)
        except OSError as error:
            raise fault_of(error) from error

    def has_bytes(self) -> bool:
        """Whether `receive_now` would give bytes or the end."""
        if self.is_closed:
            return True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return is_ready(self.fileno(), READABLE)

    def has_room(self) -> bool:
        """Whether `send_now` would take bytes."""
        return self.is_closed or is_ready(self.fileno(), WRITABLE)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Let the connection go, at once; calling it again does nothing."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._socket.close()


def is_ready(descriptor: int, events: int) -> bool:
    """Whether a descriptor is ready now; one that is closed is, to whoever asks it next."""
    if descriptor < 0:
        return True
    poller = select.poll()
    poller.register(descriptor, events)
    return bool(poller.poll(0))


class SocketSource:
    """Readiness of one direction of a link (`host.readiness.Source`)."""

    __slots__ = ("_events", "_link")

    def __init__(self, link: Link, events: int = READABLE) -> None:
        self._link = link
        self._events = events

    def is_ready(self) -> bool:
        return self._link.has_bytes() if self._events == READABLE else self._link.has_room()

    def descriptor(self) -> tuple[int, int] | None:
        return None if self._link.is_closed else (self._link.fileno(), self._events)


__all__ = ["READABLE", "WRITABLE", "Link", "NetworkFault", "SocketSource", "is_ready"]
