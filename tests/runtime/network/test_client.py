"""Whole requests against real servers: hops, bounds, deadlines, and what is put on record."""

from __future__ import annotations

import base64
import gzip
import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.network import Fault, NetworkDoor, NetworkFault
from aos_runtime.network.client import MAX_BODY_BYTES, Options, Response, read_all, start
from aos_runtime.network.waits import Wait
from aos_runtime.policy.http_rules import HttpRequest, Integrity
from aos_runtime.policy.urls import Url, parse_url
from tests.support.certificates import Authority, server_context
from tests.support.network import OTHER, PUBLIC, Net
from tests.support.servers import Request, Web, chunked, redirect, response, serving

LONG_S = 30.0


def url(text: str) -> Url:
    found = parse_url(text)
    assert isinstance(found, Url), text
    return found


def request(text: str, method: str = "GET", body: bytes | None = None, **headers: str) -> HttpRequest:
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HttpRequest(method=method, url=url(text), headers=names, body=body)


def fetch(
    door: NetworkDoor, asked: HttpRequest, total_s: float = LONG_S, **options: Any
) -> tuple[Response, bytes]:
    wait, chosen = Wait.of(total_s), Options(**options)
    answer = start(door, asked, chosen, wait, "http-request")
    try:
        return answer, read_all(answer, chosen, wait)
    finally:
        answer.close()


def fault_of(door: NetworkDoor, asked: HttpRequest, total_s: float = LONG_S, **options: Any) -> Fault:
    with pytest.raises(NetworkFault) as caught:
        fetch(door, asked, total_s, **options)
    return caught.value.fault


@pytest.fixture
def web() -> Iterator[Web]:
    with Web({"/": response(b"hello", "200 OK", "X-A: 1", "X-A: 2")}) as server:
        yield server


def local(web: Web, *more: Web) -> NetworkDoor:
    """A door of a guest that may reach these servers, and lists every host."""
    return Net().door(*(f"127.0.0.1:{one.port}" for one in (web, *more)), net=("*",))


def test_a_request_is_sent_and_answered(web: Web) -> None:
    answer, body = fetch(local(web), request(web.url("/?q=1"), "POST", b"data", Content_Type="text/plain"))
    assert (answer.status, answer.hops, answer.url.render(), body) == (200, 0, web.url("/?q=1"), b"hello")
    assert answer.headers == (("x-a", "1"), ("x-a", "2"), ("content-length", "5"))
    assert answer.exchange.received_bytes == 5
    [sent] = web.requests
    assert (sent.method, sent.target, sent.body) == ("POST", "/?q=1", b"data")
    assert sent.headers == (
        ("Host", f"127.0.0.1:{web.port}"),
        ("Content-Type", "text/plain"),
        ("Accept", "*/*"),
        ("User-Agent", "aos/0.1.0"),
        ("Accept-Encoding", "gzip, deflate, zstd"),
        ("Content-Length", "4"),
        ("Connection", "close"),
    )


def test_sec_14_each_hop_is_on_record_without_its_query(web: Web) -> None:
    net = Net()
    door = net.door(f"127.0.0.1:{web.port}", net=("127.0.0.1",))
    fetch(door, request(web.url("/?key=secret")))
    fault_of(net.door(net=("127.0.0.1",)), request(web.url("/?key=secret")))
    fault_of(net.door(), request(web.url("/?key=secret")))
    target = f"GET {web.url('/')}"
    assert net.notes == [
        ("http-request", f"{target} 200", None),
        ("http-request", target, "airlock-rejected"),
        ("http-request", target, "capability-denied"),
    ]
    assert [denial.allow for denial in net.denials] == [
        f'etc/config.toml: [security.capsule_local_egress] guest = ["127.0.0.1:{web.port}"]',
        '[capabilities] net = ["127.0.0.1"]',
    ]


