"""astrid:net/host@1.0.0 (host-abi.md 1.7): TCP out and in, the home's Unix door, UDP, and names.

Who may be reached and what may be bound is the door's to say, the sockets are `network`'s.  Every wait is one
of this call: the leader is asked to go on without it first, and its deadline and cancellation end it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.factors.net_calls import at_once, noted, run_call, waits
from aos_runtime.host.factors.net_types import DATAGRAM, HOW, STATUS, fallible
from aos_runtime.host.factors.outside import added, gives, gives_pollable, method
from aos_runtime.host.streams import INPUT_STREAM, OUTPUT_STREAM, LentInput, LentOutput
from aos_runtime.host.wit import BOOL, BYTES, OWN, STRING, U16, U32, U64, ListOf, Option, Result, Type
from aos_runtime.network import Fault, NetworkDoor, NetworkFault
from aos_runtime.network.datagrams import IDLE_S, UdpSocket
from aos_runtime.network.door import host_named, shown
from aos_runtime.network.faults import NothingYet
from aos_runtime.network.listeners import TcpListener, UnixListener
from aos_runtime.network.tcp import CONNECT_S, MAX_BYTES, TcpStream
from aos_runtime.network.waits import Wait
from aos_runtime.policy.addresses import Address

STREAM, LISTENER, UNIX_LISTENER, UDP = "tcp-stream", "tcp-listener", "unix-listener", "udp-socket"
MAX_ACCEPT_MS = 60_000


def connect_tcp(context: GuestContext, host: str, port: int) -> int | Err:
    """`connect-tcp`: a handle, once the peer has answered."""

    def connect(door: NetworkDoor) -> int:
        named = host_named(host)
        release = door.streams.take()
        try:
            wait = Wait.of(CONNECT_S, context.is_over)
            stream = TcpStream(door.connect(named, port, wait), release)
        except BaseException:
            release()
            raise
        return added(context, STREAM, stream)

    return noted(context, "net.connect-tcp", f"{host}:{port}", connect)


def look_up(context: GuestContext, host: str) -> list[str] | Err:
    """`lookup-host`: `ip:0` for each address that may be dialled."""

    def find(door: NetworkDoor) -> list[str]:
        wait = Wait.of(CONNECT_S, context.is_over)
        return [shown(address, 0) for address in door.look_up(host_named(host), wait)]

    return noted(context, "net.lookup-host", host, find)


def bind_tcp(context: GuestContext, host: str, port: int) -> int | Err:
    """`bind-tcp`: a handle of a listener on this machine."""

    def bind(door: NetworkDoor) -> int:
        address = door.admit_bind(host_named(host), port)
        release = door.listeners.take()
        try:
            listener = TcpListener(door.ports, door, address, port, door.streams.take, release)
        except BaseException:
            release()
            raise
        return added(context, LISTENER, listener)

    return noted(context, "net.bind-tcp", f"{host}:{port}", bind)


def bind_unix(context: GuestContext) -> int | Err:
    """`bind-unix`: a handle of the capsule's own Unix socket; the log says where it is."""

    def bind(door: NetworkDoor) -> int:
        unix = door.admit_unix()
        release = door.unix_listeners.take()
        try:
            listener = UnixListener(unix, door.streams.take, release)
        except BaseException:
            release()
            raise
        handle = added(context, UNIX_LISTENER, listener)
        context.log("info", f"listening at {unix.path}")
        return handle

    return noted(context, "net.bind-unix", "unix", bind)


def udp_bind(context: GuestContext, host: str, port: int) -> int | Err:
    """`udp-bind`: a handle of a socket for datagrams."""

    def bind(door: NetworkDoor) -> int:
        address = door.admit_datagrams(host_named(host), port)
        release = door.datagrams.take()
        try:
            opened = UdpSocket(address, port, release)
        except BaseException:
            release()
            raise
        return added(context, UDP, opened)

    return noted(context, "net.udp-bind", f"{host}:{port}", bind)


# listeners


def accept(context: GuestContext, kind: str, handle: int) -> int | Err:
    """Wait for a connection as long as the call may go on; a run loop as long as it runs."""
    answer = _accept(context, kind, handle, Wait.of(IDLE_S, context.is_over))
    return Err("closed") if answer is None else answer


def poll_accept(context: GuestContext, kind: str, handle: int, timeout_ms: int) -> int | Err | None:
    """Wait for a connection at most so long, and at most a minute; None where nobody came."""
    wait = Wait.of(min(timeout_ms, MAX_ACCEPT_MS) / 1000, context.is_over)
    return _accept(context, kind, handle, wait)


