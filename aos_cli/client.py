"""Talk to the daemon of one home over its Unix socket: connect, shake hands, exchange requests.

The protocol itself is `aos_runtime.wire` (sans-I/O); this module owns the socket and the clock.  Every
wait has a deadline that the error states.  It starts no daemon (`aos_cli.control.start` does) and writes
nothing to disk. Source: daemon-kernel.md 2.2, 2.7, 5.1; cases LST-03, DMN-03, DMN-17.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from aos_runtime import AOS_VERSION
from aos_runtime.errors import AosError, Denied, PeerFault, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import ANONYMOUS_PRINCIPAL, DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.wire.client import (
    Event,
    Exchange,
    Reply,
    admin_exchange,
    decode_event,
    encode_message,
    kernel_exchange,
)
from aos_runtime.wire.frames import (
    CLIENT_MAX_FRAME_BYTES,
    MAX_HANDSHAKE_BYTES,
    FrameDecoder,
    encode_frame,
)
from aos_runtime.wire.handshake_client import ClientHandshake, ServerHello
from aos_runtime.wire.methods import INACTIVITY_TIMEOUT_S, TOTAL_TIMEOUT_S

CONNECT_TIMEOUT_S = 5.0
HANDSHAKE_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
_CHUNK_BYTES = 256 * 1024
_SEED_BYTES = 32
_TOKEN_MAX_BYTES = 256

T = TypeVar("T")
OnEvent = Callable[[Event], None]
"""Told of what comes beside the reply that is waited for."""


def not_running() -> Unavailable:
    """The error of a command that needs a daemon where none runs."""
    return Unavailable("daemon-not-running", "the daemon is not running", hint="start it with `aos start`")


def new_correlation() -> str:
    """A fresh topic segment that ties replies to one request."""
    return os.urandom(16).hex()


class Connection:
    """One authenticated connection.  Use as a context manager; not for several threads."""

    def __init__(self, stream: socket.socket, decoder: FrameDecoder, server_version: str) -> None:
        self._stream = stream
        self._decoder = decoder
        self.server_version = server_version

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def send(self, exchange: Exchange) -> None:
        """Send a request without waiting for its reply."""
        self._stream.settimeout(HANDSHAKE_TIMEOUT_S)
        _guard(lambda: self._stream.sendall(encode_frame(exchange.request)), "send a request to")

    def wait_reply(
        self,
        exchange: Exchange,
        *,
        inactivity_s: float = INACTIVITY_TIMEOUT_S,
        total_s: float = TOTAL_TIMEOUT_S,
        on_event: OnEvent | None = None,
    ) -> Reply:
        """The final reply to `exchange`; `Working` extends the wait up to `total_s` seconds.

        `on_event` gets everything else that comes, and may take its time: a person may be asked.

        Unavailable `daemon-timeout` names the wait that ended, `daemon-lost` a connection that broke.
        """
        end = time.monotonic() + total_s
        quiet_until = time.monotonic() + inactivity_s
        while True:
            now = time.monotonic()
            if now >= min(end, quiet_until):
                raise _timed_out(total_s if now >= end else inactivity_s)
            for body in self._receive(min(end, quiet_until) - now):
                reply = exchange.receive(body)
                if reply is None:
                    if on_event is not None and self._hand_over(body, on_event):
                        quiet_until = time.monotonic() + inactivity_s
                    continue
                if reply.is_final:
                    return reply
                quiet_until = time.monotonic() + inactivity_s

    def replies(self, exchange: Exchange, *, inactivity_s: float = INACTIVITY_TIMEOUT_S) -> Iterator[Reply]:
        """Every reply to `exchange` but `Working`, without end; errors as of `wait_reply`."""
        quiet_until = time.monotonic() + inactivity_s
        while True:
            left = quiet_until - time.monotonic()
            if left <= 0:
                raise _timed_out(inactivity_s)
            for body in self._receive(left):
                reply = exchange.receive(body)
                if reply is None:
                    continue
                quiet_until = time.monotonic() + inactivity_s
                if reply.status != "Working":
                    yield reply

    def wait_for(self, find: Callable[[bytes], T | None], *, total_s: float) -> T | None:
        """The first thing that `find` makes of a received body; None where nothing came in time."""
        end = time.monotonic() + total_s
        while (left := end - time.monotonic()) > 0:
            for body in self._receive(left):
                found = find(body)
                if found is not None:
                    return found
        return None

    def publish(self, topic: str, payload: Mapping[str, object]) -> None:
        """Send a message that is no request: a person's answer."""
        self._stream.settimeout(HANDSHAKE_TIMEOUT_S)
        frame = encode_frame(encode_message(topic, dict(payload)))
        _guard(lambda: self._stream.sendall(frame), "send an answer to")

    def _hand_over(self, body: bytes, on_event: OnEvent) -> bool:
        event = decode_event(body)
        if event is None:
            return False
        on_event(event)
        return True

    def request(self, exchange: Exchange, *, inactivity_s: float = INACTIVITY_TIMEOUT_S) -> Reply:
        """Send a request and wait for its final reply."""
        self.send(exchange)
        return self.wait_reply(exchange, inactivity_s=inactivity_s)

    def kernel_request(
        self,
        method: str,
        params: dict[str, object] | None = None,
        *,
        inactivity_s: float = INACTIVITY_TIMEOUT_S,
        on_event: OnEvent | None = None,
    ) -> object:
        """The data of a kernel request.  Its `Error` reply is raised (`reply_error`)."""
        exchange = kernel_exchange(method, params, new_correlation())
        self.send(exchange)
        reply = self.wait_reply(exchange, inactivity_s=inactivity_s, on_event=on_event)
        if reply.is_error:
            raise reply_error(reply)
        return reply.data

    def admin_request(self, method: str, params: dict[str, object] | None = None) -> object:
        """The data of an admin request.  Its `Error` reply is raised (`reply_error`)."""
        reply = self.request(admin_exchange(method, params, new_correlation()))
        if reply.is_error:
            raise reply_error(reply)
        return reply.data

    def _receive(self, timeout_s: float) -> list[bytes]:
        self._stream.settimeout(max(0.001, timeout_s))
        try:
            data = self._stream.recv(_CHUNK_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            raise _lost(error.strerror or str(error)) from error
        if not data:
            self._decoder.finish()
            raise _lost("it closed the connection")
        return self._decoder.feed(data)


def connect(home: Home, principal: PrincipalName, *, workspace: Path | None = None) -> Connection:
    """Connect to the daemon of `home` as `principal`, signing with its key where there is one.

    Unavailable `daemon-not-running` only where the socket is absent or refuses; every other failure has
    its own code, because taking a busy daemon for a dead one breeds daemons (case DMN-03).
    """
    stream = _open_socket(home)
    try:
        decoder = FrameDecoder(MAX_HANDSHAKE_BYTES)
        version = _shake_hands(stream, decoder, home, principal, workspace)
        decoder.max_bytes = CLIENT_MAX_FRAME_BYTES
        return Connection(stream, decoder, version)
    except BaseException:
        stream.close()
        raise


def _check_socket_folder(home: Home) -> None:
    """Denied where another user made the folder in /tmp that a deep home has its socket in.

    The token and the signed call that follow are for this user's own daemon.
    """
    folder = home.socket.parent
    if folder == home.run:
        return
    try:
        facts = folder.lstat()
    except OSError:
        return  # connecting says why
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise Denied(
            "socket-foreign",
            f"{folder} was made by another user, or others may write to it",
            hint="remove it, or set AOS_HOME to a shorter path",
            path=str(folder),
        )


def _open_socket(home: Home) -> socket.socket:
    _check_socket_folder(home)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(CONNECT_TIMEOUT_S)
    try:
        stream.connect(os.fspath(home.socket))
    except OSError as error:
        stream.close()
        raise _connect_error(error, home) from error
    return stream


def _connect_error(error: OSError, home: Home) -> AosError:
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
        return not_running()
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unavailable(
            "daemon-permission",
            f"no permission to use the daemon's socket at {home.socket}",
            hint="run aos as the user that started the daemon, or set AOS_HOME to a home of your own",
        )
    if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
        return _timed_out(CONNECT_TIMEOUT_S)
    return Unavailable(
        "daemon-unreachable",
        f"cannot connect to the daemon at {home.socket}: {error.strerror or error}",
        hint="try again; if it stays, run `aos restart`",
    )


def _shake_hands(
    stream: socket.socket, decoder: FrameDecoder, home: Home, principal: PrincipalName, workspace: Path | None
) -> str:
    token = _read_token(home)
    seed = read_seed(home, principal)
    if seed is None and principal not in (DEFAULT_PRINCIPAL, ANONYMOUS_PRINCIPAL):
        raise _no_key(home, principal)
    handshake = ClientHandshake(
        token=token,
        client_version=AOS_VERSION,
        principal=principal if seed is not None else None,
        sign=None if seed is None else _signer(seed),
        workspace=None if workspace is None else str(workspace),
    )
    stream.settimeout(HANDSHAKE_TIMEOUT_S)
    step: bytes | ServerHello = handshake.start()
    while isinstance(step, bytes):
        frame = encode_frame(step)
        _guard(functools.partial(stream.sendall, frame), "shake hands with")
        step = handshake.receive(_one_frame(stream, decoder))
    return step.server_version


def _one_frame(stream: socket.socket, decoder: FrameDecoder) -> bytes:
    end = time.monotonic() + HANDSHAKE_TIMEOUT_S
    while True:
        body = decoder.next_frame()
        if body is not None:
            return body
        if time.monotonic() >= end:
            raise _timed_out(HANDSHAKE_TIMEOUT_S)
        data = _guard(lambda: stream.recv(MAX_HANDSHAKE_BYTES), "shake hands with")
        if not data:
            raise _lost("it closed the connection during the handshake")
        decoder.push(data)


def _read_token(home: Home) -> str:
    try:
        with home.token_file.open("rb") as file:
            return file.read(_TOKEN_MAX_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        raise Unavailable(
            "daemon-starting",
            "the daemon is starting or stopping: its token is not there yet",
            hint="try again in a moment",
        ) from None
    except PermissionError:
        raise Unavailable(
            "daemon-permission",
            f"no permission to read the daemon's token at {home.token_file}",
            hint="run aos as the user that started the daemon, or set AOS_HOME to a home of your own",
        ) from None


def read_seed(home: Home, principal: PrincipalName) -> bytes | None:
    """The signing seed of `principal`, None where there is none that can be read."""
    try:
        with home.principal_key(principal).open("rb") as file:
            seed = file.read(_SEED_BYTES + 1)
    except OSError:
        return None
    return seed if len(seed) == _SEED_BYTES else None


def _no_key(home: Home, principal: PrincipalName) -> Denied:
    return Denied(
        "principal-key-missing",
        f"principal `{principal}` has no key in this home, so the daemon would not know it",
        hint=f"create it with `aos agent create {principal}`, or leave --principal out",
        principal=principal,
    )


def _signer(seed: bytes) -> Callable[[bytes], bytes]:
    def sign(message: bytes) -> bytes:
        from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_seed_keypair

        _, secret = crypto_sign_seed_keypair(seed)
        return crypto_sign(message, secret)[:crypto_sign_BYTES]

    return sign


def _guard(action: Callable[[], T], verb: str) -> T:
    """Run one socket action; say what went wrong in words."""
    try:
        return action()
    except TimeoutError:
        raise _timed_out(HANDSHAKE_TIMEOUT_S) from None
    except OSError as error:
        raise _lost(f"could not {verb} it: {error.strerror or error}") from error


def _timed_out(timeout_s: float) -> Unavailable:
    return Unavailable(
        "daemon-timeout",
        f"the daemon did not answer within {timeout_s:g} s",
        hint="it may be busy: try again, look at `aos logs`, or run `aos restart`",
        timeout_s=timeout_s,
    )


def _lost(reason: str) -> Unavailable:
    return Unavailable(
        "daemon-lost",
        f"the connection to the daemon was lost: {reason}",
        hint="look at `aos status` and `aos logs`, then try again",
    )


def reply_error(reply: Reply) -> AosError:
    """An `Error` reply as an error: a denial, a rate limit or a refusal in the daemon's words."""
    text = reply.data if isinstance(reply.data, str) else "the daemon gave no reason"
    if text.startswith("permission denied"):
        return Denied(
            "permission-denied",
            text,
            hint="use a principal whose profile grants it: --principal NAME, or the key file of this one",
        )
    hint = reply.hint or "look at `aos logs` for what the daemon recorded"
    context = {} if reply.code is None else {"daemon_code": reply.code}
    return PeerFault("daemon-refused", text, hint=hint, **context)
