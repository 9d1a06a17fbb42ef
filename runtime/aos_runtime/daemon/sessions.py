"""The clients that are connected: who each one is, and which of them an event is for.

Tables are replaced whole, so readers need no lock.  This module sends nothing.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Mapping

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.daemon.connection import Connection
from aos_runtime.wire.handshake import Identity, ServerHandshake
from aos_runtime.wire.ingress import ConnectionFacts
from aos_runtime.wire.methods import NIL_SOURCE

MAX_HUMAN_REQUESTS = 128
"""Questions of one kind that a connection may still answer; with one more the oldest, which has long ended
elsewhere, can be answered no more.
"""


class Session:
    """One connection from accept to close.  Before the handshake has ended `facts` and `cause` are None."""

    __slots__ = (
        "_changing",
        "cause",
        "connection",
        "deadline",
        "facts",
        "handshake",
        "is_admitted",
        "is_lane",
        "lane_topic",
        "owner",
    )

    def __init__(self, connection: Connection, handshake: ServerHandshake, deadline: float) -> None:
        self.connection = connection
        self.handshake: ServerHandshake | None = handshake
        self.owner = str(uuid.uuid4())
        self._changing = threading.Lock()
        """Over `facts`, which several threads replace."""
        self.deadline: float | None = deadline
        """Monotonic time at which the connection is closed unless something happens first; None for none."""
        self.facts: ConnectionFacts | None = None
        self.cause: Envelope | None = None
        """What messages of this connection inherit."""
        self.is_admitted = False
        """The peer has proved who it is, and has not been told yet: it must wait."""
        self.is_lane = False
        """Beyond the connection limit: one status or shutdown request, then it is closed."""
        self.lane_topic: str | None = None

    def establish(self, identity: Identity, workspace: str | None) -> None:
        """The handshake has ended well."""
        self.facts = ConnectionFacts(
            principal=identity.principal,
            request_owner=self.owner,
            verified=identity.verified,
            device_key_id=identity.device_key_id,
        )
        self.cause = Envelope(
            seq=0,
            topic="",
            body=b"",
            kind=None,
            source_id=NIL_SOURCE,
            principal=identity.principal,
            device_key_id=identity.device_key_id,
            request_owner=self.owner,
            origin=self.facts.origin,
            workspace=workspace,
            timestamp_ms=0,
        )
        self.handshake = None
        self.deadline = None

    def set_turn(self, session: str | None) -> None:
        """A chat turn begins, or ends (None)."""
        with self._changing:
            if self.facts is not None:
                self.facts = msgspec.structs.replace(self.facts, turn_session=session)

    def expect_reply(self, topic: str) -> None:
        """A person is asked on this connection and may answer once on `topic`."""
        with self._changing:
            facts = self.facts
            if facts is None:
                return
            kind = topic.rpartition(".")[0]
            same = [one for one in facts.human_requests if one.rpartition(".")[0] == kind]
            ended = same[0] if len(same) >= MAX_HUMAN_REQUESTS else None
            left = (one for one in facts.human_requests if one not in (ended, topic))
            self.facts = msgspec.structs.replace(facts, human_requests=(*left, topic))

    def take_reply(self, topic: str) -> None:
        """The answer on `topic` came; a second one is refused."""
        with self._changing:
            facts = self.facts
            if facts is not None and topic in facts.human_requests:
                left = tuple(one for one in facts.human_requests if one != topic)
                self.facts = msgspec.structs.replace(facts, human_requests=left)


class Sessions:
    """All sessions by descriptor, and the established ones by principal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[int, Session] = {}
        self._by_principal: dict[str, tuple[Session, ...]] = {}
        self.pending = 0
        """Handshakes in progress."""
        self.established = 0
        self.lanes = 0

    def add(self, session: Session) -> None:
        """A connection was accepted."""
        with self._lock:
            self._all[session.connection.fd] = session
            self.pending += 1

    def establish(self, session: Session, *, max_established: int, max_lanes: int) -> bool:
        """A handshake has ended well; beyond `max_established` the session is a reserved lane.

        False, with nothing done, where meanwhile others took the last of those.
        """
        facts = session.facts
        if facts is None:
            return True
        with self._lock:
            if self._all.get(session.connection.fd) is not session:
                return True
            is_lane = self.established >= max_established
            if is_lane and self.lanes >= max_lanes:
                return False
            self.pending -= 1
            session.is_lane = is_lane
            if session.is_lane:
                self.lanes += 1
            else:
                self.established += 1
            mine = self._by_principal.get(facts.principal, ())
            self._by_principal = {**self._by_principal, facts.principal: (*mine, session)}
            return True

    def remove(self, session: Session) -> bool:
        """A connection was closed; whether it had been established."""
        with self._lock:
            if self._all.get(session.connection.fd) is session:
                del self._all[session.connection.fd]
            if session.facts is None or session.handshake is not None:
                self.pending -= 1
                return False
            mine = self._by_principal.get(session.facts.principal, ())
            if session not in mine:
                self.pending -= 1
                return False
            if session.is_lane:
                self.lanes -= 1
            else:
                self.established -= 1
            rest = tuple(one for one in mine if one is not session)
            self._by_principal = {**self._by_principal, session.facts.principal: rest}
            return True

    def begin_turn(self, session: Session, chat: str) -> bool:
        """Begin a chat turn; False where its connection runs one, or another of its principal in that chat
        session (a turn belongs to a principal and a session).
        """
        facts = session.facts
        with self._lock:
            if facts is None or any(
                one.facts is not None
                and one.facts.turn_session is not None
                and (one is session or one.facts.turn_session == chat)
                for one in self._by_principal.get(facts.principal, ())
            ):
                return False
            session.set_turn(chat)
            return True

    def is_full(self, max_established: int, max_lanes: int) -> bool:
        """Whether not even a reserved lane is free."""
        return self.established >= max_established and self.lanes >= max_lanes

    def get(self, fd: int) -> Session | None:
        return self._all.get(fd)

    def of(self, principal: str | None) -> tuple[Session, ...]:
        """The established sessions of a principal; all of them for None."""
        if principal is None:
            return tuple(session for group in self._by_principal.values() for session in group)
        return self._by_principal.get(principal, ())

    def everyone(self) -> tuple[Session, ...]:
        with self._lock:
            return tuple(self._all.values())

    def counts(self) -> Mapping[str, int]:
        """Established connections by principal."""
        return Counter({name: len(group) for name, group in self._by_principal.items() if group})