def _accept(context: GuestContext, kind: str, handle: int, wait: Wait) -> int | Err | None:
    listener: Any = context.resources.get(kind, handle)
    if listener is None:
        return Err("invalid-handle")

    def run(_door: NetworkDoor) -> int | None:
        try:
            return added(context, STREAM, listener.accept(wait))
        except NetworkFault as fault:
            if fault.fault is Fault.TIMEOUT:
                return None
            if fault.fault is Fault.CUT:
                raise NetworkFault(Fault.CLOSED) from None
            raise

    return run_call(context, run)


# frames and bytes


def read_frame(context: GuestContext, stream: TcpStream) -> Case:
    """`read`: a frame, `closed`, or `pending` where none begins within 50 ms.

    An uplink speaks from here on for whoever sent it.
    """
    try:
        frame = stream.read_frame(context.is_over)
    except NothingYet:
        return Case("pending")
    context.speaks_for = stream.principal
    return Case("closed") if frame is None else Case("data", frame)


def read_bytes(context: GuestContext, stream: TcpStream, size: int) -> bytes:
    """`read-bytes`: some bytes, none within the read timeout; `closed` at the end."""
    data = stream.read_bytes(min(size, MAX_BYTES), context.is_over)
    if data is None:
        raise NetworkFault(Fault.CLOSED)
    return data


# datagrams


def send_to(context: GuestContext, udp: UdpSocket, data: bytes, host: str, port: int) -> int:
    """`send-to`: gate and airlock for each peer, once for each address."""
    wait = Wait.of(CONNECT_S, context.is_over)
    return udp.send_to(data, host, port, _finder(context, wait), wait)


def connect_udp(context: GuestContext, udp: UdpSocket, host: str, port: int) -> None:
    """`connect`: one peer from now on."""
    udp.connect(host, port, _finder(context, Wait.of(CONNECT_S, context.is_over)))


def receive_from(context: GuestContext, udp: UdpSocket, size: int) -> dict[str, object] | None:
    """`recv-from`: a datagram of a peer that was sent to; None where none came in time."""
    try:
        datagram = udp.receive(size, _read_wait(context, udp))
    except NetworkFault as fault:
        if fault.fault is Fault.TIMEOUT:
            return None
        raise
    return {"data": datagram.data, "peer-host": datagram.host, "peer-port": datagram.port}


def receive(context: GuestContext, udp: UdpSocket, size: int) -> bytes | None:
    """`recv`: a datagram of the connected peer; None where none came in time."""
    udp.check_connected()
    datagram: Any = receive_from(context, udp, size)
    return None if datagram is None else datagram["data"]


def _read_wait(context: GuestContext, udp: UdpSocket) -> Wait:
    timeout_ms = udp.read_timeout_ms
    return Wait.of(IDLE_S if timeout_ms is None else timeout_ms / 1000, context.is_over)


def _finder(context: GuestContext, wait: Wait) -> Callable[[str, int], tuple[Address, ...]]:
    """Admits a peer, and puts it on record."""

    def find(host: str, port: int) -> tuple[Address, ...]:
        door = context.network
        if door is None:
            raise NetworkFault(Fault.DENIED)
        target = f"{host}:{port}"
        try:
            found = door.find_peer(host_named(host), port, "udp", wait)
        except NetworkFault as fault:
            door.note("net.udp", target, fault.fault.value)
            raise
        door.note("net.udp", target, None)
        return found

    return find


def _listener(kind: str) -> dict[str, Published]:
    return {
        f"[method]{kind}.accept": method(
            lambda context, handle: accept(context, kind, handle), fallible(OWN)
        ),
        f"[method]{kind}.poll-accept": method(
            lambda context, handle, timeout_ms: poll_accept(context, kind, handle, timeout_ms),
            fallible(Option(OWN)),
            timeout_ms=U64,
        ),
        f"[method]{kind}.subscribe-readiness": method(gives_pollable(kind), OWN),
    }


def _option(name: str, kind: Type, value: str, attribute: str) -> dict[str, Published]:
    """The setter and the getter of one option of a stream; `attribute` may be dotted."""
    owner, _, last = attribute.rpartition(".")

    def target(stream: TcpStream) -> Any:
        return getattr(stream, owner) if owner else stream

    def read(stream: TcpStream) -> Any:
        return getattr(target(stream), last)

    def write(stream: TcpStream, given: Any) -> None:
        setattr(target(stream), last, given)

    return {
        f"[method]tcp-stream.set-{name}": method(at_once(STREAM, write), fallible(None), **{value: kind}),
        f"[method]tcp-stream.{name}": method(at_once(STREAM, read), fallible(kind)),
    }


