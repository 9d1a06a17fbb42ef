"""Made-up frames and payloads, a million of them, through the real decoders and the real ingress.

Each is an honest message that was damaged: cut, doubled, overwritten, or with something hostile in place of a
value.  Whatever it is, what may come of it is a PeerFault, a refusal, or a request that was understood; never
another exception, and never memory that stays.
"""

from __future__ import annotations

import gc
import json
import os
import random
import traceback
from pathlib import Path

from aos_runtime.capsule.topics import topic_problem
from aos_runtime.errors import PeerFault
from aos_runtime.names import PrincipalName
from aos_runtime.wire import ingress, payloads
from aos_runtime.wire.client import decode_event
from aos_runtime.wire.events import decode_events_request, needed_rights
from aos_runtime.wire.frames import MAX_FRAME_BYTES, MAX_PAYLOAD_BYTES, FrameDecoder, encode_frame
from aos_runtime.wire.handshake import KeyEntry, ServerHandshake
from aos_runtime.wire.ingress import Accepted, ConnectionFacts, Refused
from aos_runtime.wire.methods import (
    ADMIN_METHODS,
    ADMIN_PREFIX,
    EVENTS_PREFIX,
    EVENTS_VERBS,
    METHODS,
    NIL_SOURCE,
    REQUEST_PREFIX,
    TOOLS_PREFIX,
    TOOLS_VERBS,
    parse_events_topic,
    parse_tools_topic,
)
from aos_runtime.wire.requests import (
    Request,
    decode_admin_request,
    decode_request,
    decode_tools_request,
    required_capabilities,
)
from tests.soak.registry import Budget, Report

WHOLE = 1_000_000
BATCH = 50
WARM = 20_000
GROWTH_BYTES = 8 << 20
"""What a process of this size may gain by chance; a kept frame in ten would be more after the warm-up."""

TOKEN = "ab" * 32
OWNER = "5d4a2f60-0000-4000-8000-000000000001"
SESSION = "turn-1"
ASKED = "123e4567-e89b-12d3-a456-426614174000"
FACTS = (
    ConnectionFacts("anonymous", OWNER),
    ConnectionFacts(
        "default",
        OWNER,
        verified=True,
        device_key_id="k",
        turn_session=SESSION,
        human_requests=(f"astrid.v1.approval.response.{ASKED}", f"astrid.v1.elicit.response.{ASKED}"),
    ),
)
PAYLOADS = tuple(
    json.loads(one[0])
    for one in json.loads((Path(__file__).parents[1] / "golden/wire/payloads.json").read_text())["accepted"]
)
ANSWERS = {
    "user.v1.prompt": {"type": "user_input", "text": "x", "session_id": SESSION},
    f"astrid.v1.approval.response.{ASKED}": {
        "type": "approval_response",
        "request_id": ASKED,
        "decision": "approve",
    },
    f"astrid.v1.elicit.response.{ASKED}": {"type": "elicit_response", "request_id": ASKED, "value": "x"},
}
"""What a human says, on the one topic where it is taken."""
TOPICS = (
    *ANSWERS,
    "cli.v1.command.execute",
    "registry.v1.selection.x",
    "session.v1.request.list",
    "tool.v1.execute.hello",
    *(f"{REQUEST_PREFIX}{method.suffix}.7f3c" for method in METHODS.values()),
    *(f"{ADMIN_PREFIX}{method.suffix}" for method in ADMIN_METHODS.values()),
    *(f"{TOOLS_PREFIX}{verb}.7f3c" for verb in TOOLS_VERBS),
    *(f"{EVENTS_PREFIX}{verb}.7f3c" for verb in EVENTS_VERBS),
)
NAMES = (
    *METHODS,
    *ADMIN_METHODS,
)
KEYS = (
    "type",
    "method",
    "params",
    "request_id",
    "session_id",
    "data",
    "name",
    "arguments",
    "timeout_s",
    "id",
    "target_principal",
    "limit",
    "cursor",
    "pattern",
    "topic",
    "payload",
    "principal",
    "call_id",
    "corr",
    "env",
)
HOSTILE: tuple[bytes, ...] = (
    b"null",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"9" * 400,
    b"18446744073709551616",
    b'""',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff\xfe"',
    b'"\x1b[2J"',
    b'"..\\/..\\/etc"',
    b'"' + b"a." * 300 + b'"',
    b'"\xe2\x80\xae"',
    b"[" * 300,
    b"[" * 2000 + b"]" * 2000,
    b'{"a":' * 1500 + b"1" + b"}" * 1500,
    b"{}",
    b"[]",
    b"[null]",
    b"true",
    b"1.5",
    b"{",
    b"\x00",
    b"\xef\xbb\xbf{}",
)


