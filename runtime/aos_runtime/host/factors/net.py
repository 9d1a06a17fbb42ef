"""astrid:net/host@1.0.0 (host-abi.md 1.7): TCP out and in, the home's Unix door, UDP, and names.

Who may be reached and what may be bound is the door's to say, the sockets are `network`'s.  Every wait is one
of this call: the leader is asked to go on without it first, and its deadline and cancellation end it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aos_runtime.host import wit
from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.readiness import Source
from aos_runtime.host.streams import INPUT_STREAM, OUTPUT_STREAM, POLLABLE, LentInput, LentOutput, Pollable
from aos_runtime.host.waiting import waiting_at
from aos_runtime.host.wit import BYTES, STRING, Enum, Handle, ListOf, Option, Primitive, Record, Result, Variant
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
_T = TypeVar("_T")

_CASES: Mapping[Fault, str] = {
    Fault.DENIED: "capability-denied",
    Fault.REJECTED: "airlock-rejected",
    Fault.INVALID: "address-not-available",
    Fault.UNRESOLVED: "name-unresolvable",
    Fault.REFUSED: "connection-refused",
    Fault.RESET: "connection-reset",
    Fault.TIMEOUT: "timeout",
    Fault.CLOSED: "closed",
    Fault.CROWDED: "quota",
    Fault.IN_USE: "address-in-use",
    Fault.NOT_AVAILABLE: "address-not-available",
    Fault.NOT_TCP: "not-tcp",
}
"""`unknown` carries the text of every other fault."""


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
        return _added(context, STREAM, stream)

    return _noted(context, "net.connect-tcp", f"{host}:{port}", connect)


def look_up(context: GuestContext, host: str) -> list[str] | Err:
    """`lookup-host`: `ip:0` for each address that may be dialled."""

    def find(door: NetworkDoor) -> list[str]:
        wait = Wait.of(CONNECT_S, context.is_over)
        return [shown(address, 0) for address in door.look_up(host_named(host), wait)]

    return _noted(context, "net.lookup-host", host, find)


def bind_tcp(context: GuestContext, host: str, port: int) -> int | Err:
    """`bind-tcp`: a handle of a listener on this machine."""

    def bind(door: NetworkDoor) -> int:
        address = door.admit_bind(host_named(host), port, "bind-tcp")
        release = door.listeners.take()
        try:
            listener = TcpListener(address, port, door.streams.take, release)
        except BaseException:
            release()
            raise
        return _added(context, LISTENER, listener)

    return _noted(context, "net.bind-tcp", f"{host}:{port}", bind)


def bind_unix(context: GuestContext) -> int | Err:
    """`bind-unix`: a handle of the home's door."""

    def bind(door: NetworkDoor) -> int:
        door.admit_unix("bind-unix")
        return _added(context, UNIX_LISTENER, UnixListener())

    return _noted(context, "net.bind-unix", "unix", bind)


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
        return _added(context, UDP, opened)

    return _noted(context, "net.udp-bind", f"{host}:{port}", bind)


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
            return _added(context, STREAM, listener.accept(wait))
        except NetworkFault as fault:
            if fault.fault is Fault.TIMEOUT:
                return None
            if fault.fault is Fault.CUT:
                raise NetworkFault(Fault.CLOSED) from None
            raise

    return _attempt(context, run)


# frames and bytes


def read_frame(context: GuestContext, stream: TcpStream) -> Case:
    """`read`: a frame, `closed`, or `pending` where none begins within 50 ms."""
    try:
        frame = stream.read_frame(context.is_over)
    except NothingYet:
        return Case("pending")
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


# how every function runs


def _attempt(context: GuestContext, run: Callable[[NetworkDoor], _T]) -> _T | Err:
    """What may wait: the leader goes on without us, and a fault is an error case."""
    door = context.network
    if door is None:
        return Err("capability-denied")
    with waiting_at(None if context.is_loop else context.gate) as is_admitted:
        if not is_admitted:
            return Err("quota")
        context.before_block()
        try:
            return run(door)
        except NetworkFault as fault:
            return _err(fault)
        finally:
            context.yielded()


def _noted(context: GuestContext, call: str, target: str, run: Callable[[NetworkDoor], _T]) -> _T | Err:
    """As `_attempt`, and put on record."""

    def noted(door: NetworkDoor) -> _T:
        try:
            answer = run(door)
        except NetworkFault as fault:
            door.note(call, target, fault.fault.value)
            raise
        door.note(call, target, None)
        return answer

    return _attempt(context, noted)


