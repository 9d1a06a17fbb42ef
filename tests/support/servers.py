"""Real servers on loopback that do exactly what a test says, well or badly.

`Web` answers by path; an answer is bytes, or a function that has the connection.  Every thread ends with the
server, whatever a client did.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

WAIT_S = 20.0


@dataclass(frozen=True)
class Request:
    """What came, as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(default=b"")

    def header(self, name: str) -> str | None:
        """The value of a header, whatever its case."""
        return {key.lower(): value for key, value in self.headers}.get(name.lower())


Answer = bytes | Callable[[socket.socket, Request], None]


class Server:
    """A listener whose every connection is given to `serve` on a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self._serve = serve
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._running: dict[threading.Thread, socket.socket] = {}
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._acceptor.join(WAIT_S)
        for thread, connection in tuple(self._running.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            connection.settimeout(WAIT_S)
            thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
            self._running[thread] = connection
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._running[threading.current_thread()] = connection
            self._serve(connection)
            connection.shutdown(socket.SHUT_RDWR)
        except (OSError, EOFError):
            pass  # the client's way to end it
        finally:
            del self._running[threading.current_thread()]
            connection.close()


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(serve, tls)
    try:
        yield server
    finally:
        server.close()


class Web:
    """A small HTTP server; `requests` are what it was asked, in order."""

    def __init__(self, answers: Mapping[str, Answer], tls: ssl.SSLContext | None = None) -> None:
        self.answers = dict(answers)
        self.requests: list[Request] = []
        self._server = Server(self._serve, tls)
        self.port = self._server.port

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def _serve(self, connection: socket.socket) -> None:
        request = read_request(connection)
        self.requests.append(request)
        answer = self.answers.get(request.target.partition("?")[0], NOT_FOUND)
        if isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            answer(connection, request)


def response(body: bytes = b"", status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """A whole response; `length` lies about the body where it is given."""
    size = len(body) if length is None else length
    head = "\r\n".join((f"HTTP/1.1 {status}", *headers, f"Content-Length: {size}"))
    return head.encode() + b"\r\n\r\n" + body


def redirect(location: str, status: int = 302) -> bytes:
    return response(b"moved", f"{status} Moved", f"Location: {location}")


def chunked(*parts: bytes, headers: tuple[str, ...] = (), trailers: tuple[str, ...] = ()) -> bytes:
    """A whole response in chunks."""
    head = "\r\n".join(("HTTP/1.1 200 OK", *headers, "Transfer-Encoding: chunked")).encode() + b"\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    end = "".join(f"{trailer}\r\n" for trailer in trailers).encode()
    return head + body + b"0\r\n" + end + b"\r\n"


NOT_FOUND = response(b"not found", "404 Not Found")


def read_request(connection: socket.socket) -> Request:
    """Read one request, with its body by length or in chunks.  EOFError where it ends before."""
    reader = connection.makefile("rb")
    first, *lines = iter(lambda: _line(reader), "")
    method, target, _ = first.split(" ")
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
    lower = {name.lower(): value for name, value in headers}
    if lower.get("transfer-encoding") == "chunked":
        body = b"".join(iter(lambda: _chunk(reader), b""))
    else:
        body = reader.read(int(lower.get("content-length", 0)))
    return Request(method, target, headers, body)


def _line(reader: object) -> str:
    line: bytes = reader.readline()  # type: ignore[attr-defined]
    if not line:
        raise EOFError
    return line.decode("latin-1").rstrip("\r\n")


def _chunk(reader: object) -> bytes:
    size = int(_line(reader), 16)
    data: bytes = reader.read(size)  # type: ignore[attr-defined]
    _line(reader)
    return data
