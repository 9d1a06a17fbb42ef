"""What capsules reach outside, through a real daemon: the first-party `http` capsule, and an SDK capsule that
tries every way out.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.wire.handshake_client import signed_text
from tests.support.installation import Aos, wait_until
from tests.support.projects import build_project
from tests.support.servers import Request, Web, chunked, redirect, response, serving

pytestmark = pytest.mark.journey

SECRET = "k-journey-1"


@pytest.fixture
def web() -> Iterator[Web]:
    def endless(connection: socket.socket, _request: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            connection.sendall(bytes(65536))

    def silent(connection: socket.socket, _request: Request) -> None:
        connection.settimeout(60.0)
        connection.recv(1)

    answers = {
        "/page": response("grüezi".encode(), "200 OK", "Content-Type: text/html; charset=utf-8"),
        "/moved": redirect("/page"),
        "/away": redirect("http://169.254.169.254/latest/meta-data/"),
        "/picture": response(b"\x89PNG\r\n", "200 OK", "Content-Type: image/png"),
        "/gone": response(b"nothing here", "404 Not Found", "Content-Type: text/plain"),
        "/parts": chunked(b"one", b"two", b"three"),
        "/endless": endless,
        "/silent": silent,
    }
    with Web(answers) as server:
        yield server


def exempt(aos: Aos, **capsules: str) -> None:
    aos.home.etc.mkdir(parents=True, exist_ok=True)
    rows = "".join(f'{name} = ["{entry}"]\n' for name, entry in capsules.items())
    aos.home.config_file.write_text(f"[security.capsule_local_egress]\n{rows}", encoding="utf-8")


def call(aos: Aos, tool: str, **arguments: object) -> str:
    answer = aos.run("tool", "call", tool, "--input", json.dumps(arguments), "--format", "json").json
    assert answer["is_error"] is False, answer
    return str(answer["content"])


def fetch(aos: Aos, url: str, **arguments: object) -> Any:
    return json.loads(call(aos, "fetch_url", url=url, **arguments))


def fail(aos: Aos, tool: str, **arguments: object) -> str:
    ended = aos.run("tool", "call", tool, "--input", json.dumps(arguments), status=1)
    return next(line for line in ended.err.splitlines() if line.startswith("error: "))


def test_fetch_url_gets_text_and_nothing_that_it_may_not(aos: Aos, web: Web) -> None:
    aos.run("init", "-y")
    exempt(aos, http=f"127.0.0.1:{web.port}")
    aos.run("start")
    assert "may reach 127.0.0.1" in aos.home.daemon_log.read_text(encoding="utf-8")

    page = fetch(aos, web.url("/moved"), headers={"Accept": "text/html"})
    assert page == {
        "status": 200,
        "url": web.url("/page"),
        "content_type": "text/html; charset=utf-8",
        "text": "grüezi",
        "truncated": False,
        "total_chars": 6,
    }
    assert web.requests[-1].header("accept") == "text/html"
    cut = fetch(aos, web.url("/page"), max_chars=2)
    assert (cut["text"], cut["truncated"], cut["total_chars"]) == ("gr", True, 6)
    assert fetch(aos, web.url("/gone"))["status"] == 404

    assert "is image/png, 6 bytes; only text can be fetched" in fail(
        aos, "fetch_url", url=web.url("/picture")
    )
    assert "its answer has more than 10 MiB" in fail(aos, "fetch_url", url=web.url("/endless"))
    assert "may not be reached" in fail(aos, "fetch_url", url=web.url("/away"))
    assert "the address or a header is not valid" in fail(aos, "fetch_url", url="http://a b/")
    assert "only http and https" in fail(aos, "fetch_url", url="file:///etc/passwd")
    for host in ("127.0.0.1:1", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254", "localhost."):
        assert "leads to this machine" in fail(aos, "fetch_url", url=f"http://{host}/")

    log = aos.run("logs", "http").out
    assert 'rule="127.0.0.1 is this machine"' in log
    assert '[security.capsule_local_egress] http = ["127.0.0.1:1"]' in log.replace('\\"', '"')
    recorded = aos.run("audit", "tail", "-n", "200").out
    assert f"GET {web.url('/page')} 200" in recorded
    assert "airlock-rejected" in recorded
    assert aos.run("audit", "verify", "--json").json["intact"] is True


def test_sec_09_no_project_and_no_variable_opens_the_airlock(tmp_path: Path, web: Web) -> None:
    aos = Aos(root=tmp_path, extra={"ASTRID_ALLOW_LOCAL_IPS": "1", "HTTP_PROXY": "http://127.0.0.1:9"})
    project = aos.folder / "project"
    (project / ".aos").mkdir(parents=True)
    row = f'[security.capsule_local_egress]\nhttp = ["127.0.0.1:{web.port}"]\n'
    for name in (".aos/config.toml", "config.toml", "Capsule.toml"):
        (project / name).write_text(row, encoding="utf-8")
    try:
        aos.run("init", "-y")
        aos.run("start", folder=project)
        refused = aos.run(
            "tool", "call", "fetch_url", "--arg", f"url={web.url('/page')}", folder=project, status=1
        )
        assert "leads to this machine" in refused.err
        assert web.requests == []
    finally:
        aos.close()


def frame(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def read_frame(client: socket.socket) -> bytes:
    client.settimeout(30.0)
    (size,) = struct.unpack(">I", client.recv(4, socket.MSG_WAITALL))
    return client.recv(size, socket.MSG_WAITALL)


def listening_at(aos: Aos, pattern: str) -> str:
    """Where the capsule says that it listens."""
    found: list[str] = []

    def look() -> bool:
        found.extend(re.findall(f"listening at {pattern}", aos.run("logs", "reacher").out))
        return bool(found)

    wait_until(look, "it listens")
    return found[0]


@pytest.fixture
def reaching(tmp_path: Path) -> Iterator[Aos]:
    installation = Aos(root=tmp_path, extra={"AOS_VAR_API_KEY": SECRET})
    installation.folder.mkdir()
    exempt(installation, reacher="127.0.0.1:*")
    yield installation
    installation.close()


def knock(aos: Aos, principal: PrincipalName | None) -> str:
    """Have the capsule serve one client at its own socket, which proves to be `principal`; what it says."""
    serving_tool = aos.start("tool", "call", "serve_home", "--format", "json")
    with socket.socket(socket.AF_UNIX) as client:
        path = listening_at(aos, r"(/\S+)")
        wait_until(lambda: Path(path).exists(), "the socket is there")
        client.connect(path)
        token = aos.home.token_file.read_text(encoding="ascii").strip()
        hello = {"token": token, "protocol_version": 1, "client_version": "test"}
        if principal is not None:
            hello["claimed_principal"] = principal
        client.sendall(frame(json.dumps(hello).encode()))
        answer = json.loads(read_frame(client))
        if principal is not None:
            key = SigningKey(aos.home.principal_key(principal).read_bytes())
            signed = key.sign(signed_text(principal, answer["challenge"])).signature.hex()
            client.sendall(frame(json.dumps(hello | {"signature": signed}).encode()))
            answer = json.loads(read_frame(client))
        assert answer["status"] == "ok"
        client.sendall(frame(b"knock"))
        assert read_frame(client) == b"got it"
        out, _ = serving_tool.communicate(timeout=60)
    return str(json.loads(out)["content"])


def test_an_sdk_capsule_uses_every_way_out(reaching: Aos, web: Web) -> None:
    aos = reaching
    aos.run("capsule", "install", str(build_project("reacher")), "--approve-untrusted")
    aos.run("start")
    assert call(aos, "page", url=web.url("/moved")) == f"200 {web.url('/page')} after 1: grüezi"
    assert [one.header("authorization") for one in web.requests] == [f"Bearer {SECRET}"] * 2
    assert call(aos, "stream", url=web.url("/parts")) == "200 11"

    def echo(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(data)

    with serving(echo) as server:
        assert call(aos, "frames", port=server.port, text="hello") == "hello"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(30.0)

        def answer() -> None:
            data, source = peer.recvfrom(100)
            peer.sendto(data.upper(), source)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert call(aos, "datagram", port=peer.getsockname()[1], text="hello") == "HELLO"
        thread.join()

    serving_tool = aos.start("tool", "call", "serve_once", "--format", "json")
    port = listening_at(aos, r"127\.0\.0\.1:(\d+)")
    with socket.create_connection(("127.0.0.1", int(port))) as client:
        client.sendall(frame(b"knock"))
        out, _ = serving_tool.communicate(timeout=60)
    assert json.loads(out)["content"] == "knock"

    assert knock(aos, None) == "knock of nobody, owned: false"
    assert knock(aos, DEFAULT_PRINCIPAL) == "knock of default, owned: true"

    recorded = aos.run("audit", "tail", "-n", "200").out
    for call_ in (
        "http-request",
        "http-stream",
        "net.connect-tcp",
        "net.udp-bind",
        "net.udp",
        "net.bind-tcp",
    ):
        assert call_ in recorded
    for text in (recorded, aos.run("logs", "--all").out):
        assert SECRET not in text


def test_an_sdk_capsule_knows_people_and_brings_in_what_they_say(reaching: Aos) -> None:
    aos = reaching
    aos.run("capsule", "install", str(build_project("reacher")), "--approve-untrusted")
    aos.run("start")
    assert json.loads(call(aos, "people")) == [
        "true",
        "Host function call failed: ErrorCode::AlreadyLinked",
        'Some((true, Some("Ada")))',
        '["discord"]',
        "[true, false]",
        "Host function call failed: ErrorCode::InvalidInput",
    ]
    assert aos.home.identity_db(DEFAULT_PRINCIPAL).stat().st_mode & 0o777 == 0o600
    assert call(aos, "bring_in", url="hello from elsewhere") == "true"
    wait_until(lambda: bool(call(aos, "heard")), "it was heard")
    said = json.loads(call(aos, "heard"))
    assert (said["type"], said["text"]) == ("user_input", "hello from elsewhere")
    assert said["context"]["platform_user_id"] == "7"
    assert said["context"]["uplink"]["platform"] == "discord"
    assert "InvalidInput" in fail(aos, "bring_in", url="once more")
    recorded = aos.run("audit", "tail", "-n", "200").out
    for call_ in (
        "identity.create-user",
        "identity.link Discord:7",
        "uplink.register Discord:bot",
        "uplink.send",
    ):
        assert call_ in recorded
    assert "failed (already-linked)" in recorded


def test_a_slow_server_delays_nobody_and_a_cancelled_call_comes_back_at_once(reaching: Aos, web: Web) -> None:
    aos = reaching
    aos.run("capsule", "install", str(build_project("reacher")), "--approve-untrusted")
    aos.run("start")
    waiting = aos.start("tool", "call", "stream", "--input", json.dumps({"url": web.url("/silent")}))
    wait_until(lambda: bool(web.requests), "the request is there")
    assert call(aos, "hello", name="Ada") == "Hello, Ada!"
    wait_until(lambda: bool(aos.run("tool", "calls", "--json").json), "the call is shown")
    [row] = aos.run("tool", "calls", "--json").json
    aos.run("tool", "cancel", row["call_id"])
    _, err = waiting.communicate(timeout=30)
    assert waiting.returncode != 0, err
    assert call(aos, "stream", url=web.url("/parts")) == "200 11", "the capsule serves on"
    held = aos.start("tool", "call", "stream", "--input", json.dumps({"url": web.url("/silent")}))
    wait_until(lambda: len(web.requests) == 3, "one more waits")
    aos.run("stop")
    held.communicate(timeout=30)
    assert held.returncode != 0
