"""Responses read in parts, bodies written in parts."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import math
import socket
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from aos_runtime.network import Fault, NetworkDoor, NetworkFault
from aos_runtime.network.client import Options, begin_upload, start
from aos_runtime.network.http_streams import SINK_BYTES, HttpStream, HttpUpload
from aos_runtime.network.waits import Wait
from aos_runtime.policy.http_rules import HttpRequest, Integrity
from aos_runtime.policy.urls import Url, parse_url
from tests.support.network import Net
from tests.support.servers import Request, Web, chunked, redirect, response


def never() -> bool:
    return False


def request(text: str, method: str = "GET") -> HttpRequest:
    found = parse_url(text)
    assert isinstance(found, Url)
    return HttpRequest(method=method, url=found, headers=(), body=None)


def door_to(web: Web) -> NetworkDoor:
    return Net().door(f"127.0.0.1:{web.port}", net=("*",))


def open_stream(web: Web, path: str = "/", **options: Any) -> HttpStream:
    door, chosen = door_to(web), Options(**options)
    release = door.exchanges.take()
    answer = start(door, request(web.url(path)), chosen, Wait.of(30.0), "http-stream")
    try:
        return HttpStream(answer, chosen, math.inf, release)
    except NetworkFault:
        answer.close()
        raise


def open_upload(web: Web, door: NetworkDoor, **options: Any) -> HttpUpload:
    chosen, asked = Options(**options), request(web.url(), "POST")
    release = door.exchanges.take()
    exchange = begin_upload(door, asked, chosen, Wait.of(30.0), "http-upload")
    return HttpUpload(door, exchange, asked, chosen, monotonic() + 30.0, release)


def drain(stream: HttpStream) -> bytes:
    return b"".join(iter(lambda: stream.read_chunk(never), b""))


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def paused(gate: threading.Event) -> Iterator[Web]:
    """Answers with `first`, and with `second` once the gate is open."""

    def answer(connection: socket.socket, _request: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        gate.wait(20.0)
        connection.sendall(b"6\r\nsecond\r\n0\r\nX-Sum: 11\r\n\r\n")

    with Web({"/": answer}) as web:
        yield web
        gate.set()


def test_a_stream_gives_each_part_as_it_comes_then_the_end_and_its_trailers(
    paused: Web, gate: threading.Event
) -> None:
    stream = open_stream(paused)
    assert (stream.status, stream.headers) == (200, (("transfer-encoding", "chunked"),))
    assert stream.read_chunk(never) == b"first"
    assert stream.trailers is None
    gate.set()
    assert [stream.read_chunk(never) for _ in range(3)] == [b"second", b"", b""]
    assert stream.trailers == (("x-sum", "11"),)
    stream.close()
    with pytest.raises(NetworkFault) as caught:
        stream.read_chunk(never)
    assert caught.value.fault is Fault.CLOSED


def test_readiness_is_real_and_loses_nothing(paused: Web, gate: threading.Event) -> None:
    stream = open_stream(paused)
    assert stream.read_chunk(never) == b"first"
    assert not stream.is_ready()
    waited = stream.descriptor()
    assert waited is not None
    gate.set()
    Wait.of(20.0).for_socket(*waited)
    while not stream.is_ready():  # the rest of a chunk may come a moment later
        pass
    assert stream.descriptor() is None
    assert drain(stream) == b"second"
    assert stream.is_ready(), "the end stays the end"
    stream.close()


def test_abi_22_a_read_that_must_come_back_is_not_the_end(paused: Web) -> None:
    stream = open_stream(paused)
    stream.read_chunk(never)
    with pytest.raises(NetworkFault) as caught:
        stream.read_chunk(lambda: True)
    assert caught.value.fault is Fault.CUT
    stream.close()


def test_abi_19_silence_between_two_parts_times_out_and_frees_the_slot(paused: Web) -> None:
    door = door_to(paused)
    chosen = Options(between_s=0.1)
    answer = start(door, request(paused.url()), chosen, Wait.of(30.0), "http-stream")
    stream = HttpStream(answer, chosen, math.inf, door.exchanges.take())
    assert stream.read_chunk(never) == b"first"
    with pytest.raises(NetworkFault) as caught:
        stream.read_chunk(never)
    assert caught.value.fault is Fault.TIMEOUT
    stream.close()
    assert door.exchanges.taken == 0


def test_a_stream_is_an_input_end(paused: Web, gate: threading.Event) -> None:
    stream = open_stream(paused)
    while not stream.is_ready():
        pass
    assert [stream.read(3), stream.read(3), stream.read(3)] == [b"fir", b"st", b""]
    gate.set()
    parts = b""
    while (part := stream.read(100)) is not None:
        parts += part
    assert parts == b"second"
    stream.close()
    assert stream.read(1) is None


def test_a_large_stream_has_no_cap_of_its_own() -> None:
    body = bytes(range(256)) * 60_000
    with Web(
        {"/": response(body), "/z": response(gzip.compress(body), "200 OK", "Content-Encoding: gzip")}
    ) as web:
        for path in ("/", "/z"):
            stream = open_stream(web, path)
            assert drain(stream) == body
            stream.close()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"max_response_bytes": 1000}, Fault.TOO_LARGE),
        ({"max_decompressed_bytes": 1000}, Fault.BOMB),
        ({"integrity": Integrity(algorithm="sha256", digest=bytes(32))}, Fault.INTEGRITY),
    ],
)
def test_the_guests_own_bounds_hold(options: dict[str, Any], fault: Fault) -> None:
    body = gzip.compress(bytes(100_000))
    with Web({"/": response(body, "200 OK", "Content-Encoding: gzip")}) as web:
        with pytest.raises(NetworkFault) as caught:
            stream = open_stream(web, **options)
            with contextlib.closing(stream):
                drain(stream)
        assert caught.value.fault is fault


def test_an_integrity_is_checked_at_the_end() -> None:
    with Web({"/": chunked(b"hel", b"lo")}) as web:
        good = Integrity(algorithm="sha512", digest=hashlib.sha512(b"hello").digest())
        stream = open_stream(web, integrity=good)
        assert drain(stream) == b"hello"
        stream.close()


def test_an_upload_is_written_in_parts_and_becomes_a_stream() -> None:
    with Web({"/": response(b"thanks")}) as web:
        door = door_to(web)
        upload = open_upload(web, door)
        sent = 0
        while sent < 3_000_000:
            permit = upload.permit()
            assert permit in (0, SINK_BYTES)
            if permit:
                upload.write(bytes(permit))
                sent += permit
        stream = upload.finish(never)
        assert (stream.status, drain(stream), upload.permit()) == (200, b"thanks", None)
        assert (web.requests[0].body, web.requests[0].header("Transfer-Encoding")) == (bytes(sent), "chunked")
        assert door.exchanges.taken == 1
        upload.close()
        assert door.exchanges.taken == 1, "the stream has its slot now"
        stream.close()
        stream.close()
        assert door.exchanges.taken == 0
        with pytest.raises(NetworkFault) as caught:
            upload.finish(never)
        assert caught.value.fault is Fault.CLOSED


def test_an_upload_is_not_redirected() -> None:
    with Web({"/": redirect("/elsewhere", 307)}) as web:
        door = door_to(web)
        stream = open_upload(web, door).finish(never)
        assert stream.status == 307
        stream.close()
        with pytest.raises(NetworkFault) as caught:
            open_upload(web, door, redirect="error").finish(never)
        assert caught.value.fault is Fault.REDIRECT
        assert door.exchanges.taken == 0


def test_an_upload_that_is_dropped_frees_its_slot() -> None:
    with Web({"/": response(b"x")}) as web:
        door = door_to(web)
        open_upload(web, door).close()
        assert door.exchanges.taken == 0


def test_there_are_four_at_once() -> None:
    with Web({"/": response(b"x")}) as web:
        door = door_to(web)
        gives = [door.exchanges.take() for _ in range(4)]
        with pytest.raises(NetworkFault) as caught:
            door.exchanges.take()
        assert caught.value.fault is Fault.CROWDED
        gives[0]()
        gives[0]()
        assert door.exchanges.taken == 3
