"""Connections, listeners and datagrams on loopback."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.network import Fault, NetworkFault, listeners
from aos_runtime.network.datagrams import MAX_DATAGRAM, UdpSocket
from aos_runtime.network.faults import NothingYet
from aos_runtime.network.links import Link
from aos_runtime.network.listeners import Ports, TcpListener, UnixListener
from aos_runtime.network.tcp import MAX_BYTES, TcpStream
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address
from tests.support.unix_gate import Gate

LOCAL = ip_address("127.0.0.1")


def never() -> bool:
    return False


def fault_of(run: Callable[[], object]) -> Fault:
    with pytest.raises(NetworkFault) as caught:
        run()
    return caught.value.fault


def frame(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


@pytest.fixture
def pair() -> Iterator[tuple[TcpStream, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer = server.accept()[0]
        stream = TcpStream(Link(client), lambda: None)
        yield stream, peer
        stream.close()
        peer.close()


def test_frames_go_both_ways(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    peer.sendall(frame(b"one") + frame(b"") + frame(b"two"))
    assert [stream.read_frame(never) for _ in range(3)] == [b"one", b"", b"two"]
    stream.write_frame(b"back", never)
    assert peer.recv(100) == frame(b"back")


def test_a_frame_that_comes_in_parts_waits_for_its_rest(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    sent = frame(b"hello")
    with pytest.raises(NothingYet):
        stream.read_frame(never)
    peer.sendall(sent[:2])
    with pytest.raises(NothingYet):
        stream.read_frame(never)
    peer.sendall(sent[2:6])
    timer = threading.Timer(0.05, peer.sendall, [sent[6:]])
    timer.start()
    assert stream.read_frame(never) == b"hello"
    timer.join()


def test_abi_22_the_end_a_reset_and_a_cancelled_read_are_three_things(
    pair: tuple[TcpStream, socket.socket],
) -> None:
    stream, peer = pair
    assert fault_of(lambda: stream.read_bytes(1, lambda: True)) is Fault.CUT
    peer.shutdown(socket.SHUT_WR)
    assert stream.read_frame(never) is None
    assert stream.read_bytes(1, never) is None
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()

    def write_on() -> None:
        while True:
            stream.write_bytes(b"x", never)

    assert fault_of(write_on) is Fault.RESET


def test_a_frame_over_the_limit_is_refused(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    peer.sendall(struct.pack(">I", MAX_BYTES + 1))
    assert fault_of(lambda: stream.read_frame(never)) is Fault.OTHER
    assert fault_of(lambda: stream.write_frame(bytes(MAX_BYTES + 1), never)) is Fault.OTHER


def test_bytes_are_read_peeked_and_bounded_by_the_read_timeout(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    stream.read_timeout_ms = 20
    assert (stream.read_bytes(10, never), stream.peek(10, never)) == (b"", b"")
    peer.sendall(b"hello")
    stream.read_timeout_ms = None
    assert (stream.peek(3, never), stream.read_bytes(3, never), stream.read_bytes(9, never)) == (
        b"hel",
        b"hel",
        b"lo",
    )
    assert stream.write_bytes(b"", never) == 0


def test_a_write_that_nobody_takes_times_out(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, _ = pair
    stream.write_timeout_ms = 50

    def flood() -> None:
        while True:
            stream.write_bytes(bytes(1_000_000), never)

    assert fault_of(flood) is Fault.TIMEOUT


def test_a_stream_is_both_ends_of_astrid_io(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    assert (stream.read(10), stream.is_ready(), stream.permit()) == (b"", False, 65536)
    stream.write(b"out")
    assert (peer.recv(10), stream.flush()) == (b"out", True)
    peer.sendall(b"in")
    waited = stream.descriptor()
    assert waited is not None
    Wait.of(20.0).for_socket(*waited)
    assert (stream.is_ready(), stream.read(10)) == (True, b"in")
    peer.close()
    Wait.of(20.0).for_socket(*waited)
    assert stream.read(10) is None
    stream.close()
    assert (stream.permit(), stream.descriptor(), stream.is_ready()) == (None, None, True)


def test_what_a_stream_end_took_goes_before_anything_else(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    taken = 0
    while permit := stream.permit():
        stream.write(b"a" * permit)
        taken += permit
    while stream.flush():
        stream.write(b"a" * 1_000_000)
        taken += 1_000_000
    received: list[bytes] = []

    def drain() -> None:
        while part := peer.recv(1 << 20):
            received.append(part)

    thread = threading.Thread(target=drain)
    thread.start()
    stream.write_frame(b"last", never)
    stream.shutdown("send")
    thread.join()
    assert b"".join(received) == b"a" * taken + frame(b"last")


def test_options_are_those_of_the_socket(pair: tuple[TcpStream, socket.socket]) -> None:
    options = pair[0].options
    options.nodelay, options.reuse_address, options.hop_limit = True, True, 33
    options.keepalive_s, options.linger_ms = 7, 1500
    assert (options.nodelay, options.reuse_address, options.hop_limit) == (True, True, 33)
    assert (options.keepalive_s, options.linger_ms) == (7, 2000)
    options.keepalive_s = options.linger_ms = None
    assert (options.keepalive_s, options.linger_ms) == (None, None)
    options.keepalive_s, options.linger_ms = 2**63, 2**63
    assert (options.keepalive_s, options.linger_ms) == (32767, 32_767_000)

    def hop_limit(value: int) -> None:
        options.hop_limit = value

    assert [fault_of(lambda value=value: hop_limit(value)) for value in (0, 256)] == [Fault.INVALID] * 2


def test_addresses_outlive_a_shutdown(pair: tuple[TcpStream, socket.socket]) -> None:
    stream, peer = pair
    names = stream.peer_address(), stream.local_address()
    stream.shutdown("both")
    assert peer.recv(1) == b""
    assert (stream.peer_address(), stream.local_address()) == names
    assert stream.read_bytes(1, never) is None


def test_a_unix_stream_is_not_tcp() -> None:
    left, right = socket.socketpair()
    stream = TcpStream(Link(left), lambda: None)
    right.sendall(frame(b"hello"))
    assert stream.read_frame(never) == b"hello"
    calls: list[Callable[[], object]] = [
        lambda: stream.peek(1, never),
        lambda: stream.shutdown("send"),
        stream.peer_address,
        stream.local_address,
        lambda: stream.options,
    ]
    assert {fault_of(call) for call in calls} == {Fault.NOT_TCP}
    stream.close()
    right.close()


@given(st.lists(st.binary(max_size=2000), max_size=6), st.lists(st.integers(1, 500), max_size=10))
def test_frames_come_whole_however_they_are_cut(frames: list[bytes], cuts: list[int]) -> None:
    left, right = socket.socketpair()
    stream = TcpStream(Link(left), lambda: None)
    wire = b"".join(map(frame, frames))
    got = []
    for cut in [*cuts, len(wire)]:
        right.sendall(wire[:cut])
        wire = wire[cut:]
    right.close()
    while (one := stream.read_frame(never)) is not None:
        got.append(one)
    stream.close()
    assert got == frames


# listeners


def test_a_listener_accepts_and_gives_the_slot_back() -> None:
    taken: list[int] = []

    def slot() -> Callable[[], None]:
        taken.append(1)
        return taken.pop

    closed: list[int] = []
    listener = TcpListener(Ports(), None, LOCAL, 0, slot, lambda: closed.append(1))
    assert fault_of(lambda: listener.accept(Wait.of(0.02))) is Fault.TIMEOUT
    assert fault_of(lambda: listener.accept(Wait.of(20.0, lambda: True))) is Fault.CUT
    assert (listener.is_ready(), taken) == (False, [])
    host, _, port = listener.local_address().rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        waited = listener.descriptor()
        assert waited is not None
        Wait.of(20.0).for_socket(*waited)
        assert listener.is_ready()
        stream = listener.accept(Wait.of(20.0))
        stream.write_frame(b"hello", never)
        assert client.recv(100) == frame(b"hello")
        assert taken == [1]
        stream.close()
    listener.close()
    assert (taken, closed, listener.descriptor()) == ([], [1], None)


def test_an_address_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert fault_of(lambda: listening(Ports(), "one", port)) is Fault.IN_USE


def test_instances_of_one_capsule_take_connections_of_one_port_side_by_side() -> None:
    ports = Ports()
    port = free_port()
    first, second = listening(ports, "one", port), listening(ports, "two", port)
    assert fault_of(lambda: listening(ports, "one", port)) is Fault.IN_USE, "an instance has it once"
    assert fault_of(lambda: listening(Ports(), "one", port)) is Fault.IN_USE, "another capsule never"
    with ExitStack() as opened:
        for listener in (first, second):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            opened.callback(listener.accept(Wait.of(20.0)).close)
    first.close()
    with socket.create_connection(("127.0.0.1", port)):
        second.accept(Wait.of(20.0)).close()
    assert fault_of(lambda: first.accept(Wait.of(20.0))) is Fault.CLOSED
    second.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    again = listening(ports, "one", port)
    again.close()


def test_port_0_is_a_port_of_its_own_each_time() -> None:
    ports = Ports()
    one, two = listening(ports, "one", 0), listening(ports, "two", 0)
    assert one.local_address() != two.local_address()
    one.close()
    two.close()


def listening(ports: Ports, holder: str, port: int) -> TcpListener:
    return TcpListener(ports, holder, LOCAL, port, lambda: lambda: None, lambda: None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# the Unix socket


def slots() -> tuple[list[int], Callable[[], Callable[[], None]]]:
    taken: list[int] = []

    def slot() -> Callable[[], None]:
        taken.append(1)
        return taken.pop

    return taken, slot


def test_a_client_of_the_unix_socket_proves_who_it_is(tmp_path: Path) -> None:
    gate, (taken, slot) = Gate(tmp_path), slots()
    listener = UnixListener(gate.door, slot, lambda: None)
    assert gate.door.path.stat().st_mode & 0o777 == 0o600
    assert fault_of(lambda: listener.accept(Wait.of(0.02))) is Fault.TIMEOUT
    principals = {}
    for name in ("alice", "scoped", None):
        with gate.knock(name):
            stream = listener.accept(Wait.of(20.0))
            principals[name] = stream.principal
            assert (stream.owner is None) == (stream.principal is None), "nobody owns what proved nobody"
            gate.threads[-1].join()
            stream.close()
    assert (principals, taken) == ({"alice": "alice", "scoped": None, None: None}, [])
    listener.close()
    assert not gate.door.path.exists()


def test_who_does_not_prove_itself_is_closed_and_the_next_one_is_let_in(tmp_path: Path) -> None:
    gate, (taken, slot) = Gate(tmp_path), slots()
    listener = UnixListener(gate.door, slot, lambda: None)
    strangers = [gate.knock(token="x" * 64), gate.knock("mallory")]
    for data in (b"", b"\xff\xff\xff\xff", b"\0\0\0\2{}", b"\0\0\0\7garbage"):
        stranger = socket.socket(socket.AF_UNIX)
        stranger.settimeout(20.0)
        stranger.connect(str(gate.door.path))
        stranger.sendall(data)
        if not data:
            stranger.shutdown(socket.SHUT_WR)
        strangers.append(stranger)
    with gate.knock("alice"):
        stream = listener.accept(Wait.of(20.0))
        assert (stream.principal, taken) == ("alice", [1])
        stream.close()
    for thread in gate.threads:
        thread.join()
    for stranger in strangers[2:]:
        assert stranger.recv(100) == b""
    for stranger in strangers:
        stranger.close()
    listener.close()


def test_a_silent_client_does_not_hold_the_socket_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SERVER_TIMEOUT_S", 0.05)
    gate, (_, slot) = Gate(tmp_path), slots()
    listener = UnixListener(gate.door, slot, lambda: None)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(gate.door.path))
        assert fault_of(lambda: listener.accept(Wait.of(0.2))) is Fault.TIMEOUT
        assert silent.recv(1) == b""
    listener.close()


def test_another_user_is_not_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, (_, slot) = Gate(tmp_path), slots()
    listener = UnixListener(gate.door, slot, lambda: None)
    monkeypatch.setattr(listeners, "peer_uid", lambda _socket: os.geteuid() + 1)
    with gate.knock("alice"):
        assert fault_of(lambda: listener.accept(Wait.of(0.2))) is Fault.TIMEOUT
        gate.threads[-1].join()
    listener.close()


def test_a_new_instance_takes_the_path_over_and_the_old_one_leaves_it_alone(tmp_path: Path) -> None:
    gate, (_, slot) = Gate(tmp_path), slots()
    old = UnixListener(gate.door, slot, lambda: None)
    new = UnixListener(gate.door, slot, lambda: None)
    old.close()
    with gate.knock("alice"):
        stream = new.accept(Wait.of(20.0))
        gate.threads[-1].join()
        stream.close()
    new.close()
    assert list(tmp_path.iterdir()) == []


# datagrams


def finder(*hosts: str) -> Callable[[str, int], tuple[Address, ...]]:
    """Admits these hosts."""

    def find(host: str, _port: int) -> tuple[Address, ...]:
        if host not in hosts:
            raise NetworkFault(Fault.DENIED)
        return (LOCAL,)

    return find


@pytest.fixture
def udp() -> Iterator[tuple[UdpSocket, socket.socket]]:
    sock = UdpSocket(LOCAL, 0, lambda: None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20.0)
        yield sock, peer
    sock.close()


def port_of(text: str | None) -> int:
    assert text is not None
    return int(text.rpartition(":")[2])


def test_datagrams_go_to_an_admitted_peer_and_come_from_it_alone(
    udp: tuple[UdpSocket, socket.socket],
) -> None:
    sock, peer = udp
    peer_port, own = peer.getsockname()[1], ("127.0.0.1", port_of(sock.local_address()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"unasked", own)
        assert fault_of(lambda: sock.receive(100, Wait.of(0.05))) is Fault.TIMEOUT
        assert sock.send_to(b"hello", "peer.test", peer_port, finder("peer.test"), Wait.of(20.0)) == 5
        assert peer.recvfrom(100) == (b"hello", own)
        stranger.sendto(b"unasked", own)
        peer.sendto(b"answer", own)
        assert sock.receive(3, Wait.of(20.0)) == (b"ans", "127.0.0.1", peer_port)
    assert fault_of(lambda: sock.send_to(b"x", "b.test", 1, finder(), Wait.of(1.0))) is Fault.DENIED


def test_a_connected_socket_has_one_peer(udp: tuple[UdpSocket, socket.socket]) -> None:
    sock, peer = udp
    peer_port, own = peer.getsockname()[1], ("127.0.0.1", port_of(sock.local_address()))
    assert fault_of(lambda: sock.send(b"x", Wait.of(1.0))) is Fault.OTHER
    assert sock.peer_address() is None
    sock.connect("peer.test", peer_port, finder("peer.test"))
    assert sock.peer_address() == f"127.0.0.1:{peer_port}"
    assert sock.send(b"hi", Wait.of(20.0)) == 2
    assert peer.recvfrom(10) == (b"hi", own)
    peer.sendto(b"yo", own)
    assert sock.receive(10, Wait.of(20.0)).data == b"yo"
    sock.disconnect()
    assert fault_of(sock.check_connected) is Fault.OTHER


def test_a_name_is_looked_up_once_for_many_datagrams(udp: tuple[UdpSocket, socket.socket]) -> None:
    sock, peer = udp
    asked: list[str] = []

    def find(host: str, _port: int) -> tuple[Address, ...]:
        asked.append(host)
        return (LOCAL,)

    for _ in range(3):
        sock.send_to(b"x", "peer.test", peer.getsockname()[1], find, Wait.of(20.0))
    assert asked == ["peer.test"]


def test_a_datagram_has_a_size_and_a_socket_one_kind_of_address(udp: tuple[UdpSocket, socket.socket]) -> None:
    sock, _ = udp
    wait = Wait.of(1.0)
    too_large = bytes(MAX_DATAGRAM + 1)
    assert fault_of(lambda: sock.send_to(too_large, "a", 1, finder("a"), wait)) is Fault.OTHER
    other = (ip_address("::1"),)
    assert fault_of(lambda: sock.send_to(b"x", "b", 1, lambda _h, _p: other, wait)) is Fault.NOT_AVAILABLE


def test_a_datagram_is_waited_for_by_its_descriptor(udp: tuple[UdpSocket, socket.socket]) -> None:
    sock, peer = udp
    sock.connect("peer.test", peer.getsockname()[1], finder("peer.test"))
    assert not sock.is_ready()
    peer.sendto(b"x", ("127.0.0.1", port_of(sock.local_address())))
    waited = sock.descriptor()
    assert waited is not None
    Wait.of(20.0).for_socket(*waited)
    assert sock.is_ready()