class Fuzz:
    """A stream of damaged frames, and what went wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.faults: list[str] = []
        self.frames = 0
        self.accepted = 0
        self._decoder = FrameDecoder()

    def batch(self) -> None:
        """Send one stream of frames in pieces of any size, and take what comes of each."""
        bodies = [self._body() for _ in range(BATCH)]
        stream = b"".join(map(self._framed, bodies))
        at = 0
        while at < len(stream):
            size = self.random.choice((1, 3, 700, 65536))
            self._guard(self._feed, stream[at : at + size])
            at += size
        self._guard(self._decoder.finish)
        self._decoder = FrameDecoder()
        for body in bodies:  # and each by itself, since a broken prefix ends the stream
            self._guard(self._shake, body)
            self._guard(self._take, body)
            self.frames += 1

    def _guard(self, what: object, *arguments: object) -> None:
        try:
            what(*arguments)  # type: ignore[operator]  # one of the methods below
        except PeerFault:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the fault that is looked for
            place = traceback.extract_tb(error.__traceback__)[-1]
            shown = arguments[0][:120] if arguments and isinstance(arguments[0], bytes) else b""
            what_it_was = f"{type(error).__name__}: {error} in {place.name}:{place.lineno}"
            self.faults.append(f"seed {self.seed}: {what_it_was} for {shown!r}")

    def _feed(self, chunk: bytes) -> None:
        try:
            bodies = self._decoder.feed(chunk)
            if any(len(body) > MAX_FRAME_BYTES for body in bodies):
                raise AssertionError("a body over the limit")
        except PeerFault:
            self._decoder = FrameDecoder()
            raise

    def _shake(self, body: bytes) -> None:
        def keys(name: PrincipalName) -> tuple[KeyEntry, ...]:
            return (KeyEntry(name, "ab" * 32),)

        handshake = ServerHandshake(TOKEN, "1", keys, bytes(32))
        reply = handshake.receive(body)
        json.loads(reply.frame)
        if reply.outcome is None:
            json.loads(handshake.receive(body).frame)

    def _take(self, body: bytes) -> None:
        """As the gateway does: decide, and read what was let in with the decoder of its door."""
        decode_event(body)
        facts = self.random.choice(FACTS)
        decision = ingress.decide_ingress(body, facts)
        if isinstance(decision, Refused):
            if json.loads(decision.frame)["principal"] != facts.principal:
                raise AssertionError("a refusal in somebody else's name")
            return
        self._read(decision, facts)

    def _read(self, message: Accepted, facts: ConnectionFacts) -> None:
        self.accepted += 1
        topic, body, kind = message.topic, message.body, message.kind
        is_allowed = topic in ingress.ALLOWED_TOPICS or topic.startswith(ingress.ALLOWED_PREFIXES)
        if len(body) > MAX_PAYLOAD_BYTES or topic_problem(topic) or not is_allowed:
            raise AssertionError(f"let in on {topic!r}")
        json.loads(body)
        payloads.decode_tool_request(body)
        payloads.decode_tool_result(body)
        payloads.decode_tool_cancel(body)
        if (tools := parse_tools_topic(topic)) is not None:
            decode_tools_request(tools.verb, body, kind)
        elif (events := parse_events_topic(topic)) is not None:
            params = decode_events_request(events.verb, body, kind)
            if isinstance(params, dict):
                needed_rights(events.verb, params, facts.principal)
        else:
            decode = decode_admin_request if topic.startswith(ADMIN_PREFIX) else decode_request
            request = decode(body, kind)
            if isinstance(request, Request):
                required_capabilities(request, facts.principal)

    # what is sent

    def _framed(self, body: bytes) -> bytes:
        frame = encode_frame(body)
        chance = self.random.random()
        if chance < 0.01:
            return self.random.randbytes(4) + body
        return frame[: self.random.randrange(len(frame))] if chance < 0.02 else frame

    def _body(self) -> bytes:
        body = self._honest()
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 4))):
            body = self._damaged(body)
        return body

    def _honest(self) -> bytes:
        if self.random.random() < 0.1:
            claimed = self.random.choice((None, "default", "a.b", "x" * 65))
            hello = {"token": TOKEN, "protocol_version": 1, "client_version": "x", "signature": "ab" * 64}
            return json.dumps({**hello, "claimed_principal": claimed, "workspace": "/tmp"}).encode()
        topic = self.random.choice(TOPICS)
        if topic in ANSWERS:
            payload = ANSWERS[topic]
        elif self.random.random() < 0.3:
            payload = self.random.choice(PAYLOADS)
        else:
            names = self.random.sample(KEYS, self.random.randrange(5))
            params = {name: self.random.choice(("x", 1, None, [], {}, "hello")) for name in names}
            payload = {"type": "raw_json", "method": self.random.choice(NAMES), "params": params}
        message = {"topic": topic, "payload": payload, "source_id": NIL_SOURCE}
        return json.dumps(message).encode()

    def _damaged(self, body: bytes) -> bytes:
        if not body:
            return self.random.randbytes(8)
        start = self.random.randrange(len(body))
        end = min(len(body), start + self.random.randrange(1, 24))
        match self.random.randrange(7):
            case 0:
                return body[:start]
            case 1:
                return body[:start] + body[end:]
            case 2:
                return body[:end] + body[start:]
            case 3:
                return body[:start] + self.random.randbytes(end - start) + body[end:]
            case 4:
                return body[:start] + self.random.choice(HOSTILE) + body[end:]
            case 5:
                return self._with_value(body)
            case _:
                name = json.dumps(self.random.choice(KEYS)).encode()
                return body.replace(b"{", b"{" + name + b":" + self.random.choice(HOSTILE) + b",", 1)

    def _with_value(self, body: bytes) -> bytes:
        """Something hostile in the place of one value."""
        colons = [at for at in range(len(body)) if body[at : at + 2] == b": "]
        if not colons:
            return body + self.random.choice(HOSTILE)
        at = self.random.choice(colons) + 2
        ends = [found for mark in (b", ", b"}") if (found := body.find(mark, at)) >= 0]
        return body[:at] + self.random.choice(HOSTILE) + body[min(ends, default=len(body)) :]


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth_fault(before: int, after: int, frames: int) -> str | None:
    """What is wrong with the memory after so many frames; None where it is flat."""
    grown = after - before
    return None if grown < GROWTH_BYTES else f"memory grew by {grown / 1e6:.1f} MB over {frames} frames"


def run(budget: Budget) -> Report:
    """A million frames, or as many as the budget allows."""
    fuzz = Fuzz(random.SystemRandom().getrandbits(32))
    before = None
    while fuzz.frames < WHOLE and not budget.is_spent() and len(fuzz.faults) < 10:
        fuzz.batch()
        if before is None and fuzz.frames >= WARM:
            before = resident_bytes()
    faults = list(fuzz.faults)
    if before is None:
        faults.append(f"only {fuzz.frames} frames: too few to tell whether memory is flat")
    elif (grown := growth_fault(before, resident_bytes(), fuzz.frames - WARM)) is not None:
        faults.append(grown)
    if not fuzz.accepted:
        faults.append("no frame was let in, so nothing behind the ingress was tried")
    return Report(rounds=fuzz.frames, unit=f"frames ({fuzz.accepted} let in)", faults=tuple(faults))
