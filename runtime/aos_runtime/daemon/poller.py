"""Readiness of sockets, shared by threads.

One thread polls while others register, modify and unregister.  Linux gets `epoll` as it is; elsewhere
`selectors` (kqueue) has the same face.  Closing a socket before it is unregistered would leave its number
with the poller: `Connection.close` keeps that order.
"""

from __future__ import annotations

import os
import select
import selectors
import sys
from collections.abc import Sequence
from typing import Protocol

READABLE = 1
WRITABLE = 4
POLL_S = 1.0
"""A poll returns after this even when nothing came."""


class Poller(Protocol):
    """What the server asks of readiness;

    events are READABLE and WRITABLE, other bits mean trouble on the socket.
    """

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self) -> Sequence[tuple[int, int]]: ...

    def close(self) -> None: ...


class SelectorPoller:
    """Over `selectors`: for systems without epoll."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, events: int) -> None:
        self._selector.register(fd, _selector_events(events))

    def modify(self, fd: int, events: int) -> None:
        self._selector.modify(fd, _selector_events(events))

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self) -> Sequence[tuple[int, int]]:
        return [
            (
                key.fd,
                (READABLE if ready & selectors.EVENT_READ else 0)
                | (WRITABLE if ready & selectors.EVENT_WRITE else 0),
            )
            for key, ready in self._selector.select(POLL_S)
        ]

    def close(self) -> None:
        self._selector.close()


def make_poller() -> Poller:
    """The fastest poller of this system."""
    if sys.platform == "linux":
        return _EpollPoller()
    return SelectorPoller()


class Waker:
    """A pipe whose reading end makes a poll return."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)

    def wake(self) -> None:
        """Safe from any thread and from a signal handler."""
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            return  # full: it is awake already

    def drain(self) -> None:
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write_fd)


def _selector_events(events: int) -> int:
    return (selectors.EVENT_READ if events & READABLE else 0) | (
        selectors.EVENT_WRITE if events & WRITABLE else 0
    )


if sys.platform == "linux":

    class _EpollPoller:
        """`epoll` with our bound; READABLE and WRITABLE are its own bits."""

        def __init__(self) -> None:
            self._epoll = select.epoll()
            self.register = self._epoll.register
            self.modify = self._epoll.modify
            self.unregister = self._epoll.unregister
            self.close = self._epoll.close
            self._poll = self._epoll.poll

        def poll(self) -> Sequence[tuple[int, int]]:
            return self._poll(POLL_S)