@pytest.mark.parametrize("body", [b"", b"x" * 9_000_000], ids=["empty", "9 MB"])
def test_a_body_comes_whole(body: bytes) -> None:
    with Web({"/": response(body), "/c": chunked(body or b"x", b"tail", trailers=("X-T: 1",))}) as web:
        assert fetch(local(web), request(web.url()))[1] == body
        answer, whole = fetch(local(web), request(web.url("/c")))
        assert (whole, answer.exchange.trailers) == ((body or b"x") + b"tail", (("x-t", "1"),))


def test_a_head_request_has_no_body_whatever_it_announces() -> None:
    with Web({"/": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"}) as web:
        assert fetch(local(web), request(web.url(), "HEAD"))[1] == b""


# ABI-15: bodies that never end


def endless(connection: socket.socket, _request: Request) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(bytes(65536))


def test_abi_15_an_endless_body_stops_at_the_cap() -> None:
    with Web({"/": endless}) as web:
        assert fault_of(local(web), request(web.url())) is Fault.TOO_LARGE


def test_abi_15_a_length_over_the_cap_is_refused_before_it_is_read() -> None:
    with Web({"/": response(b"x", length=10**12)}) as web:
        assert fault_of(local(web), request(web.url())) is Fault.TOO_LARGE


def test_abi_15_what_comes_behind_the_announced_length_is_not_read() -> None:
    with Web({"/": response(b"0123456789" + bytes(1_000_000), length=10)}) as web:
        assert fetch(local(web), request(web.url()))[1] == b"0123456789"


def test_a_guest_lowers_the_cap_and_cannot_raise_it() -> None:
    with Web({"/": response(bytes(100)), "/big": response(bytes(MAX_BODY_BYTES + 1))}) as web:
        assert len(fetch(local(web), request(web.url()), max_response_bytes=100)[1]) == 100
        assert fault_of(local(web), request(web.url()), max_response_bytes=99) is Fault.TOO_LARGE
        assert fault_of(local(web), request(web.url("/big")), max_response_bytes=10**9) is Fault.TOO_LARGE


def test_a_body_that_breaks_off_is_no_body() -> None:
    with Web({"/": response(b"half", length=10)}) as web:
        assert fault_of(local(web), request(web.url())) is Fault.PROTOCOL


# ABI-16: encodings


def test_a_body_is_inflated_and_its_headers_say_so() -> None:
    body = gzip.compress(b"hello" * 1000)
    with Web({"/": response(body, "200 OK", "Content-Encoding: gzip", "X-A: 1")}) as web:
        answer, whole = fetch(local(web), request(web.url()))
        assert (whole, answer.headers) == (b"hello" * 1000, (("x-a", "1"),))
        assert answer.exchange.received_bytes == len(body)
        answer, whole = fetch(local(web), request(web.url()), is_decompressed=False)
        assert (whole, dict(answer.headers)["content-encoding"]) == (body, "gzip")
        assert [one.header("Accept-Encoding") for one in web.requests] == ["gzip, deflate, zstd", None]


def test_abi_16_the_cap_counts_inflated_bytes() -> None:
    bomb = gzip.compress(gzip.compress(bytes(200_000_000), 1))
    with Web({"/": response(bomb, "200 OK", "Content-Encoding: gzip, gzip")}) as web:
        assert fault_of(local(web), request(web.url())) is Fault.BOMB
        assert fault_of(local(web), request(web.url()), max_decompressed_bytes=1000) is Fault.BOMB


def test_abi_16_a_wrong_encoding_is_the_servers_fault() -> None:
    with Web({"/": response(b"plain", "200 OK", "Content-Encoding: gzip")}) as web:
        assert fault_of(local(web), request(web.url())) is Fault.PROTOCOL


def test_an_encoding_that_was_not_asked_for_is_left_as_it_is() -> None:
    with Web({"/": response(b"brotli", "200 OK", "Content-Encoding: br")}) as web:
        answer, body = fetch(local(web), request(web.url()))
        assert (body, dict(answer.headers)["content-encoding"]) == (b"brotli", "br")


# ABI-19: deadlines


def silent(connection: socket.socket, _request: Request) -> None:
    connection.recv(1)


def slow_head(connection: socket.socket, _request: Request) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def stalling(connection: socket.socket, _request: Request) -> None:
    connection.sendall(response(b"a", length=10))
    connection.recv(1)


@pytest.mark.parametrize(
    ("answer", "limits"),
    [
        (silent, {"first_byte_s": 0.1}),
        (slow_head, {"first_byte_s": 0.1}),
        (stalling, {"between_s": 0.1}),
        (silent, {"total_s": 0.1}),
        (stalling, {"total_s": 0.1}),
    ],
)
def test_abi_19_each_phase_has_its_own_deadline(
    answer: Callable[[socket.socket, Request], None], limits: dict[str, float]
) -> None:
    with Web({"/": answer}) as web:
        assert fault_of(local(web), request(web.url()), **limits) is Fault.TIMEOUT


def test_abi_19_a_connection_that_is_not_accepted_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        filling = [socket.socket() for _ in range(4)]
        for one in filling:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        door = Net().door(f"127.0.0.1:{port}", net=("*",))
        assert fault_of(door, request(f"http://127.0.0.1:{port}/"), connect_s=0.2) is Fault.TIMEOUT
        for one in filling:
            one.close()


def test_a_request_that_must_come_back_does_so_at_once() -> None:
    with Web({"/": silent}) as web:
        over = iter([False] * 3 + [True] * 1000)
        wait = Wait.of(LONG_S, lambda: next(over))
        with pytest.raises(NetworkFault) as caught:
            start(local(web), request(web.url()), Options(), wait, "http-request")
    assert caught.value.fault is Fault.CUT


# redirects: ABI-17, SEC-05


def test_a_redirect_is_followed_and_its_hops_are_counted(web: Web) -> None:
    web.answers |= {"/a": redirect("/b", 301), "/b": redirect(web.url("/"), 308)}
    answer, body = fetch(local(web), request(web.url("/a"), "POST", b"data"))
    assert (answer.hops, answer.url.render(), body) == (2, web.url("/"), b"hello")
    assert [(one.method, one.target, one.body) for one in web.requests] == [
        ("POST", "/a", b"data"),
        ("GET", "/b", b""),
        ("GET", "/", b""),
    ]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_abi_17_another_port_is_another_origin_and_gets_no_credentials(status: int, web: Web) -> None:
    with Web({"/": redirect(web.url("/"), status)}) as first:
        asked = request(first.url(), Authorization="a", Cookie="b", Proxy_Authorization="c", X_D="d")
        fetch(local(first, web), asked)
    kept = {name for name, _ in web.requests[0].headers}
    assert kept & {"Authorization", "Cookie", "Proxy-Authorization", "X-D"} == {"X-D"}


def test_abi_17_a_secret_stays_with_its_origin(web: Web) -> None:
    with Web({"/": redirect(web.url("/")), "/same": redirect("/")}) as first:
        asked = HttpRequest(
            method="GET",
            url=url(first.url("/same")),
            headers=(("X-Key", "secret"),),
            body=None,
            private=frozenset({"x-key"}),
        )
        fetch(local(first, web), asked)
        assert [one.header("X-Key") for one in (*first.requests, *web.requests)] == ["secret", "secret", None]


@pytest.mark.parametrize(
    ("location", "fault"),
    [
        ("file:///etc/passwd", Fault.REDIRECT),
        ("http://[::1]:1/", Fault.REDIRECT),
        ("http://2130706433:1/", Fault.REDIRECT),
        ("http://rebound.example/", Fault.REDIRECT),
        ("http://unlisted.test/", Fault.DENIED),
        ("http://user@site.example/", Fault.REDIRECT),
        ("http://gone.example/", Fault.UNRESOLVED),
    ],
)
def test_sec_05_each_hop_is_checked_anew(location: str, fault: Fault) -> None:
    with Web({"/": redirect(location)}) as web:
        net = Net({"site.example": [[PUBLIC]], "rebound.example": [["127.0.0.1"]]}, {PUBLIC: web.port})
        rows = ("example", "::1", "127.0.0.1")
        assert fault_of(net.door(net=rows), request("http://site.example/")) is fault
        assert net.dialled == [f"{PUBLIC}:80"]


def test_sec_05_there_are_ten_hops_and_no_more() -> None:
    answers = {f"/{n}": redirect(f"/{n + 1}") for n in range(11)} | {"/10": response(b"end")}
    with Web(answers) as web:
        assert fetch(local(web), request(web.url("/0")))[1] == b"end"
        assert fault_of(local(web), request(web.url("/0")), max_redirects=9) is Fault.REDIRECTS
        web.answers["/10"] = redirect("/0")
        assert fault_of(local(web), request(web.url("/0"))) is Fault.REDIRECTS


def test_a_guest_chooses_what_a_redirect_does(web: Web) -> None:
    web.answers["/a"] = redirect("/")
    assert fault_of(local(web), request(web.url("/a")), redirect="error") is Fault.REDIRECT
    answer, body = fetch(local(web), request(web.url("/a")), redirect="manual")
    assert (answer.status, body, dict(answer.headers)["location"]) == (302, b"moved", "/")


def test_https_only_holds_for_every_hop(web: Web) -> None:
    assert fault_of(local(web), request(web.url()), is_https_only=True) is Fault.SCHEME
    assert web.requests == []


# SEC-01, SEC-03, SEC-04: the airlock


@pytest.mark.parametrize(
    "host",
    [
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[fec0::1]",
        "[::127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0",
        "１２７.１",
        "localhost.",
        "metadata.google.internal.",
        "mapped.example",
    ],
)
def test_sec_01_03_06_no_spelling_leads_to_this_machine(host: str) -> None:
    net = Net(
        {
            "localhost": [["127.0.0.1", "::1"]],
            "metadata.google.internal": [["169.254.169.254"]],
            "mapped.example": [["::ffff:127.0.0.1"]],
        }
    )
    assert fault_of(net.door(net=("*",)), request(f"http://{host}/")) is Fault.REJECTED
    assert net.dialled == []


def test_sec_04_a_name_is_looked_up_once_and_only_the_checked_address_is_dialled(web: Web) -> None:
    net = Net({"rebind.example": [[PUBLIC], ["127.0.0.1"]]}, {PUBLIC: web.port})
    assert fetch(net.door(net=("*",)), request("http://rebind.example/"))[1] == b"hello"
    assert (net.asked, net.dialled) == (["rebind.example"], [f"{PUBLIC}:80"])
    assert web.requests[0].header("Host") == "rebind.example"
    assert fault_of(net.door(net=("*",)), request("http://rebind.example/")) is Fault.REJECTED


def test_sec_04_the_bad_one_of_two_addresses_is_never_dialled(web: Web) -> None:
    net = Net({"both.example": [["127.0.0.1", PUBLIC, "::1"]]}, {PUBLIC: web.port})
    fetch(net.door(net=("*",)), request("http://both.example/"))
    assert net.dialled == [f"{PUBLIC}:80"]


def test_the_next_address_is_tried_where_one_does_not_answer(web: Web) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()[1]
    net = Net({"two.example": [[PUBLIC, OTHER]]}, {PUBLIC: closed, OTHER: web.port})
    assert fetch(net.door(net=("*",)), request("http://two.example/"))[1] == b"hello"
    assert net.dialled == [f"{PUBLIC}:80", f"{OTHER}:80"]


@pytest.mark.parametrize("name", ["gone.example", "a" * 63 + ".example"])
def test_a_name_without_an_address(name: str) -> None:
    assert fault_of(Net().door(net=("*",)), request(f"http://{name}/")) is Fault.UNRESOLVED


def test_a_port_that_nobody_listens_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    door = Net().door(f"127.0.0.1:{port}", net=("*",))
    assert fault_of(door, request(f"http://127.0.0.1:{port}/")) is Fault.REFUSED


# TLS


def secure(web: Web, tls: Authority) -> Net:
    return Net(
        {"site.example": [[PUBLIC]], "other.example": [[PUBLIC]]}, {PUBLIC: web.port}, tls.client_context
    )


def test_a_certificate_is_checked_against_the_name(tmp_path: Path) -> None:
    authority = Authority()
    context = server_context(authority.issue("site.example"), tmp_path)
    with Web({"/": response(b"secure" * 10_000)}, context) as web:
        door = secure(web, authority).door(net=("*",))
        assert fetch(door, request("https://site.example/"))[1] == b"secure" * 10_000
        assert fault_of(door, request("https://other.example/")) is Fault.TLS
        strangers = secure(web, Authority("somebody else"))
        assert fault_of(strangers.door(net=("*",)), request("https://site.example/")) is Fault.TLS
        assert [one.header("Host") for one in web.requests] == ["site.example"]


def test_a_server_without_tls_is_no_https_server() -> None:
    with serving(lambda connection: connection.sendall(response(b"plain"))) as server:
        net = Net({"site.example": [[PUBLIC]]}, {PUBLIC: server.port}, Authority().client_context)
        assert fault_of(net.door(net=("*",)), request("https://site.example/")) is Fault.TLS


# servers that do not speak HTTP


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"",
    ],
)
def test_nonsense_is_a_fault(answer: bytes) -> None:
    with Web({"/": answer}) as web:
        assert fault_of(local(web), request(web.url())) in (Fault.PROTOCOL, Fault.RESET)


