"""The socket: accept, check the peer, shake hands, keep the limits; then every frame goes to the gateway.

The source that `kernel.leader` polls.  Source: daemon-kernel.md 2.1 to 2.3.  Nothing here looks into a
message.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from aos_runtime import HOST_VERSION
from aos_runtime.daemon.connection import Closed, Connection
from aos_runtime.daemon.poller import READABLE, Poller, Waker, make_poller
from aos_runtime.daemon.sessions import Session, Sessions
from aos_runtime.names import PrincipalName
from aos_runtime.network.peer import peer_uid
from aos_runtime.wire.frames import MAX_FRAME_BYTES
from aos_runtime.wire.handshake import (
    SERVER_TIMEOUT_S,
    Identity,
    KeyEntry,
    Rejected,
    ServerHandshake,
)
from aos_runtime.wire.handshake_client import PROTOCOL_VERSION

BACKLOG = 256
MAX_PENDING_HANDSHAKES = 64
CROWDED_S = 0.5
"""How long a peer may say nothing in its handshake while so many shake hands that others wait."""

MAX_CONNECTIONS = 128
MAX_LANES = 8
LANE_FIRST_FRAME_S = 2.0
LANE_LIFE_S = 60.0


class Gateway(Protocol):
    """What the server hands sessions and frames to."""

    def admit(self, session: Session, identity: Identity, proceed: Callable[[], None]) -> str | None:
        """A peer has proved who it is.  Calls `proceed` once it can be served; a sentence refuses it."""
        ...

    def frame(self, session: Session, body: bytes) -> None:
        """One frame of an established session."""
        ...

    def gone(self, session: Session) -> None:
        """An established session was closed."""
        ...


class Server:
    """Implements `leader.Source`.  `note(level, text)` writes the daemon log."""

    def __init__(
        self,
        *,
        token: str,
        find_keys: Callable[[PrincipalName], tuple[KeyEntry, ...] | None],
        gateway: Gateway,
        note: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = Sessions()
        self._token = token
        self._find_keys = find_keys
        self._gateway = gateway
        self._note = note
        self._clock = clock
        self._poller: Poller = make_poller()
        self._waker = Waker()
        self._poller.register(self._waker.fd, READABLE)
        self._accepting = threading.Lock()
        """Over the two below: accepting is paused and resumed from several threads."""
        self._listener: socket.socket | None = None
        self._listening = False
        self._expulsions = 0

    def listen(self, path: Path) -> None:
        """Bind the socket, for this user alone, and accept from now on."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._listener = listener
        self._resume()

    def poll(self) -> Sequence[tuple[int, int]]:
        return self._poller.poll()

    def handle(self, fd: int, events: int) -> None:
        session = self.sessions.get(fd)
        if session is not None:
            session.connection.on_event(events)
        elif fd == self._waker.fd:
            self._waker.drain()
        else:
            listener = self._listener
            if listener is not None and fd == listener.fileno():
                self._accept(listener)

    def wake(self) -> None:
        self._waker.wake()

    def sweep(self, now: float) -> None:
        """A chore: close what is too slow, and accept again where that was paused."""
        hurry_s = SERVER_TIMEOUT_S - CROWDED_S if self.sessions.pending >= MAX_PENDING_HANDSHAKES else 0.0
        for session in self.sessions.everyone():
            session.connection.sweep(now)
            late = Closed.LANE_TIMEOUT if session.is_lane else Closed.HANDSHAKE_TIMEOUT
            early_s = 0.0 if session.handshake is None else hurry_s
            if session.deadline is not None and now > session.deadline - early_s:
                session.connection.close(late)
        self._resume()

    def expel(self, principal: PrincipalName) -> None:
        """Close the connections of `principal` that could not be made now, once what was sent has left.

        Its profile was changed: it may be disabled, or a key taken out.  Reads the disk.
        """
        self._expulsions += 1
        made = [
            (one, one.facts.device_key_id) for one in self.sessions.of(principal) if one.facts is not None
        ]
        keys = {key.key_id for key in self._find_keys(principal) or ()} if made else set[str]()
        for session, key in made:
            if key is not None and key not in keys:
                session.connection.close_after_flush(Closed.REFUSED)

    def stop_accepting(self) -> None:
        """Take no new clients; those that are here stay."""
        with self._accepting:
            listener, self._listener = self._listener, None
            if listener is not None and self._listening:
                self._poller.unregister(listener.fileno())
        if listener is not None:
            listener.close()

    def flush(self, deadline: float) -> None:
        """Wait until what was sent has left, at most until `deadline`.  For the end of the process."""
        while any(session.connection.has_backlog for session in self.sessions.everyone()):
            if self._clock() >= deadline:
                return
            for fd, events in self._poller.poll():
                session = self.sessions.get(fd)
                if session is not None:
                    session.connection.on_event(events & ~READABLE)

    def close(self) -> None:
        """Close everything; only once no thread polls."""
        self.stop_accepting()
        for session in self.sessions.everyone():
            session.connection.close(Closed.SHUTDOWN)
        self._poller.close()
        self._waker.close()

    # accepting

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # out of descriptors: try again at the next sweep, do not spin
            self._note("error", f"accept failed: {error.strerror}")
            self._pause()
            return
        if peer_uid(sock) != os.geteuid() or self.sessions.is_full(MAX_CONNECTIONS, MAX_LANES):
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(
            sock, self._poller, on_frame=self._on_frame, on_closed=self._on_closed, clock=self._clock
        )
        handshake = ServerHandshake(self._token, HOST_VERSION, self._find_keys, secrets.token_bytes(32))
        self.sessions.add(Session(connection, handshake, self._clock() + SERVER_TIMEOUT_S))
        self._poller.register(connection.fd, READABLE)
        if self.sessions.pending >= MAX_PENDING_HANDSHAKES:
            self._pause()

    def _pause(self) -> None:
        """Let clients wait in the backlog while too many shake hands."""
        with self._accepting:
            if self._listening and self._listener is not None:
                self._listening = False
                self._poller.unregister(self._listener.fileno())

    def _resume(self) -> None:
        with self._accepting:
            is_due = not self._listening and self.sessions.pending < MAX_PENDING_HANDSHAKES
            if is_due and self._listener is not None:
                self._listening = True
                self._poller.register(self._listener.fileno(), READABLE)

    # frames

    def _on_frame(self, connection: Connection, body: bytes) -> None:
        session = self.sessions.get(connection.fd)
        if session is None or session.connection is not connection:
            return
        if session.handshake is None:
            self._gateway.frame(session, body)
        else:
            self._shake(session, session.handshake, body)

    def _shake(self, session: Session, handshake: ServerHandshake, body: bytes) -> None:
        if session.is_admitted:
            session.connection.close(Closed.FAULT, "a frame before the handshake was answered")
            return
        expulsions = self._expulsions  # before keys are read
        reply = handshake.receive(body)
        outcome = reply.outcome
        if outcome is None:
            session.deadline = self._clock() + SERVER_TIMEOUT_S
            session.connection.send(reply.frame)
        elif isinstance(outcome, Rejected):
            self._note("warn", f"handshake rejected: {outcome.cause}")
            self._reject(session, reply.frame)
        else:
            session.deadline = None  # its capsules may have to be loaded first
            session.is_admitted = True
            refusal = self._gateway.admit(
                session, outcome, lambda: self._welcome(session, reply.frame, expulsions)
            )
            if refusal is not None:
                self._note("warn", f"handshake of principal {outcome.principal} refused: {refusal}")
                self._reject(session, _refusal_frame(refusal))

    def _welcome(self, session: Session, frame: bytes, expulsions: int) -> None:
        """The end of a good handshake: from here on the session gets events and its frames count.

        `expulsions` is how many there had been when its key was looked up: one since then has not seen it.
        """
        connection = session.connection
        connection.decoder.max_bytes = MAX_FRAME_BYTES
        if not self.sessions.establish(session, max_established=MAX_CONNECTIONS, max_lanes=MAX_LANES):
            connection.close(Closed.FULL)
            return
        if session.is_lane:
            session.deadline = self._clock() + LANE_FIRST_FRAME_S
        connection.send(frame)
        if expulsions != self._expulsions and session.facts is not None:
            self.expel(PrincipalName(session.facts.principal))
        self._resume()

    def _reject(self, session: Session, frame: bytes) -> None:
        session.connection.send(frame)
        session.connection.close_after_flush(Closed.REFUSED)

    def _on_closed(self, connection: Connection, reason: Closed, detail: str) -> None:
        session = self.sessions.get(connection.fd)
        if session is None or session.connection is not connection:
            return
        if reason not in (Closed.PEER, Closed.REFUSED, Closed.SHUTDOWN):
            self._note("warn", f"connection closed: {reason.value}{': ' if detail else ''}{detail}")
        if self.sessions.remove(session):
            self._gateway.gone(session)
        self._resume()


def _refusal_frame(reason: str) -> bytes:
    return msgspec.json.encode(
        {
            "status": "error",
            "protocol_version": PROTOCOL_VERSION,
            "server_version": HOST_VERSION,
            "reason": reason,
        }
    )
