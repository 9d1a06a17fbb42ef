"""astrid:http, both versions, over real servers: values, options, error arms, handles, and who waits."""

from __future__ import annotations

import base64
import gzip
import hashlib
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from aos_runtime.host import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.factors.http import _OLD
from aos_runtime.host.factors.http_types import ERROR, OLD_ERROR
from aos_runtime.host.waiting import WaitGate
from aos_runtime.network import Fault, NetworkDoor, NetworkFault
from tests.support.guests import HTTP, HTTP_OLD, Recorder
from tests.support.network import Net
from tests.support.servers import Request, Web, chunked, redirect, response

BODY = b"hello"
HASH = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


def bomb() -> bytes:
    return response(gzip.compress(bytes(11 << 20)), "200 OK", "Content-Encoding: gzip")


def silent(connection: socket.socket, _request: Request) -> None:
    connection.recv(1)


@pytest.fixture
def web() -> Iterator[Web]:
    answers = {
        "/": response(BODY, "200 OK", "X-A: 1"),
        "/chunks": chunked(b"one", b"two", trailers=("X-T: 3",)),
        "/moved": redirect("/"),
        "/loop": redirect("/loop"),
        "/file": redirect("file:///etc/passwd"),
        "/bomb": bomb(),
        "/large": response(bytes(11 << 20)),
        "/nonsense": b"SSH-2.0-x\r\n",
        "/silent": silent,
    }
    with Web(answers) as server:
        yield server


@pytest.fixture
def door(web: Web) -> NetworkDoor:
    return Net().door(f"127.0.0.1:{web.port}", net=("127.0.0.1", "gone.test", "a.test"))


@pytest.fixture
def context(door: NetworkDoor, recorder: Recorder) -> Iterator[GuestContext]:
    guest = recorder.context(network=door, keeps_resources=True)
    yield guest
    guest.resources.clear()
    assert door.exchanges.taken == 0


GET = Case("get")


def asked(url: str, method: Case = GET, body: bytes | None = None, **headers: str) -> dict[str, Any]:
    pairs = [{"key": name.replace("_", "-"), "value": value} for name, value in headers.items()]
    return {"url": url, "method": method, "headers": pairs, "body": body}


def options(**given: Any) -> dict[str, Any]:
    names = (
        "timeouts redirect max-redirects max-response-bytes max-decompressed-bytes auto-decompress "
        "https-only integrity"
    )
    return dict.fromkeys(names.split()) | {name.replace("_", "-"): value for name, value in given.items()}


def timeouts(**given: int) -> dict[str, int | None]:
    names = ("connect-ms", "first-byte-ms", "between-bytes-ms", "total-ms")
    return dict.fromkeys(names) | {f"{name.replace('_', '-')}-ms": value for name, value in given.items()}


def new(context: GuestContext, name: str, *arguments: object) -> Any:
    return FACTORS[HTTP, name].run(context, *arguments)


def old(context: GuestContext, name: str, *arguments: object) -> Any:
    return FACTORS[HTTP_OLD, name].run(context, *arguments)


def test_a_buffered_response_has_its_meta_in_1_1_alone(context: GuestContext, web: Web) -> None:
    headers = [{"key": "x-a", "value": "1"}, {"key": "content-length", "value": "5"}]
    assert old(context, "http-request", asked(web.url("/moved"))) == {
        "status": 200,
        "headers": headers,
        "body": BODY,
    }
    answer = new(context, "http-request", asked(web.url("/moved")))
    meta = answer.pop("meta")
    assert answer == {"status": 200, "headers": headers, "body": BODY}
    assert 0 <= meta.pop("elapsed-ms") < 30_000
    assert meta == {"final-url": web.url("/"), "redirect-count": 1, "wire-bytes": 5}


def test_empty_options_are_those_of_1_0(context: GuestContext, web: Web) -> None:
    answer = new(context, "http-request-opts", asked(web.url("/moved")), options())
    assert (answer["status"], answer["body"], answer["meta"]["redirect-count"]) == (200, BODY, 1)