def _err(fault: NetworkFault) -> Err:
    case = _CASES.get(fault.fault)
    return Err("unknown", fault.text) if case is None else Err(case)


def _added(context: GuestContext, kind: str, resource: Any) -> int:
    handle = context.resources.add(kind, resource)
    if handle is None:
        resource.close()
        raise NetworkFault(Fault.CROWDED)
    return handle


def _waits(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A method that may wait."""

    def call(context: GuestContext, handle: int, *arguments: Any) -> Any:
        held: Any = context.resources.get(kind, handle)
        if held is None:
            return Err("invalid-handle")
        return _attempt(context, lambda _door: run(context, held, *arguments))

    return call


def _at_once(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A method that never waits."""

    def call(context: GuestContext, handle: int, *arguments: Any) -> Any:
        held: Any = context.resources.get(kind, handle)
        if held is None:
            return Err("invalid-handle")
        try:
            return run(held, *arguments)
        except NetworkFault as fault:
            return _err(fault)

    return call


def _gives(kind: str, made: str, make: Callable[[Any], Any]) -> Callable[..., Any]:
    """A method that makes a handle and has no error to answer with."""

    def call(context: GuestContext, handle: int) -> int:
        held = context.resources.get(kind, handle)
        given = None if held is None else context.resources.add(made, make(held))
        if given is None:
            raise AbiViolation(f"no {made} for this {kind}: it is gone, or there are too many handles")
        return given

    return call


def _pollable(source: Source) -> Pollable:
    return Pollable(source)


_ERROR = Variant(
    (
        *(
            (name, None)
            for name in (
                "would-block",
                "closed",
                "capability-denied",
                "airlock-rejected",
                "connection-refused",
                "connection-reset",
                "timeout",
                "address-in-use",
                "address-not-available",
                "name-unresolvable",
                "invalid-handle",
                "not-tcp",
                "quota",
            )
        ),
        ("unknown", STRING),
    )
)
_STATUS = Variant((("data", BYTES), ("closed", None), ("pending", None)))
_HOW = Enum(("receive", "send", "both"))
_DATAGRAM = Record((("data", BYTES), ("peer-host", STRING), ("peer-port", Primitive("u16"))))
_U16, _U32, _U64, _BOOL = Primitive("u16"), Primitive("u32"), Primitive("u64"), Primitive("bool")
_OWN = Handle(owned=True)


def _fallible(ok: wit.Type | None) -> Result:
    return Result(ok, _ERROR)


def _method(run: Callable[..., Any], result: wit.Type, **params: wit.Type) -> Published:
    named = tuple((name.replace("_", "-"), kind) for name, kind in params.items())
    return Published(run, wit.Signature((("self", Handle(owned=False)), *named), result))


def _listener(kind: str) -> dict[str, Published]:
    return {
        f"[method]{kind}.accept": _method(
            lambda context, handle: accept(context, kind, handle), _fallible(_OWN)
        ),
        f"[method]{kind}.poll-accept": _method(
            lambda context, handle, timeout_ms: poll_accept(context, kind, handle, timeout_ms),
            _fallible(Option(_OWN)),
            timeout_ms=_U64,
        ),
        f"[method]{kind}.subscribe-readiness": _method(_gives(kind, POLLABLE, _pollable), _OWN),
    }


def _option(name: str, kind: wit.Type, value: str, attribute: str) -> dict[str, Published]:
    """The setter and the getter of one option of a stream; `attribute` may be dotted."""
    owner, _, last = attribute.rpartition(".")

    def target(stream: TcpStream) -> Any:
        return getattr(stream, owner) if owner else stream

    def read(stream: TcpStream) -> Any:
        return getattr(target(stream), last)

    def write(stream: TcpStream, given: Any) -> None:
        setattr(target(stream), last, given)

    return {
        f"[method]tcp-stream.set-{name}": _method(_at_once(STREAM, write), _fallible(None), **{value: kind}),
        f"[method]tcp-stream.{name}": _method(_at_once(STREAM, read), _fallible(kind)),
    }


def _stream(name: str, run: Callable[..., Any], result: Result, **params: wit.Type) -> dict[str, Published]:
    return {f"[method]tcp-stream.{name}": _method(run, result, **params)}


_STREAM_METHODS = {
    **_stream("read", _waits(STREAM, read_frame), _fallible(_STATUS)),
    **_stream(
        "write",
        _waits(STREAM, lambda context, stream, data: stream.write_frame(data, context.is_over)),
        _fallible(None),
        data=BYTES,
    ),
    **_stream("read-bytes", _waits(STREAM, read_bytes), _fallible(BYTES), max_bytes=_U32),
    **_stream(
        "write-bytes",
        _waits(STREAM, lambda context, stream, data: stream.write_bytes(data, context.is_over)),
        _fallible(_U32),
        data=BYTES,
    ),
    **_stream(
        "peek",
        _waits(STREAM, lambda context, stream, size: stream.peek(min(size, MAX_BYTES), context.is_over)),
        _fallible(BYTES),
        max_bytes=_U32,
    ),
    **_stream("shutdown", _at_once(STREAM, TcpStream.shutdown), _fallible(None), how=_HOW),
    **_stream("peer-addr", _at_once(STREAM, TcpStream.peer_address), _fallible(STRING)),
    **_stream("local-addr", _at_once(STREAM, TcpStream.local_address), _fallible(STRING)),
    **_option("nodelay", _BOOL, "nodelay", "options.nodelay"),
    **_option("read-timeout", Option(_U64), "timeout_ms", "read_timeout_ms"),
    **_option("write-timeout", Option(_U64), "timeout_ms", "write_timeout_ms"),
    **_option("hop-limit", _U32, "hops", "options.hop_limit"),
    **_option("keepalive", Option(_U64), "keepalive_secs", "options.keepalive_s"),
    **_option("linger", Option(_U64), "linger_ms", "options.linger_ms"),
    **_option("reuseaddr", _BOOL, "reuse", "options.reuse_address"),
    "[method]tcp-stream.subscribe-readable": _method(_gives(STREAM, POLLABLE, _pollable), _OWN),
    "[method]tcp-stream.read-stream": _method(_gives(STREAM, INPUT_STREAM, LentInput), _OWN),
    "[method]tcp-stream.write-stream": _method(
        _gives(STREAM, OUTPUT_STREAM, lambda stream: LentOutput(stream, stream.writable)), _OWN
    ),
}


def _udp(name: str, run: Callable[..., Any], result: wit.Type, **params: wit.Type) -> dict[str, Published]:
    return {f"[method]udp-socket.{name}": _method(run, result, **params)}


def _set_read_timeout(udp: UdpSocket, timeout_ms: int | None) -> None:
    udp.read_timeout_ms = timeout_ms


_UDP_METHODS = {
    **_udp(
        "send-to",
        _waits(UDP, send_to),
        _fallible(_U32),
        data=BYTES,
        peer_host=STRING,
        peer_port=_U16,
    ),
    **_udp("recv-from", _waits(UDP, receive_from), _fallible(Option(_DATAGRAM)), max_bytes=_U32),
    **_udp("connect", _waits(UDP, connect_udp), _fallible(None), peer_host=STRING, peer_port=_U16),
    **_udp("disconnect", _at_once(UDP, UdpSocket.disconnect), _fallible(None)),
    **_udp(
        "send",
        _waits(UDP, lambda context, udp, data: udp.send(data, Wait.of(CONNECT_S, context.is_over))),
        _fallible(_U32),
        data=BYTES,
    ),
    **_udp("recv", _waits(UDP, receive), _fallible(Option(BYTES)), max_bytes=_U32),
    **_udp("peer-addr", _at_once(UDP, UdpSocket.peer_address), _fallible(Option(STRING))),
    **_udp("set-read-timeout", _at_once(UDP, _set_read_timeout), _fallible(None), timeout_ms=Option(_U64)),
    **_udp("local-addr", _at_once(UDP, UdpSocket.local_address), _fallible(STRING)),
    **_udp("subscribe-readable", _gives(UDP, POLLABLE, _pollable), _OWN),
}

FUNCTIONS = {
    "bind-unix": published(bind_unix, _fallible(_OWN)),
    "bind-tcp": published(bind_tcp, _fallible(_OWN), host=STRING, port=_U16),
    "connect-tcp": published(connect_tcp, _fallible(_OWN), host=STRING, port=_U16),
    "udp-bind": published(udp_bind, _fallible(_OWN), host=STRING, port=_U16),
    "lookup-host": published(look_up, _fallible(ListOf(STRING)), host=STRING),
    **_listener(UNIX_LISTENER),
    **_listener(LISTENER),
    "[method]tcp-listener.local-addr": _method(
        _at_once(LISTENER, TcpListener.local_address), _fallible(STRING)
    ),
    **_STREAM_METHODS,
    **_UDP_METHODS,
}