def test_interim_responses_are_skipped_and_a_header_that_is_not_utf_8_is_left_out() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nX-Bad: \xff\r\nX-Good: \xc3\xa9\r\nContent-Length: 0\r\n\r\n"
    with Web({"/": interim + answer}) as web:
        got, _ = fetch(local(web), request(web.url()))
        assert got.headers == (("x-good", "é"), ("content-length", "0"))


def test_no_connection_is_left_open(web: Web) -> None:
    door = local(web)
    web.answers |= {"/loop": redirect("/loop"), "/bad": response(b"x", "200 OK", "Content-Encoding: gzip")}
    fetch(door, request(web.url()))
    for path in ("/loop", "/bad"):
        fault_of(door, request(web.url(path)))
    # pytest turns a socket that nobody closed into an error (ResourceWarning)


def test_proxies_of_the_environment_are_not_used(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert fetch(local(web), request(web.url()))[1] == b"hello"


def test_sec_09_no_variable_of_the_environment_opens_the_airlock(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ASTRID_ALLOW_LOCAL_IPS", "AOS_ALLOW_LOCAL_IPS", "ALLOW_LOCAL_IPS"):
        monkeypatch.setenv(name, "1")
    assert fault_of(Net().door(net=("*",)), request(web.url())) is Fault.REJECTED


def test_an_integrity_is_checked(web: Web) -> None:
    good = Integrity(algorithm="sha256", digest=hashlib.sha256(b"hello").digest())
    assert fetch(local(web), request(web.url()), integrity=good)[1] == b"hello"
    bad = Integrity(algorithm="sha256", digest=base64.b64decode("A" * 43 + "="))
    assert fault_of(local(web), request(web.url()), integrity=bad) is Fault.INTEGRITY


def test_an_upload_larger_than_the_buffers_is_sent_whole() -> None:
    body = bytes(range(256)) * 40_000
    with Web({"/": response(b"ok")}) as web:
        fetch(local(web), request(web.url(), "PUT", body))
        assert web.requests[0].body == body


def test_a_peer_that_resets(web: Web) -> None:
    def reset(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    with serving(reset) as server:
        door = Net().door(f"127.0.0.1:{server.port}", net=("*",))
        assert fault_of(door, request(f"http://127.0.0.1:{server.port}/")) is Fault.RESET