@pytest.mark.parametrize(
    ("method", "sent"),
    [(Case("delete"), "DELETE"), (Case("other", "PURGE"), "PURGE"), (Case("other", "get"), "GET")],
)
def test_methods(context: GuestContext, web: Web, method: Case, sent: str) -> None:
    new(context, "http-request", asked(web.url(), method, X_A="1"))
    assert (web.requests[0].method, web.requests[0].header("X-A")) == (sent, "1")


CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "capability-denied": ({"url": "http://unlisted.test/"}, {}),
    "invalid-request": ({"url": "http://a b/"}, {}),
    "dns-error": ({"url": "http://gone.test/"}, {}),
    "airlock-rejected": ({"url": "http://127.0.0.1:1/"}, {}),
    "timeout": ({"url": "/silent"}, {"timeouts": timeouts(first_byte=50)}),
    "body-too-large": ({"url": "/large"}, {}),
    "redirect-blocked": ({"url": "/moved"}, {"redirect": "error"}),
    "too-many-redirects": ({"url": "/loop"}, {"max_redirects": 2}),
    "integrity-mismatch": ({"url": "/"}, {"integrity": "sha256-" + "A" * 43 + "="}),
    "scheme-denied": ({"url": "/"}, {"https_only": True}),
    "decompression-bomb": ({"url": "/bomb"}, {}),
    "protocol": ({"url": "/nonsense"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_error_arm(case: str, context: GuestContext, web: Web) -> None:
    changes, given = CASES[case]
    url = changes["url"]
    request = asked(web.url(url) if url.startswith("/") else url)
    for name in ("http-request-opts", "http-stream-start-opts"):
        answer = new(context, name, request, options(**given))
        if name.startswith("http-stream") and not isinstance(answer, Err):
            answer = _drained(context, answer)
        expected = None if case == "body-too-large" and name.startswith("http-stream") else case
        expected = None if case == "decompression-bomb" and name.startswith("http-stream") else expected
        assert (answer.case if isinstance(answer, Err) else None) == expected


def _drained(context: GuestContext, handle: int) -> Err | None:
    while True:
        part = new(context, "[method]http-stream.read-chunk", handle)
        if isinstance(part, Err):
            return part
        if not part:
            return None


@pytest.mark.parametrize(
    ("path", "case"),
    [
        ("/loop", "protocol"),
        ("/file", "airlock-rejected"),
        ("/bomb", "body-too-large"),
        ("ftp://a.test/", "invalid-request"),
    ],
)
def test_1_0_never_hears_of_the_cases_of_1_1(path: str, case: str, context: GuestContext, web: Web) -> None:
    request = asked(web.url(path) if path.startswith("/") else path)
    assert old(context, "http-request", request).case == case
    added = {name for name, _ in ERROR.cases} - {name for name, _ in OLD_ERROR.cases}
    assert set(_OLD) == added
    assert {said.name for said in _OLD.values()} <= {name for name, _ in OLD_ERROR.cases}


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_a_case_that_both_versions_have(
    fault: Fault, context: GuestContext, door: NetworkDoor, monkeypatch: pytest.MonkeyPatch, web: Web
) -> None:
    def fail(*_: object) -> None:
        raise NetworkFault(fault, "why")

    monkeypatch.setattr(type(door), "admit_url", fail)
    for run, error in ((new, ERROR), (old, OLD_ERROR)):
        answer = run(context, "http-request", asked(web.url()))
        payloads = dict(error.cases)
        assert answer.case in payloads
        assert (answer.payload is None) == (payloads[answer.case] is None)


@pytest.mark.parametrize(
    "request_",
    [
        asked("http://a.test/", Case("other", "GE T")),
        asked("http://a.test/", Case("connect")),
        asked("http://a.test/", **{"X\r\nHost": "a"}),
        asked("http://a.test/", X="a\nb"),
        asked("http://a.test/", X="ü"),
        asked("http://a.test/", Host="b.test"),
        asked("http://a.test/", body=bytes((10 << 20) + 1)),
    ],
    ids=["method", "connect", "name", "line", "text", "host", "body"],
)
def test_abi_18_a_request_that_injects_is_refused_before_anything_is_looked_up(
    request_: dict[str, Any], context: GuestContext, recorder: Recorder
) -> None:
    assert new(context, "http-request", request_).case in ("invalid-request", "body-too-large")
    assert [level for level, _ in recorder.logged] == ["warn"]


# secrets


def test_a_secret_is_sent_and_never_seen(context: GuestContext, web: Web, recorder: Recorder) -> None:
    net = Net()
    net.secrets = {"KEY": "k-1", "UNSET": None}
    context.network = net.door(f"127.0.0.1:{web.port}", net=("*",))
    request = asked(web.url(), Authorization="Bearer {{secret:KEY}}", X_B="{{secret:UNSET}}")
    for run in (new, old):
        answer = run(context, "http-request", request)
        assert "k-1" not in repr(answer)
    assert [(one.header("Authorization"), one.header("X-B")) for one in web.requests] == [
        ("Bearer k-1", None)
    ] * 2
    assert "k-1" not in repr((net.notes, net.denials, recorder.logged))
    assert new(context, "http-request", asked(web.url(), X="{{secret:OTHER}}")).case == "capability-denied"
    assert new(context, "http-request", asked(web.url(), X="{{secret:")).case == "invalid-request"


# streams


def test_a_stream_from_start_to_close(context: GuestContext, web: Web) -> None:
    for run in (new, old):
        handle = run(context, "http-stream-start", asked(web.url("/chunks")))
        assert run(context, "[method]http-stream.status", handle) == 200
        assert run(context, "[method]http-stream.headers", handle) == [
            {"key": "transfer-encoding", "value": "chunked"}
        ]
        data = b""
        while part := run(context, "[method]http-stream.read-chunk", handle):
            data += part
        assert data == b"onetwo"
        assert run(context, "[method]http-stream.read-chunk", handle) == b""
        assert run(context, "[method]http-stream.close", handle) is None
        assert run(context, "[method]http-stream.close", handle) is None
        assert run(context, "[method]http-stream.read-chunk", handle) == Err("closed")


def test_trailers_come_after_the_end(context: GuestContext, web: Web) -> None:
    handle = new(context, "http-stream-start", asked(web.url("/chunks")))
    assert new(context, "[method]http-stream.trailers", handle) is None
    assert _drained(context, handle) is None
    assert new(context, "[method]http-stream.trailers", handle) == [{"key": "x-t", "value": "3"}]
    plain = new(context, "http-stream-start", asked(web.url()))
    assert _drained(context, plain) is None
    assert new(context, "[method]http-stream.trailers", plain) is None


def test_a_stream_is_a_pollable_and_an_input_stream(context: GuestContext, web: Web) -> None:
    handle = new(context, "http-stream-start", asked(web.url()))
    pollable: Any = context.resources.get(
        "pollable", new(context, "[method]http-stream.subscribe-readable", handle)
    )
    body: Any = context.resources.get("input-stream", new(context, "[method]http-stream.body-stream", handle))
    while not pollable.source.is_ready():
        pass
    assert (body.read(2), body.source()) == (b"he", pollable.source)
    pollable.close()
    body.close()
    assert new(context, "[method]http-stream.read-chunk", handle) == b"llo"


def test_there_are_four_streams_and_a_dropped_one_makes_room(context: GuestContext, web: Web) -> None:
    handles = [new(context, "http-stream-start", asked(web.url())) for _ in range(4)]
    assert new(context, "http-stream-start", asked(web.url())) == Err("quota")
    assert new(context, "http-upload-start", asked(web.url()), options()) == Err("quota")
    context.resources.drop("http-stream", handles[0])
    assert isinstance(new(context, "http-stream-start", asked(web.url())), int)


def test_a_failed_start_leaves_no_slot_taken(context: GuestContext, web: Web, door: NetworkDoor) -> None:
    for url in ("http://gone.test/", web.url("/nonsense"), "http://127.0.0.1:1/"):
        assert isinstance(new(context, "http-stream-start", asked(url)), Err)
        assert isinstance(new(context, "http-upload-start", asked(url), options(redirect="error")), Err | int)
        context.resources.clear()
    lies = options(max_response_bytes=1)
    assert new(context, "http-stream-start-opts", asked(web.url()), lies) == Err("body-too-large")
    assert door.exchanges.taken == 0


def test_a_body_is_uploaded_in_parts(context: GuestContext, web: Web) -> None:
    upload = new(context, "http-upload-start", asked(web.url(), Case("post"), b"ignored"), options())
    sink: Any = context.resources.get("output-stream", new(context, "[method]http-upload.body-sink", upload))
    writable: Any = context.resources.get(
        "pollable", new(context, "[method]http-upload.subscribe-writable", upload)
    )
    for part in (b"one", b"two"):
        while not writable.source.is_ready():
            pass
        sink.write(part)
    sink.close()
    stream = new(context, "[method]http-upload.finish", upload)
    assert new(context, "[method]http-stream.read-chunk", stream) == BODY
    assert (web.requests[0].body, web.requests[0].method) == (b"onetwo", "POST")
    assert new(context, "[method]http-upload.finish", upload) == Err("closed")
    assert sink.permit() is None


# who waits


def test_a_crowd_is_told_and_a_run_loop_does_not_count(context: GuestContext, web: Web) -> None:
    context.gate = WaitGate(limit=0)
    assert new(context, "http-request", asked(web.url())) == Err("quota")
    context.is_loop = True
    assert new(context, "http-request", asked(web.url()))["status"] == 200


def test_the_window_of_a_run_loop_begins_anew_after_each_wait(context: GuestContext, web: Web) -> None:
    yielded: list[int] = []
    context.yielded = lambda: yielded.append(1)
    new(context, "http-request", asked(web.url()))
    new(context, "http-request", asked("http://gone.test/"))
    assert len(yielded) == 2


def test_a_call_that_must_come_back_does_so(context: GuestContext, web: Web) -> None:
    asked_after = iter([False, False])
    context.is_over = lambda: next(asked_after, True)
    answer = new(context, "http-request", asked(web.url("/silent")))
    assert answer == Err("unknown", "the wait was cut short")


def test_without_a_network_everything_is_denied(recorder: Recorder, web: Web) -> None:
    bare = recorder.context()
    assert new(bare, "http-request", asked(web.url())) == Err("capability-denied")


def test_integrity_and_timeouts_are_read_from_the_options(context: GuestContext, web: Web) -> None:
    good = options(
        integrity=f"sha256-{HASH}", timeouts=timeouts(connect=9999, between_bytes=9999, total=9999)
    )
    assert new(context, "http-request-opts", asked(web.url()), good)["body"] == BODY
    assert new(context, "http-request-opts", asked(web.url()), options(integrity="md5-x")) == Err(
        "invalid-request"
    )
    none = options(timeouts=timeouts(total=0))
    assert new(context, "http-request-opts", asked(web.url()), none) == Err("timeout")


def test_a_handle_that_is_not_held_is_a_lie_or_closed(context: GuestContext) -> None:
    for name in ("status", "headers", "subscribe-readable", "body-stream"):
        with pytest.raises(AbiViolation):
            new(context, f"[method]http-stream.{name}", 7)
    assert new(context, "[method]http-stream.trailers", 7) == Err("closed")
    assert new(context, "[method]http-stream.close", 7) is None
