"""One connection: whole frames however they come, bounded egress, no client that can hold the daemon up."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from aos_runtime.daemon import connection as connection_module
from aos_runtime.daemon.connection import Closed, Connection
from aos_runtime.daemon.poller import READABLE, WRITABLE, Poller, SelectorPoller, Waker, make_poller
from aos_runtime.wire.frames import encode_frame


class Pair:
    """Both ends of a socket; `frames` and `closed` are what the server's end reported."""

    def __init__(self, poller: Poller) -> None:
        self.now = 0.0
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.frames: list[bytes] = []
        self.closed: list[tuple[Closed, str]] = []
        self.poller = poller
        self.connection = Connection(
            ours,
            poller,
            on_frame=lambda _, body: self.frames.append(body),
            on_closed=lambda _, reason, detail: self.closed.append((reason, detail)),
            clock=lambda: self.now,
        )
        self.connection.decoder.max_bytes = 1 << 20
        poller.register(self.connection.fd, READABLE)

    def turn(self) -> None:
        """Let the poller deliver what is there now."""
        for _, events in self.poller.poll():
            self.connection.on_event(events)

    def receive(self) -> bytes:
        data = b""
        while True:
            try:
                chunk = self.client.recv(1 << 20)
            except BlockingIOError:
                return data
            if not chunk:
                return data
            data += chunk


@pytest.fixture(params=["native", "selectors"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr("aos_runtime.daemon.poller.POLL_S", 0.0)
    poller = make_poller() if request.param == "native" else SelectorPoller()
    pair = Pair(poller)
    yield pair
    pair.connection.close(Closed.SHUTDOWN)
    pair.client.close()
    poller.close()


def test_frames_come_whole_however_they_are_cut(pair: Pair) -> None:
    data = encode_frame(b"one") + encode_frame(b"") + encode_frame(b"three")
    for index in range(len(data)):
        pair.client.send(data[index : index + 1])
        pair.turn()
    assert pair.frames == [b"one", b"", b"three"]


def test_a_closed_peer_is_told_once(pair: Pair) -> None:
    pair.client.close()
    pair.turn()
    pair.connection.close(Closed.REFUSED)
    assert pair.closed == [(Closed.PEER, "")]


def test_a_frame_that_is_too_large_ends_the_connection(pair: Pair) -> None:
    pair.client.send(encode_frame(b"good") + (1 << 21).to_bytes(4, "big"))
    pair.turn()
    assert pair.frames == [b"good"]
    [(reason, detail)] = pair.closed
    assert reason is Closed.FAULT
    assert "2097152" in detail


def test_what_the_socket_does_not_take_waits_and_arrives_whole(pair: Pair) -> None:
    bodies = [bytes([number]) * 300_000 for number in range(5)]
    for body in bodies:
        pair.connection.send(body)
    assert pair.connection.has_backlog
    received = b""
    while pair.connection.has_backlog:
        received += pair.receive()
        pair.turn()
    received += pair.receive()
    assert received == b"".join(encode_frame(body) for body in bodies)
    assert pair.closed == []


def test_a_client_that_keeps_up_is_never_lagged_however_much_it_is_sent(pair: Pair) -> None:
    for _ in range(20):
        pair.connection.send(b"x" * 1_000_000)
        while pair.connection.has_backlog:
            pair.receive()
            pair.turn()
        pair.receive()
    assert pair.closed == []
    assert pair.connection._out_bytes == 0


def test_a_client_that_lets_its_queue_overflow_is_closed_as_lagged(pair: Pair) -> None:
    for _ in range(20):
        pair.connection.send(b"x" * 500_000)
    assert [reason for reason, _ in pair.closed] == [Closed.LAGGED]
    pair.connection.send(b"more")


def test_too_many_small_events_are_lag_as_well(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_QUEUED_BYTES", 1 << 40)
    pair.connection.send(b"x" * 2_000_000)
    for _ in range(connection_module.MAX_QUEUED_EVENTS):
        pair.connection.send(b"y")
    assert [reason for reason, _ in pair.closed] == [Closed.LAGGED]


def test_a_client_that_takes_nothing_for_five_seconds_is_closed(pair: Pair) -> None:
    pair.connection.send(b"x" * 2_000_000)
    pair.connection.sweep(5.0)
    assert pair.closed == []
    pair.now = 3.0
    pair.receive()
    pair.turn()
    pair.connection.sweep(7.9)
    assert pair.closed == []
    pair.connection.sweep(8.1)
    assert [reason for reason, _ in pair.closed] == [Closed.WRITE_TIMEOUT]


def test_a_frame_that_is_begun_and_not_ended_in_time_ends_the_connection(pair: Pair) -> None:
    pair.now = 1.0
    pair.client.send(b"\0\0\0\4bo")
    pair.turn()
    pair.now = 9.0
    pair.client.send(b"d")  # a trickle begins nothing anew
    pair.turn()
    pair.connection.sweep(11.0)
    assert pair.closed == []
    pair.connection.sweep(11.1)
    assert (pair.closed, pair.frames) == ([(Closed.FRAME_TIMEOUT, "")], [])


def test_a_frame_that_ends_in_time_and_the_next_that_begins_have_their_own_time(pair: Pair) -> None:
    pair.now = 1.0
    pair.client.send(b"\0\0\0\4bo")
    pair.turn()
    pair.now = 9.0
    pair.client.send(b"dy\0")
    pair.turn()
    pair.connection.sweep(18.0)
    assert (pair.closed, pair.frames) == ([], [b"body"])
    pair.client.send(b"\0\0\1x")
    pair.turn()
    pair.connection.sweep(1000.0)
    assert (pair.closed, pair.frames) == ([], [b"body", b"x"])


def test_a_refused_client_still_gets_its_reason(pair: Pair) -> None:
    pair.connection.send(b"z" * 1_000_000)
    pair.connection.close_after_flush(Closed.REFUSED)
    assert pair.closed == []
    pair.client.send(encode_frame(b"ignored"))
    received = b""
    while not pair.closed:
        received += pair.receive()
        pair.turn()
    received += pair.receive()
    assert received == encode_frame(b"z" * 1_000_000)
    assert pair.frames == []


def test_two_threads_with_an_event_of_one_socket_do_not_both_read(pair: Pair) -> None:
    pair.client.send(encode_frame(b"once"))
    with pair.connection._reading:
        pair.connection.on_event(READABLE)
        assert pair.frames == []
    pair.connection.on_event(READABLE)
    assert pair.frames == [b"once"]


def test_an_event_without_data_is_harmless(pair: Pair) -> None:
    pair.connection.on_event(READABLE)
    pair.connection.on_event(WRITABLE)
    assert (pair.frames, pair.closed) == ([], [])


def test_a_waker_wakes_a_poll_and_never_blocks() -> None:
    poller, waker = make_poller(), Waker()
    poller.register(waker.fd, READABLE)
    for _ in range(100_000):
        waker.wake()
    assert poller.poll() == [(waker.fd, READABLE)]
    while poller.poll():
        waker.drain()
        break
    poller.unregister(waker.fd)
    waker.close()
    poller.close()


def test_a_client_that_watches_may_take_nothing_for_longer(pair: Pair) -> None:
    pair.connection.patience_s = 60.0
    pair.connection.send(b"x" * 1_000_000)
    assert pair.connection.has_backlog
    pair.connection.sweep(pair.now + 59.0)
    assert pair.closed == []
    pair.connection.sweep(pair.now + 61.0)
    assert [reason for reason, _ in pair.closed] == [Closed.WRITE_TIMEOUT]
