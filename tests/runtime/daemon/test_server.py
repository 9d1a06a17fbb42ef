"""Accepting and handshaking on a real socket, with a fake gateway and a clock of the test's own."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.daemon import server as server_module
from aos_runtime.daemon.server import CROWDED_S, MAX_PENDING_HANDSHAKES, Server, peer_uid
from aos_runtime.daemon.sessions import Session
from aos_runtime.names import PrincipalName
from aos_runtime.wire.handshake import Identity, KeyEntry

TOKEN = "ab" * 32


class FakeGateway:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.left: list[Session] = []
        self.refusal: str | None = None

    def admit(self, session: Session, identity: Identity, proceed: Callable[[], None]) -> str | None:
        if self.refusal is None:
            session.establish(identity, None)
            proceed()
        return self.refusal

    def frame(self, session: Session, body: bytes) -> None:
        self.frames.append(body)

    def gone(self, session: Session) -> None:
        self.left.append(session)


class Post:
    """A server that the test turns by hand."""

    def __init__(self, path: Path) -> None:
        self.now = 100.0
        self.path = path
        self.gateway = FakeGateway()
        self.notes: list[tuple[str, str]] = []
        self.server = Server(
            token=TOKEN,
            find_keys=lambda principal: None,
            gateway=self.gateway,
            note=lambda level, text: self.notes.append((level, text)),
            clock=lambda: self.now,
        )
        self.server.listen(path)
        self.clients: list[socket.socket] = []

    def turn(self) -> None:
        while events := self.server.poll():
            for fd, ready in events:
                self.server.handle(fd, ready)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(1.0)
        self.clients.append(client)
        client.connect(str(self.path))
        self.turn()
        return client

    def say(self, client: socket.socket, **fields: object) -> None:
        usual = {"token": TOKEN, "protocol_version": 1, "client_version": "probe", "claimed_principal": None}
        body = json.dumps(usual | fields).encode()
        client.sendall(len(body).to_bytes(4, "big") + body)
        self.turn()

    def hear(self, client: socket.socket) -> Any:
        data = client.recv(65536)
        return json.loads(data[4:]) if data else None


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    monkeypatch.setattr("aos_runtime.daemon.poller.POLL_S", 0.0)
    made = Post(tmp_path / "s")
    yield made
    for client in made.clients:
        client.close()
    made.server.close()


def test_the_socket_is_for_this_user_alone(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    assert post.path.stat().st_mode & 0o777 == 0o600
    one, other = socket.socketpair()
    assert peer_uid(one) == os.getuid()
    one.close()
    other.close()
    monkeypatch.setattr(server_module, "peer_uid", lambda sock: os.getuid() + 1)
    assert post.hear(post.connect()) is None


def test_a_key_that_is_taken_out_ends_its_connections_however_late_they_are(post: Post) -> None:
    """Also of one whose key was looked up just before, and which was not among the others yet."""
    keys = [KeyEntry("k-1", "ab" * 32)]
    post.server._find_keys = lambda principal: tuple(keys)
    identity = Identity(PrincipalName("bob"), keys[0], "probe", None)
    anonymous = post.connect()
    post.say(anonymous)

    def admit(session: Session, _found: Identity, proceed: Callable[[], None]) -> None:
        session.establish(identity, None)
        for change in changes:
            change()
        proceed()

    post.gateway.admit = admit  # type: ignore[method-assign,assignment]  # everybody is bob from here on
    changes: list[Callable[[], object]] = []
    first = post.connect()
    post.say(first)
    post.server.expel(PrincipalName("bob"))
    post.say(first)
    assert (post.hear(first)["status"], len(post.gateway.frames)) == ("ok", 1), "its key is still there"
    changes += [keys.clear, lambda: post.server.expel(PrincipalName("bob"))]
    late = post.connect()
    post.say(late)
    assert (post.hear(late)["status"], post.hear(late), post.hear(first)) == ("ok", None, None)
    assert (post.server.sessions.established, len(post.gateway.left)) == (1, 2)


def test_lanes_are_no_more_however_many_shake_hands_at_once(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(server_module, "MAX_LANES", 1)
    clients = [post.connect() for _ in range(4)]
    for client in clients:
        post.say(client)
    heard = [reply and reply["status"] for reply in map(post.hear, clients)]
    assert heard == ["ok", "ok", None, None]
    assert (post.server.sessions.established, post.server.sessions.lanes) == (1, 1)
    assert post.server.sessions.pending == 0


def test_a_handshake_makes_a_session_and_its_frames_go_on(post: Post) -> None:
    client = post.connect()
    assert (post.server.sessions.pending, post.server.sessions.established) == (1, 0)
    post.say(client)
    assert post.hear(client)["status"] == "ok"
    assert (post.server.sessions.pending, post.server.sessions.established) == (0, 1)
    post.say(client)
    assert len(post.gateway.frames) == 1
    client.close()
    post.turn()
    assert len(post.gateway.left) == 1
    assert (post.server.sessions.pending, post.server.sessions.established) == (0, 0)


def test_a_refused_peer_hears_why_and_is_closed(post: Post) -> None:
    client = post.connect()
    post.say(client, token="cd" * 32)
    assert post.hear(client)["reason"] == "authentication failed"
    assert post.hear(client) is None
    post.gateway.refusal = "no room"
    client = post.connect()
    post.say(client)
    assert post.hear(client)["reason"] == "no room"
    assert post.hear(client) is None
    assert [text for _, text in post.notes] == [
        "handshake rejected: wrong or missing token",
        "handshake of principal anonymous refused: no room",
    ]
    assert (post.server.sessions.pending, post.gateway.left) == (0, [])


def test_a_silent_peer_is_closed_after_five_seconds(post: Post) -> None:
    client = post.connect()
    post.server.sweep(post.now + 5.0)
    assert post.server.sessions.pending == 1
    post.server.sweep(post.now + 5.1)
    assert post.hear(client) is None
    assert post.notes == [("warn", "connection closed: handshake timed out")]


def test_too_many_handshakes_at_once_wait_in_the_backlog(post: Post) -> None:
    silent = [post.connect() for _ in range(MAX_PENDING_HANDSHAKES)]
    waiting = post.connect()
    assert post.server.sessions.pending == MAX_PENDING_HANDSHAKES
    post.say(silent[0])
    assert post.hear(silent[0])["status"] == "ok"
    post.say(waiting)
    assert post.hear(waiting)["status"] == "ok"


def test_silent_peers_make_room_for_those_who_wait(post: Post) -> None:
    silent = [post.connect() for _ in range(MAX_PENDING_HANDSHAKES)]
    post.server.sweep(post.now + CROWDED_S)
    assert post.server.sessions.pending == MAX_PENDING_HANDSHAKES
    post.server.sweep(post.now + CROWDED_S + 0.1)
    assert [post.hear(client) for client in silent] == [None] * MAX_PENDING_HANDSHAKES
    welcome = post.connect()
    post.server.sweep(post.now + CROWDED_S + 0.1)  # not crowded any more: it has its five seconds
    post.say(welcome)
    assert post.hear(welcome)["status"] == "ok"


def test_an_accept_that_fails_is_tried_again_at_the_next_sweep(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    listener = post.server._listener
    assert listener is not None
    post.server._accept(Broken())  # type: ignore[arg-type]  # only accept is called
    assert post.notes == [("error", "accept failed: Too many open files")]
    client = post.connect()
    assert post.server.sessions.pending == 0
    post.server.sweep(post.now)
    post.turn()
    post.say(client)
    assert post.hear(client)["status"] == "ok"


def test_what_was_sent_leaves_before_the_end(post: Post) -> None:
    client = post.connect()
    post.say(client)
    post.hear(client)
    [session] = post.server.sessions.of("anonymous")
    session.connection.send(b"x" * 1_000_000)
    assert session.connection.has_backlog
    received = 0
    post.server._clock = lambda: 0.0
    while session.connection.has_backlog:
        received += len(client.recv(1 << 20))
        post.server.flush(-1.0)
        post.turn()
    client.setblocking(False)
    try:
        while chunk := client.recv(1 << 20):
            received += len(chunk)
    except BlockingIOError:
        pass
    assert received == 1_000_004


def test_after_stop_accepting_nobody_new_comes(post: Post) -> None:
    client = post.connect()
    post.server.stop_accepting()
    post.server.sweep(post.now)
    with pytest.raises(ConnectionRefusedError):
        post.connect()
    post.say(client)
    assert post.hear(client)["status"] == "ok"