def _stream(name: str, run: Callable[..., Any], result: Result, **params: Type) -> dict[str, Published]:
    return {f"[method]tcp-stream.{name}": method(run, result, **params)}


_STREAM_METHODS = {
    **_stream("read", waits(STREAM, read_frame), fallible(STATUS)),
    **_stream(
        "write",
        waits(STREAM, lambda context, stream, data: stream.write_frame(data, context.is_over)),
        fallible(None),
        data=BYTES,
    ),
    **_stream("read-bytes", waits(STREAM, read_bytes), fallible(BYTES), max_bytes=U32),
    **_stream(
        "write-bytes",
        waits(STREAM, lambda context, stream, data: stream.write_bytes(data, context.is_over)),
        fallible(U32),
        data=BYTES,
    ),
    **_stream(
        "peek",
        waits(STREAM, lambda context, stream, size: stream.peek(min(size, MAX_BYTES), context.is_over)),
        fallible(BYTES),
        max_bytes=U32,
    ),
    **_stream("shutdown", at_once(STREAM, TcpStream.shutdown), fallible(None), how=HOW),
    **_stream("peer-addr", at_once(STREAM, TcpStream.peer_address), fallible(STRING)),
    **_stream("local-addr", at_once(STREAM, TcpStream.local_address), fallible(STRING)),
    **_option("nodelay", BOOL, "nodelay", "options.nodelay"),
    **_option("read-timeout", Option(U64), "timeout_ms", "read_timeout_ms"),
    **_option("write-timeout", Option(U64), "timeout_ms", "write_timeout_ms"),
    **_option("hop-limit", U32, "hops", "options.hop_limit"),
    **_option("keepalive", Option(U64), "keepalive_secs", "options.keepalive_s"),
    **_option("linger", Option(U64), "linger_ms", "options.linger_ms"),
    **_option("reuseaddr", BOOL, "reuse", "options.reuse_address"),
    "[method]tcp-stream.subscribe-readable": method(gives_pollable(STREAM), OWN),
    "[method]tcp-stream.read-stream": method(gives(STREAM, INPUT_STREAM, LentInput), OWN),
    "[method]tcp-stream.write-stream": method(
        gives(STREAM, OUTPUT_STREAM, lambda stream: LentOutput(stream, stream.writable)), OWN
    ),
}


def _udp(name: str, run: Callable[..., Any], result: Type, **params: Type) -> dict[str, Published]:
    return {f"[method]udp-socket.{name}": method(run, result, **params)}


def _set_read_timeout(udp: UdpSocket, timeout_ms: int | None) -> None:
    udp.read_timeout_ms = timeout_ms


_UDP_METHODS = {
    **_udp(
        "send-to",
        waits(UDP, send_to),
        fallible(U32),
        data=BYTES,
        peer_host=STRING,
        peer_port=U16,
    ),
    **_udp("recv-from", waits(UDP, receive_from), fallible(Option(DATAGRAM)), max_bytes=U32),
    **_udp("connect", waits(UDP, connect_udp), fallible(None), peer_host=STRING, peer_port=U16),
    **_udp("disconnect", at_once(UDP, UdpSocket.disconnect), fallible(None)),
    **_udp(
        "send",
        waits(UDP, lambda context, udp, data: udp.send(data, Wait.of(CONNECT_S, context.is_over))),
        fallible(U32),
        data=BYTES,
    ),
    **_udp("recv", waits(UDP, receive), fallible(Option(BYTES)), max_bytes=U32),
    **_udp("peer-addr", at_once(UDP, UdpSocket.peer_address), fallible(Option(STRING))),
    **_udp("set-read-timeout", at_once(UDP, _set_read_timeout), fallible(None), timeout_ms=Option(U64)),
    **_udp("local-addr", at_once(UDP, UdpSocket.local_address), fallible(STRING)),
    **_udp("subscribe-readable", gives_pollable(UDP), OWN),
}

FUNCTIONS = {
    "bind-unix": published(bind_unix, fallible(OWN)),
    "bind-tcp": published(bind_tcp, fallible(OWN), host=STRING, port=U16),
    "connect-tcp": published(connect_tcp, fallible(OWN), host=STRING, port=U16),
    "udp-bind": published(udp_bind, fallible(OWN), host=STRING, port=U16),
    "lookup-host": published(look_up, fallible(ListOf(STRING)), host=STRING),
    **_listener(UNIX_LISTENER),
    **_listener(LISTENER),
    "[method]tcp-listener.local-addr": method(at_once(LISTENER, TcpListener.local_address), fallible(STRING)),
    **_STREAM_METHODS,
    **_UDP_METHODS,
}
