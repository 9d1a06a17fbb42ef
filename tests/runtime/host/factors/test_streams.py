"""astrid:io over real connections of astrid:http and astrid:net: polling, uploads, splices."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aos_runtime.host import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors import FACTORS
from tests.support.guests import HTTP, NET, Recorder
from tests.support.network import Net
from tests.support.servers import Request, Web, chunked, response, serving

POLL, STREAMS = "astrid:io/poll@1.0.0", "astrid:io/streams@1.0.0"
BODY = bytes(range(256)) * 8000


class Sink:
    """A server that keeps what it is sent, until the end."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = threading.Event()

    def serve(self, connection: socket.socket) -> None:
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        self.data = b"".join(parts)
        self.ended.set()


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def web(gate: threading.Event) -> Iterator[Web]:
    def late(connection: socket.socket, _request: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        gate.wait(20.0)
        connection.sendall(b"late")

    with Web({"/": response(BODY), "/parts": chunked(b"one", b"two"), "/late": late}) as server:
        yield server
        gate.set()


@pytest.fixture
def context(recorder: Recorder) -> Iterator[GuestContext]:
    door = Net().door("127.0.0.1:*", net=("127.0.0.1",), net_connect=("127.0.0.1:*",))
    guest = recorder.context(network=door, keeps_resources=True)
    yield guest
    guest.resources.clear()
    assert (door.exchanges.taken, door.streams.taken) == (0, 0)


def call(context: GuestContext, interface: str, name: str, *arguments: object) -> Any:
    answer = FACTORS[interface, name].run(context, *arguments)
    assert not isinstance(answer, Err), (name, answer)
    return answer


def start(context: GuestContext, web: Web, path: str, method: str = "get") -> dict[str, object]:
    return {"url": web.url(path), "method": Case(method), "headers": [], "body": None}


def test_a_body_is_spliced_into_a_connection_without_passing_through_the_guest(
    context: GuestContext, web: Web
) -> None:
    sink = Sink()
    with serving(sink.serve) as server:
        page = call(context, HTTP, "http-stream-start", start(context, web, "/"))
        body = call(context, HTTP, "[method]http-stream.body-stream", page)
        peer = call(context, NET, "connect-tcp", "127.0.0.1", server.port)
        out = call(context, NET, "[method]tcp-stream.write-stream", peer)
        moved, splice = 0, FACTORS[STREAMS, "[method]output-stream.blocking-splice"].run
        while not isinstance(given := splice(context, out, body, 1 << 20), Err):
            moved += given
        assert (given, moved) == (Err("closed"), len(BODY))
        call(context, STREAMS, "[method]output-stream.blocking-flush", out)
        call(context, NET, "[method]tcp-stream.shutdown", peer, "send")
        assert sink.ended.wait(20.0)
        assert sink.data == BODY


def test_a_body_is_uploaded_through_its_sink(context: GuestContext, web: Web) -> None:
    asked = start(context, web, "/parts", "put")
    upload = call(context, HTTP, "http-upload-start", asked, {})
    sink = call(context, HTTP, "[method]http-upload.body-sink", upload)
    call(context, STREAMS, "[method]output-stream.blocking-write-and-flush", sink, BODY)
    call(context, STREAMS, "[method]output-stream.blocking-write-zeroes-and-flush", sink, 100_000)
    stream = call(context, HTTP, "[method]http-upload.finish", upload)
    body = call(context, HTTP, "[method]http-stream.body-stream", stream)
    assert call(context, STREAMS, "[method]input-stream.blocking-read", body, 100) == b"one"
    assert web.requests[0].body == BODY + bytes(100_000)


def test_a_poll_over_two_kinds_wakes_for_the_one_that_is_ready(
    context: GuestContext, web: Web, gate: threading.Event
) -> None:
    page = call(context, HTTP, "http-stream-start", start(context, web, "/late"))
    with serving(lambda connection: gate.wait(20.0) and connection.sendall(b"x")) as server:
        peer = call(context, NET, "connect-tcp", "127.0.0.1", server.port)
        waited = [
            call(context, HTTP, "[method]http-stream.subscribe-readable", page),
            call(context, NET, "[method]tcp-stream.subscribe-readable", peer),
        ]
        assert not any(call(context, POLL, "[method]pollable.ready", one) for one in waited)
        gate.set()
        left = [0, 1]
        while left:
            ready = call(context, POLL, "poll", [waited[place] for place in left])
            left = [place for at, place in enumerate(left) if at not in ready]
        assert call(context, HTTP, "[method]http-stream.read-chunk", page) == b"late"
        assert call(context, NET, "[method]tcp-stream.read-bytes", peer, 9) == b"x"


def test_a_poll_of_a_silent_server_comes_back_when_the_call_must(context: GuestContext, web: Web) -> None:
    page = call(context, HTTP, "http-stream-start", start(context, web, "/late"))
    waited = call(context, HTTP, "[method]http-stream.subscribe-readable", page)
    context.is_over = lambda: True
    assert FACTORS[POLL, "poll"].run(context, [waited]) == Err("cancelled")
