"""Between clients and bus: what a frame becomes, and which clients an event reaches.

`wire.ingress` and `wire.egress` decide; this carries out.  Requests to the tools door go there and never to
the bus. Source: daemon-kernel.md 2.4 to 2.7.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.daemon.connection import Closed, Connection
from aos_runtime.daemon.events import EventsDoor
from aos_runtime.daemon.server import LANE_LIFE_S
from aos_runtime.daemon.sessions import Session, Sessions
from aos_runtime.daemon.tools import ToolsDoor
from aos_runtime.kernel.failures import failure_message
from aos_runtime.kernel.kernel import Kernel
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.ports import Ownership, Submission
from aos_runtime.kernel.questions import APPROVAL_REPLIES, ELICIT_REPLIES
from aos_runtime.wire import requests as wire
from aos_runtime.wire.client import encode_message
from aos_runtime.wire.egress import CHAT_TOPICS, decide_egress, encode_event, is_for_clients
from aos_runtime.wire.handshake import NO_WORKSPACE, Identity
from aos_runtime.wire.ingress import (
    ACTIVE_TURN,
    CHAT_REPLY_TOPIC,
    NOT_DELIVERED,
    Accepted,
    ConnectionFacts,
    Refused,
    decide_ingress,
    refuse_turn,
)
from aos_runtime.wire.methods import (
    EVENTS_PREFIX,
    EVENTS_VERBS,
    NIL_SOURCE,
    TOOLS_PREFIX,
    TOOLS_VERBS,
    parse_events_topic,
    parse_tools_topic,
    reply_topic,
)
from aos_runtime.wire.payloads import AgentResponse

CONNECT_TOPIC = "client.v1.connect"
DISCONNECT_TOPIC = "client.v1.disconnect"
LANE_PREFIXES = {"astrid.v1.request.status.": "GetStatus", "astrid.v1.request.shutdown.": "Shutdown"}
"""All that a reserved lane may ask, each with one correlation segment."""

SELECTION_PREFIX = "registry.v1.selection."
_REPLY_PREFIXES = {
    "approval_required": APPROVAL_REPLIES,
    "grant_required": APPROVAL_REPLIES,
    "elicit_request": ELICIT_REPLIES,
}


class _Ask(msgspec.Struct):
    request_id: str = ""
    callback_topic: str = ""


_encode = msgspec.json.Encoder().encode
_decode_ask = msgspec.json.Decoder(_Ask).decode
_decode_answer = msgspec.json.Decoder(AgentResponse).decode


class _Watcher:
    """One request to the events door: implements `events.Client`."""

    __slots__ = ("_answer", "_connection", "_gateway", "_session", "cause", "owner")

    def __init__(self, gateway: Gateway, session: Session, cause: Envelope, answer: str) -> None:
        self.owner = session.owner
        self.cause = cause
        self._gateway = gateway
        self._session = session
        self._connection: Connection = session.connection
        self._answer = answer

    @property
    def is_busy(self) -> bool:
        return self._connection.has_backlog

    def be_patient(self, patience_s: float) -> None:
        self._connection.patience_s = patience_s

    def send(self, body: bytes) -> None:
        self._connection.send(encode_event(self._answer, body, NIL_SOURCE, self.cause.principal))

    def speak(self, topic: str, body: bytes) -> str | None:
        return self._gateway.speak(self._session, topic, body)


class Gateway:
    """Implements `server.Gateway`.

    `sessions` is the server's table.  `check_workspace` says what is wrong with a folder; `workspace` is the
    default for clients that name none.  `on_leave` hears of each closed session,
    `on_gone` of its owner id, for what waits on it.
    """

    def __init__(
        self,
        *,
        kernel: Kernel,
        lifecycle: Lifecycle,
        door: ToolsDoor,
        ownership: Ownership,
        workspace: Path | None,
        check_workspace: Callable[[Path], str | None],
        note: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self.sessions = Sessions()
        self.events: EventsDoor | None = None
        """Set before the first client; it needs what is made after the gateway."""
        self.on_leave: Callable[[], None] = lambda: None
        self.on_gone: Callable[[str], None] = lambda owner: None
        self._kernel = kernel
        self._lifecycle = lifecycle
        self._door = door
        self._ownership = ownership
        self._workspace = workspace
        self._check_workspace = check_workspace
        self._note = note
        self._clock = clock

    # clients that come and go

    def is_present(self, principal: str | None, owner: str | None) -> bool:
        """Whether the connection with this owner id is open."""
        return any(session.owner == owner for session in self.sessions.of(principal))

    def admit(self, session: Session, identity: Identity, proceed: Callable[[], None]) -> str | None:
        if self._ownership.epoch(identity.principal) is None:
            return f"principal {identity.principal} is served by another daemon"
        workspace = self._workspace
        if identity.workspace == NO_WORKSPACE:
            workspace = None
        elif identity.workspace is not None:
            workspace = Path(identity.workspace)
            problem = self._check_workspace(workspace)
            if problem is not None:
                return problem

        def establish() -> None:
            session.establish(identity, str(workspace) if workspace is not None else None)
            proceed()
            self._announce(session, CONNECT_TOPIC, b'{"type":"connect"}', "connect")

        if not identity.verified or self._lifecycle.is_loaded(identity.principal):
            establish()
        else:  # its first connection: the capsules are loaded before it is told that it may speak
            threading.Thread(
                target=self._load_then, args=(identity, establish), name="aos-admission", daemon=True
            ).start()
        return None

    def gone(self, session: Session) -> None:
        self._door.disconnect(session.owner)
        if self.events is not None:
            self.events.disconnect(session.owner)
        self.on_gone(session.owner)
        body = b'{"type":"disconnect","reason":"socket closed"}'
        self._announce(session, DISCONNECT_TOPIC, body, "disconnect")
        self.on_leave()

    def _load_then(self, identity: Identity, establish: Callable[[], None]) -> None:
        try:
            self._lifecycle.load_all(identity.principal)
        except Exception as error:  # noqa: BLE001 - the top of a thread: the client must not wait for ever
            self._note(
                "error", f"capsules of principal {identity.principal}: {type(error).__name__}: {error}"
            )
        establish()

    def _announce(self, session: Session, topic: str, body: bytes, kind: str) -> None:
        if session.cause is not None:
            self._kernel.publish(topic, body, kind, NIL_SOURCE, session.cause)

    # what clients say

    def frame(self, session: Session, body: bytes) -> None:
        """PeerFault `message-invalid` where it is no message: the connection closes."""
        facts, cause = session.facts, session.cause
        if facts is None or cause is None:
            return
        decision = self._decide(session, body, facts)
        if isinstance(decision, Refused):
            self._refuse(session, decision, facts)
        elif session.is_lane and not self._enter_lane(session, decision):
            session.connection.close(Closed.REFUSED)
        else:
            self._take(session, decision, cause)

    def speak(self, session: Session, topic: str, body: bytes) -> str | None:
        """A message that the events door was given for the front door, under the front door's rules."""
        facts, cause = session.facts, session.cause
        if facts is None or cause is None:
            return "the connection is closing"
        decision = self._decide(session, encode_message(topic, msgspec.json.decode(body)), facts)
        if isinstance(decision, Refused):
            return decision.reason
        self._take(session, decision, cause)
        return None

    def _decide(self, session: Session, body: bytes, facts: ConnectionFacts) -> Accepted | Refused:
        """What becomes of a message; an accepted prompt has begun its turn."""
        decision = decide_ingress(body, facts)
        if isinstance(decision, Refused) or decision.session is None or decision.cancels:
            return decision
        if self.sessions.begin_turn(session, decision.session):
            return decision
        return refuse_turn(ACTIVE_TURN, decision.session, facts)

    def _refuse(self, session: Session, refused: Refused, facts: ConnectionFacts) -> None:
        self._note("warn", f"refused from principal {facts.principal}: {refused.reason}")
        session.connection.send(refused.frame)
        if refused.close:
            session.connection.close_after_flush(Closed.REFUSED)

    def _take(self, session: Session, decision: Accepted, cause: Envelope) -> None:
        if decision.topic.startswith(TOOLS_PREFIX):
            self._to_door(session, decision, cause)
        elif decision.topic.startswith(EVENTS_PREFIX):
            self._to_events(session, decision, cause)
        else:
            self._to_bus(session, decision, cause)

    def _to_events(self, session: Session, decision: Accepted, cause: Envelope) -> None:
        client = _Watcher(self, session, cause, reply_topic(decision.topic) or "")
        asked = parse_events_topic(decision.topic)
        if asked is None or self.events is None:
            verbs = ", ".join(EVENTS_VERBS)
            client.send(wire.error(f"the events door takes {verbs}, and one correlation segment"))
        else:
            self.events.receive(asked, decision.body, decision.kind, client)

    def _to_door(self, session: Session, decision: Accepted, cause: Envelope) -> None:
        answer = reply_topic(decision.topic) or ""
        principal, send = cause.principal, session.connection.send

        def reply(body: bytes) -> None:
            send(encode_event(answer, body, NIL_SOURCE, principal))

        asked = parse_tools_topic(decision.topic)
        if asked is None:
            reply(wire.error(f"the tools door takes {', '.join(TOOLS_VERBS)}, and one correlation segment"))
        else:
            self._door.receive(asked, decision.body, decision.kind, cause, reply)

    def _to_bus(self, session: Session, decision: Accepted, cause: Envelope) -> None:
        if decision.cancels:
            session.set_turn(None)
        session.take_reply(decision.topic)
        message = msgspec.structs.replace(cause, topic=decision.topic, body=decision.body, kind=decision.kind)
        submission = self._kernel.submit(message)
        if submission is not Submission.ACCEPTED:
            self._report(message, submission)
        if decision.session is None or session.facts is None:
            return
        if decision.cancels:
            self._end_turn(session, decision.session)
        elif submission is not Submission.ACCEPTED:  # nobody has the prompt, so nobody would answer it
            session.set_turn(None)
            self._refuse(session, refuse_turn(NOT_DELIVERED, decision.session, session.facts), session.facts)

    def _report(self, message: Envelope, submission: Submission) -> None:
        """Nobody took it: say so where the message names an id to answer under."""
        full = submission is Submission.FULL
        reason = "the queue is full" if full else f"no capsule handles {message.topic}"
        receipt = failure_message(message, reason)
        if receipt is not None:
            self._kernel.publish(receipt.topic, receipt.body, None, NIL_SOURCE, message)

    def _end_turn(self, session: Session, chat: str) -> None:
        answer = _encode(AgentResponse("Request cancelled.", True, chat))
        facts = session.facts
        if facts is not None:
            frame = encode_event(CHAT_REPLY_TOPIC, answer, NIL_SOURCE, facts.principal, session.owner)
            session.connection.send(frame)

    def _enter_lane(self, session: Session, decision: Accepted) -> bool:
        """Whether a reserved lane may send this: one status or shutdown request, no more."""
        prefix = next((one for one in LANE_PREFIXES if decision.topic.startswith(one)), None)
        if prefix is None or session.lane_topic is not None or "." in decision.topic[len(prefix) :]:
            return False
        request = wire.decode_request(decision.body, decision.kind)
        if not isinstance(request, wire.Request) or request.method.name != LANE_PREFIXES[prefix]:
            return False
        session.lane_topic = reply_topic(decision.topic)
        session.deadline = self._clock() + LANE_LIFE_S
        return True

    # what clients hear

    @staticmethod
    def wants(topic: str) -> bool:
        """The topics that `hear` takes (a native subscription)."""
        return is_for_clients(topic)

    def hear(self, envelope: Envelope) -> None:
        """Send an event to the clients that it is for."""
        if self._door.expects(envelope.topic):
            return
        frame: bytes | None = None
        for session in self.sessions.of(envelope.principal):
            if session.facts is None or not decide_egress(envelope, session.facts):
                continue
            reply = human_reply_topic(envelope)
            if reply is not None:
                session.expect_reply(reply)
            if frame is None:
                owner = envelope.request_owner if envelope.source_id != NIL_SOURCE else None
                frame = encode_event(
                    envelope.topic, envelope.body, envelope.source_id, envelope.principal, owner
                )
            if envelope.topic in CHAT_TOPICS:
                self._follow_turn(session, envelope)  # before the client hears of the end and speaks again
            session.connection.send(frame)
            if envelope.topic == session.lane_topic and envelope.body != wire.working():
                session.connection.close_after_flush(Closed.REFUSED)

    def _follow_turn(self, session: Session, envelope: Envelope) -> None:
        if envelope.topic == CHAT_REPLY_TOPIC:
            try:
                is_final = _decode_answer(envelope.body).is_final
            except msgspec.DecodeError:
                return
            if is_final:
                session.set_turn(None)


def human_reply_topic(envelope: Envelope) -> str | None:
    """Where the person who is asked by this event answers; None where it asks nobody.

    Approvals and elicitations come from the daemon alone; a selection comes from a capsule, which names the
    topic.
    """
    prefix = _REPLY_PREFIXES.get(envelope.kind or "")
    try:
        if prefix is not None and envelope.source_id == NIL_SOURCE:
            return prefix + _decode_ask(envelope.body).request_id
        if envelope.kind == "selection_required":
            topic = _decode_ask(envelope.body).callback_topic
            return topic if topic.startswith(SELECTION_PREFIX) else None
    except msgspec.DecodeError:
        pass
    return None
