"""astrid:net over loopback: every function, its error arms, its handles, and who waits."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.host import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.factors.net_types import ERROR
from aos_runtime.host.waiting import WaitGate
from aos_runtime.network import Fault, NetworkDoor, NetworkFault
from tests.support.guests import NET, Recorder
from tests.support.network import PUBLIC, Net
from tests.support.servers import Server, serving
from tests.support.unix_gate import Gate

GREETING = struct.pack(">I", 5) + b"hello"


def echo(connection: socket.socket) -> None:
    connection.sendall(GREETING)
    while data := connection.recv(65536):
        connection.sendall(data)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(echo) as one:
        yield one


@pytest.fixture
def net(server: Server) -> Net:
    return Net({"db.test": [[PUBLIC]], "local.test": [["127.0.0.1"]]}, {PUBLIC: server.port})


@pytest.fixture
def door(net: Net) -> NetworkDoor:
    return net.door(
        "peer.test:*",
        net_connect=("db.test:5432", "local.test:1", "peer.test:*", "gone.test:*", "localhost:*"),
        net_bind=("127.0.0.1:*", "unix:*", "0.0.0.0:1"),
    )


@pytest.fixture
def context(door: NetworkDoor, recorder: Recorder) -> Iterator[GuestContext]:
    guest = recorder.context(network=door, keeps_resources=True)
    yield guest
    guest.resources.clear()
    assert (door.streams.taken, door.listeners.taken, door.datagrams.taken) == (0, 0, 0)


def call(context: GuestContext, name: str, *arguments: object) -> Any:
    return FACTORS[NET, name].run(context, *arguments)


def stream(context: GuestContext, name: str, *arguments: object) -> Any:
    return call(context, f"[method]tcp-stream.{name}", *arguments)


def udp(context: GuestContext, name: str, *arguments: object) -> Any:
    return call(context, f"[method]udp-socket.{name}", *arguments)


def connected(context: GuestContext) -> int:
    handle = call(context, "connect-tcp", "DB.test", 5432)
    assert isinstance(handle, int), handle
    return handle


def frame_of(context: GuestContext, handle: int) -> Case:
    while (status := stream(context, "read", handle)) == Case("pending"):
        pass
    assert isinstance(status, Case)
    return status


def test_a_stream_speaks_frames_and_bytes(context: GuestContext) -> None:
    handle = connected(context)
    assert frame_of(context, handle) == Case("data", b"hello")
    assert stream(context, "write", handle, b"frame") is None
    assert frame_of(context, handle) == Case("data", b"frame")
    assert stream(context, "read", handle) == Case("pending")
    assert stream(context, "write-bytes", handle, b"raw") == 3
    assert stream(context, "peek", handle, 2) == b"ra"
    assert stream(context, "read-bytes", handle, 10) == b"raw"
    assert stream(context, "shutdown", handle, "send") is None
    assert frame_of(context, handle) == Case("closed")
    assert stream(context, "read-bytes", handle, 10) == Err("closed")
    assert stream(context, "peer-addr", handle).startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodelay", False),
        ("read-timeout", 50),
        ("read-timeout", None),
        ("write-timeout", 50),
        ("hop-limit", 9),
        ("keepalive", 30),
        ("keepalive", None),
        ("linger", 2000),
        ("linger", None),
        ("reuseaddr", True),
    ],
)
def test_each_option_is_set_and_read(context: GuestContext, name: str, value: object) -> None:
    handle = connected(context)
    assert stream(context, f"set-{name}", handle, value) is None
    assert stream(context, name, handle) == value


def test_a_stream_gives_a_pollable_and_two_ends(context: GuestContext) -> None:
    handle = connected(context)
    ready: Any = context.resources.get("pollable", stream(context, "subscribe-readable", handle))
    incoming: Any = context.resources.get("input-stream", stream(context, "read-stream", handle))
    outgoing: Any = context.resources.get("output-stream", stream(context, "write-stream", handle))
    while not ready.source.is_ready():
        pass
    assert incoming.read(100) == GREETING
    assert outgoing.source().is_ready()
    outgoing.write(b"out")
    while not ready.source.is_ready():
        pass
    assert incoming.read(100) == b"out"
    outgoing.close()
    incoming.close()
    assert stream(context, "write-bytes", handle, b"x") == 1, "letting go of an end closes nothing"


def test_sec_14_what_reaches_out_is_on_record(context: GuestContext, net: Net) -> None:
    connected(context)
    asked = [("evil.test", 1), ("local.test", 1), ("gone.test", 1), ("a b", 1)]
    answers = [call(context, "connect-tcp", host, port) for host, port in asked]
    cases = ["capability-denied", "airlock-rejected", "name-unresolvable", "address-not-available"]
    assert answers == [Err(case) for case in cases]
    assert net.notes == [
        ("net.connect-tcp", "DB.test:5432", None),
        ("net.connect-tcp", "evil.test:1", "capability-denied"),
        ("net.connect-tcp", "local.test:1", "airlock-rejected"),
        ("net.connect-tcp", "gone.test:1", "unresolved"),
        ("net.connect-tcp", "a b:1", "invalid"),
    ]
    assert net.dialled == [f"{PUBLIC}:5432"]


def test_there_are_eight_streams(context: GuestContext) -> None:
    handles = [connected(context) for _ in range(8)]
    assert call(context, "connect-tcp", "db.test", 5432) == Err("quota")
    context.resources.drop("tcp-stream", handles[0])
    connected(context)


def test_names_are_looked_up_and_what_is_blocked_is_left_out(context: GuestContext, net: Net) -> None:
    net.names |= {"peer.test": [["127.0.0.1", PUBLIC, "2606:4700::1"]], "localhost": [["127.0.0.1"]]}
    net.routes.clear()
    assert call(context, "lookup-host", "localhost") == []
    assert call(context, "lookup-host", "db.test") == Err("capability-denied")
    door = net.door(net_connect=("peer.test:*",))
    context.network = door
    assert call(context, "lookup-host", "peer.test") == [f"{PUBLIC}:0", "[2606:4700::1]:0"]


def test_a_listener_takes_connections_of_this_machine(context: GuestContext) -> None:
    listener = call(context, "bind-tcp", "127.0.0.1", 0)
    host, _, port = call(context, "[method]tcp-listener.local-addr", listener).rpartition(":")
    assert call(context, "[method]tcp-listener.poll-accept", listener, 10) is None
    ready: Any = context.resources.get(
        "pollable", call(context, "[method]tcp-listener.subscribe-readiness", listener)
    )
    assert not ready.source.is_ready()
    with socket.create_connection((host, int(port))) as client:
        accepted = call(context, "[method]tcp-listener.accept", listener)
        client.sendall(GREETING)
        assert frame_of(context, accepted) == Case("data", b"hello")
    with socket.create_connection((host, int(port))):
        while not ready.source.is_ready():
            pass
        assert isinstance(call(context, "[method]tcp-listener.poll-accept", listener, 60_000), int)


@pytest.mark.parametrize(
    ("host", "port", "case"),
    [
        ("localhost", 80, "capability-denied"),
        ("0.0.0.0", 1, "airlock-rejected"),
        ("::", 1, "airlock-rejected"),
    ],
)
def test_what_may_not_be_bound(host: str, port: int, case: str, context: GuestContext) -> None:
    assert call(context, "bind-tcp", host, port) == Err(case)


def test_there_are_four_listeners_and_an_address_has_one(context: GuestContext) -> None:
    listener = call(context, "bind-tcp", "127.0.0.1", 0)
    port = int(call(context, "[method]tcp-listener.local-addr", listener).rpartition(":")[2])
    assert call(context, "bind-tcp", "127.0.0.1", port) == Err("address-in-use")
    for _ in range(3):
        call(context, "bind-tcp", "127.0.0.1", 0)
    assert call(context, "bind-tcp", "127.0.0.1", 0) == Err("quota")


def test_an_uplink_hears_who_proved_to_be_whom(
    context: GuestContext, net: Net, recorder: Recorder, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    context.network = net_door = replace(context.network, unix=gate.door)  # type: ignore[type-var]
    assert net_door is not None
    listener = call(context, "bind-unix")
    assert recorder.logged == [("info", f"listening at {gate.door.path}")]
    assert call(context, "bind-unix") == Err("quota")
    assert call(context, "[method]unix-listener.poll-accept", listener, 10) is None
    with gate.knock("alice") as known, gate.knock() as unknown:
        first, second = (call(context, "[method]unix-listener.accept", listener) for _ in range(2))
        known.sendall(GREETING)
        unknown.sendall(GREETING)
        assert frame_of(context, first) == Case("data", b"hello")
        assert context.speaks_for == "alice"
        assert frame_of(context, second) == Case("data", b"hello")
        assert context.speaks_for is None
        assert stream(context, "peer-addr", first) == Err("not-tcp")
        held: Any = context.resources.get("tcp-stream", first)
        assert held.owner and held.principal == "alice"
    context.is_over = lambda: True
    assert call(context, "[method]unix-listener.accept", listener) == Err("closed")


def test_datagrams(context: GuestContext, net: Net) -> None:
    net.names["peer.test"] = [["127.0.0.1"]]
    handle = call(context, "udp-bind", "127.0.0.1", 0)
    own = ("127.0.0.1", int(udp(context, "local-addr", handle).rpartition(":")[2]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20.0)
        port = peer.getsockname()[1]
        assert udp(context, "send-to", handle, b"ping", "peer.test", port) == 4
        assert peer.recvfrom(10) == (b"ping", own)
        peer.sendto(b"pong", own)
        came = {"data": b"pong", "peer-host": "127.0.0.1", "peer-port": port}
        assert udp(context, "recv-from", handle, 100) == came
        assert udp(context, "set-read-timeout", handle, 20) is None
        assert udp(context, "recv-from", handle, 100) is None
        assert udp(context, "recv", handle, 100).case == "unknown"
        assert udp(context, "send", handle, b"x").case == "unknown"
        assert udp(context, "peer-addr", handle) is None
        assert udp(context, "connect", handle, "peer.test", port) is None
        assert udp(context, "peer-addr", handle) == f"127.0.0.1:{port}"
        assert udp(context, "send", handle, b"x") == 1
        peer.sendto(b"y", own)
        ready: Any = context.resources.get("pollable", udp(context, "subscribe-readable", handle))
        while not ready.source.is_ready():
            pass
        assert udp(context, "recv", handle, 100) == b"y"
        assert udp(context, "disconnect", handle) is None
    assert udp(context, "send-to", handle, b"x", "evil.test", 1) == Err("capability-denied")
    assert udp(context, "connect", handle, "local.test", 1) == Err("airlock-rejected")
    calls = [(call_, error) for call_, _, error in net.notes if call_ == "net.udp"]
    assert calls == [("net.udp", None), ("net.udp", "capability-denied"), ("net.udp", "airlock-rejected")]


def test_there_are_four_udp_sockets(context: GuestContext) -> None:
    for _ in range(4):
        assert isinstance(call(context, "udp-bind", "0.0.0.0", 0), int)
    assert call(context, "udp-bind", "0.0.0.0", 0) == Err("quota")
    assert call(context, "udp-bind", "192.168.1.1", 0) == Err("airlock-rejected")


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_a_case_of_the_interface(
    fault: Fault, context: GuestContext, door: NetworkDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NetworkFault(fault, "why")

    monkeypatch.setattr(type(door), "connect", fail)
    answer = call(context, "connect-tcp", "db.test", 5432)
    payloads = dict(ERROR.cases)
    assert answer.case in payloads
    assert (answer.payload is None) == (payloads[answer.case] is None)


def test_a_handle_that_is_gone_is_invalid(context: GuestContext) -> None:
    listed = ("[method]tcp-stream.read", "[method]tcp-listener.accept", "[method]udp-socket.local-addr")
    assert [call(context, name, 7) for name in listed] == [Err("invalid-handle")] * 3


def test_a_crowd_is_told(context: GuestContext) -> None:
    context.gate = WaitGate(limit=0)
    assert call(context, "connect-tcp", "db.test", 5432) == Err("quota")


def test_accepting_is_a_wait_of_a_run_loop(context: GuestContext) -> None:
    yields: list[int] = []
    listener = call(context, "bind-tcp", "127.0.0.1", 0)
    context.yielded = lambda: yields.append(1)
    assert call(context, "[method]tcp-listener.poll-accept", listener, 1) is None
    context.is_over = lambda: True
    assert call(context, "[method]tcp-listener.accept", listener) == Err("closed")
    assert len(yields) == 2


def test_every_method_that_waits_makes_way_first(context: GuestContext) -> None:
    ways: list[int] = []
    handle = connected(context)
    listener = call(context, "bind-tcp", "127.0.0.1", 0)
    socket_ = call(context, "udp-bind", "127.0.0.1", 0)
    context.before_block = lambda: ways.append(1)
    udp(context, "set-read-timeout", socket_, 1)
    stream(context, "set-read-timeout", handle, 1)
    ways.clear()
    for name, arguments in (("read", ()), ("write", (b"",)), ("read-bytes", (1,)), ("peek", (1,))):
        stream(context, name, handle, *arguments)
    stream(context, "write-bytes", handle, b"x")
    call(context, "[method]tcp-listener.poll-accept", listener, 1)
    udp(context, "recv-from", socket_, 1)
    udp(context, "recv", socket_, 1)
    udp(context, "send", socket_, b"")
    udp(context, "send-to", socket_, b"", "evil.test", 1)
    assert len(ways) == 10
