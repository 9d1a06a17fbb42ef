"""identity, uplink, request-context, approval and elicit: the factors themselves, in both lanes.

Each function, and each arm of its result that the host has a reason for, through a guest of either lane, over
the ports that a daemon gives.  Nothing leads to `no-session` (a message that nobody takes is `false`) nor to
the `unknown` of uplink and elicit; `test_abi` shows that they cross.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest import Uplink
from aos_runtime.errors import Corrupt
from aos_runtime.home import Home
from aos_runtime.host import Case, Err, GuestContext, HostEngine
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.host.waiting import WaitGate
from aos_runtime.kernel.approvals import Approvals
from aos_runtime.kernel.identities import GuestIdentities
from aos_runtime.kernel.ports import Submission
from aos_runtime.kernel.questions import Answer, Asked, Ending
from aos_runtime.kernel.uplinks import MAX_UPLINKS, GuestUplinks
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.network.links import Link
from aos_runtime.network.listeners import Ports, TcpListener, UnixListener
from aos_runtime.network.tcp import TcpStream
from aos_runtime.network.waits import Wait
from aos_runtime.store.file_tree import FileCase, FileRefused, has_room
from aos_runtime.store.identity import IdentityStore
from aos_runtime.store.principals import ensure_default
from aos_runtime.wire.payloads import ApprovalResponse
from tests.support import abi
from tests.support.guests import APPROVAL, ELICIT, IDENTITY, REQUEST_CONTEXT, UPLINK, Recorder, envelope_from
from tests.support.kernels import FakeJournal
from tests.support.relay import LANES, New, Relay
from tests.support.unix_gate import Gate

ADA = "0f8b4f6e-1111-4222-8333-444455556666"
SOMEBODY = {"platform": " Discord ", "platform-user-id": "7"}


class Stand:
    """One guest of one interface in one lane; `context` changes what its next instance is given."""

    def __init__(self, engine: HostEngine, lane: str, folder: Path, undo: ExitStack) -> None:
        self._engine, self._lane, self._undo = engine, lane, undo
        self.recorder = Recorder()
        self.notes: list[tuple[str, str, str | None]] = []
        self.denials: list[str] = []
        self.home = Home(folder / "aos")
        self._relays: dict[str, Relay] = {}
        self.ports: dict[str, Any] = {}

    def relay(self, interface: str) -> Relay:
        if interface not in self._relays:
            self._relays[interface] = Relay(self._engine, interface, self._lane, context=self._context)
            self._undo.callback(self._relays[interface].close)
        return self._relays[interface]

    def give(self, **ports: Any) -> None:
        """From now on guests have these ports."""
        self.ports |= ports
        for relay in self._relays.values():
            relay.close()

    def call(self, interface: str, name: str, *arguments: Any) -> Any:
        relay = self.relay(interface)
        [function] = [one for one in abi.functions() if (one.interface, one.name) == (interface, name)]
        outcome = relay.call(function, arguments, None)
        assert outcome.stopped is None
        return outcome.result

    def note(self, call: str, target: str, error: str | None) -> None:
        self.notes.append((call, target, error))

    def people(self, level: str, grow: Callable[[int], None] = has_room) -> GuestIdentities:
        return GuestIdentities(
            IdentityStore(self.home),
            DEFAULT_PRINCIPAL,
            (level,),
            grow,
            self.note,
            lambda denial: self.denials.append(denial.render()),
            lambda problem: self.recorder.log("daemon", problem),
        )

    def uplinks(self, *declared: Uplink, outcome: Submission | None, is_uplink: bool = True) -> GuestUplinks:
        return GuestUplinks(
            declared,
            lambda topic, body, kind: (self.recorder.publish(f"{topic} {kind}", body) and None) or outcome,
            self.note,
            lambda denial: self.denials.append(denial.render()),
            is_uplink=is_uplink,
        )

    def _context(self) -> GuestContext:
        return self.recorder.context(keeps_resources=True, capabilities=Capabilities(), **self.ports)


@pytest.fixture(params=LANES)
def stand(request: pytest.FixtureRequest, engine: HostEngine, tmp_path: Path) -> Iterator[Stand]:
    with ExitStack() as undo:
        yield Stand(engine, request.param, tmp_path, undo)


# identity


def test_the_life_of_a_link(stand: Stand) -> None:
    stand.give(identities=stand.people("admin"))

    def call(name: str, argument: Any) -> Any:
        return stand.call(IDENTITY, f"identity-{name}", argument)

    assert call("resolve", SOMEBODY) == Err("link-not-found")
    user = call("create-user", {"display-name": "Ada"})["user-id"]
    wanted = {**SOMEBODY, "astrid-user-id": user, "method": "passkey"}
    assert call("list-links", user) == []
    assert call("link", wanted) is None
    assert call("link", wanted) == Err("already-linked")
    assert call("link", {**wanted, "astrid-user-id": ADA}) == Err("user-not-found")
    for wrong in ({"astrid-user-id": "ada"}, {"platform": " "}, {"platform-user-id": "\0"}, {"method": ""}):
        assert call("link", {**wanted, **wrong}) == Err("invalid-input")
    assert call("resolve", SOMEBODY) == {"user-id": user, "display-name": "Ada"}
    [link] = call("list-links", user.upper())
    datetime.fromisoformat(link.pop("linked-at"))
    assert link == {"platform": "discord", "platform-user-id": "7", "method": "passkey"}
    assert call("unlink", SOMEBODY) is None
    assert call("unlink", SOMEBODY) == Err("link-not-found")
    assert call("list-links", "x") == Err("invalid-input")
    assert call("list-links", ADA) == Err("user-not-found")
    nobody = call("create-user", {"display-name": None})["user-id"]
    call("link", {**wanted, "astrid-user-id": nobody})
    assert call("resolve", SOMEBODY) == {"user-id": nobody, "display-name": None}
    assert ("identity.link", " Discord :7", None) in stand.notes


ARGUMENTS = {
    "resolve": SOMEBODY,
    "link": {**SOMEBODY, "astrid-user-id": ADA, "method": "token"},
    "unlink": SOMEBODY,
    "create-user": {"display-name": "Ada"},
    "list-links": ADA,
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_function_of_identity_is_gated_and_says_when_its_store_fails(stand: Stand, name: str) -> None:
    function, argument = f"identity-{name}", ARGUMENTS[name]
    assert stand.call(IDENTITY, function, argument) == Err("capability-denied"), "in a hook"
    stand.give(identities=stand.people("none"))
    assert stand.call(IDENTITY, function, argument) == Err("capability-denied")
    assert len(stand.denials) == 1 and "allow=" in stand.denials[0]
    stand.give(identities=stand.people("admin"))
    stand.home.identity_db(DEFAULT_PRINCIPAL).parent.mkdir(parents=True)
    stand.home.identity_db(DEFAULT_PRINCIPAL).write_bytes(b"no database" * 1000)
    assert stand.call(IDENTITY, function, argument) == Err("store-unavailable")
    assert [error for _, _, error in stand.notes] == ["capability-denied", "store-unavailable"]
    assert "is damaged" in stand.recorder.logged[-1][1]


def test_a_principal_without_room_is_told(stand: Stand) -> None:
    def full(_added_bytes: int) -> None:
        raise FileRefused(FileCase.QUOTA)

    stand.give(identities=stand.people("admin", full))
    for name in ("create-user", "link"):
        answer = stand.call(IDENTITY, f"identity-{name}", ARGUMENTS[name])
        assert answer == Err("unknown", "the principal's storage quota is used up")


# uplink


def test_what_comes_in_through_an_uplink(stand: Stand) -> None:
    declared = Uplink(name="bot", platform="discord", profile="chat")
    stand.give(uplinks=stand.uplinks(declared, outcome=Submission.ACCEPTED))
    bot = stand.call(UPLINK, "uplink-register", "bot", " Discord", "chat")
    assert stand.call(UPLINK, "uplink-send", bot, "7", "hello") is True
    [(topic, body)] = stand.recorder.published
    said = msgspec.json.decode(body)
    assert (topic, said["text"]) == ("user.v1.prompt user_input", "hello")
    assert said["context"] == {
        "uplink": {"id": bot, "name": "bot", "platform": "discord", "profile": "chat"},
        "platform_user_id": "7",
    }
    sink = stand.call(UPLINK, "uplink-register", "sink", "discord", "notify")
    assert stand.call(UPLINK, "uplink-send", sink, "7", "hello") is False
    assert stand.call(UPLINK, "uplink-register", "bot", "discord", "chat") == Err("invalid-input")
    assert stand.call(UPLINK, "uplink-register", "", "discord", "chat") == Err("invalid-input")
    assert stand.call(UPLINK, "uplink-register", "x", "a\nb", "chat") == Err("invalid-input")
    assert stand.call(UPLINK, "uplink-send", ADA, "7", "hello") == Err("unknown-uplink")
    for wrong in (("u" * 65, "7", "hello"), (bot, "", "hello"), (bot, "7", "x" * (1 << 20))):
        assert stand.call(UPLINK, "uplink-send", *wrong) == Err("invalid-input")
    assert ("uplink.register", " Discord:bot", None) in stand.notes
    assert ("uplink.send", bot, None) in stand.notes


def test_the_limits_of_uplinks(stand: Stand) -> None:
    declared = Uplink(name="bot", platform="discord", profile="chat")
    stand.give(uplinks=stand.uplinks(declared, outcome=None))
    assert stand.call(UPLINK, "uplink-register", "bot", "discord", "bridge") == Err("invalid-profile")
    made = [stand.call(UPLINK, "uplink-register", f"{n}", "irc", "interactive") for n in range(MAX_UPLINKS)]
    assert stand.call(UPLINK, "uplink-register", "more", "irc", "bridge") == Err("quota")
    assert stand.call(UPLINK, "uplink-send", made[0], "7", "hello") == Err("quota"), "over the rate"
    for outcome in (Submission.FULL, Submission.UNAVAILABLE, Submission.MOVED):
        stand.give(uplinks=stand.uplinks(declared, outcome=outcome))
        bot = stand.call(UPLINK, "uplink-register", "bot", "discord", "chat")
        assert stand.call(UPLINK, "uplink-send", bot, "7", "hello") is False
    stand.give(uplinks=stand.uplinks(outcome=Submission.ACCEPTED))
    bot = stand.call(UPLINK, "uplink-register", "bot", "discord", "chat")
    assert stand.call(UPLINK, "uplink-send", bot, "7", "hello") == Err("quota"), "no [[uplink]] row"


def test_only_an_uplink_has_uplinks(stand: Stand) -> None:
    for uplinks in (None, stand.uplinks(outcome=Submission.ACCEPTED, is_uplink=False)):
        stand.give(uplinks=uplinks)
        assert stand.call(UPLINK, "uplink-register", "b", "irc", "chat") == Err("capability-denied")
        assert stand.call(UPLINK, "uplink-send", ADA, "7", "hello") == Err("capability-denied")
    assert len(stand.denials) == 2


# request-context

ASKED = ("owner", "principal")


def asked_about(stand: Stand, stream: TcpStream, *, is_gone: bool = False) -> list[Any]:
    script = stand.relay(REQUEST_CONTEXT).script
    script.make, script.lets_go = (lambda: stream), is_gone
    return [stand.call(REQUEST_CONTEXT, f"connection-{name}", New("tcp-stream")) for name in ASKED]


def test_whose_a_connection_is(stand: Stand, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    listener = UnixListener(gate.door, lambda: lambda: None, lambda: None)
    found = {}
    for name in ("alice", "scoped", None):
        with gate.knock(name):
            stream = listener.accept(Wait.of(20.0))
            gate.threads[-1].join()
            found[name] = asked_about(stand, stream)
            stream.close()
    listener.close()
    owner, principal = found.pop("alice")
    assert owner and principal == "alice"
    assert found == {"scoped": [None, None], None: [None, None]}


def test_what_came_over_tcp_or_was_dialled_is_nobodys_and_what_is_gone_no_handle(stand: Stand) -> None:
    listener = TcpListener(Ports(), None, IPv4Address("127.0.0.1"), 0, lambda: lambda: None, lambda: None)
    port = int(listener.local_address().rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20.0) as dialled:
        accepted = listener.accept(Wait.of(20.0))
        dialled.setblocking(False)
        outbound = TcpStream(Link(dialled), lambda: None)
        assert asked_about(stand, accepted) == asked_about(stand, outbound) == [None, None]
        assert asked_about(stand, accepted, is_gone=True) == [Err("invalid-handle")] * 2
        accepted.close()
    listener.close()


# approval


class People:
    """Answers every question in one way."""

    def __init__(self, ending: Ending, word: str = "") -> None:
        self.ending, self.word = ending, word

    def wait(self, asked: Asked, topic: str, body: bytes, kind: str) -> tuple[Ending, Answer | None]:
        return self.ending, ApprovalResponse(asked.id, self.word) if self.word else None


def ask(stand: Stand, action: str = "git push", resource: str = "git push origin") -> Any:
    return stand.call(APPROVAL, "request-approval", {"action": action, "target-resource": resource})


def approving(stand: Stand, people: People) -> None:
    approvals = Approvals(home=stand.home, questions=people, journal=FakeJournal(), before_block=lambda: None)
    call = msgspec.structs.replace(envelope_from("default"), request_owner="owner-1")
    capsule = stand.recorder.context().capsule
    stand.give(
        current=call,
        request_approval=lambda *what: approvals.request(capsule, DEFAULT_PRINCIPAL, *what),
    )


@pytest.mark.parametrize(
    ("word", "decision", "next_decision"),
    [
        ("approve", "approved", "approved"),
        ("approve_session", "approved-session", "allowance"),
        ("approve_always", "approved-always", "allowance"),
        ("deny", "denied", "denied"),
    ],
)
def test_every_decision_of_a_person(stand: Stand, word: str, decision: str, next_decision: str) -> None:
    ensure_default(stand.home, now=datetime(2026, 1, 1, tzinfo=UTC))
    approving(stand, People(Ending.ANSWERED, word))
    assert [ask(stand), ask(stand)] == [
        {"decision": decision},
        {"decision": next_decision},
    ]


def test_every_error_of_an_approval(stand: Stand) -> None:
    ensure_default(stand.home, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert ask(stand) == {"decision": "denied"}, "in a hook nobody is asked"
    for ending in (Ending.TIMEOUT, Ending.GONE, Ending.STOPPED):
        approving(stand, People(ending))
        assert ask(stand) == Err("timeout")
    assert ask(stand, action="a" * 257) == ask(stand, action=" ") == Err("invalid-input")
    assert ask(stand, resource="r" * 4097) == Err("invalid-input")
    stand.home.profile(DEFAULT_PRINCIPAL).write_text("enabled = ", encoding="utf-8")
    assert ask(stand) == Err("store-unavailable")
    stand.give(gate=WaitGate(limit=0))
    assert ask(stand) == Err("unknown", "too many guests wait at once")


# elicit

QUESTION = {"key": "city", "description": "Which?", "options": None, "default-value": None}


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        ("text", "Rome", Case("value", "Rome")),
        ("select", "a", Case("value", "a")),
        ("array", ("a", "b"), Case("values", ["a", "b"])),
        ("secret", "", Case("secret-stored")),
        ("text", Err("timeout"), Err("timeout")),
        ("text", Err("cancelled"), Err("cancelled")),
        ("text", Err("invalid-input"), Err("invalid-input")),
    ],
)
def test_every_answer_to_a_question(stand: Stand, kind: str, answer: Any, result: Any) -> None:
    asked: list[ElicitQuestion] = []
    stand.give(elicit=lambda question: asked.append(question) or answer)
    options = ["a", "b"] if kind == "select" else None
    assert stand.call(ELICIT, "elicit", {**QUESTION, "kind": kind, "options": options}) == result
    assert asked == [ElicitQuestion(kind, "city", "Which?", tuple(options or ()), None)]
    bad = {**QUESTION, "kind": "select"}
    assert stand.call(ELICIT, "elicit", bad) == Err("invalid-input")
    stand.give(elicit=None)
    assert stand.call(ELICIT, "elicit", {**QUESTION, "kind": kind}) == Err("not-in-lifecycle")


def test_has_secret(stand: Stand) -> None:
    def broken(_key: str) -> bool:
        raise Corrupt("x-damaged", "it is damaged", hint="")

    assert stand.call(ELICIT, "has-secret", "KEY") is False
    stand.give(has_secret={"KEY": True}.__contains__)
    assert [stand.call(ELICIT, "has-secret", key) for key in ("KEY", "OTHER")] == [True, False]
    stand.give(has_secret=broken)
    assert stand.call(ELICIT, "has-secret", "KEY") == Err("store-unavailable")


def test_threads_of_two_lanes_link_one_person_once(engine: HostEngine, tmp_path: Path) -> None:
    """Two capsules of a principal, one in each lane, link the same person at the same time."""
    with ExitStack() as undo:
        stands = [Stand(engine, lane, tmp_path, undo) for lane in LANES]
        for one in stands:
            one.give(identities=one.people("admin"))
        user = stands[0].call(IDENTITY, "identity-create-user", {"display-name": None})["user-id"]
        ready, answers = threading.Barrier(2), []

        def link(one: Stand) -> None:
            one.relay(IDENTITY)
            for number in range(20):
                ready.wait(60)
                wanted = {"platform": "irc", "platform-user-id": f"{number}", "astrid-user-id": user}
                answers.append(one.call(IDENTITY, "identity-link", {**wanted, "method": "token"}))

        threads = [threading.Thread(target=link, args=(one,)) for one in stands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted(map(str, answers)) == sorted(map(str, [None, Err("already-linked")] * 20))
